#!/usr/bin/env python3
"""Times of searches with everything open: a table of docs/performance.md.

    search_times.py BURSTC [--only WORD ...] [--cores N]

Nodes have 8 H100s, a card of 400 Gb/s a GPU and 2 TB of host memory; `data`, `tensor`, `weights`, `offload`, `placement`, `overlap` and what a
layout does not mention are open. Each row runs `burstc c.topo m.burst --emit=cost` alone: seconds that pass, seconds of processor time, and
the largest memory. --cores 1 binds it to one core. The goals are 10 s, 30 s for 16384 GPUs, and 300 MiB. No GPU is needed.
"""
import argparse
import os
import pathlib
import re
import subprocess
import tempfile
import time

SHAPES = {"8B": "layers 32; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; vocab 128256;",
          "70B": "layers 80; hidden 8192; heads 64; kv_heads 8; head_dim 128; ffn swiglu 28672; vocab 128256;"}
LENGTHS = "table doc per token lengths 512 .. 32Ki;\n"
# GPUs, shapes, Mi tokens, batch, masks
CASES = [(64, "8B", 1, 8, ("causal", "window(4Ki)", "document")), (512, "8B", 4, 64, ("causal", "window(4Ki)", "document")),
         (1024, "70B", 4, 64, ("causal", "window(4Ki)")), (4096, "70B", 4, 64, ("causal", "window(4Ki)")), (16384, "70B", 16, 64, ("causal",))]


def inputs(folder, gpus, shapes, tokens, batch, mask):
    drawn = mask == "document"
    (folder / "c.topo").write_text(f"cluster c {{ nodes {gpus // 8} {{ gpus 8 of h100; nics 8 of ndr; }} }}\n"
                                   "host { memory 2 TB; pcie 55 GB/s; }\n")
    (folder / "m.burst").write_text(
        f'import "masks";\nmodel m {{ {SHAPES[shapes]} }}\n{LENGTHS if drawn else ""}attention {{ default {mask}; }}\nsequence {tokens}Mi;\n'
        "layout { data auto; tensor auto; weights auto; offload auto; placement auto; overlap auto; }\n"
        f"train {{ batch {batch}; {'separator 0; ' if drawn else ''}}}\n")


def measure(burstc, folder, cores):
    begun = time.monotonic()
    process = subprocess.Popen([burstc, "c.topo", "m.burst", "--emit=cost"], cwd=folder, stdout=subprocess.PIPE, text=True,
                               preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores]))
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    step = re.search(r"^step (.*?):", text, re.M)
    return (time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024,
            step[1] if step and not status else "failed", text.splitlines()[1] if step else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("burstc", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[], help="rows with all of these words")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    print("| search | s | processor s | MiB | step | layout |\n|---|---|---|---|---|---|")
    for gpus, shapes, tokens, batch, masks in CASES:
        for mask in masks:
            name = f"{gpus}, {shapes}, {tokens}Mi tokens, batch {batch}, {mask}"
            if not all(word in name.split(", ") for word in args.only):
                continue
            with tempfile.TemporaryDirectory() as folder:
                inputs(pathlib.Path(folder), gpus, shapes, tokens, batch, mask)
                seconds, processor, memory, step, layout = measure(args.burstc.resolve(), folder, args.cores)
            print(f"| {name} | {seconds:.1f} | {processor:.1f} | {memory:.0f} | {step} | {layout} |", flush=True)


if __name__ == "__main__":
    main()
