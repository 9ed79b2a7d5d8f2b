"""One training step of Llama-3-8B shapes (examples/llama8b_128k.burst): seconds, MFU, memory beside what was predicted.

MFU: the plan's count of operations (backward twice forward, causal attention by unmasked pairs) over 989 TFLOP/s a GPU. Memory:
what the program reads of its devices (metrics) where it does, else what nvidia-smi sees in use on the fullest GPU. Where
BURST_PEER_STEP names a script for torchrun, it runs after ours in the same call, with the arguments in BURST_PEER_STEP_ARGS
("131072 8 ulysses sac compile"). BURST_STEP_TOKENS: another length than 128Ki ("32Ki"); on one GPU recomputation is what fits.
"""
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


def step_text(gpus):
    text = (machine.ROOT / "examples/llama8b_128k.burst").read_text()
    text = re.sub(r"sequence \w+;", f"sequence {os.environ.get('BURST_STEP_TOKENS', '128Ki')};", text)
    text = text.replace("recompute none", "recompute auto") if gpus == 1 else text
    return re.sub(r"context \d+;", f"context {gpus};", text)


def add_memory(m, row, seen, source):
    """row: of the metrics; seen: nvidia-smi's; what the plan takes on the device stands in its text."""
    used = row.get("memory_bytes", seen)
    counted = int(re.search(r"#define PLAN_DEVICE_BYTES \(?\(?(?:size_t\)?)?(\d+)", source.read_text())[1])
    predicted = row.get("predicted_memory_bytes", counted + OWN_BYTES)
    if not used:
        m.add("step", "memory", "not read")
        return
    apart = predicted / used - 1
    m.add("step", "memory", f"{used / 2**30:.2f} GiB in use (nvidia-smi: {seen / 2**30:.2f}), "
          f"predicted {predicted / 2**30:.2f} GiB ({100 * apart:+.1f} %)",
          f"within {100 * MEMORY_LIMIT:.0f} %", abs(apart) <= MEMORY_LIMIT)


def ours(m):
    topo = (machine.ROOT / "examples/h200x4.topo").read_text() if m.gpus == 4 else machine.gpu_topology(1, m.gpus)
    source = m.emit("step", topo, step_text(m.gpus))
    program = m.link(source)
    cost = m.cost("step_cost", topo, step_text(m.gpus))
    flops = float(re.search(r"([\d.e+]+) FLOP on all ranks", cost)[1])
    print("    " + "\n    ".join(cost.splitlines()[2:14]))
    metrics = m.work / "step.jsonl"
    metrics.unlink(missing_ok=True)
    watch = Watch()
    watch.start()
    m.run([program, "--steps", STEPS, "--metrics", metrics, "--quiet"], "step", 200)
    watch.done.set()
    rows = [json.loads(line) for line in metrics.read_text().splitlines()][WARM:]
    seconds = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    tokens = rows[0]["tokens_per_second"] * rows[0]["seconds"]
    m.add("step", f"burstc on {m.gpus} GPUs", f"{seconds:.3f} s a step, {tokens / seconds / m.gpus:.0f} tokens/s/GPU, MFU "
          f"{100 * flops / seconds / m.gpus / PEAK:.1f} %; predicted {rows[0]['predicted']:.3f} s", "MFU >= 30 %",
          flops / seconds / m.gpus / PEAK >= 0.30)
    add_memory(m, rows[-1], watch.most * 2**20, source)


def trace(m):
    """The table of parts that --trace prints, where the program has that option."""
    program = m.work / "step"
    code, text = m.run([program, "--steps", 3, "--trace", m.out / "step_trace.json", "--quiet"], "step.trace", 200, check=False)
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
    if m.gpus < 4 and "BURST_STEP_TOKENS" not in os.environ:
        m.add("step", "not run", "128Ki tokens of these shapes need 4 GPUs")
        return
    ours(m)
    trace(m)
    peer(m)
