#!/usr/bin/env bash
# launch.sh GPU_CHECK RANKS.PY: which device a rank takes as torchrun would start it, what is said where there is none, and the
# runtime over ranks that met by TCP. Without a device only what is said of that is tested, with one device what it allows.
set -uo pipefail
program=$1 ranks=$2
. "$(dirname "$2")/check.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES BURST_HOSTID BURST_SHARE_GPUS

expect() { # expect CODE TEXT COMMAND...
    local wanted=$1 text=$2 output code
    shift 2
    output=$(timeout "$(scaled_timeout 100)" "$@" 2>&1)
    code=$?
    if [ $code -ne "$wanted" ] || ! grep -q -- "$text" <<<"$output"; then
        printf 'FAILED: %s ended with %d, and not with %d and "%s":\n%s\n' "$*" $code "$wanted" "$text" "$output"
        exit 1
    fi
    printf 'ok: %s\n' "$(grep -m 1 -- "$text" <<<"$output")"
}

# No device is visible: the same as none.
expect 3 "no CUDA device found" env CUDA_VISIBLE_DEVICES= "$program" open 1
expect 3 "no CUDA device found" "$ranks" --set CUDA_VISIBLE_DEVICES= 2 "$program" open 2
expect 2 "BURST_SHARE_GPUS is 'yes', expected 0 or 1" "$ranks" --set BURST_SHARE_GPUS=yes 2 "$program" open 2
expect 2 "rank 1 has a different BURST_SHARE_GPUS: 1, rank 0 has 0" "$ranks" --set BURST_SHARE_GPUS=0,1 2 "$program" open 2
devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || true
[ "$devices" -ge 1 ] || { echo "no device: the rest is left out"; exit 0; }

expect 0 "ok" "$ranks" 1 "$program" open 1
expect 3 "use the same CUDA device" "$ranks" --set CUDA_VISIBLE_DEVICES=0 2 "$program" open 2
shared=(--set CUDA_VISIBLE_DEVICES=0 --set BURST_SHARE_GPUS=1)
expect 0 "ok" "$ranks" "${shared[@]}" 2 "$program" check 2
expect 0 "ok" "$ranks" "${shared[@]}" --set BURST_TRANSPORT=nccl 2 "$program" transfers 2
expect 0 "ok" "$ranks" "${shared[@]}" --set BURST_TRANSPORT=peer 2 "$program" transfers 2
[ "$devices" -ge 2 ] || { echo "one device: the rest is left out"; exit 0; }
expect 0 "ok" "$ranks" 2 "$program" check 2
expect 0 "ok" "$ranks" --set CUDA_VISIBLE_DEVICES=1,0 2 "$program" open 2
expect 0 "ok" "$ranks" --set LOCAL_RANK=1,0 2 "$program" open 2
expect 3 "has local rank 2, but 2 CUDA devices are visible" "$ranks" --set CUDA_VISIBLE_DEVICES=0,1 --set LOCAL_RANK=0,1,2 3 "$program" open 3
apart=(--hosts 2 --set LOCAL_RANK=0,1 --set LOCAL_WORLD_SIZE=-)
expect 0 "ok" "$ranks" "${apart[@]}" 2 "$program" check 2
expect 1 "lost rank 1" "$ranks" "${apart[@]}" 2 bash -c '"$0" lost 2 --timeout 60; exit 1' "$program"
