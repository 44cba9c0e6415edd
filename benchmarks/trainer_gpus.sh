#!/bin/sh
# Measures the trainer on several GPUs of this machine: benchmarks/trainer_gpus.sh DATA OUT [RANKS]
#
# DATA is a folder with cifar-10-batches-py; OUT gets JSON files, and result.json made of them. Needs PyTorch for CUDA,
# Keras, nvcc, cmake and g++.
set -eu
data=$1 out=$2 ranks=${3:-2}
export KERAS_BACKEND=torch PYTHONPATH="$PWD"
speed() {
    python3 -m batchhvd.trainer bench --steps 200 --dataset cifar10 --data-dir "$data" "$@"
}
mkdir -p "$out"
python3 -m batchhvd.trainer.install --backend torch --nccl
python3 -m batchhvd.trainer parity --ranks "1,$ranks" --dir "$out"
python3 benchmarks/trainer_gpu.py together --ranks "$ranks" --data-dir "$data" --out "$out/together.jsonl"
speed --ranks "1,$ranks" --batch-size 4096 --dir "$out/batch4096"
speed --ranks "1,$ranks" --batch-size 1024 --dir "$out/batch1024"
export HOROVOD_ENABLE_ASYNC_COMPLETION=0
speed --ranks "$ranks" --batch-size 4096 --dir "$out/waiting"
unset HOROVOD_ENABLE_ASYNC_COMPLETION
python3 benchmarks/trainer_gpu.py fast copied ceiling --data-dir "$data" --out "$out/accuracy.jsonl"
for case in 0 1 2 3; do
    python3 benchmarks/trainer_gpu.py search-fast --part "$case/4" --limit 150 --data-dir "$data" --out "$out/accuracy.jsonl"
done
python3 benchmarks/gather.py "$out" > "$out/result.json"
