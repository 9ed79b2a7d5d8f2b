"""Llama-3-8B shapes, 32 layers, bf16, random weights: seconds to the first token at 32Ki and 128Ki tokens, beside PyTorch
(benchmarks/prefill_torch.py) in the same call, and the memory rate of further tokens. BURST_LATENCY_TOKENS: other lengths ("32Ki 128Ki").
BURST_LATENCY_LAYERS: other than 32. BURST_LATENCY_PEER: no: without the peer. BURST_LATENCY_PRODUCTS: split, whole (auto).
"""
import json
import os
import random
import re
import sys

import machine

TOKENS, RUNS, VOCAB = 64, 3, 128256
GOALS = {32 << 10: 1.12, 128 << 10: 1.18}  # times as fast as the peer
RATE = 0.75  # of the memory's: weights and cache, a token
SHAPE = ("layers {layers}; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; norm rmsnorm 1e-5; rope 500000; vocab 128256; "
         "tied no;")
HBM = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.0e12}


def whole(text):
    return int(text.replace("Ki", "")) * (1024 if text.endswith("Ki") else 1)


def products():
    how = os.environ.get("BURST_LATENCY_PRODUCTS", "auto")
    return "" if how == "auto" else f" products {how};"


def ours(m, lengths, layers):
    """{length: (seconds to the first token, seconds of each further one)} with cost's, medians after one that warms up."""
    text = (f'import "masks";\nmodel llama8b {{ {SHAPE.format(layers=layers)} }}\nattention {{ default causal; }}\n'
            f'infer {{ lengths {", ".join(map(str, lengths))}; tokens {TOKENS};{products()} }}\n')
    topo = machine.gpu_topology(1, m.gpus)
    program, cost = m.link(m.emit("latency", topo, text)), m.cost("latency_cost", topo, text)
    print("    " + "\n    ".join(line for line in cost.splitlines() if "token" in line), flush=True)
    prompts = m.work / "latency.jsonl"
    draw = random.Random(1)
    prompts.write_text("".join(json.dumps({"prompt": [draw.randrange(VOCAB) for _ in range(n)]}) + "\n" for n in lengths for _ in range(RUNS)))
    out = m.run([program, "--prompts", prompts], "latency", 400)[1]
    ends = [json.loads(line) for line in out.splitlines() if '"token_seconds"' in line]
    found = {}
    for n in lengths:
        rows = [row for row in ends if row["length"] == n][1:]
        middle = lambda name: sorted(row[name] for row in rows)[len(rows) // 2]
        found[n] = (middle("first_token_seconds"), middle("token_seconds"))
    return found


def peer(m, lengths, layers):
    """{length: seconds}"""
    script = machine.ROOT / "benchmarks/prefill_torch.py"
    out = m.run([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={m.gpus}", script, layers, *lengths], "latency_peer", 400)[1]
    print("    " + "\n    ".join(line for line in out.splitlines() if "prefill" in line), flush=True)
    return {int(n): float(seconds) for n, seconds in re.findall(r"prefill of (\d+) tokens: ([\d.]+) s", out)}


def token_bytes(layers, length):
    """What a further token reads: weights of layers and head, keys and values."""
    layer = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
    return 2 * (layers * layer + 4096 * VOCAB + layers * length * 2 * 1024)


def add_ours(m, layers, found):
    name = machine.gpu_names()[0]
    memory = next((rate for word, rate in HBM.items() if word in name), None)
    for n, (first, each) in found.items():
        m.add("latency", f"{n} tokens on {m.gpus} GPUs: first token", f"{first:.3f} s")
        rate = token_bytes(layers, n) / m.gpus / each
        share = rate / memory if memory else None
        bounded = share and n == max(found)
        m.add("latency", f"{n} tokens on {m.gpus} GPUs: each further token", f"{1e3 * each:.2f} ms, {rate / 1e12:.2f} TB/s of weights and cache a GPU"
              + (f", {share:.2f} of the memory's rate" if share else ""), f">= {RATE}" if bounded else "", share >= RATE if bounded else None)


def run(m):
    lengths = [whole(word) for word in os.environ.get("BURST_LATENCY_TOKENS", "32Ki 128Ki").split()]
    layers = int(os.environ.get("BURST_LATENCY_LAYERS", 32))
    found = ours(m, lengths, layers)
    add_ours(m, layers, found)
    for n, seconds in ({} if os.environ.get("BURST_LATENCY_PEER") == "no" else peer(m, lengths, layers)).items():
        times, goal = seconds / found[n][0], GOALS.get(n) if layers == 32 else None
        m.add("latency", f"{n} tokens on {m.gpus} GPUs: beside PyTorch", f"{seconds:.3f} s: ours is {times:.3f} x as fast", f">= {goal} x" if goal else "",
              times >= goal if goal else None)
