# lib.sh: what the other scripts share. Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BURST_BUILD:-$root/build}

say() { printf '\n== %s\n' "$*"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "error: installing packages needs root or sudo: $*" >&2; exit 1
    fi
}

# Packages by the file or command that shows that they are there: only what is missing is installed.
build_packages='gcc:gcc cmake:cmake ninja:ninja-build flex:flex bison:bison pkg-config:pkg-config
/usr/lib/x86_64-linux-gnu/libopenblas.so:libopenblas-pthread-dev /usr/include/zlib.h:zlib1g-dev
/usr/include/jansson.h:libjansson-dev /usr/include/sodium.h:libsodium-dev mpicc:libopenmpi-dev mpirun:openmpi-bin
/usr/lib/llvm-19/include/clang-c/Index.h:libclang-19-dev'
test_packages='g++:g++ /usr/include/cmocka.h:libcmocka-dev clang-19:clang-19
/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-x86_64.a:libclang-rt-19-dev
FileCheck-19:llvm-19-tools python3:python3 ip:iproute2 ctest:cmake tcc:tcc'

install_missing() {
    local missing=() entry
    for entry in "$@"; do
        local sign=${entry%%:*} package=${entry#*:}
        if [ "${sign#/}" != "$sign" ]; then [ -e "$sign" ] || missing+=("$package")
        else command -v "$sign" >/dev/null || [ -x "/sbin/$sign" ] || missing+=("$package")
        fi
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Installs PyTorch and transformers, which some tests compare with, if python3 does not have them: once, in the background
# of the build and the first tests, into BURST_TORCH (default: in the user's cache; "no": not at all).
# tests/lib/wait_torch.sh waits for them. Prints cmake's option.
start_torch() {
    local torch=${BURST_TORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/burst/torch} wanted=$root/tests/requirements.txt
    [ "$torch" != no ] || return 0
    python3 -c 'import torch, transformers' 2>/dev/null && return
    mkdir -p "$build" "$(dirname "$torch")"
    python3 -c 'import ensurepip' 2>/dev/null || install_missing /no/such/file:python3-venv
    if ! [ -x "$torch/bin/python" ] && ! python3 -m venv "$torch" >"$build/torch.log" 2>&1; then
        echo "error: cannot make a Python environment in $torch; see $build/torch.log, or set BURST_TORCH=no" >&2
        exit 1
    fi
    echo "-DPython3_EXECUTABLE=$torch/bin/python"
    # An import of transformers makes many objects and frees few: the collector took a fifth of its time.
    echo 'import gc; gc.set_threshold(100000)' >"$(echo "$torch"/lib/python3*/site-packages)/collect_less.pth"
    cmp -s "$wanted" "$torch/installed.txt" && return
    say "installing PyTorch and transformers in $torch (5 GB), beside the build; BURST_TORCH=no skips the tests that need them" >&2
    {
        flock 9
        cmp -s "$wanted" "$torch/installed.txt" ||
            { "$torch/bin/python" -m pip install -q --no-compile -r "$wanted" && cp "$wanted" "$torch/installed.txt"; }
    } 9>"$torch.lock" >"$build/torch.log" 2>&1 &
    echo $! >"$build/torch.pid"
}

# configure_and_build [cmake options]: everything, or the array `targets`.
targets=()
configure_and_build() {
    local log=$build/build.log
    mkdir -p "$build"
    say "building in $build"
    if ! { cmake -S "$root" -B "$build" -G Ninja "$@" && ninja -C "$build" "${targets[@]}"; } >"$log" 2>&1; then
        tail -40 "$log" >&2
        echo "error: the build failed; all of it is in $log" >&2
        exit 1
    fi
}

# Where nvcc came without cuobjdump, which shows the instructions of compiled kernels: NVIDIA's wheels have it.
find_cuobjdump() {
    local nvcc tools=$build/cuda-tools
    nvcc=$(command -v nvcc) || return 0
    command -v cuobjdump >/dev/null || [ -x "$(dirname "$nvcc")/cuobjdump" ] && return
    [ -x "$(echo "$tools"/nvidia/cu*/bin/nvdisasm)" ] ||
        python3 -m pip install -q --target "$tools" nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm >"$build/cuda-tools.log" 2>&1 || return 0
    PATH=$(dirname "$tools"/nvidia/cu*/bin/nvdisasm):$PATH
    export PATH
}
