"""A plan's library against dense attention in float64: random masks, documents, heads, lengths, schedules, partitions,
selections.

Each case is a model of attention alone, compiled by burstc to a .so, opened by 1, 2 or 4 ranks (threads) of case.c. What a mask
keeps is evaluated here, from the expression. --count N: so many; --seed S: others. Every tenth case is called 1000 times.
"""
import pathlib
import random
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner

LIMIT = 3e-6  # relative, L2; fp32 sums against float64
RESULTS = ("o", "lse", "dq", "dk", "dv", "dsinks")
MASKS = ["true", "k <= q", "k <= q and q - k < {w}", "k <= q and (q - k < {w} or k < {s})", "q / {w} == k / {w}",
         "(q * q + 3 * k) mod 13 != 4 and abs(q - k) < {v}", "k <= q or k < {w}", "k <= q and (q - k) mod {s} == 0",
         "k / {s} <= q / {s}"]
SCHEDULES = ["auto", "auto", "ring", "biring", "doubling", "gather", "burst", "ulysses", "usp", "near", "halo", "stride"]
PARTITIONS = ["auto", "contiguous", "zigzag", "striped", "blocks(16)", "blocks(64)"]
TOPO = """cluster cpus { nodes 1 { gpus %d of core; } link nvlink { bandwidth 8 GB/s; latency 2 us; } }
device core { arch cpu; memory 1 GiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; }
host { memory 8 GiB; pcie 8 GB/s; cores 4; }
"""


# What keeps a mask inside of documents, by different tables.
DOCUMENTS = ["doc[q] == doc[k]", "k >= first[q] and k <= last[q]", "first[q] == first[k]",
             "doc[q] == doc[k] and (position[k] < {s} or abs(q - k) < {w})", "last[k] == last[q] and position[q] >= position[k]",
             "q <= last[k] and k <= last[q] and position[q] mod 3 != position[k] mod 2"]
TREE = "k <= q and q <= last_of[k]"


def keeps(expression, tokens, tables):
    """Rows of 0 and 1."""
    python = re.sub(r"\bmod\b", "%", re.sub(r"(?<!/)/(?!/)", "//", expression)).replace("true", "True")
    code = compile(python, expression, "eval")
    return ["".join("1" if eval(code, {"q": q, "k": k, "abs": abs, **tables}) else "0" for k in range(tokens))
            for q in range(tokens)]


def documents_of(r, tokens, most):
    cuts = sorted(r.sample(range(1, tokens), min(r.randrange(most), tokens - 1)))
    return [0, *cuts, tokens]


def tree_of(r, begin, end, last):
    """Fills in the last token of each token's subtree: a run of tokens, then subtrees side by side."""
    while begin < end:
        middle = r.randrange(begin + 1, end + 1)
        run = r.randrange(begin + 1, middle + 1)
        last[begin:run] = [middle - 1] * (run - begin)
        tree_of(r, run, middle, last)
        begin = middle
    return last


def case_of(seed):
    """A model's text, and what it is called with."""
    r = random.Random(seed)
    ranks, kv_heads = r.choice([1, 2, 4]), r.choice([1, 2, 3])
    heads, head_dim, tokens = kv_heads * r.choice([1, 2, 4]), 2 * r.randrange(4, 36), r.randrange(5, 260)
    documents = r.random() < 0.6
    cu = documents_of(r, tokens, 6) if documents else [0, tokens]
    expressions = []
    for mask in r.sample(MASKS, r.choice([1, 1, 2, 3])):
        mask = mask.format(w=r.randrange(1, tokens), s=r.randrange(1, 9), v=r.randrange(1, tokens))
        inside = r.choice(DOCUMENTS).format(w=r.randrange(1, tokens), s=r.randrange(1, 9))
        expressions.append(f"({mask}) and {inside}" if documents else mask)
    given = tree_of(r, 0, tokens, [0] * tokens) if r.random() < 0.3 else []
    if given:
        expressions[r.randrange(len(expressions))] = TREE + (" and doc[q] == doc[k]" if documents else "")
    softcap = r.choice([0, 0, 0, 2.5])
    layers = "".join(f" layers {i}: m{i};" for i in range(len(expressions)))
    schedule, travel = r.choice(SCHEDULES), r.choice(["auto", "keys", "queries"])
    layout = f"schedule {schedule}; partition {r.choice(PARTITIONS)}; travel {travel};"
    if schedule == "usp":
        layout += " heads %d;" % r.choice([1, 2])
    text = "table last_of per token;\n" if given else ""
    text += 'import "masks";\n' if r.random() < 0.3 else ""
    text += "".join(f"mask m{i} = {e};\n" for i, e in enumerate(expressions))
    value_dim = f" value_dim {r.randrange(1, 72)};" if r.random() < 0.3 else ""
    text += f"model a {{ heads {heads}; kv_heads {kv_heads}; head_dim {head_dim};{value_dim} layers {len(expressions)}; }}\n"
    text += "attention {%s%s }\nsequence %d;\nlayout { %s }\n" % (layers, f" softcap {softcap};" if softcap else "", tokens, layout)
    doc = [sum(t >= c for c in cu[1:-1]) for t in range(tokens)]
    tables = {"doc": doc, "first": [cu[d] for d in doc], "last": [cu[d + 1] - 1 for d in doc],
              "position": [t - cu[d] for t, d in enumerate(doc)], "last_of": given}
    scale = r.choice([0, 0, 0.3])
    rows = [row for e in expressions for row in keeps(e, tokens, tables)]
    called = f"{ranks} {len(cu) - 1} {seed} {scale} {r.randrange(2)} {softcap}\n{' '.join(map(str, cu))}\n"
    called += f"{len(given) and 1} {len(expressions)}\n{' '.join(map(str, given))}\n"
    return ranks, text, called + "\n".join(rows) + "\n" + "0 0 0 0 0\n" * len(expressions)


KEYS = ["mean K", "minmax K", "first K", "max K"]
SHARED = ["for each head", "for kv_head", "for all heads"]


def select_case_of(seed):
    """The same of selections, alone and in a mask, beside a mask without one."""
    r = random.Random(seed)
    ranks, kv_heads, tokens = r.choice([1, 2, 4]), r.choice([1, 2]), 512
    heads, head_dim, w = kv_heads * r.choice([1, 2]), 2 * r.randrange(4, 16), r.randrange(100, 500)
    text, expressions, selections = "", [], []
    for i in range(2):
        top, block, key, shared = r.randrange(1, 5), r.choice([16, 32, 64, 128]), r.randrange(4), r.randrange(3)
        always = f"q // 128 == k // 128 or k < {r.randrange(16)}"
        text += f"select s{i} = top {top} of k / {block} by dot(first Q, {KEYS[key]}) {SHARED[shared]} per 128 queries\n"
        text += f"  where k <= q always {always.replace('//', '/')};\nmask m{i} = s{i}{f' and q - k < {w}' if i else ''};\n"
        expressions.append(f"k <= q and ({always})" + (f" and q - k < {w}" if i else ""))
        selections.append((top, block, key, shared, w if i else tokens, f"k <= q and not ({always})"))
    text += f"mask m2 = k <= q;\nmodel a {{ heads {heads}; kv_heads {kv_heads}; head_dim {head_dim}; layers 3; }}\n"
    layout = f"schedule {r.choice(['auto', 'ring', 'gather', 'ulysses'])}; partition {r.choice(['zigzag', 'contiguous']) if ranks == 2 else 'contiguous'};"
    text += "attention { layers 0: m0; layers 1: m1; layers 2: m2; }\nsequence %d;\nlayout { %s }\n" % (tokens, layout)
    scale = r.choice([0, 0, 0.3])
    called = f"{ranks} 1 {seed} {scale} {r.randrange(2)} 0\n0 {tokens}\n0 3\n\n"
    called += "\n".join(row for kept in (*expressions, "k <= q") for row in keeps(kept, tokens, {})) + "\n"
    for *numbers, open_ in selections:
        called += " ".join(map(str, numbers)) + "\n" + "\n".join(keeps(open_, tokens, {})) + "\n"
    return ranks, text, called + "0 0 0 0 0\n"


def run_case(seed, o, folder, made=case_of):
    """None: burstc has refused the layout, as some have no such schedule."""
    ranks, text, called = made(seed)
    at = folder / f"{made.__name__}{seed}"
    at.mkdir()
    (at / "c.topo").write_text(TOPO % ranks)
    (at / "m.burst").write_text(text)
    (at / "case").write_text(called)
    compiled = runner.run([o.burstc, at / "c.topo", at / "m.burst", "-o", at / "plan.so", "-Wno-empty-rows", "-Wno-empty-mask"],
                          120, check=False)
    if compiled.returncode == 1 and "error:" in compiled.stderr and "C compiler" not in compiled.stderr:
        return None
    runner.require(compiled.returncode == 0, f"burstc ended with {compiled.returncode}\n{compiled.stderr}")
    predicted = re.search(r"a rank: (\d+) bytes of workspace", (at / "plan.so.c").read_text())[1]
    calls = 3 if made is select_case_of else 1000 if seed % 10 == 0 else 1
    done = runner.run([o.case, at / "plan.so", at / "case", predicted, calls], 120)
    errors = list(map(float, done.stdout.split()))
    for name, error in zip(RESULTS, errors):
        runner.require(error <= LIMIT, f"{name} is off by {error:g}, more than {LIMIT:g}\n{text}")
    return errors


def main():
    parser = runner.options(__doc__, "--burstc", "--case")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--selections", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    worst, refused, failed = [0.0] * len(RESULTS), 0, []
    with runner.folder(o.work) as folder:
        for made, seed in [(case_of, seed) for seed in range(o.seed, o.seed + o.count)] + [
                (select_case_of, seed) for seed in range(o.seed, o.seed + o.selections)]:
            try:
                errors = run_case(seed, o, folder, made)
            except runner.Failed as e:
                failed.append(f"{made.__name__} {seed}: {e}")
                continue
            refused += errors is None
            worst = [max(w, e) for w, e in zip(worst, errors)] if errors else worst
    print(*failed, sep="\n")
    count = o.count + o.selections
    print(f"{count} cases, {refused} refused layouts, {len(failed)} failed; worst errors",
          " ".join(f"{n} {w:.2g}" for n, w in zip(RESULTS, worst)))
    if refused * 3 > count:
        print("too many refused layouts: these cases say little")
    return bool(failed) or refused * 3 > count


if __name__ == "__main__":
    sys.exit(main())
