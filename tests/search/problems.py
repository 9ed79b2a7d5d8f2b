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
LENGTHS = "100 50\n3000 5\n9000 1\n"  # tokens of a document, and how many have that length


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
    data: str = "data 1; "   # empty: open
    batch: int = 1
    other_mask: str = ""     # of every second layer
    documents: bool = False
    experts: bool = False
    slow_nodes: int = 0      # of the nodes, those with the other device

    def topo(self):
        card = f"nic card {{ bandwidth {self.gbps:.6g} Gb/s; latency 5 us; }}\n"
        chip = f"device chip {{ {self.device} memory {self.memory:.6g} GB; }}\n"
        other = next(d for d in DEVICES if d != self.device)
        slow = f"device slow {{ {other} memory {self.memory:.6g} GB; }}\n" if self.slow_nodes else ""
        kinds = [(self.nodes - self.slow_nodes, "chip"), (self.slow_nodes, "slow")]
        nodes = " ".join(f"nodes {n} {{ gpus {self.gpus} of {name}; nics {self.nics} of card; }}" for n, name in kinds if n)
        return f"{card}{chip}{slow}cluster c {{ {nodes} link nvlink {{ bandwidth {self.link:.6g} GB/s; latency 2 us; }} }}\n"

    def model(self, layout):
        ffn = (f"moe {{ experts 8; top 2; ffn swiglu {self.heads * 128}; }}" if self.experts else
               f"ffn swiglu {self.heads * 384};")
        mask = "mine" if self.documents else self.mask
        other = f" layers 1, 3: {self.other_mask};" if self.other_mask else ""
        return (f'import "masks";\nmodel m {{ layers 4; hidden {self.heads * 128}; heads {self.heads}; '
                f"kv_heads {self.kv_heads}; head_dim 128; vocab 32000; {ffn} }}\n"
                + f'table doc per token lengths "lengths.txt";\nmask mine = {self.mask} and document;\n' * self.documents
                + f"attention {{ default {mask};{other} }}\nsequence {self.tokens}Ki;\nlayout {{ {self.data}{layout} }}\n"
                f"train {{ steps 1; batch {self.batch};{' separator 0;' * self.documents} }}\n")

    def write(self, folder, layout):
        (folder / "c.topo").write_text(self.topo())
        (folder / "m.burst").write_text(self.model(layout))
        (folder / "lengths.txt").write_text(LENGTHS)


def draw(random_source: random.Random):
    gpus = random_source.choice([2, 4, 8])
    heads = random_source.choice([8, 16, 32])
    problem = Problem(nodes=random_source.choice([1, 2, 3, 4]), gpus=gpus, nics=random_source.choice([1, 2, gpus]),
                   device=random_source.choice(DEVICES), gbps=random_source.choice([25, 100, 200, 400]),
                   link=random_source.choice([50, 200, 450]), memory=random_source.choice([12, 24, 80]), mask=random_source.choice(MASKS),
                   tokens=random_source.choice([16, 64, 256]), heads=heads,
                   kv_heads=random_source.choice([heads, heads // 4]))
    return replace(problem, **widened(random_source, problem))


def widened(source, problem):
    """In half of the problems what few have: groups, batches, two masks, documents, experts, devices of two kinds."""
    if source.random() < 0.5:
        return {}
    batch = source.choice([1, 2, 4])
    return dict(data=source.choice(["data 1; ", ""]), batch=batch,
                other_mask=source.choice(["", "", *(m for m in MASKS if m != problem.mask)]) if batch == 1 else "",
                documents=problem.mask != "prefix_lm(2Ki)" and source.random() < 0.25, experts=source.random() < 0.25,
                slow_nodes=problem.nodes // 2 if source.random() < 0.25 else 0)


@dataclass
class Answer:
    seconds: float  # of a step, with documents the mean over drawn batches
    layout: str
    step: float     # of the plan, which holds for all batches


def output_of(burstc, problem, layout, form):
    """None: burstc refuses it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problem.write(folder, layout)
        run = subprocess.run([burstc, "c.topo", "m.burst", form], cwd=folder, capture_output=True, text=True)
    return None if run.returncode else run.stdout


def ask(burstc, problem, layout=""):
    """None: burstc refuses it."""
    text = output_of(burstc, problem, layout, "--emit=cost")
    if text is None:
        return None
    step = runner.milliseconds(re.search(r"^step (\S+ ms):", text, re.M)[1]) / 1e3
    drawn = re.search(r"drawn batches: mean (\S+ ms)", text)
    return Answer(runner.milliseconds(drawn[1]) / 1e3 if drawn else step, text.splitlines()[1], step)


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
