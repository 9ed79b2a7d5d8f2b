"""One training step of Llama-3-8B shapes (examples/llama8b_128k.burst): seconds, MFU, memory beside what was predicted.

MFU: the plan's count of operations (backward twice forward, causal attention by unmasked pairs) over 989 TFLOP/s a GPU. Memory:
what the program reads of its devices (metrics) where it does, else what nvidia-smi sees in use on the fullest GPU. Where
BURST_PEER_STEP names a script for torchrun, it runs after ours in the same call, with the arguments in BURST_PEER_STEP_ARGS
("131072 8 ulysses sac compile"). BURST_STEP_TOKENS: other lengths than 128Ki ("32Ki 64Ki"), BURST_STEP_RECOMPUTE: other rules than
the example's ("none selective full"; on one GPU what fits), each length with each rule.
"""
import itertools
import json
import os
import re
import subprocess
import sys
import threading

import machine

STEPS, WARM, PEAK = 6, 2, 989e12
OWN_BYTES = 64 << 20  # BURST_GPU_OWN_BYTES
MEMORY_LIMIT = 0.05


class Watch(threading.Thread):
    """The most memory in use on any GPU, read four times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.done = 0, threading.Event()

    def run(self):
        while not self.done.wait(0.25):
            text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True, check=False).stdout
            self.most = max([self.most, *(int(line) for line in text.split() if line.isdigit())])


def step_text(gpus, tokens, rule):
    text = (machine.ROOT / "examples/llama8b_128k.burst").read_text()
    text = re.sub(r"sequence \w+;", f"sequence {tokens};", text)
    text = text.replace("recompute none", f"recompute {rule}")
    return re.sub(r"context \d+;", f"context {gpus};", text)


def add_memory(m, case, row, seen, source):
    """row: of the metrics; seen: nvidia-smi's; what the plan takes on the device stands in its text."""
    used = row.get("memory_bytes", seen)
    counted = int(re.search(r"#define PLAN_DEVICE_BYTES \(?\(?(?:size_t\)?)?(\d+)", source.read_text())[1])
    predicted = row.get("predicted_memory_bytes", counted + OWN_BYTES)
    if not used:
        m.add("step", f"{case}: memory", "not read")
        return
    apart = predicted / used - 1
    m.add("step", f"{case}: memory", f"{used / 2**30:.2f} GiB in use (nvidia-smi: {seen / 2**30:.2f}), "
          f"predicted {predicted / 2**30:.2f} GiB ({100 * apart:+.1f} %)",
          f"within {100 * MEMORY_LIMIT:.0f} %", abs(apart) <= MEMORY_LIMIT)


def build(m, case):
    """The program's source and itself, and what was predicted."""
    topo = machine.gpu_topology(1, m.gpus)
    text = step_text(m.gpus, *case)
    name = "step_" + "_".join(case)
    source = m.emit(name, topo, text)
    return source, m.link(source), m.cost(f"{name}_cost", topo, text)


def ours(m, case, source, program, cost):
    flops = float(re.search(r"([\d.e+]+) FLOP on all ranks", cost)[1])
    print("    " + "\n    ".join(cost.splitlines()[2:14]))
    metrics = m.work / f"{program.name}.jsonl"
    metrics.unlink(missing_ok=True)
    watch = Watch()
    watch.start()
    m.run([program, "--steps", STEPS, "--metrics", metrics, "--quiet"], program.name, 200)
    watch.done.set()
    rows = [json.loads(line) for line in metrics.read_text().splitlines()][WARM:]
    seconds = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    tokens = rows[0]["tokens_per_second"] * rows[0]["seconds"]
    m.add("step", f"{case}: burstc on {m.gpus} GPUs", f"{seconds:.3f} s a step, {tokens / seconds / m.gpus:.0f} tokens/s/GPU, MFU "
          f"{100 * flops / seconds / m.gpus / PEAK:.1f} %; predicted {rows[0]['predicted']:.3f} s", "MFU >= 30 %",
          flops / seconds / m.gpus / PEAK >= 0.30)
    add_memory(m, case, rows[-1], watch.most * 2**20, source)


def trace(m, program):
    """The table of parts that --trace prints, where the program has that option."""
    code, text = m.run([program, "--steps", 3, "--trace", m.out / f"{program.name}.json"], f"{program.name}.trace", 200,
                       check=False)
    if code == 0:
        print("    " + "\n    ".join(text.splitlines()))
    else:
        print(f"    no trace: {machine.tail(text, 1)}")


def peer(m):
    script = os.environ.get("BURST_PEER_STEP")
    if not script:
        m.add("step", "peer", "none: BURST_PEER_STEP names no script")
        return
    words = os.environ.get("BURST_PEER_STEP_ARGS", "131072 8 ulysses sac compile").split()
    code, text = m.run([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={m.gpus}", script, *words],
                       "peer_step", 400, check=False)
    lines = [line for line in text.splitlines() if "MFU" in line or "OOM" in line]
    m.add("step", "peer", lines[0] if lines and code == 0 else f"ended with {code}: {machine.tail(text, 1)}")


def run(m):
    lengths = os.environ.get("BURST_STEP_TOKENS", "128Ki" if m.gpus >= 4 else "").split()
    rules = os.environ.get("BURST_STEP_RECOMPUTE", "auto" if m.gpus == 1 else "none").split()
    if not lengths:
        m.add("step", "not run", "128Ki tokens of these shapes need 4 GPUs")
        return
    built = dict(m.all(lambda case: build(m, case), list(itertools.product(lengths, rules))))
    for case in itertools.product(lengths, rules):
        name = f"{case[0]}, recompute {case[1]}"
        try:
            if isinstance(built[case], machine.Failed):
                raise built[case]
            ours(m, name, *built[case])
            trace(m, built[case][1])
        except machine.Failed as error:
            m.failed("step", name, error)
    peer(m)
