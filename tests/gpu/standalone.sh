#!/usr/bin/env bash
# Builds gpu_check without CMake on a machine that has nvcc, NCCL and OpenBLAS, on what `gpu-test --prepare BUNDLE` made elsewhere:
#     standalone.sh BUNDLE FOLDER [ARCHITECTURE: 90a] [OBJECT ...: linked instead of the runtime's own]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bundle=$(cd "$1" && pwd) out=$2 arch=${3:-90a}
mkdir -p "$out"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
pids=()
for f in "$root"/tests/gpu/*.cu; do
    "$nvcc" -std=c++17 -O3 -gencode "arch=compute_$arch,code=sm_$arch" -I"$root/runtime" -I"$root/runtime/include" \
        -c "$f" -o "$out/$(basename "$f").o" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
libraries=$(sed "s#^\.\./\.\./lib/#$bundle/lib/#" "$bundle/share/burstc/link_cuda.txt")
"$nvcc" "$out"/*.cu.o "${@:4}" $libraries -o "$out/gpu_check"
