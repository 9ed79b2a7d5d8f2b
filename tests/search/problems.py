"""Small problems, drawn, and burstc's predicted step of one: what the scripts here share."""
import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

DEVICES = ["arch sm_80; hbm 2.0 TB/s; matmul bf16 270 TFLOP/s;", "arch sm_90a; hbm 3.35 TB/s; matmul bf16 665 TFLOP/s;"]
MASKS = ["causal", "full", "window(4Ki)", "prefix_lm(2Ki)"]


@dataclass(frozen=True)
class Problem:
    nodes: int
    gpus: int
    nics: int
    device: str
    gbps: float        # of a card
    link: float        # GB/s
    memory: float      # GB of a device
    mask: str
    tokens: int        # Ki
    heads: int
    kv_heads: int

    def topo(self):
        card = f"nic card {{ bandwidth {self.gbps:.6g} Gb/s; latency 5 us; }}\n"
        chip = f"device chip {{ {self.device} memory {self.memory:.6g} GB; }}\n"
        return (card + chip + f"cluster c {{ nodes {self.nodes} {{ gpus {self.gpus} of chip; nics {self.nics} of card; }} "
                f"link nvlink {{ bandwidth {self.link:.6g} GB/s; latency 2 us; }} }}\n")

    def model(self, layout):
        return (f'import "masks";\nmodel m {{ layers 4; hidden {self.heads * 128}; heads {self.heads}; '
                f"kv_heads {self.kv_heads}; head_dim 128; ffn swiglu {self.heads * 384}; vocab 32000; }}\n"
                f"attention {{ default {self.mask}; }}\nsequence {self.tokens}Ki;\nlayout {{ data 1; {layout} }}\n"
                "train { steps 1; batch 1; }\n")


def draw(random_source: random.Random):
    gpus = random_source.choice([2, 4, 8])
    heads = random_source.choice([8, 16, 32])
    return Problem(nodes=random_source.choice([1, 2, 3, 4]), gpus=gpus, nics=random_source.choice([1, 2, gpus]),
                   device=random_source.choice(DEVICES), gbps=random_source.choice([25, 100, 200, 400]),
                   link=random_source.choice([50, 200, 450]), memory=random_source.choice([12, 24, 80]), mask=random_source.choice(MASKS),
                   tokens=random_source.choice([16, 64, 256]), heads=heads,
                   kv_heads=random_source.choice([heads, heads // 4]))


@dataclass
class Answer:
    seconds: float  # of a step
    layout: str


def output_of(burstc, problem, layout, form):
    """None: burstc refuses it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "c.topo").write_text(problem.topo())
        (folder / "m.burst").write_text(problem.model(layout))
        run = subprocess.run([burstc, "c.topo", "m.burst", form], cwd=folder, capture_output=True, text=True)
    return None if run.returncode else run.stdout


def ask(burstc, problem, layout=""):
    """None: burstc refuses it."""
    text = output_of(burstc, problem, layout, "--emit=cost")
    if text is None:
        return None
    step = re.search(r"^step (\S+ ms):", text, re.M)
    return Answer(runner.milliseconds(step[1]) / 1e3, text.splitlines()[1])


def count_faults(description, option, usual, check, verdict, check_known=None):
    """The main of a script: draws as many problems as its option says, and counts those of which check(burstc, problem, source) says
    what is wrong, and what check_known(burstc) says of problems that are not drawn; 1 where anything is."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("burstc", type=pathlib.Path)
    parser.add_argument(f"--{option}", dest="count", type=int, default=usual)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    source, wrong = random.Random(args.seed), 0
    for fault in check_known(args.burstc.resolve()) if check_known else []:
        if fault:
            wrong += 1
            print(f"known: {fault}", flush=True)
    for n in range(args.count):
        fault = check(args.burstc.resolve(), draw(source), source)
        if fault:
            wrong += 1
            print(f"{option} {n}: {fault}", flush=True)
    print(f"{args.count} {option}, {wrong} {verdict}")
    return 1 if wrong else 0


__all__ = ["DEVICES", "Problem", "draw", "ask", "output_of", "count_faults", "replace"]
