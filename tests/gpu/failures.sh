#!/usr/bin/env bash
# What a rank says when a message never comes, a peer is killed, a link is slow, memory is not laid out alike, or devices are
# too few, with both transports. 77: no device, or not two.
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

expect crowd "ranks on this host need one CUDA device each, found"
if grep -q "need one CUDA device each" <<<"$("$program" check 2 2>&1)"; then
    echo "one CUDA device: what needs two is left out"
    exit 77
fi
for transport in nccl peer; do
    export BURST_TRANSPORT=$transport
    if "$program" transfers 2 2>&1 | grep -e "--transport peer: "; then
        echo "no peer memory here: its failures are left out"
        break
    fi
    expect stuck "timed out after .* waiting for the device: channel 0 unfinished.*rank 1, step 0 (sleeping)" 2 --timeout 8
    expect lost "lost rank 1.*killed by signal 9" 2 --timeout 60
    expect slow "rank 0 -> 1: measured .* GB/s over .*, expected 1e+06 GB/s from the topology" 2
    if [ $transport = peer ]; then
        expect apart "channel 0: rank . sends rank . 1024 bytes at offset .* of its device memory, but it expects 1024 at" 2
    fi
done
BURST_TRANSPORT=pear expect transfers "BURST_TRANSPORT is 'pear', expected auto, nccl or peer" 2
