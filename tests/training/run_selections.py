"""Selections in whole models: blocks of keys that tiles of queries choose.

    python3 run_selections.py --toolchain toolchain.json --gradients OBJECT ... --leak OBJECT ... [--only REGEX] [--drawn N --seed S]

Gradients of every weight against the float64 oracle, which chooses by itself (reference/select64.c). With as many blocks
as there are, losses and gradient norms of training are those of the mask without a selection, bit for bit. A token
changes no list and no loss before itself; all ranks, on however many, have the same lists. Programs are compiled with
PLAN_CHECKED: each list holds what it may, once, rising. --drawn: instead, N models with drawn masks, lengths, heads and layouts, whose
gradients are compared; what burstc refuses is drawn again.
"""
import collections
import pathlib
import random
import re
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

SELECTIONS = """
select first = top 2 of k / 32 by dot(first Q, mean K) for each head per 128 queries where causal always q / 128 == k / 128;
select limits = top 1 of k / 64 by dot(first Q, minmax K) for kv_head per 128 queries where causal always q / 128 == k / 128;
select previous = top 3 of k / 48 by dot(previous mean Q, first K) for all heads per 128 queries
  where causal always q - k >= 0 and q - k < 192 or k < 4;
select documents = top 2 of k / 32 by dot(previous mean Q, mean K) for each head per 128 queries
  where document always q / 128 == k / 128;
select both = top 5 of k / 64 by dot(mean Q, mean K) noncausal for kv_head per 128 queries where true;
select most = top 64 of k / 32 by dot(first Q, mean K) for each head per 128 queries
  where causal and (q - k < 300 or k < 40) always q / 128 == k / 128;
select greatest = top 2 of k / 48 by dot(first Q, max K) for each head per 128 queries where document always q / 128 == k / 128;
mask dense = causal and (q - k < 300 or k < 40);
mask narrow = most and q - k < 200;
mask narrow_dense = causal and q - k < 200;
"""
INDEXER = """
indexer ix { heads 4; kv_heads %s; dim 16; norm %s; from hidden; train frozen; }
select msa = top 2 of k / 64 by ix(first Q, max K) for kv_head per 128 queries where causal always q / 128 == k / 128;
select indexed = top 3 of k / 32 by ix(previous mean Q, mean K) for all heads per 128 queries
  where causal always q - k >= 0 and q - k < 192 or k < 4;
select all_blocks = top 64 of k / 32 by ix(first Q, max K) for each head per 128 queries where causal always q / 128 == k / 128;
mask no_choice = causal or all_blocks;
"""
SEE = """#include "burst_attend.h"
void see_chosen(const BurstSelection *how, int64_t tiles, int64_t words, const int32_t *lists);
#define PLAN_SEE_CHOSEN see_chosen
"""


class Point(typing.NamedTuple):
    masks: tuple
    lanes: int = 1
    layout: str = ""
    sequence: int = 512
    more: str = ""  # of the model
    data: int = 1
    indexer: tuple = ()  # kv_heads, norm
    heads: tuple = (4, 2)  # of queries, of keys


GRADIENTS = {
    "one": Point(("first", "limits")),
    "mixed": Point(("causal", "first", "documents"), 2, "schedule gather; partition contiguous;"),
    "limits": Point(("limits", "documents"), 4, "schedule ulysses; partition contiguous;", more="qk_norm yes; "),
    "previous": Point(("previous", "first"), 2, "schedule gather; partition contiguous; recompute full;", 768),
    "both": Point(("both", "first"), 2, "schedule ring; travel keys; partition zigzag; recompute selective;"),
    "queries": Point(("documents", "previous"), 2, "schedule ring; travel queries; partition contiguous;", 768),
    "groups": Point(("first", "limits", "documents", "first"), 2, "schedule gather; partition zigzag; recompute full(2);"),
    "data": Point(("documents", "first"), 4, "schedule gather; partition contiguous; weights zero1; token chunks 3;", data=2),
    "short": Point(("first", "both"), 1, "", 300),
    "offload": Point(("documents", "limits"), 2, "schedule gather; partition zigzag; offload activations; recompute save(q, k, o, lse);"),
    "tensor": Point(("first", "documents"), 4, "tensor 2; schedule gather; partition contiguous;"),
    "shared": Point(("first", "documents", "causal"), 4, "tensor 4; recompute full;", more="qk_norm yes; "),
    "greatest": Point(("greatest", "first"), 2, "schedule gather; partition contiguous;", 768),
    "indexer": Point(("msa", "indexed"), indexer=(1, "rmsnorm")),
    "indexer_some": Point(("causal", "msa", "causal", "indexed"), 2, "schedule gather; partition zigzag; recompute full;", indexer=(2, "rmsnorm")),
    "indexer_heads": Point(("indexed", "msa"), 4, "schedule ulysses; partition contiguous; recompute selective;", more="qk_norm yes; ", indexer=(4, "none")),
    "indexer_groups": Point(("msa", "msa", "indexed", "msa"), 2, "schedule gather; partition zigzag; recompute full(2); weights zero1;", indexer=(1, "none")),
    "tail": Point(("first", "documents"), 2, "schedule ring; travel keys; partition zigzag; recompute tail(0.3);"),
    "tail_gather": Point(("limits", "causal", "msa"), 4, "schedule gather; partition contiguous; recompute tail(0.6);", indexer=(1, "rmsnorm")),
    "chunks": Point(("first", "limits"), 2, "schedule gather; partition zigzag; head chunks 2;"),
    "chunks_short": Point(("limits", "causal", "documents"), 2, "schedule ring; travel keys; partition contiguous; head chunks 2; recompute selective;",
                          more="qk_norm yes; ", heads=(6, 3)),
    "chunks_full": Point(("documents", "greatest"), 2, "schedule ulysses; partition contiguous; head chunks 2; recompute full;", 768),
    "chunks_indexer": Point(("msa", "first", "msa"), 2, "schedule gather; partition zigzag; head chunks 2; recompute selective;", more="qk_norm yes; ", indexer=(1, "rmsnorm")),
    "query_chunks": Point(("first", "limits"), layout="token chunks 2, attention;"),
    "query_chunks_gather": Point(("limits", "causal", "greatest"), 2, "schedule gather; partition zigzag; token chunks 2, attention; recompute full;", 1536),
    "query_chunks_ring": Point(("first", "both"), 2, "schedule ring; travel keys; partition contiguous; token chunks 4, attention; recompute save(q, o, lse);", 1024,
                               more="qk_norm yes; "),
    "query_chunks_ulysses": Point(("first", "limits", "causal"), 4, "schedule ulysses; partition contiguous; token chunks 2, attention; recompute selective;", 1024),
    "query_chunks_usp": Point(("limits", "first"), 4, "schedule usp; context 2; heads 2; partition zigzag; token chunks 2, attention; recompute full;", 1024),
    "query_chunks_offload": Point(("first", "limits"), 2, "schedule gather; partition contiguous; token chunks 2, attention; recompute full; "
                                  "offload activations; fetch chunks;"),
    "query_chunks_tensor": Point(("limits", "first"), 4, "tensor 2; schedule gather; partition contiguous; token chunks 2, attention; recompute full;"),
    "query_chunks_indexer": Point(("msa", "first", "causal", "msa"), 2, "schedule gather; partition zigzag; token chunks 2, attention; recompute full(2);", 1024,
                                  indexer=(2, "rmsnorm")),
    "query_chunks_indexer_plain": Point(("msa", "msa"), 1, "token chunks 4, attention;", more="qk_norm yes; ", indexer=(1, "none")),
    "usp": Point(("first", "documents"), 4, "schedule usp; context 2; heads 2; partition zigzag;", 1024),
}
ALIKE = {"one": Point((), 1), "gather": Point((), 2, "schedule gather; partition zigzag;"),
         "ulysses": Point((), 4, "schedule ulysses; partition contiguous; recompute full;"),
         "query_chunks": Point((), 2, "schedule gather; partition contiguous; token chunks 2, attention;")}
SENDS = {"first": Point(("first", "first"), 2, "schedule gather; partition contiguous;"),
         "previous": Point(("previous", "previous"), 2, "schedule gather; partition contiguous;", 768),
         "limits": Point(("limits", "limits"), 2, "schedule ulysses; partition contiguous;"),
         "chunks": Point(("first", "first"), 2, "schedule gather; partition contiguous; head chunks 2;"),
         "query_chunks": Point(("first", "first"), 2, "schedule gather; partition contiguous; token chunks 2, attention;", 1024)}
UNITS = {"B": 1e-3, "kB": 1, "MB": 1e3}
ROUNDED = 0.02  # kB, of figures with two decimals
SCORES = ("first", "limits", "documents", "previous", "greatest", "msa", "indexed")
INDEXED = ("msa", "indexed", "all_blocks", "no_choice")
RANKS = {"1": (1, ""), "2": (2, "schedule gather; partition contiguous;"), "4": (4, "schedule gather; partition contiguous;")}
CHUNKS = {"2 with chunks of queries": (2, "schedule gather; partition contiguous; token chunks 2, attention;")}


def model(p, train):
    indexer = p.indexer or (1, "rmsnorm")
    selections = SELECTIONS + (INDEXER % indexer if set(p.masks) & set(INDEXED) else "")
    layers = "".join(f"layers {i}: {mask}; " for i, mask in enumerate(p.masks[1:], 1))
    return f"""import "masks";
model test {{ layers {len(p.masks)}; hidden 32; heads {p.heads[0]}; kv_heads {p.heads[1]}; head_dim 8; ffn swiglu 24; vocab 61; norm rmsnorm 1e-5; rope 10000; {p.more}}}
{selections}
attention {{ default {p.masks[0]}; {layers}}}
sequence {p.sequence};
layout {{ data {p.data}; {p.layout} }}
train {{ {train} }}
"""


MASKS = ("first", "limits", "previous", "documents", "both", "greatest", "msa", "indexed", "causal")
SHORT = (1, 2, 17, 48, 127, 128, 129, 300, 500)  # of one rank
SANITIZED = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
DRAWS = 200  # of one number, until burstc takes a model


def draw(seed):
    r = random.Random(seed)
    lanes, maybe = r.choice((1, 1, 2, 2, 4)), lambda share, words: [r.choice(words)] if r.random() < share else []
    masks = tuple(r.choice(MASKS) for _ in range(r.choice((1, 2, 3, 4))))
    blocks = 384 if set(masks) & {"previous", "greatest"} else 128
    layout = maybe(0.3 * (lanes > 1), ["tensor 2;"]) + (["data 2;"] if lanes == 4 and r.random() < 0.2 else ["data 1;"])
    if lanes > 1:
        layout += [r.choice(("schedule gather;", "schedule ring; travel keys;", "schedule ring; travel queries;", "schedule ulysses;", "schedule burst;",
                             "schedule usp; heads 2;")), f"partition {r.choice(('contiguous', 'zigzag'))};"]
    layout += maybe(0.6, ("recompute full;", "recompute selective;", "recompute none;", "recompute full(2);", "recompute tail(0.4);", "recompute save(q, o, lse);"))
    layout += maybe(0.5, ("head chunks 2;", "head chunks 3;", "token chunks 2, attention;", "token chunks 4, attention;", "token chunks 3;", "ffn chunks 2;"))
    layout += maybe(0.3, ("offload activations;", "offload activations; fetch chunks;", "offload activations, optimizer; update host;"))
    layout += maybe(0.3, ("weights zero1;", "weights zero2;", "weights zero3;")) + maybe(0.2, ("ranges yes;", "ranges no;"))
    sequence = r.choice(SHORT) if lanes == 1 and r.random() < 0.5 else blocks * lanes * r.choice((1, 2, 2, 4))
    heads = r.choice(((4, 2), (4, 4), (6, 3), (2, 1), (8, 2)))
    return Point(masks, lanes, " ".join(layout).replace("data 1; ", "").replace("data 1;", ""), min(sequence, 1536), r.choice(("", "qk_norm yes; ")),
                 2 if "data 2;" in layout else 1, (r.choice((1, heads[1])), r.choice(("none", "rmsnorm"))), heads)


class Driver:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.tools = emitted.Toolchain(args.toolchain)
        self.tools.flags = [*self.tools.flags, "-DPLAN_CHECKED"]
        self.environment = dict(emitted.quiet_environment(), **SANITIZED)

    def build(self, name, p, train, objects=()):
        source = self.tools.emit(self.folder, name, emitted.topology(1, p.lanes), model(p, train))
        return self.tools.link(source, objects)

    def gradients(self, name, p):
        program = self.build(f"gradients_{name}", p, f"batch {2 * p.data};", self.args.gradients)
        done = run([program, *p.masks], 120, self.environment, check=False)
        match = re.match(r"loss (\S+) worst (\S+) (\S+)", done.stdout)
        require(match and done.returncode == 0, f"{name}: {p}\n{done.stdout}{done.stderr}")
        return f"loss {match[1]}, worst gradient {match[2]} ({match[3]})"

    def drawn(self, number):
        for at in range(DRAWS):
            p, name = draw(f"{self.args.seed}_{number}_{at}"), f"drawn_{self.args.seed}_{number}_{at}"
            p = p._replace(layout=p.layout.replace("data 2;", ""))
            for suffix, text in (("topo", emitted.topology(1, p.lanes)), ("burst", model(p, f"batch {2 * p.data};"))):
                (self.folder / f"{name}.{suffix}").write_text(text)
            source = self.folder / f"{name}.c"
            done = run([self.tools.burstc, source.with_suffix(".topo"), source.with_suffix(".burst"), "-o", source], 60, check=False)
            require(done.returncode <= 1 and not re.search(r"proof \d+ .*fails", done.stderr), f"burstc ends with {done.returncode}\n{p}\n{done.stderr}")
            if done.returncode:
                continue
            done = run([self.tools.link(source, self.args.gradients), "--small", *p.masks], 300, self.environment, check=False)
            match = re.match(r"loss (\S+) worst (\S+) (\S+)", done.stdout)
            require(match and done.returncode == 0, f"{name}: {p}\n{done.stdout}{done.stderr[:6000]}")
            for left in self.folder.glob(f"{name}*"):
                left.unlink()
            return p, float(match[1]), float(match[2])
        raise runner.Failed(f"{DRAWS} models are refused")

    def bytes(self, name, p):
        """Ranks send what is predicted: of attention's transfers, of what represents tiles and blocks, and of lists."""
        program = self.build(f"bytes_{name}", p, "batch 2;", self.args.gradients)
        sent = int(re.search(r" sent (\d+)", run([program, *p.masks], 120, self.environment).stdout)[1]) / 1000
        cost = run([self.tools.burstc, program.with_suffix(".topo"), program.with_suffix(".burst"), "--emit=cost"], 60).stdout
        planned = p.lanes * sum(float(number) * UNITS[unit] for number, unit in re.findall(r"(\S+) (\S?B) (?:inside|between) nodes", cost))
        return sent, planned

    def sends(self, name, p):
        (sent, planned), (dense, of_dense) = (self.bytes(f"{name}_{masks[0]}", p._replace(masks=masks)) for masks in (p.masks, ("causal",) * len(p.masks)))
        more, of_more = sent - dense, planned - of_dense
        require(more > 0 and abs(more - of_more) <= ROUNDED * p.lanes, f"{name}: {more} kB more than without a selection, {of_more} predicted")
        return f"{more:.3f} kB more than without a selection, {of_more:.3f} predicted"

    def losses(self, name, p):
        program = self.build(name, p, "steps 6; batch 1; optimizer adamw { lr 1e-2; } seed 3;")
        metrics = program.with_suffix(".jsonl")
        run([program, "--quiet", "--metrics", metrics], 120, self.environment)
        return re.findall(r'"loss": ?([^,]*).*?"norm": ?([^,}]*)', metrics.read_text())

    def alike(self, name, p):
        """All blocks: no bit differs."""
        for chosen, dense in (("most", "dense"), ("narrow", "narrow_dense"), ("all_blocks", "no_choice")):
            with_, without = (self.losses(f"alike_{name}_{mask}", p._replace(masks=(mask, "causal"))) for mask in (chosen, dense))
            require(len(with_) == 6 and len(set(with_)) == 6, f"{name}: {with_}")
            require(with_ == without, f"{name}: {chosen} {with_}\n{dense} {without}")
        return "18 losses and norms are the same bits"

    def evaluates(self, name, p):
        """What a program evaluates before its first step is that step's loss."""
        tokens = self.folder / "tokens.bin"
        tokens.write_bytes(bytes(13 * i * i % 61 for i in range(p.sequence + 1)))
        program = self.build(f"evaluates_{name}", p, f'data "{tokens}"; evaluate "{tokens}" every 1; steps 1; batch 1; seed 3;')
        metrics = program.with_suffix(".jsonl")
        found = []
        for key, options in (("loss", ()), ("evaluation_loss", ("--steps", "0", "--evaluate"))):
            metrics.unlink(missing_ok=True)
            run([program, "--quiet", "--metrics", metrics, *options], 120, self.environment)
            found.append(re.search(rf'"{key}": ?([^,}}]*)', metrics.read_text())[1])
        loss, evaluated = found
        require(abs(float(loss) / float(evaluated) - 1) < 1e-7, f"{name}: a loss of {loss} is evaluated as {evaluated}")
        return f"loss {loss}, evaluated {evaluated}"

    def leaks(self, score):
        """On one rank and on several, and by chunks of queries where each chunk can choose alone: the same lists."""
        see = self.folder / "see.h"
        see.write_text(SEE)
        self.tools.flags, flags = [*self.tools.flags, "-include", str(see)], self.tools.flags
        found = set()
        layouts = RANKS if score in ("documents", "previous", "indexed") else RANKS | CHUNKS
        for i, (ranks, layout) in enumerate(layouts.values()):
            p = Point((score, score), ranks, layout, 1536 if score in ("previous", "greatest") else 1024)
            program = self.build(f"leak_{score}{i}", p, "batch 1;", self.args.leak)
            done = run([program], 120, self.environment, check=False)
            match = re.match(r"tokens (\d+) lists (\w+)", done.stdout)
            require(match and done.returncode == 0, f"{score} on {ranks}\n{done.stdout}{done.stderr}")
            found.add(match[2])
        self.tools.flags = flags
        require(len(found) == 1, f"{score}: lists depend on the number of ranks, or on chunks: {found}")
        return f"{match[1]} tokens change nothing before them; lists {match[2]} on {', '.join(layouts)} ranks"


def main():
    parser = runner.options(__doc__, "--toolchain")
    parser.add_argument("--gradients", nargs="+", required=True)
    parser.add_argument("--leak", nargs="+", default=[])
    parser.add_argument("--drawn", type=int, help="models to draw")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400), help="of these; today's unless given")
    args = parser.parse_args()
    with runner.folder(args.work) as folder:
        driver = Driver(args, pathlib.Path(folder))
        if args.drawn:
            done, failures = runner.check_all(driver.drawn, range(args.drawn))
            rows = [row for _, row in done]
            print(f"seed {args.seed}: {len(rows)} models; worst loss {max((x[1] for x in rows), default=0):.2e}, worst gradient "
                  f"{max((x[2] for x in rows), default=0):.2e}")
            words = collections.Counter(w for p, *_ in rows for w in {*p.masks, *re.findall(r"(?:schedule|recompute|offload|tensor|head chunks|token chunks) \w+|attention", p.layout)})
            print("  " + ", ".join(f"{w} {n}" for w, n in sorted(words.items())))
            return failures > 0 or not rows
        cases = [(f"gradients {name}", driver.gradients, (name, p)) for name, p in GRADIENTS.items()]
        cases += [(f"alike {name}", driver.alike, (name, p)) for name, p in ALIKE.items()]
        cases += [(f"sends {name}", driver.sends, (name, p)) for name, p in SENDS.items()]
        cases += [(f"evaluates {name}", driver.evaluates, (name, p._replace(masks=("first", "limits" if "token chunks" in p.layout else "documents"))))
                  for name, p in ALIKE.items()]
        cases += [(f"leaks {score}", driver.leaks, (score,)) for score in SCORES]
        for name, check, words in cases:
            if all(re.search(word, name) for word in args.only):
                print(f"{name}: {check(*words)}", flush=True)


if __name__ == "__main__":
    runner.end(main)
