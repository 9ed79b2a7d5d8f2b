"""Programs of few tokens and odd shares, under address and undefined sanitizers, each gradient against float64.

    python3 run_checked.py --toolchain toolchain.json --gradients OBJECTS [--seed N] [--count N] [--experts]

The toolchain has a runtime with sanitizers. Layouts are drawn from all rows of the layout's table; among them are ranks without tokens, ranks
of one token, uneven shares, blocks of fewer tokens than ranks, and more chunks than tokens. What burstc refuses is drawn again, and so is a
program whose gradients cannot be compared, since fp32 may choose other experts. Every fourth program is also linked with its own main, and
trains two steps.
"""
import collections
import json
import math
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "numerics"))
import emitted  # noqa: E402
import random_masks  # noqa: E402
import run_strangers  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

TURNS = 2  # sequences a data group, of gradients.c
MASKS = ["full", "causal", "window(17)", "window_sink(13, 4)", "dilated(5, 3)", "strided(6, 9)", "block_local(11)", "block_causal(12)", "prefix_lm(23)",
         "document", "shared_question(14, 10)", "longnet(8, 2)", "bigbird(8, 1, 2, 5)"]  # of numerics/stock_masks.h
PARTITIONS = ["contiguous", "zigzag", "striped", "blocks(1)", "blocks(2)", "blocks(3)", "blocks(7)", "blocks(64)", "blocks(1000)"]
SHARES = [1, 1, 2, 3, 300, 999, 1000]
CHUNKS = [("ffn chunks", [2, 3, 9]), ("token chunks", [f"{n}{more}" for n in (2, 3, 5, 70) for more in ("", ", attention", ", keys")])]
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
TRAINED = 4  # of so many programs one trains
UNSURE = "fp32 may choose another"  # of gradients.c: the loss alone was compared
DRAWS = 200  # of one number, until burstc takes a layout


class Drawn(run_strangers.Drawn):
    def __init__(self, seed, random_texts):
        super().__init__(seed)
        r, world = self.rng, self.nodes * self.lanes
        self.masks = [r.choice(MASKS if r.random() < 0.6 else random_texts) for _ in range(r.choice([1, 2, 3]))]
        self.sequence = r.choice([1, 2, 3, 5, world, world + 1, 2 * world, 17, 61, 67, 131, 200, 531])

    def draw_layout(self):
        r, words = self.rng, []
        kept = ("data", "tensor", "schedule", "context", "heads", "travel", "ranges", "overlap", "recompute", "weights", "offload", "update", "head chunks", "placement")
        words = [w.strip() + ";" for w in super().draw_layout().split(";") if w.strip().startswith(kept)]
        share = self.nodes * self.lanes // self.tensor // self.data
        words += [f"partition {r.choice(PARTITIONS)};"] * (r.random() < 0.9)
        words += [f"shares {', '.join(str(r.choice(SHARES)) for _ in range(share))};"] * (r.random() < 0.4)
        name, values = r.choice(CHUNKS)
        words += [f"{name} {r.choice(values)};"] * (r.random() < 0.5)
        words += [f"loss tile {r.choice([16, 17, 64])};"] * (r.random() < 0.2)
        words += ["ranges yes;"] * (r.random() < 0.2 and not any(w.startswith("ranges") for w in words))
        words += [f"fetch {r.choice(['layers', 'chunks'])};"] * (r.random() < 0.1)
        return " ".join(words)

    def model(self):
        train = f"train {{ separator 46; batch {TURNS * self.data}; }}"
        return re.sub(r"(?m)^train .*", train, self.text(self.layout, "data"))

    def __str__(self):
        return f"{self.seed}: {self.nodes} x {self.lanes} ranks\n{self.model()}"


class Checked:
    def __init__(self, args, folder):
        self.args, self.folder, self.tools = args, folder, emitted.Toolchain(args.toolchain)
        self.environment = dict(emitted.quiet_environment(), **SANITIZERS)
        (folder / "text.txt").write_text("ba dude gi folima. " * 2000)
        self.random_texts = [random_masks.model_text(e) for e in random_masks.draw(run_strangers.random.Random(1), 50)]

    def source(self, number, first=0):
        """Of the first layout that burstc takes; which draw it is."""
        for draw in range(first, DRAWS):
            drawn = Drawn(f"{self.args.seed}_{number}_{draw}", self.random_texts)
            name = f"checked_{drawn.seed}"
            for suffix, text in (("topo", emitted.topology(drawn.nodes, drawn.lanes)), ("burst", drawn.model())):
                (self.folder / f"{name}.{suffix}").write_text(text)
            done = run([self.tools.burstc, f"{name}.topo", f"{name}.burst", "-o", f"{name}.c"], 60, check=False, cwd=self.folder)
            require(done.returncode <= 1, f"burstc ends with {done.returncode}\n{drawn}\n{done.stderr}")
            if done.returncode == 0:
                return draw, drawn, self.folder / f"{name}.c"
        raise runner.Failed(f"{DRAWS} layouts are refused")

    def tokens(self, source):
        """Of each rank that shares a sequence."""
        text = run([self.tools.burstc, source.with_suffix(".topo"), source.with_suffix(".burst"), "--emit=partition"], 60).stdout
        return [int(n) for n in re.findall(r"(?m)^rank \d+ tokens (\d+)", text)]

    def train(self, source):
        """Loader, optimizer and metrics as well."""
        whole = source.with_name(f"{source.stem}_whole.c")
        whole.write_text(source.read_text())
        metrics = whole.with_suffix(".jsonl")
        run([self.tools.link(whole), "--quiet", "--steps", 2, "--data", self.folder / "text.txt", "--metrics", metrics], 120, self.environment)
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        require(len(rows) == 2 and all(math.isfinite(row["loss"] + row["norm"]) for row in rows), f"metrics: {rows}")

    def check(self, number, first=0):
        draw, drawn, source = self.source(number, first)
        try:
            tokens = self.tokens(source)
            program = self.tools.link(source, self.args.gradients)
            done = run([program, "--small", *drawn.masks], 120, self.environment, check=False)
            match = re.match(r"loss (\S+) worst (\S+) (\S+)", done.stdout)
            require(match and done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}{done.stderr[:6000]}")
            if number % TRAINED == 0:
                self.train(source)
        except runner.Failed as failure:
            raise runner.Failed(f"{drawn}\n{failure}") from None
        for left in self.folder.glob(f"checked_{drawn.seed}*"):
            left.unlink()
        return self.check(number, draw + 1) if UNSURE in done.stdout else (float(match[1]), float(match[2]), drawn, tokens)


def main():
    parser = runner.options(__doc__, "--toolchain")
    parser.add_argument("--gradients", nargs="+", required=True, help="objects and libraries of gradients.c")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--experts", action="store_true", help="in each model, not in every fourth")
    args = parser.parse_args()
    Drawn.experts = 1 if args.experts else Drawn.experts
    with runner.folder(args.work) as folder:
        done, failures = runner.check_all(Checked(args, folder).check, range(args.first, args.first + args.count))
    rows = [row for _, row in done]
    print(f"seed {args.seed}: {len(rows)} programs; worst loss {max((r[0] for r in rows), default=0):.2e}, worst gradient {max((r[1] for r in rows), default=0):.2e}")
    print(f"  {sum(0 in r[3] for r in rows)} with ranks without tokens, {sum(1 in r[3] for r in rows)} with ranks of one, "
          f"{sum(max(r[3]) > 2 * min(r[3]) + 2 for r in rows)} uneven")
    for name in ("partition", "shares", "schedule", "ranges", "recompute", "offload", "chunks", "tensor", "weights"):
        words = collections.Counter(m for r in rows for m in re.findall(rf"{name} (\w+)", r[2].layout))
        print(f"  {name}: {', '.join(f'{w} {n}' for w, n in sorted(words.items()))}")
    return failures > 0


if __name__ == "__main__":
    runner.end(main)
