#!/usr/bin/env bash
# Builds gpu_check without CMake on a machine that has nvcc, NCCL and gcc, and none of the host backend's libraries:
#     standalone.sh FOLDER [ARCHITECTURE: 90a]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$1 arch=${2:-90a}
mkdir -p "$out"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
include=(-I"$root/runtime" -I"$root/runtime/host" -I"$root/runtime/cuda")
pids=()
for f in "$root"/runtime/cuda/*.cu "$root"/tests/gpu/*.cu; do
    "$nvcc" -std=c++17 -O3 -gencode "arch=compute_$arch,code=sm_$arch" "${include[@]}" -c "$f" -o "$out/$(basename "$f").o" &
    pids+=($!)
    if [ $((${#pids[@]} % $(nproc))) -eq 0 ]; then wait "${pids[-1]}"; fi
done
for f in context spans trace_file forecast weights collective data host/message host/region host/watchdog host/launch host/place host/hmac host/handshake host/members host/mesh host/rendezvous host/share host/socket host/tcp host/ops_adamw host/ops_elementwise cuda/host_side; do
    gcc -std=gnu17 -D_GNU_SOURCE -O2 "${include[@]}" -c "$root/runtime/$f.c" -o "$out/$(basename "$f").o"
done
# The optimizer and the layer run on the device: no BLAS to set up.
echo 'void burst_blas_setup(void); void burst_blas_setup(void) {}' | gcc -x c -c - -o "$out/no_blas.o"
for pid in "${pids[@]}"; do wait "$pid"; done
"$nvcc" "$out"/*.o -o "$out/gpu_check" -lnccl -lcublasLt -lcudart -lm -lpthread
