#!/usr/bin/env python3
"""staging.py BURSTC: how many layers stage where `recompute auto` decides it, against every number that the layout may have."""
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

CASES, APART = 8, 5e-3  # of a step: levels of what is saved are not quite the same bytes for each number
TOPOLOGY = """cluster c {{ nodes 1 {{ gpus 4 of a100; }} }}
host {{ memory {memory} GB; pcie 32 GB/s; cores 64; }}
"""
MODEL = """import "masks";
model m {{ layers {layers}; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; vocab 32000; }}
attention {{ default causal; }}
sequence {sequence}Ki;
layout {{ data 1; {schedule}; partition contiguous; recompute auto; {chunks}; offload activations{staged}; weights zero3; }}
train {{ }}
"""


def draw(seed):
    rng = random.Random(seed)
    return dict(layers=rng.choice((4, 6, 8, 12)), memory=rng.choice((200, 400, 800)), sequence=rng.choice((256, 512, 1024)),
                schedule=rng.choice(("heads 4; schedule ulysses", "context 4; schedule ring; travel keys")),
                chunks=rng.choice(("token chunks 16, attention; fetch layers", "token chunks 8", "ffn chunks 8")))


def step(folder, case, staged):
    """Milliseconds, or None where the layout does not fit."""
    (folder / "c.topo").write_text(TOPOLOGY.format(**case))
    (folder / "m.burst").write_text(MODEL.format(**case, staged=staged))
    done = runner.run([sys.argv[1], "c.topo", "m.burst", "--emit=cost"], 60, check=False, cwd=folder)
    found = re.search(r"^step (\S+ ms):", done.stdout, re.M)
    runner.require(found or "proof 6" in done.stderr, f"{case}{staged}: {done.stderr}")
    return runner.milliseconds(found[1]) if found else None


def check(case):
    with runner.folder() as folder:
        found = step(folder, case, "")
        fixed = [step(folder, case, f", layers {n}") for n in range(1, case["layers"] - 1)]
    best = min((x for x in fixed if x), default=found)
    runner.require(found if best else not found, f"a number of layers fits, and auto has none: {fixed}")
    runner.require(not best or found <= best * (1 + APART), f"a step takes {found} ms, and one with another number {best} ms")
    print(f"{case}: {found} ms, the best number {best}", flush=True)


if __name__ == "__main__":
    sys.exit(runner.run_parts({str(seed): lambda seed=seed: check(draw(seed)) for seed in range(CASES)}) > 0)
