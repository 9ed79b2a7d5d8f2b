"""One training step of Llama-3-8B shapes (examples/llama8b_128k.burst; BURST_STEP_EXAMPLE: of another of its form): seconds, MFU, memory beside what was predicted.

MFU: the plan's count of operations (backward twice forward, causal attention by unmasked pairs) over 989 TFLOP/s a GPU. Memory:
what the program reads of its devices (metrics) where it does, else what nvidia-smi sees in use on the fullest GPU. Where
BURST_PEER_STEP names a script for torchrun, it runs after ours in the same call, with the arguments in BURST_PEER_STEP_ARGS
("131072 8 ulysses sac compile"). BURST_STEP_TOKENS: other lengths than 128Ki ("32Ki 64Ki"), BURST_STEP_RECOMPUTE: other rules than
the example's ("none selective full"; on one GPU what fits), each length with each rule and each layout of BURST_STEP_LAYOUTS (LAYOUTS
below; "ring"). BURST_STEP_LAYERS: other than 8; BURST_STEP_STEPS: other than 6, of which the first two warm up. BURST_STEP_CLUSTER: a
cluster's file, such as `burstc probe gpus N` writes; else the stock devices. BURST_STEP_TRACED: one run of each program, which is traced too.
"""
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import machine

STEPS, WARM, PEAK = int(os.environ.get("BURST_STEP_STEPS", 6)), 2, 989e12
OWN_BYTES = 64 << 20  # BURST_GPU_OWN_BYTES
MEMORY_LIMIT = 0.05
LAYOUTS = {  # of the example's text: what is written instead
    "ring": [], "tensor": [(r"context \d+; heads 1; schedule ring; partition zigzag;", "tensor {gpus}; context 1; heads 1; schedule ring; partition contiguous;")], "window": [("default causal", "default window(8192)")],
    "documents": [("attention { default causal", "mask apart = k <= q and q / 4096 == k / 4096;\nattention {{ default apart")],
    "ulysses": [(r"context \d+; heads 1; schedule ring; partition zigzag", "context 1; heads {gpus}; schedule ulysses; partition contiguous")],
    "zero2": [("recompute", "weights zero2; recompute")], "zero3": [("recompute", "weights zero3; recompute")]}


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


def step_text(gpus, tokens, rule, layout):
    text = (machine.ROOT / "examples" / os.environ.get("BURST_STEP_EXAMPLE", "llama8b_128k.burst")).read_text()
    text = re.sub(r"sequence \w+;", f"sequence {tokens};", text)
    text = text.replace("recompute none", f"recompute {rule}")
    if "BURST_STEP_LAYERS" in os.environ:
        text = re.sub(r"layers \d+;", f"layers {os.environ['BURST_STEP_LAYERS']};", text)
    text = re.sub(r"context \d+;", f"context {gpus};", text)
    for old, new in LAYOUTS[layout]:
        text, count = re.subn(old, new.format(gpus=gpus), text)
        if count != 1:
            raise machine.Failed(f"{old} stands {count} times in the example")
    return text


def add_memory(m, part, case, row, seen, source):
    """row: of the metrics; seen: nvidia-smi's; what the plan takes on the device stands in its text."""
    used = row.get("memory_bytes", seen)
    counted = int(re.search(r"#define PLAN_DEVICE_BYTES \(?\(?(?:size_t\)?)?(\d+)", source.read_text())[1])
    predicted = row.get("predicted_memory_bytes", counted + OWN_BYTES)
    if not used:
        m.add(part, f"{case}: memory", "not read")
        return
    apart = predicted / used - 1
    m.add(part, f"{case}: memory", f"{used / 2**30:.2f} GiB in use (nvidia-smi: {seen / 2**30:.2f}), "
          f"predicted {predicted / 2**30:.2f} GiB ({100 * apart:+.1f} %)",
          f"within {100 * MEMORY_LIMIT:.0f} %", abs(apart) <= MEMORY_LIMIT)


def cluster(m):
    given = os.environ.get("BURST_STEP_CLUSTER")
    return pathlib.Path(given).read_text() if given else machine.gpu_topology(1, m.gpus)


def build(m, case):
    """The program's source and itself, and what was predicted."""
    topo, text = cluster(m), step_text(m.gpus, *case)
    name = "step_" + "_".join(case)
    source = m.emit(name, topo, text)
    return source, m.link(source), m.cost(f"{name}_cost", topo, text)


def trained(m, program, steps):
    """The metrics of each step, the most bytes that nvidia-smi saw in use on a GPU, and what the program says."""
    metrics = m.work / f"{program.name}.jsonl"
    metrics.unlink(missing_ok=True)
    watch = Watch()
    watch.start()
    traced = ["--trace", m.out / f"{program.name}.json"] if os.environ.get("BURST_STEP_TRACED") else []
    text = m.run([program, "--steps", steps, "--metrics", metrics, "--quiet", *traced], program.name, 200)[1]
    watch.done.set()
    if traced:
        print("    " + "\n    ".join(text.splitlines()))
    return [json.loads(line) for line in metrics.read_text().splitlines()], watch.most * 2**20, text


def add_links(m, part, case, text):
    """What the program says of links at its start: a line for each that is slower than the topology's."""
    if m.gpus < 2:
        return
    slow = re.findall(r"rank \d+ -> \d+: measured .*? from the topology", text)
    m.add(part, f"{case}: links", slow[0] if slow else "as the topology says", "none reported as slow", not slow)


def ours(m, case, source, program, cost):
    flops = float(re.search(r"([\d.e+]+) FLOP on all ranks", cost)[1])
    print("    " + "\n    ".join(cost.splitlines()[2:14]))
    rows, seen, text = trained(m, program, STEPS)
    rows = rows[WARM:]
    add_links(m, "step", case, text)
    seconds = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    tokens = rows[0]["tokens_per_second"] * rows[0]["seconds"]
    m.add("step", f"{case}: burstc on {m.gpus} GPUs", f"{seconds:.3f} s a step, {tokens / seconds / m.gpus:.0f} tokens/s/GPU, MFU "
          f"{100 * flops / seconds / m.gpus / PEAK:.1f} %; predicted {rows[0]['predicted']:.3f} s", "MFU >= 30 %",
          flops / seconds / m.gpus / PEAK >= 0.30)
    add_memory(m, "step", case, rows[-1], seen, source)


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
    cases = list(itertools.product(lengths, rules, os.environ.get("BURST_STEP_LAYOUTS", "ring").split()))
    built = dict(m.all(lambda case: build(m, case), cases))
    for case in cases:
        name = f"{case[0]}, recompute {case[1]}, {case[2]}"
        try:
            if isinstance(built[case], machine.Failed):
                raise built[case]
            ours(m, name, *built[case])
            if not os.environ.get("BURST_STEP_TRACED"):
                trace(m, built[case][1])
        except machine.Failed as error:
            m.failed("step", name, error)
    peer(m)
