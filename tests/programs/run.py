"""gpu-test: emitted programs on the GPUs of this machine. scripts/gpu-test starts it.

    run.py --bundle DIR --out DIR [--gpus N [--share]] part ...

Parts print a line a case; one table of all of them comes last. Exit status: 1 where a bound is missed or something fails, 77
without a GPU.
"""
import argparse
import json
import multiprocessing
import pathlib
import signal
import sys
import time
import traceback

import machine

PARTS = {"numerics": "attention against float64 and beside cuDNN", "gradients": "loss and gradients of whole steps against float64",
         "train": "300 steps of the demo against the host backend",
         "hf": "loss and gradients beside transformers' Llama", "families": "loss and gradients of model families beside transformers",
         "infer": "logits and greedy tokens of model families beside transformers", "latency": "Llama-3-8B shapes: the first token beside PyTorch",
         "scale": "attention on N GPUs against one GPU's kernel",
         "documents": "packed documents: partitions made for each batch beside fixed ones and PyTorch",
         "nodes": "two simulated nodes: right, and waiting as predicted", "step": "Llama-3-8B shapes: time, MFU, memory",
         "packed": "steps on packed documents: partitions made for each batch beside fixed ones and PyTorch",
         "loads": "loads of experts: balance, corrections that move, beside the host backend",
         "memcheck": "small programs under compute-sanitizer"}


def run_part(name, m):
    print(f"== {name}: {PARTS[name]}", flush=True)
    signal.signal(signal.SIGTERM, machine.end_commands)
    try:
        __import__(f"part_{name}").run(m)
    except machine.Failed as error:
        m.failed(name, "failed", error)
    except Exception:  # one broken part leaves the others
        traceback.print_exc()
        m.failed(name, "failed", traceback.format_exc().strip().splitlines()[-1])


def run_apart(name, args):
    """In a process of its own, so that what torch holds on a GPU goes with the part; its rows."""
    out = pathlib.Path(args.out) / name
    (out / "rows.json").unlink(missing_ok=True)
    begin = time.monotonic()
    process = multiprocessing.get_context("fork").Process(
        target=lambda: run_part(name, machine.Machine(args.bundle, args.gpus, out, args.jobs, args.share)))
    process.start()
    process.join()
    print(f"== {name}: {time.monotonic() - begin:.0f} s", flush=True)
    path = out / "rows.json"
    rows = [machine.Row(*row) for row in json.loads(path.read_text())] if path.exists() else []
    if process.exitcode != 0 or not rows:
        rows.append(machine.Row(name, "the part itself", f"ended with {process.exitcode} after {len(rows)} lines", "", False))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--out", required=True, help="programs and logs")
    parser.add_argument("--gpus", type=int, help="how many to use; all otherwise")
    parser.add_argument("--share", action="store_true", help="N may be more than there are: ranks share them; no times")
    parser.add_argument("--jobs", type=int, help="compilations at once; as many as processors otherwise")
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    args = parser.parse_args()
    names = machine.gpu_names()
    if not names:
        print("gpu-test: no GPU here", file=sys.stderr)
        return machine.NO_GPU
    timed = sorted({"scale", "documents", "step", "packed", "latency"} & set(args.parts))
    if args.share and timed:
        parser.error(f"--share: {' and '.join(timed)} measure times, and those of ranks that share GPUs say nothing")
    if args.gpus and args.gpus > len(names) and not args.share:
        print(f"gpu-test: {args.gpus} GPUs are asked for, and this machine has {len(names)}", file=sys.stderr)
        return machine.NO_GPU
    args.gpus = args.gpus or len(names)
    print(f"{args.gpus} of {len(names)} x {names[0]}{', shared' if args.share else ''}", flush=True)
    rows = [row for part in args.parts for row in run_apart(part, args)]
    print("\n== table")
    print(machine.table(rows, pathlib.Path(args.out) / "table.txt"))
    bad = sum(row.good is False for row in rows)
    print(f"{sum(row.good is True for row in rows)} bounds kept, {bad} missed or failed; logs: {args.out}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
