#!/bin/sh
# Measures the trainer on several GPUs of this machine, in one run:
#
#     benchmarks/trainer_gpus.sh DATA OUT [RANKS]
#
# DATA is a folder with cifar-10-batches-py; OUT gets JSON files, and result.json made of them. RANKS is the most ranks:
# 1, 2, 4 and 8 are measured as far as that (default: as many as there are GPUs). For each exchange (Horovod over NCCL,
# where it can be built; torch.distributed over NCCL): parity certificates, and images a second at 1,024 and 4,096
# pictures a card, with the seconds of the first steps. Needs PyTorch for CUDA and Keras; for Horovod also nvcc, cmake
# and g++.
set -eu
data=$1 out=$2
most=${3:-$(python3 -c 'import torch; print(torch.cuda.device_count())')}
# NVLink multicast stays off: where a host is shared, a program that uses it can put its GPUs out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export KERAS_BACKEND=torch PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
ranks=1
for count in 2 4 8; do
    [ "$count" -le "$most" ] && ranks=$ranks,$count
done
mkdir -p "$out"
exchanges="horovod torch"
if ! python3 -m batchhvd.trainer.install --backend torch --nccl > "$out/install.log" 2>&1; then
    echo "Horovod was not built, so only torch.distributed is measured; see $out/install.log"
    exchanges=torch
fi
for exchange in $exchanges; do
    export BATCHHVD_EXCHANGE="$exchange"
    python3 -m batchhvd.trainer parity --ranks "$ranks" --dir "$out/$exchange"
    for batch in 4096 1024; do
        python3 -m batchhvd.trainer bench --steps 200 --dataset cifar10 --data-dir "$data" --ranks "$ranks" \
            --batch-size "$batch" --dir "$out/$exchange/batch$batch"
    done
done
python3 benchmarks/gather.py "$out" > "$out/result.json"
