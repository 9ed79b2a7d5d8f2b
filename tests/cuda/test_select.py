"""test_select.py [--small]: tiles of queries choose blocks of keys, and attention over their lists, on the GPU; prints a line a case and ends with 1
after a failure.

Lists are those of brute force in float64 from the same bf16 queries and keys, but where two scores are nearer than fp32 tells apart
(counted). Outputs and gradients over them are as near to float64 as 1.25 times the same formulas in torch with P and dS rounded to
bf16. With all blocks kept they are those of the dense mask, bit for bit (in a library with sums in order). Nothing before a changed
token changes, ranks make the same lists, and hostile scores give lists that hold what they may. BURST_HEAD_DIMS: "64 128".
"""
import os
import pathlib
import sys

import torch

from attention import Ring, split
from selecting import (FIRST_KEY, FIRST_QUERY, LIMITS, MAX_KEY, MEAN_KEY, OF_ALL, OF_HEAD, OF_KV, OWN_MEAN, PREVIOUS_MEAN, TILE, Chooser, Selected, Selection,
                       check_lists, kept, units)
from test_attention import LIMIT, LSE_LIMIT, error, inputs

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "reference"))
from attention_torch import dense

HEAD_DIMS = [int(d) for d in os.environ.get("BURST_HEAD_DIMS", "64 128").split()]
CAUSAL = 5  # the mask without a selection
names = ("O", "dQ", "dK", "dV")
own_tile = lambda q, k: q // TILE == k // TILE
SELECTIONS = {  # as select.burst has them
    "plain": Selection(0, 0, 128, FIRST_QUERY, MEAN_KEY, OF_KV, lambda q, k, doc: q >= k, own_tile),
    "greatest": Selection(0, 0, 128, FIRST_QUERY, MAX_KEY, OF_KV, lambda q, k, doc: q >= k, own_tile),
    "limits": Selection(1, 1, 64, FIRST_QUERY, LIMITS, OF_HEAD, lambda q, k, doc: q >= k, lambda q, k: own_tile(q, k) | (k < 64)),
    "documents": Selection(2, 2, 32, PREVIOUS_MEAN, MEAN_KEY, OF_KV, lambda q, k, doc: (q >= k) & (doc[q.long()] == doc[k.long()]), own_tile, documents=True),
    "both": Selection(3, 3, 48, OWN_MEAN, FIRST_KEY, OF_ALL, lambda q, k, doc: (q >= 0) & (k >= 0), lambda q, k: (q < 0) & (k < 0), noncausal=True),
    "near": Selection(4, 4, 256, PREVIOUS_MEAN, MEAN_KEY, OF_HEAD, lambda q, k, doc: (q >= k) & (q - k < 1000) & ((q < 700) | (k >= 700)),
                      lambda q, k: own_tile(q, k) & (q % 5 != 0)),
}
MORE = {  # of products with every key: heads of several key heads, a head, and queries that are not bf16
    "greatest_all": SELECTIONS["greatest"]._replace(heads=OF_ALL),
    "greatest_each": SELECTIONS["greatest"]._replace(heads=OF_HEAD),
    "greatest_mean": SELECTIONS["greatest"]._replace(query=PREVIOUS_MEAN),
}
failed = []


def library(d, kind=""):
    return os.path.join(os.environ.get("BURST_CUDA_LIB", "."), f"libattention{d}_select{kind}.so")


def said(good, *words):
    print("ok  " if good else "FAIL", *words, flush=True)
    if not good:
        failed.append(words)


def some_documents(n, seed):
    g = torch.Generator().manual_seed(seed)
    cut = torch.zeros(n, dtype=torch.int32)
    cut[torch.randint(0, n, (5,), generator=g)] = 1
    return torch.cumsum(cut, 0, dtype=torch.int32).cuda()


def check_attention(name, s, lists, q, k, v, d_o, doc, d, words, parts=None, fold=1, band_bits=0, at_once=None):
    h, hk, n = q.shape[0], k.shape[0], q.shape[1]
    ours = Selected(library(d), s, lists, h, hk, d, n, doc, parts, fold, band_bits, at_once).run(q, k, v, d_o)
    if lists.shape[1] > 1 and at_once != 1:
        apart = Selected(library(d), s, lists, h, hk, d, n, doc, parts, fold, 0, 1).run(q, k, v, d_o)
        said(all(torch.equal(x, y) for x, y in zip(ours[:2], apart[:2])), "attention", name, words, "o and lse are the bits of a launch for each list")
    keep = kept(s, lists, h, n, doc)
    o64, lse64, *g64 = dense(*(x.double() for x in (q, k, v, d_o)), keep, False)
    peer = [x for i, x in enumerate(dense(*(x.float() for x in (q, k, v, d_o)), keep, True, by_head=True)) if i != 1]
    apart = lambda x, y: error(x, y) if y.any() else float(x.double().norm())  # of queries of zero dK is zero
    errors = [(apart(x, y), apart(z, y)) for x, y, z in zip((ours[0], ours[2], ours[3].bfloat16(), ours[4].bfloat16()), (o64, *g64), peer)]
    none = ~keep.any(2)
    lse = float((ours[1].double() - lse64)[~none].abs().max())
    empty = bool((ours[1][none] == float("-inf")).all() and (ours[0][none] == 0).all())
    shown = " ".join(f"{m} {a:.2e}/{b:.2e}" for m, (a, b) in zip(names, errors))
    said(all(a <= LIMIT * b for a, b in errors) and lse < LSE_LIMIT and empty, "attention", name, words, shown, f"lse {lse:.1e}, {int(none.sum())} rows without keys")


def check(name, top, d, n, h, hk, seed=1, ranks=1, fold=1, band_bits=0, at_once=None):
    s, doc = {**SELECTIONS, **MORE}[name], some_documents(n, seed)
    q, k, v, d_o = inputs(h, hk, n, d, seed)
    parts = split_tiles(n, ranks, s)
    lists = Chooser(library(d), s, top, h, hk, n, doc, parts).run(q, k)
    right, count, near = check_lists(s, top, lists, q, k, doc)
    words = f"top {top} d{d} n{n} h{h}/{hk} x{ranks} by {fold}{f' 2^{band_bits} bands' if band_bits else ''}{f' {at_once} lists at once' if at_once else ''}"
    said(right, "lists", name, words, f"{count} lists, {near} with scores nearer than fp32 tells apart")
    if ranks > 1:
        alone = Chooser(library(d), s, top, h, hk, n, doc).run(q, k)
        said(torch.equal(lists, alone), "lists", name, words, "are those of one rank")
    check_attention(name, s, lists, q, k, v, d_o, doc, d, words, parts, fold, band_bits, at_once)


def split_tiles(n, ranks, s):
    """Zigzag runs of whole tiles and blocks."""
    if ranks == 1:
        return None
    import math
    unit = math.lcm(TILE, s.block)
    i = torch.arange(n, dtype=torch.int32)
    piece = (i // unit).long() * 2 * ranks // units(n, unit)
    owner = torch.minimum(piece, 2 * ranks - 1 - piece)
    return [i[owner == r].contiguous() for r in range(ranks)]


def check_all(d, n, h, hk):
    """As many blocks as there are: the bits of the dense mask."""
    s, doc = SELECTIONS["plain"], some_documents(n, 1)
    data = inputs(h, hk, n, d, 2)
    lists = Chooser(library(d), s, units(n, s.block), h, hk, n, doc).run(*data[:2])
    ours = Selected(library(d, "_deterministic"), s, lists, h, hk, d, n, doc).run(*data)
    ring = Ring(CAUSAL, d, split("contiguous", n, 1), h, hk, h // hk, library=library(d, "_deterministic"))
    ring.prepare(doc)
    plain = ring.run(*data)
    same = [torch.equal(x, y) for x, y in zip(ours, plain)]
    said(all(same), f"all blocks d{d} n{n} h{h}/{hk}: O, lse, dQ, dK, dV are the bits of causal:", same)


def check_leak(name, d, n, h, hk):
    """Other queries, keys and values from token t on change nothing before it."""
    s, doc = SELECTIONS[name], some_documents(n, 3)
    data, other = inputs(h, hk, n, d, 4), inputs(h, hk, n, d, 5)
    good = True
    for t in (n // 3, n // 2 // TILE * TILE, n - 1):
        changed = [torch.cat((x[:, :t], y[:, t:]), 1) for x, y in zip(data, other)]
        results = []
        for q, k, v, d_o in (data, changed):
            lists = Chooser(library(d), s, 3, h, hk, n, doc).run(q, k)
            results.append((lists.clone(), Selected(library(d), s, lists, h, hk, d, n, doc).run(q, k, v, d_o)[0]))
        (a, x), (b, y) = results
        good &= torch.equal(a[:units(t, TILE)], b[:units(t, TILE)]) and torch.equal(x[:, :t], y[:, :t])
    said(good, "no leak", name, f"d{d} n{n}")


def check_hostile(d, n, h, hk):
    doc = some_documents(n, 6)
    for name, s in SELECTIONS.items():
        q, k, v, d_o = inputs(h, hk, n, d, 7)
        for what, top, change in (("equal scores", 3, lambda q, k: q.zero_()), ("fewer blocks than n", 500, lambda q, k: None),
                                  ("NaN keys", 3, lambda q, k: k[:, n // 4: n // 4 + 300].fill_(float("nan"))),
                                  ("infinite keys", 2, lambda q, k: k[:, 200:210].fill_(float("inf"))), ("one channel", 4, lambda q, k: q[:, :, 1:].zero_())):
            x, y = q.clone(), k.clone()
            change(x, y)
            lists = Chooser(library(d), s, top, h, hk, n, doc).run(x, y)
            right, count, near = check_lists(s, top, lists, x, y, doc)
            said(right, "hostile", name, what, f"d{d}: {count} lists, {near} near")
            if what in ("equal scores", "fewer blocks than n"):
                check_attention(name, s, lists, x, y, v, d_o, doc, d, what)


def main():
    small = "--small" in sys.argv
    for d in HEAD_DIMS:
        for name in SELECTIONS:
            check(name, 3, d, 1024 if small else 2048, 4, 2)
        if small:
            continue
        for name in SELECTIONS:
            check(name, 4, d, 1900, 8, 2, seed=2)
        for name in MORE:
            check(name, 3, d, 1900, 12, 3, seed=3)
        check("greatest", 3, d, 2048, 6, 1, ranks=2, fold=2)
        check("plain", 5, d, 2048, 4, 4, ranks=2, fold=2)
        check("documents", 4, d, 1999, 4, 1, ranks=2)
        check("near", 2, d, 2048, 4, 2, ranks=4, fold=4)
        check("limits", 3, d, 2048, 16, 2, ranks=2, fold=2, band_bits=2)
        check("limits", 3, d, 1500, 12, 3, ranks=2, fold=2, band_bits=1, at_once=5)
        check("plain", 5, d, 2048, 12, 1, band_bits=1)
        check("plain", 5, d, 1900, 12, 3, band_bits=3, at_once=2)
        check("near", 2, d, 1900, 9, 3, band_bits=5)
        for name in ("plain", "limits", "documents", "near"):
            check_leak(name, d, 1500, 4, 2)
        check_hostile(d, 1300, 4, 2)
    if 128 in HEAD_DIMS and not small:
        check_all(128, 2048, 8, 2)
        check_all(128, 1999, 4, 4)
    print(f"{len(failed)} failed" if failed else "all passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
