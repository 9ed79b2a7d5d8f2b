"""Layouts drawn from all rows of the layout's table: refused with what to use instead, or trained as one rank trains.

    python3 run_strangers.py --toolchain toolchain.json [--seed N] [--count N] [--experts]

Without --seed it is that of the day; with --experts each model has experts, else every fourth. Losses and norms of a few steps are those of one rank that saves everything, and a rank's memory is
what was predicted.
"""
import json
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

MASKS = ["causal", "full", "document", "window(17)", "window_sink(13, 4)", "bigbird(8, 1, 2, 4)", "dilated(5, 3)", "strided(7, 5)",
         "block_local(9)", "block_causal(8)", "prefix_lm(11)", "longnet(8, 2)", "shared_question(9, 13)"]
SCHEDULES = ["ring", "ring", "burst", "ulysses", "near", "gather", "biring", "bidirectional", "halo", "doubling", "double_ring", "usp", "mesh", "auto"]
ROWS = [  # of the layout: how often, values
    (0.6, "travel", ["keys", "queries", "auto"]), (0.8, "partition", ["contiguous", "zigzag", "striped", "blocks(8)", "blocks(20)"]),
    (0.2, "ranges", ["yes", "no"]), (0.15, "overlap", ["yes", "no"]), (0.4, "gradients", ["bf16", "fp32"]),
    (0.9, "recompute", ["none", "ffn", "selective", "full", "full(2)", "full(3)", "tail(0.5)", "tail(0.3)", "save(o, lse)", "save(q, k, x_mid(1))"]),
    (0.7, "weights", [z + w for z in ("zero1", "zero2", "zero3", "zero3_no_sync") for w in ("", "", " within node", " within 1", " within 2")]),
    (0.4, "offload", ["activations", "optimizer", "activations, optimizer", "activations(x, o)", "activations(o, lse)", "none"]),
    (0.1, "update", ["host", "device"]), (0.3, "head chunks", [1, 2, 3, 4]), (0.1, "placement", ["lane, data", "data", "data, context", "node, lane"])]
CHUNKS = [("ffn chunks", [2, 3]), ("token chunks", [f"{n}{more}" for n in (2, 3, 5, 8) for more in ("", ", attention", ", keys")])]
STEPS, NEAR, ROUNDED = 3, 1e-5, 1e-3  # relative, losses; with bf16 gradients
NORMS, ROUNDED_NORMS = 1e-4, 1e-2
SLACK = 8192  # bytes of a rank, that the prediction may be more
WORKS = r"use `|use a|use context|leave|remove|set `|use one of|; each saves|; it takes"  # what a refusal has


def divisors(n, most=8):
    return [k for k in range(1, most + 1) if n % k == 0]


class Drawn:
    """A model, its layout on a few ranks, and the same model on one."""
    experts = 0.25  # the share of models that have some

    def __init__(self, seed):
        self.seed, self.rng, self.dense, self.scans = seed, random.Random(seed), 0, 0
        r = self.rng
        self.nodes, self.tensor = r.choice([1, 1, 2]), r.choice([1, 1, 1, 2, 4])
        self.lanes = r.choice([n for n in (1, 2, 3, 4, 5, 6, 7, 8) if self.nodes * n <= 8 and self.nodes * n % self.tensor == 0])
        self.data = r.choice([d for d in (1, 1, 2) if self.nodes * self.lanes // self.tensor % d == 0])
        self.kv_heads = r.choice([1, 2, 3, 4, 6]) if self.tensor == 1 else 4
        self.masks = [r.choice(MASKS) for _ in range(r.choice([2, 3, 4]))]
        self.part, self.more = r.choice(["", "qkv_bias yes;", "qk_norm yes;"]), r.choice(["", "softcap 2;", "sinks learned;"])
        self.shape = f"heads {self.kv_heads * r.choice([1, 2, 3])}; kv_heads {self.kv_heads}; ffn swiglu {r.choice([24, 40])}; tied {r.choice(['yes', 'no'])};"
        self.sequence, self.batch, self.layout = r.choice([61, 67, 97, 200, 301]), r.choice([2, 4]), self.draw_layout()
        if r.random() < 0.25:
            self.draw_latents()
        if r.random() < self.experts:
            self.draw_experts()
        if self.nodes * self.lanes == self.data and r.random() < 0.5:
            self.draw_scans()

    def draw_latents(self):
        """Multi-head latent attention, mostly with latents as what travels in rings."""
        r = self.rng
        self.part, query = "", r.choice(["", f"query_latent {r.choice([6, 16])};"])
        self.shape += f" value_dim {r.choice([4, 8, 10])}; rotary {r.choice([2, 4, 6])}; latent {r.choice([6, 20])}; {query}"
        self.shape = re.sub(r"heads \d+;", f"heads {self.kv_heads};", self.shape, count=1)
        if r.random() < 0.8:
            self.layout = re.sub(r" travel \w+;", "", self.layout) + " travel latents;"

    def draw_experts(self):
        r = self.rng
        experts = r.choice([2, 3, 8, 13])
        top, score = r.choice([t for t in (1, 2, 3, 8) if t <= experts]), r.choice(["", "score softmax;", "score sigmoid; eps 1e-20;"])
        normalize = "normalize yes;" if "eps" in score else r.choice(["", "normalize yes;", "normalize no;"])
        shared = r.choice(["", "shared 12;", "shared 12; shared_gate yes;"])
        shared += r.choice(["", "", "alpha 1.7; offset 1; limit 0.5;"]) if not shared else ""
        shared += r.choice(["", " bias yes;"]) + r.choice(["", " router_bias yes;"]) + r.choice(["", " correction yes;"])
        if experts == 8 and top < 5:
            shared += r.choice(["", " groups 4; top_groups 3;", " groups 2; top_groups 1; group_score two;"])
        if normalize == "normalize yes;":
            shared += r.choice(["", " least 0.3;"])
        moe = f"moe {{ experts {experts}; top {top}; ffn swiglu {r.choice([8, 20])}; {shared} {score} {normalize} {r.choice(['', 'scale 2.5;'])} }}"
        ffn = re.search(r"ffn swiglu \d+;", self.shape).group()
        self.dense = r.choice([0, r.getrandbits(4)])  # a bit for each layer without experts
        groups = random.Random(f"{self.seed} groups").choice([1, *divisors(experts, experts)])
        self.layout += f" experts in {groups} groups;" if groups > 1 else ""
        self.shape = self.shape.replace(ffn, f"{moe} {ffn.replace('ffn', 'ffn layers @:')}")

    def draw_scans(self):
        """Recurrent layers, where a sequence is on one rank."""
        r = self.rng
        self.scans = r.getrandbits(4)  # a bit for each
        self.shape += f" scan layers $: {{ heads 4; key_heads {r.choice([1, 2, 4])}; key_dim {r.choice([8, 16])}; value_dim 12; conv {r.choice([2, 3, 4])}; }}"

    def shape_text(self):
        """Of the masks' number of layers, of which kinds are drawn."""
        layers, text = len(self.masks), self.shape
        for mark, bits, statement in (("@", self.dense, r" ffn layers @: swiglu \d+;"), ("$", self.scans, r" scan layers \$: \{.*?\}")):
            some = [str(i) for i in range(layers) if bits >> i & 1]
            text = text.replace(mark, ", ".join(some)) if 0 < len(some) < layers else re.sub(statement, "", text)
        return text

    def sizes(self, schedule, share):
        """What the layout says of the ranks that share a sequence."""
        inner = self.rng.choice(divisors(share, 4))
        return {"ulysses": f"heads {share};", "usp": f"heads {inner}; context {share // inner};", "double_ring": f"context {inner} x {share // inner};",
                "mesh": f"context {inner} x {share // inner};", "burst": "", "auto": ""}.get(schedule, f"context {share};")

    def draw_layout(self):
        r, share = self.rng, self.nodes * self.lanes // self.tensor // self.data
        schedule = r.choice(SCHEDULES)
        words = [f"data {self.data}; tensor {self.tensor}; schedule {schedule}; {self.sizes(schedule, share)}"]
        if r.random() < 0.2:
            words.append(f"shares {', '.join(str(r.randint(1, 5)) for _ in range(share))};")
        words += [f"{name} {r.choice(values)};" for often, name, values in [*ROWS, (0.6, *r.choice(CHUNKS))] if r.random() < often]
        return " ".join(words)

    def text(self, layout, data):
        lines = ['import "masks";', f"model test {{ layers {len(self.masks)}; hidden 24; head_dim 8; norm rmsnorm 1e-5; rope 10000; vocab 256; {self.shape_text()} {self.part} }}",
                 f"attention {{ default {self.masks[0]}; {self.more}", *[f"  layers {i}: {mask};" for i, mask in enumerate(self.masks) if i], "}",
                 f"sequence {self.sequence};", f"layout {{ {layout} }}",
                 f'train {{ data "{data}"; separator 46; steps {STEPS}; batch {self.batch}; seed 3; optimizer adamw {{ lr 5e-3; decay 0.1; clip 0.7; }} }}']
        return "\n".join(lines) + "\n"

    def __str__(self):
        return f"{self.seed}: {self.nodes} x {self.lanes} ranks, {self.text(self.layout, 'data')}"


class Strangers:
    def __init__(self, args, folder):
        self.tools, self.folder, self.environment = emitted.Toolchain(args.toolchain), folder, emitted.quiet_environment()
        rng = random.Random(5)
        (folder / "text.txt").write_text(" ".join(rng.choice(["ba", "dude", "gi", "folima."]) for _ in range(9000)))

    def train(self, name, topology, model):
        """Its metrics; or what burstc says instead."""
        for suffix, text in (("topo", topology), ("burst", model)):
            (self.folder / f"{name}.{suffix}").write_text(text)
        done = run([self.tools.burstc, f"{name}.topo", f"{name}.burst", "-o", f"{name}.c"], 60, check=False, cwd=self.folder)
        if done.returncode:
            require(done.returncode == 1, f"burstc ends with {done.returncode}\n{done.stderr}")
            return done.stderr
        program, metrics = self.tools.link(self.folder / f"{name}.c"), self.folder / f"{name}.jsonl"
        metrics.unlink(missing_ok=True)
        run([program, "--quiet", "--metrics", metrics], 120, self.environment)
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def check(self, drawn):
        data = self.folder / "text.txt"
        rows = self.train(f"many_{drawn.seed}", emitted.topology(drawn.nodes, drawn.lanes), drawn.text(drawn.layout, data))
        if isinstance(rows, str):
            require(re.search(WORKS, rows), f"nothing says what would work\n{rows}")
            return False
        right = self.train(f"one_{drawn.seed}", emitted.topology(1, 1), drawn.text("data 1; context 1; schedule ring; recompute none; partition contiguous;", data))
        rounded = "gradients bf16" in drawn.layout
        for key, most in (("loss", ROUNDED if rounded else NEAR), ("norm", ROUNDED_NORMS if rounded else NORMS)):
            apart = max(abs(a[key] / b[key] - 1) for a, b in zip(rows, right))
            require(len(rows) == len(right) == STEPS and apart <= most, f"{key} differs by {apart:.2e} in {len(rows)} steps")
        over = [row["memory_bytes"] - row["predicted_memory_bytes"] for row in rows]
        require(all(-SLACK <= o <= 0 for o in over), f"memory beside the predicted {rows[0]['predicted_memory_bytes']}: {over}")
        return True


def main():
    parser = runner.options(__doc__, "--toolchain")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--experts", action="store_true")
    args = parser.parse_args()
    Drawn.experts = 1 if args.experts else Drawn.experts
    with runner.folder(args.work) as folder:
        strangers = Strangers(args, folder)
        done, failures = runner.check_all(strangers.check, [Drawn(f"{args.seed}_{i}") for i in range(args.count)])
    print(f"{len(done)} layouts: {sum(trains for _, trains in done)} train as one rank, the others are refused")
    return failures > 0


if __name__ == "__main__":
    runner.end(main)
