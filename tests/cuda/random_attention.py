"""random_attention.py BURSTC FOLDER [CASES [SEED]]: the attention kernels with stock masks and masks drawn at random from the mask language, against
float64 on the GPU; prints a line for each failure and ends with 1 after one.

A mask is drawn as a tree, which is written once for burstc and once for torch. BURSTC emits a program with all masks, from which
their kernels are compiled here into FOLDER (NVCC, ARCH and FORM_FLAG in the environment: scripts/gpu-test), several masks a library.
Each mask serves CASES_A_MASK cases, which differ in length, heads, position map, chunks and how many of them a launch takes. Of the
errors of O, dQ, dK and dV none may be above 1.25 times the peer's (test_attention.py), or what fp32 leaves of differences of far larger
numbers (where a row has one key, P (dP - delta) is 0). With few pairs the ratio is luck: draws of the inputs are added up until there are
enough of them.
"""
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

CASES_A_MASK, MASKS_A_LIBRARY, ENOUGH, MOST_DRAWS = 5, 5, 1 << 18, 64
LIMIT, FP32 = 1.25, 2.0 ** -17 # FP32: of the terms' size, for sums of some hundred
HEAD_DIMS = (64, 64, 128, 128, 128, 32, 96, 192, 256)
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = ["templates/kernels", "templates/kernels/sm80", "templates/kernels/sm90", "runtime/include"]
NAMES = ("O", "dQ", "dK", "dV")


# ---- masks: (text for burstc, function of q, k, doc, hashed in torch) ----
def number(r, depth):
    kind = r.randint(0, 9) if depth else r.choice((0, 1, 2))
    if kind in (0, 1):
        return ("q", lambda q, k, *_: q) if kind == 0 else ("k", lambda q, k, *_: k)
    if kind == 2:
        c = r.choice((r.randint(0, 9), r.randint(0, 300)))
        return str(c), lambda q, k, *_: q * 0 + c
    a = number(r, depth - 1)
    if kind in (3, 4):
        c = r.choice((2, 3, 5, 7, 13, 16, 64, 100))
        if kind == 3:
            return f"({a[0]}) / {c}", lambda *x: a[1](*x) // c
        return f"({a[0]}) mod {c}", lambda *x: a[1](*x) % c
    if kind == 5:
        c = r.randint(2, 5)
        return f"{c} * ({a[0]})", lambda *x: c * a[1](*x)
    if kind == 6:
        return f"abs({a[0]})", lambda *x: a[1](*x).abs()
    b = number(r, depth - 1)
    if kind == 7:
        return f"({a[0]}) + ({b[0]})", lambda *x: a[1](*x) + b[1](*x)
    if kind == 8:
        return f"({a[0]}) - ({b[0]})", lambda *x: a[1](*x) - b[1](*x)
    if r.random() < 0.5:
        return f"min({a[0]}, {b[0]})", lambda *x: lowest(a[1](*x), b[1](*x))
    return f"hash({a[0]}, {b[0]})", lambda *x: x[3](a[1](*x), b[1](*x))


def lowest(a, b):
    import torch
    return torch.minimum(*torch.broadcast_tensors(a, b))


COMPARE = {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
           "==": lambda a, b: a == b, "!=": lambda a, b: a != b}


def likely(r):
    """A condition of the kinds that models have."""
    w, b, n = r.choice((1, 20, 64, 100, 300, 700)), r.choice((16, 40, 64, 128)), r.randint(2, 6)
    return r.choice((
        ("k <= q", lambda q, k, *_: k <= q), ("true", lambda q, k, *_: q == q), (f"q - k < {w}", lambda q, k, *_: q - k < w),
        (f"abs(q - k) < {w}", lambda q, k, *_: (q - k).abs() < w), (f"k < {w}", lambda q, k, *_: k < w),
        (f"(q - k) mod {n} == 0", lambda q, k, *_: (q - k) % n == 0), (f"q / {b} == k / {b}", lambda q, k, *_: q // b == k // b),
        (f"k / {b} <= q / {b}", lambda q, k, *_: k // b <= q // b), ("doc[q] == doc[k]", lambda q, k, doc, _: doc[q] == doc[k]),
        (f"hash(q / {b}, k / {b}) mod {n} == 0", lambda q, k, _, hashed: hashed(q // b, k // b) % n == 0)))


# Stock masks that test_attention.py does not have, at lengths of these cases.
STOCK = [
    ("strided(40, 7)", lambda q, k, *_: (k <= q) & ((q - k < 40) | ((q - k) % 7 == 0))),
    ("block_local(100)", lambda q, k, *_: q // 100 == k // 100),
    ("block_causal(96)", lambda q, k, *_: k // 96 <= q // 96),
    ("shared_question(70, 130)", lambda q, k, *_: (k <= q) & ((k < 70) | ((q - 70) // 130 == (k - 70) // 130))),
    ("longnet(64, 4)", lambda q, k, *_: (k <= q) & ((q // 64 == k // 64) | (q // 256 == k // 256) & ((q - k) % 4 == 0) |
                                                  (q // 1024 == k // 1024) & ((q - k) % 16 == 0))),
]


def condition(r, depth):
    kind = r.random()
    if depth == 0 or kind < 0.25:
        if r.random() < 0.65:
            return likely(r)
        (a, fa), (b, fb), c = number(r, 2), number(r, 1), r.choice(list(COMPARE))
        return f"{a} {c} {b}", lambda *x: COMPARE[c](fa(*x), fb(*x))
    a = condition(r, depth - 1)
    if kind < 0.35:
        return f"not ({a[0]})", lambda *x: ~a[1](*x)
    b = condition(r, depth - 1)
    if kind < 0.75:
        return f"({a[0]}) and ({b[0]})", lambda *x: a[1](*x) & b[1](*x)
    return f"({a[0]}) or ({b[0]})", lambda *x: a[1](*x) | b[1](*x)


def hashed(a, b):
    """As in tests/reference, for any sign."""
    from attention_torch import hashed as of
    return of((a ^ a >> 32) & 0xffffffff, (b ^ b >> 32) & 0xffffffff)


# ---- kernels ----
def emit(burstc, folder, masks, r):
    """Texts of the masks as kernels take them; KEYS, which the sequence decides, at random, but not where predicates take 64 bits."""
    (folder / "random.topo").write_text('import "devices";\ncluster one { nodes 1 { gpus 1 of h200; } }\n')
    lines = [f"mask m{i} = {text};" for i, (text, _) in enumerate(masks)]
    layers = [f"layers {i}: m{i};" for i in range(len(masks))]
    (folder / "random.burst").write_text("\n".join(
        ['import "masks";', "table doc per token;", *lines, f"model random {{ layers {len(masks)}; hidden 64; heads 1; head_dim 64; ffn swiglu 64; vocab 64; }}",
         "attention { default m0; " + " ".join(layers[1:]) + " }", "sequence 2Ki;", ""]))
    subprocess.run([burstc, folder / "random.topo", folder / "random.burst", "-o", folder / "random.cu"], check=True)
    text = (folder / "random.cu").read_text()
    made = []
    for i in range(len(masks)):
        of = re.search(rf"static __device__ [^\n]*\bplan_mask{i}_tile\(.*?\nstruct PlanMask{i} {{.*?\n}};\n", text, re.S).group()
        made.append(re.sub(r"KEYS = \d", f"KEYS = {r.randint(0, 2)}", of) if f"_mask{i}_keep(int32_t q" in of else of)
    return made


def build(folder, d, numbers, texts):
    """The library of some masks, renumbered from 0."""
    name = f"{d}_{numbers[0]}"
    renumbered = [re.sub(rf"\b(plan_m|PlanM)ask{i}\b|\bplan_mask{i}_(tile|keep)\b", lambda m: f"{m[1]}ask{at}" if m[1] else f"plan_mask{at}_{m[2]}",
                         texts[i]) for at, i in enumerate(numbers)]
    names = "#define TEST_MASKS(X) " + " ".join(f"X({at})" for at in range(len(numbers)))
    (folder / f"masks{name}.cuh").write_text("\n".join([*renumbered, names, ""]))
    flags = os.environ.get("FORM_FLAG", "").split()
    arch = os.environ["ARCH"]
    library = folder / f"libattention{name}.so"
    subprocess.run([os.environ["NVCC"], "-std=c++17", "-O3", "-diag-suppress", "186", *flags, f"-DHEAD_DIM={d}", f'-DMASKS_FILE="masks{name}.cuh"', f"-I{folder}",
                    *[f"-I{ROOT}/{folder}" for folder in FOLDERS], "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-Xcompiler", "-fPIC",
                    "-shared", "-o", library, HERE / "attention_lib.cu"], check=True)
    return library


def libraries(burstc, folder, masks, r):
    """[(head_dim, library, number of the mask in it)] by mask."""
    texts, place, jobs = emit(burstc, folder, masks, r), {}, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for first in range(0, len(masks), MASKS_A_LIBRARY):
            numbers = range(first, min(first + MASKS_A_LIBRARY, len(masks)))
            d = r.choice(HEAD_DIMS)
            jobs.append((d, numbers, pool.submit(build, folder, d, numbers, texts)))
        for d, numbers, job in jobs:
            place.update({i: (d, job.result(), at) for at, i in enumerate(numbers)})
    return place


# ---- cases ----
def positions(r, kind, n, ranks):
    import torch
    from attention import split
    if kind != "scattered":
        return split(kind, n, ranks)
    order, cut = torch.tensor(r.sample(range(n), n), dtype=torch.int32), sorted(r.randint(0, n) for _ in range(ranks - 1))
    return [order[a:b].contiguous() for a, b in zip([0, *cut], [*cut, n])]


def sizes(q, k, v, d_o, o, lse, keep):
    """What dQ and dK would be if P dP and P delta did not cancel, in the type of q."""
    group, scale = q.shape[0] // k.shape[0], q.shape[2] ** -0.5
    ke, ve = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    p = (q @ ke.transpose(1, 2) * scale - lse.nan_to_num(neginf=0)[..., None]).masked_fill(~keep, float("-inf")).exp()
    terms = scale * p * ((d_o @ ve.transpose(1, 2)).abs() + (d_o * o).sum(2, keepdim=True).abs())
    return terms @ ke.abs(), (terms.transpose(1, 2) @ q.abs()).view(k.shape[0], group, *k.shape[1:]).sum(1)


def measure(ring, case, mask, seed):
    """Squared errors of ours and of the peer, and squares of float64 and of its terms, by result; whether what has no key is zero; kept
    pairs."""
    import torch
    from attention_torch import dense
    from test_attention import cudnn, documents, inputs
    n, h, hk, d = case["n"], case["h"], case["hk"], ring.d
    q, k, v, d_o = inputs(h, hk, n, d, seed)
    doc = documents(n, seed % 6)
    i, j = torch.arange(n, device="cuda")[:, None], torch.arange(n, device="cuda")[None]
    keep = mask[1](i, j, doc, hashed) & torch.ones(n, n, dtype=torch.bool, device="cuda")
    ring.prepare(doc)
    o, lse, dq, dk, dv = ring.run(q, k, v, d_o, case["token_major"])
    o64, lse64, *g64 = dense(*(x.double() for x in (q, k, v, d_o)), keep, False)
    causal = bool((keep == (j <= i)).all())
    if n >= 64 and d <= 128 and (causal or bool(keep.all())):
        peer = cudnn(q, k, v, d_o, causal)
    else:
        rounded = dense(*(x.float() for x in (q, k, v, d_o)), keep, True, by_head=True)
        peer = [x for at, x in enumerate(rounded) if at != 1]
    square = lambda x, y: float((x.double() - y).square().sum())
    ours = (o, dq, dk.bfloat16(), dv.bfloat16())
    dq, dk = sizes(*(x.double() for x in (q, k, v, d_o)), o64, lse64, keep)
    terms = [float(x.square().sum()) for x in (o64, dq, dk, g64[2])]
    sums = [(square(x, y), square(z, y), float(y.square().sum()), t) for x, y, z, t in zip(ours, (o64, *g64), peer, terms)]
    none = ~keep.any(1)
    empty = bool((lse[:, none] == float("-inf")).all() and (o[:, none] == 0).all() and (dq[:, none] == 0).all())
    finite = all(bool(torch.isfinite(x.float()).all()) for x in ours)
    near = (lse.double() - lse64)[:, ~none].abs().max().item() < 1e-4 if bool((~none).any()) else True
    return sums, empty and finite and near, int(keep.sum()) * h


def check(mask, place, case, parts):
    """Inputs are drawn again while a result's error is above the limit and there were few pairs or few draws."""
    from attention import Ring
    d, library, number = place
    ring = Ring(number, d, parts, case["h"], case["hk"], case["h"] // case["hk"], fold=case["fold"],
                together=case["together"], library=library, home=case["home"])
    sums, pairs, draws, right = [[0.0] * 4 for _ in NAMES], 0, 0, True
    while True:
        more, fine, kept = measure(ring, case, mask, case["seed"] + draws)
        sums = [[a + b for a, b in zip(x, y)] for x, y in zip(sums, more)]
        pairs, draws, right = pairs + kept, draws + 1, right and fine
        good = right and all(a <= LIMIT ** 2 * b or a <= FP32 ** 2 * terms for a, b, _, terms in sums)
        if good or not right or draws >= MOST_DRAWS or (pairs >= ENOUGH and draws >= 4):
            break
    if not good:
        shown = " ".join(f"{m} {(a / max(c, terms * 1e-12, 1e-300)) ** 0.5:.2e}/{(b / max(c, terms * 1e-12, 1e-300)) ** 0.5:.2e}" for m, (a, b, c, terms) in zip(NAMES, sums))
        print(f"FAIL {mask[0]} d{d} {case} {shown} {'' if right else 'lse, not finite, or rows without keys'}", flush=True)
    return good, draws


def draw_case(r):
    ranks, hk = r.choice((1, 1, 2, 3, 4, 5, 9)), r.choice((1, 1, 2, 3))
    return {"n": r.choice((r.randint(1, 300), r.randint(300, 1500))), "h": hk * r.choice((1, 2, 3, 4, 8)), "hk": hk, "ranks": ranks,
            "map": r.choice(("contiguous", "zigzag", "striped", "blocks", "scattered")), "fold": r.choice((ranks, r.randint(1, ranks))), "together": r.randint(1, ranks),
            "home": r.randint(0, ranks),             "token_major": r.random() < 0.5, "seed": r.randint(1, 1000)}


def main():
    burstc, folder, build, numbers = runner.words(__doc__, "burstc", "folder", "--build", more="cases_and_seed")
    folder = pathlib.Path(folder).resolve()
    cases, seed = (int(numbers[i]) if len(numbers) > i else default for i, default in enumerate((1000, 1)))
    r = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    count = -(-cases // CASES_A_MASK)
    masks = [*STOCK, *(condition(r, r.randint(0, 3)) for _ in range(count - len(STOCK)))][:count]
    place = libraries(burstc, folder, masks, r)
    if build:
        return
    import torch
    sys.path.append(str(ROOT / "tests" / "reference"))
    torch.backends.cuda.matmul.allow_tf32 = False
    results = []
    for at in range(cases):
        case = draw_case(r)
        results.append(check(masks[at // CASES_A_MASK], place[at // CASES_A_MASK], case, positions(r, case["map"], case["n"], case["ranks"])))
    failed = sum(not good for good, _ in results)
    print(f"seed {seed}: {len(masks)} masks, {len(results) - failed} cases passed, {failed} failed; "
          f"{sum(draws > 1 for _, draws in results)} drawn more than once, at most {max(draws for _, draws in results)} times")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
