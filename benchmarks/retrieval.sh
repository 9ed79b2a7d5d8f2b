#!/usr/bin/env bash
# retrieval.sh FOLDER: a small model learns to retrieve passages over 16Ki tokens with dense, windowed and selected attention, on one GPU: 3 minutes.
#
# burstc is on the PATH or $BURSTC; nvcc, NCCL, python3 with numpy. FOLDER must not be there. Data: passages.py. A short stage learns to retrieve from 4 passages
# (64 sequences of 1Ki tokens a step), then each mask continues from its checkpoint with 64 passages (4 sequences of 16Ki tokens). DEVICE: the stock device (h100). SHORT, LONG: steps (2500, 1000). BLOCKS: of 128 keys that a tile of 128 queries chooses (8).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
burstc=${BURSTC:-burstc} short=${SHORT:-2500} long=${LONG:-1000} topics=64 tokens=65536
length=$((256 * topics)) last=$((short + long)) each=$((tokens / (256 * topics)))
mkdir "${1:?usage: retrieval.sh FOLDER}"
cd "$1"
echo "cluster one { nodes 1 { gpus 1 of ${DEVICE:-h100}; } }" >one.topo

text() { # NAME, definitions, mask, steps, learning rate after the warm-up
    printf '%s\n' 'model passages { layers 4; hidden 256; heads 4; head_dim 64; ffn swiglu 1024; rope 10000; rope layers 1, 3: none; vocab 4096; tied no; }' \
        "$2" "attention { default $3; }" "sequence $tokens;" 'layout { data 1; recompute none; }' \
        "train { batch 1; steps $4; seed 1; optimizer adamw { lr 3e-3; decay 0.1; clip 1.0; warmup 100; $5 } }" >"$1.burst"
}
best() { # KEY: its own keys and the 128 before a query are always there
    echo "select best(n) = top n of k / 128 by dot(first Q, $1 K) for kv_head per 128 queries where chunked($length) always q / 128 == k / 128 or q - k < 128;"
}
text short '' 'chunked(1024)' "$short" 'constant;'
text dense '' "chunked($length)" $last 'linear to 1e-4;'
text window "mask near = chunked($length) and q - k < 2048;" near $last 'linear to 1e-4;'
for key in max mean; do text select_$key "$(best $key)" "best(${BLOCKS:-8})" $last 'linear to 1e-4;'; done

passages() { python3 "$root/benchmarks/passages.py" "$@"; }
made=()
for one in short dense window select_max select_mean; do "$burstc" one.topo $one.burst -o $one & made+=($!); done
passages short.tok 4 $((640 * (tokens / 1024))) both 1
passages long.tok $topics $((last * each)) both 2
passages short_second.tok 4 $((4 * (tokens / 1024))) second 3
passages second.tok $topics $((16 * each)) second 4
for one in "${made[@]}"; do wait "$one"; done

./short --data short.tok --steps "$short" --checkpoint short.d --every 0 --metrics short.jsonl --evaluate short_second.tok --evaluate-every 250 >short.txt
for one in dense select_max select_mean window; do
    ./$one --resume "short.d/step-$(printf %08d "$short").burst" --data long.tok --steps $last --metrics $one.jsonl --evaluate second.tok --evaluate-every 250 >$one.txt
    echo "$one: loss of the second half $(grep -o '"evaluation_loss": [0-9.]*' $one.jsonl | tail -1 | cut -d' ' -f2)"
done
