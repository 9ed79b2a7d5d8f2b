"""gpu-test: emitted programs on the GPUs of this machine. scripts/gpu-test starts it.

    run.py --bundle DIR --out DIR [--gpus N] part ...
    run.py --list

Parts print a line a case; one table of all of them comes last. Exit status: 1 where a bound is missed or something fails, 77
without a GPU.
"""
import argparse
import sys
import time
import traceback

import machine

PARTS = {"numerics": "attention against float64 and beside cuDNN", "train": "300 steps of the demo against the host backend",
         "hf": "loss and gradients beside transformers' Llama", "scale": "attention on N GPUs against one GPU's kernel",
         "nodes": "two simulated nodes: right, and waiting as predicted", "step": "Llama-3-8B shapes: time, MFU, memory"}


def run_part(name, m):
    before = len(m.rows)
    begin = time.monotonic()
    print(f"== {name}: {PARTS[name]}", flush=True)
    try:
        __import__(f"part_{name}").run(m)
    except machine.Failed as error:
        m.add(name, "failed", str(error).replace("\n", " | ")[:400], "", False)
    except Exception:  # one broken part leaves the others
        traceback.print_exc()
        m.add(name, "failed", traceback.format_exc().strip().splitlines()[-1][:300], "", False)
    if len(m.rows) == before:
        m.add(name, "nothing was run", "", "", False)
    print(f"== {name}: {time.monotonic() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--out", required=True, help="programs and logs")
    parser.add_argument("--gpus", type=int, help="how many to use; all otherwise")
    parser.add_argument("--jobs", type=int, help="compilations at once; as many as processors otherwise")
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    args = parser.parse_args()
    names = machine.gpu_names()
    if not names:
        print("gpu-test: no GPU here", file=sys.stderr)
        return machine.NO_GPU
    if args.gpus and args.gpus > len(names):
        print(f"gpu-test: {args.gpus} GPUs are asked for, and this machine has {len(names)}", file=sys.stderr)
        return machine.NO_GPU
    m = machine.Machine(args.bundle, args.gpus or len(names), args.out, args.jobs)
    print(f"{m.gpus} of {len(names)} x {names[0]}, {m.jobs} processors", flush=True)
    for part in args.parts:
        run_part(part, m)
    print("\n== table")
    m.table()
    bad = sum(row.good is False for row in m.rows)
    print(f"{sum(row.good is True for row in m.rows)} bounds kept, {bad} missed or failed; logs: {m.logs}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
