#!/bin/sh
# Measures the trainer on all GPUs of this machine: benchmarks/trainer_gpus.sh DATA OUT [RANKS]
#
# DATA is a folder with cifar-10-batches-py; OUT gets JSON files. Needs PyTorch for CUDA, Keras, nvcc, cmake and g++.
set -eu
data=$1 out=$2 ranks=${3:-2}
export KERAS_BACKEND=torch PYTHONPATH="$PWD"
mkdir -p "$out"
python3 -m batchhvd.trainer.install --backend torch --nccl
python3 -m batchhvd.trainer parity --ranks "1,$ranks" --dir "$out"
python3 benchmarks/trainer_gpu.py together --ranks "$ranks" --data-dir "$data" --out "$out/together.jsonl"
for batch in 4096 1024; do
    python3 -m batchhvd.trainer bench --ranks "1,$ranks" --batch-size $batch --steps 200 \
        --dataset cifar10 --data-dir "$data" --dir "$out/batch$batch"
done
python3 benchmarks/trainer_gpu.py fast copied ceiling --data-dir "$data" --out "$out/accuracy.jsonl"
