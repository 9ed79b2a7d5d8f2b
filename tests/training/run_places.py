"""Programs with places by layer train as those with one place for all layers do.

    python3 run_places.py --toolchain toolchain.json --by-layer BURSTC

Parts: large  models of which the compiler decides so, on one and two ranks: losses and gradient norms of one rank that saves all
       small  the same bits from a burstc that always does (tests/step/place_by_layer.c), on many layouts
"""
import itertools
import json
import pathlib
import random
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

NEAR = 1e-5  # relative
RING, QUERIES, ULYSSES = "schedule ring; context {}", "schedule ring; travel queries; context {}", "schedule ulysses; heads {}"


class Case(typing.NamedTuple):
    ranks: int
    schedule: str
    layout: str

    def text(self):
        return f"data 1; tensor 1; {self.schedule.format(self.ranks)}; partition zigzag; {self.layout}" if self.ranks > 1 else f"data 1; tensor 1; {self.layout}"


PLAIN = Case(1, "", "recompute none; offload none")
# Many tokens of a small model: much memory, little to compute.
LARGE = dict(layers=4, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=112, sequence=96 << 10, steps=2, masks="default window(17); layers 1, 3: block_local(64);")
CHOSEN = [Case(1, "", "recompute save(o, lse, gate_up(1)); offload activations"), Case(2, QUERIES, "recompute none; offload activations; token chunks 4"),
          Case(2, ULYSSES, "recompute none; offload activations; token chunks 4")]
SMALL = dict(layers=4, hidden=24, heads=8, kv_heads=4, head_dim=8, ffn=40, sequence=61, steps=6, masks="default causal; layers 1, 3: window(17); layers 2: document;")
MADE = [Case(1, "", "recompute none"), Case(1, "", "recompute selective; offload activations; token chunks 3, attention"), Case(1, "", "recompute full; head chunks 2"),
        Case(1, "", "recompute tail(0.5); offload activations, optimizer; update device"), Case(3, RING, "recompute save(o(2), lse(2)); offload activations; ffn chunks 3"),
        Case(2, "schedule bidirectional; context {}", "recompute full; offload activations; token chunks 3, attention; fetch chunks"),
        Case(4, QUERIES, "recompute selective; offload activations; weights zero2"), Case(4, ULYSSES, "recompute none; offload activations; weights zero1; token chunks 2"),
        Case(4, "schedule usp; context 2; heads 2", "recompute full; offload activations; token chunks 3, keys"),
        Case(2, ULYSSES, "recompute auto; offload optimizer; token chunks 3, keys")]


def model_text(case, data, layers, hidden, heads, kv_heads, head_dim, ffn, sequence, steps, masks):
    return f"""import "masks";
model test {{ layers {layers}; hidden {hidden}; heads {heads}; kv_heads {kv_heads}; head_dim {head_dim}; ffn swiglu {ffn}; vocab 64; }}
attention {{ {masks} }}
sequence {sequence};
layout {{ {case.text()}; }}
train {{ data "{data}"; separator 46; steps {steps}; batch 1; seed 3; optimizer adamw {{ lr 5e-3; betas 0.9 0.95; decay 0.1; clip 0.7; warmup 1; cosine to 5e-4; }} }}
"""


class Places:
    def __init__(self, args, folder):
        self.folder, self.number = folder, itertools.count()
        self.plain, self.by_layer = emitted.Toolchain(args.toolchain), emitted.Toolchain(args.toolchain)
        self.by_layer.burstc = args.by_layer
        self.data = folder / "text.txt"
        self.data.write_text(" ".join(random.Random(5).choices(["01", "234", "5", "6789", "15.", "0"], k=60000)))  # bytes below 64

    def rows(self, case, shape, by_layer, tools):
        """Losses and norms of its steps."""
        topo = emitted.few(gpus=case.ranks, memory="4 GiB")
        source = tools.emit(self.folder, f"train{next(self.number)}", topo, model_text(case, self.data, **shape))
        require(("plan_scratch(s, layer);" in source.read_text()) == by_layer, f"{case}: places by layer are {'not ' if by_layer else ''}there")
        # Of many tokens, masks take most of the time where they are not optimised.
        program, metrics = tools.link(source, optimise="-O1" if shape is LARGE else "-O0"), source.with_suffix(".jsonl")
        run([program, "--quiet", "--metrics", metrics], 120, emitted.quiet_environment())
        rows = [(row["loss"], row["norm"]) for row in map(json.loads, metrics.read_text().splitlines())]
        require(len(set(rows)) == shape["steps"], f"{case}: {rows}")
        return rows

    def large(self):
        found, failures = runner.check_all(lambda case: self.rows(case, LARGE, case != PLAIN, self.plain), [PLAIN, *CHOSEN], 1)
        require(not failures, f"{failures} programs failed")
        (_, right), *others = found
        for case, is_ in others:
            apart = max(abs(x / y - 1) for row, other in zip(is_, right) for x, y in zip(row, other))
            print(f"{case.text()}: losses and norms differ by {apart:.2e}", flush=True)
            require(apart <= NEAR, f"{case}: {is_} instead of {right}")

    def same(self, case):
        right, is_ = self.rows(case, SMALL, False, self.plain), self.rows(case, SMALL, True, self.by_layer)
        require(is_ == right, f"losses or norms depend on places\n{is_}\n{right}")
        print(f"{case.text()}: {len(right)} losses and norms are the same bits", flush=True)

    def small(self):
        require(not runner.check_all(self.same, MADE)[1], "places matter")


PARTS = ["large", "small"]


def main():
    parser = runner.options(__doc__, "--toolchain", "--by-layer", parts=PARTS)
    args = parser.parse_args()
    with runner.folder(args.work) as folder:
        places = Places(args, folder)
        return runner.run_parts({part: getattr(places, part) for part in args.part or PARTS}) > 0


runner.end(main)
