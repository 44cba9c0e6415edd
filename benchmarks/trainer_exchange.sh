#!/bin/sh
# Measures the trainer on several GPUs of this machine without Horovod, over torch.distributed and NCCL:
#
#     benchmarks/trainer_exchange.sh OUT [RANKS]
#
# OUT gets parity.json and, for each batch size, bench.json. Pictures are random: only the rate is measured, and that
# the ranks compute what one computes. Needs PyTorch for CUDA and Keras; nothing is built.
set -eu
out=$1 ranks=${2:-2}
export KERAS_BACKEND=torch BATCHHVD_EXCHANGE=torch PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" NCCL_NVLS_ENABLE=0
mkdir -p "$out"
python3 - "$out/random.npz" <<'END'
import sys
import numpy as np
random = np.random.default_rng(0)
part = {f"x_{name}": random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8) for name, count in (("train", 50_000), ("test", 1_000))}
part |= {f"y_{name}": random.integers(0, 10, len(part[f"x_{name}"])) for name in ("train", "test")}
np.savez(sys.argv[1], **part)
END
python3 -m batchhvd.trainer parity --ranks "1,$ranks" --dir "$out"
for batch in 4096 1024; do
    python3 -m batchhvd.trainer bench --steps 200 --dataset "$out/random.npz" --ranks "1,$ranks" --batch-size "$batch" --dir "$out/batch$batch"
done
rm "$out/random.npz"
