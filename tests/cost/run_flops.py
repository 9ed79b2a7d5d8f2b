#!/usr/bin/env python3
"""FLOP of --emit=cost beside a count by hand, whatever the layout: recomputation, chunks, groups of experts and ranks change the time of a
step and not the operations that it is measured by. Three operations a weight and token forward and twice as many backward, experts by those
that a token chooses; attention's pairs are counted one by one.

    run_flops.py BURSTC [--cases N] [--seed S]      drawn anew each day
"""
import argparse
import datetime
import functools
import pathlib
import random
import re
import subprocess
import sys
import tempfile


TOPO = """device chip { arch ARCH; memory 4 TB; MATMUL }
cluster c { nodes 1 { gpus RANKS of chip; } link l { bandwidth 300 GB/s; latency 2 us; } }
host { memory 64 TB; pcie 50 GB/s; cores 64; }
"""
MASKS = {"causal": lambda q, k: k <= q, "full": lambda q, k: True, "window(100)": lambda q, k: 0 <= q - k < 100}
DIGITS = 1e-3  # four are printed


@functools.cache
def pairs(mask, tokens):
    return sum(MASKS[mask](q, k) for q in range(tokens) for k in range(tokens))


def draw(source):
    m = dict(layers=source.choice([1, 2, 5]), hidden=source.choice([256, 768]), heads=source.choice([4, 8]), dim=source.choice([32, 64]),
             ffn=source.choice([128, 640]), vocab=source.choice([512, 1000]), tokens=source.choice([512, 1024]), batch=source.choice([1, 2]),
             mask=source.choice(list(MASKS)), ranks=source.choice([1, 2, 4]), experts=source.choice([0, 0, 8]), top=source.choice([1, 2, 3]),
             arch=source.choice(["cpu", "sm_90a"]), shared=source.random() < 0.3)
    m["kv_heads"] = m["heads"] // source.choice([1, 2])
    settings = {"recompute": ["none", "selective", "full", "full(2)"], "weights": ["zero1", "zero2", "zero3"],
                "token chunks": ["2", "4"], "head chunks": ["2"], "offload": ["optimizer", "activations"], "loss": ["fused"],
                "schedule": ["ring; travel keys", "ulysses", "gather", "ring; travel queries"]}
    if m["ranks"] == 4:
        settings["tensor"] = ["2"]
    if m["experts"]:
        settings["experts"] = ["in 4 groups"]
    drawn = [f"{name} {source.choice(values)};" for name, values in settings.items() if source.random() < 0.4]
    return m, " ".join(["data 1;", *drawn])


def model_of(m, layout):
    shared = f"shared {m['ffn']}; " if m["shared"] else ""
    ffn = f"moe {{ experts 8; top {m['top']}; ffn swiglu {m['ffn']}; {shared}}}" if m["experts"] else f"ffn swiglu {m['ffn']};"
    return (f"import \"masks\";\nmodel m {{ layers {m['layers']}; hidden {m['hidden']}; heads {m['heads']}; kv_heads {m['kv_heads']}; "
            f"head_dim {m['dim']}; {ffn} vocab {m['vocab']}; }}\nattention {{ default {m['mask']}; }}\nsequence {m['tokens']};\n"
            f"layout {{ {layout} }}\ntrain {{ steps 1; batch {m['batch']}; }}\n")


def by_hand(m):
    attended = 12 * pairs(m["mask"], m["tokens"]) * m["heads"] * m["dim"]
    projections = m["hidden"] * m["dim"] * (2 * m["heads"] + 2 * m["kv_heads"])
    ffn = 3 * m["hidden"] * m["ffn"]
    if m["experts"]:
        ffn = m["top"] * ffn + m["hidden"] * m["experts"] + (ffn if m["shared"] else 0)
    weights = m["layers"] * (projections + ffn) + m["hidden"] * m["vocab"]
    return m["batch"] * (6 * m["tokens"] * weights + m["layers"] * attended)


def check(burstc, m, layout, folder):
    """None: burstc refuses it."""
    rate = "hbm 20 GB/s; matmul fp32 50 GFLOP/s;" if m["arch"] == "cpu" else "hbm 3 TB/s; matmul bf16 600 TFLOP/s;"
    (folder / "c.topo").write_text(TOPO.replace("ARCH", m["arch"]).replace("MATMUL", rate).replace("RANKS", str(m["ranks"])))
    (folder / "m.burst").write_text(model_of(m, layout))
    run = subprocess.run([burstc, "c.topo", "m.burst", "--emit=cost"], cwd=folder, capture_output=True, text=True)
    if run.returncode:
        return None
    printed = float(re.search(r"^(\S+) FLOP", run.stdout, re.M)[1])
    if abs(printed / by_hand(m) - 1) <= DIGITS:
        return ""
    return f"{printed:.5g} FLOP, by hand {by_hand(m):.5g}\n{model_of(m, layout)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("burstc", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    args = parser.parse_args()
    source, counted, wrong = random.Random(args.seed), 0, 0
    with tempfile.TemporaryDirectory(prefix="burst_test_") as name:
        for _ in range(args.cases):
            found = check(args.burstc.resolve(), *draw(source), pathlib.Path(name))
            counted += found is not None
            if found:
                wrong += 1
                print(found)
    print(f"{counted} of {args.cases} compile, {wrong} wrong (seed {args.seed})")
    return 1 if wrong or counted < args.cases // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
