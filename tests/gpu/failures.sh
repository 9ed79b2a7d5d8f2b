#!/usr/bin/env bash
# What a rank says when a message never comes, a peer is killed, or devices are too few. 77: no device, or not two.
set -uo pipefail
program=$1

expect() { # expect MODE TEXT ARGUMENTS...
    local mode=$1 text=$2 output
    shift 2
    output=$("$program" "$mode" "$@" 2>&1)
    local code=$?
    if [ $code -eq 77 ]; then
        echo "$output"
        exit 77
    fi
    if [ $code -eq 0 ] || ! grep -q -- "$text" <<<"$output"; then
        printf 'FAILED: %s ended with %d, and not with "%s":\n%s\n' "$mode" $code "$text" "$output"
        exit 1
    fi
    printf '%s: %s\n' "$mode" "$(grep -- "$text" <<<"$output")"
}

expect crowd "ranks on this host need as many CUDA devices, and it has"
if "$program" check 2 2>&1 | grep -q "need as many CUDA devices"; then
    echo "one CUDA device: what needs two is left out"
    exit 77
fi
expect stuck "stuck for .* waiting for the device: channel 0 unfinished.*rank 1, step 0 (sleeping)" 2 --timeout 8
expect lost "lost rank 1.*killed by signal 9" 2 --timeout 60
