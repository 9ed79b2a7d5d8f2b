"""test_attention.py [--small | --random N [SEED]]: the kernels against float64 on the GPU; prints a line a case and ends with 1
after a failure.

Error: |x - x64| / |x64| over all elements. It may be 1.25 times that of the peer on the same inputs: cuDNN's bf16 attention
where it has the mask, otherwise the same formulas in torch with P and dS rounded to bf16. --small: few small cases, for
compute-sanitizer. --random: N cases drawn from masks, lengths, heads, position maps and chunks. BURST_HEAD_DIMS: those whose
libraries there are ("64 128").
"""
import itertools
import math
import os
import pathlib
import random
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention import FIRST, LAST, MASKS, Ring, split

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "reference"))
from attention_torch import dense, kept

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

LIMIT, LSE_LIMIT = 1.25, 1e-4
HEAD_DIMS = [int(d) for d in os.environ.get("BURST_HEAD_DIMS", "64 128").split()]
TESTED = [*MASKS[:10], MASKS[12]] # at lengths of these cases the others are causal
SOFTCAP = 2 # of the library that scripts/gpu-test builds with one
# With few elements the ratio of two rounding errors says little: the error may be this share of the norm that the sums
# would have if their terms did not cancel. A row with one key has a dQ of zero, of terms that do not vanish.
FEW, FEW_LIMIT = 64, 4e-3
names = ("O", "dQ", "dK", "dV")


def cudnn(q, k, v, d_o, causal):
    q, k, v = (x[None].detach().requires_grad_() for x in (q, k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    dq, dk, dv = torch.autograd.grad(o, (q, k, v), d_o[None])
    return [x[0].detach() for x in (o, dq, dk, dv)]


def peer_of(mask, q, k, v, d_o, keep, softcap):
    """(O, dQ, dK, dV) and their name."""
    if mask in ("full", "causal") and q.shape[1] >= FEW and not softcap and q.shape[2] <= 128:
        return cudnn(q, k, v, d_o, mask == "causal"), "cudnn"
    rounded = dense(*(x.float() for x in (q, k, v, d_o)), keep, True, by_head=True, softcap=softcap)
    return [x for i, x in enumerate(rounded) if i != 1], "torch"


def error(x, x64):
    return float((x.double() - x64).norm() / x64.norm())


def uncancelled(q, k, v, d_o, keep):
    """Norms of O, dQ, dK and dV with the magnitude of each term in place of the term, in float64."""
    group, scale = q.shape[0] // k.shape[0], q.shape[2] ** -0.5
    q, k, v, d_o = (x.double() for x in (q, k, v, d_o))
    ke, ve = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    p = torch.softmax((q @ ke.transpose(1, 2) * scale).masked_fill(~keep, float("-inf")), 2).nan_to_num(0)
    dp = d_o @ ve.transpose(1, 2)
    ds = p * (dp.abs() + (p * dp).sum(2, keepdim=True).abs()) * scale
    fold = lambda x: x.view(k.shape[0], group, *k.shape[1:]).sum(1)
    sums = p @ ve.abs(), ds @ ke.abs(), fold(ds.transpose(1, 2) @ q.abs()), fold(p.transpose(1, 2) @ d_o.abs())
    return [float(x.norm()) for x in sums]


def documents(n, seed):
    g = torch.Generator().manual_seed(seed)
    cut = torch.zeros(n, dtype=torch.int32)
    cut[torch.randint(0, n, (2 + 3 * seed,), generator=g)] = 1
    return torch.cumsum(cut, 0, dtype=torch.int32).cuda()


def inputs(h, hk, n, d, seed):
    g = torch.Generator(device="cuda").manual_seed(seed)
    make = lambda heads: torch.randn(heads, n, d, device="cuda", generator=g).bfloat16()
    return make(h), make(hk), make(hk), make(h)


def check(mask, d, n, h, hk, partition, ranks, token_major, doc_seed=0, seed=1, softcap=0, deterministic=False, fold=1, together=1, home=0):
    q, k, v, d_o = inputs(h, hk, n, d, seed)
    doc = documents(n, doc_seed)
    keep = kept(mask, n, doc, "cuda")
    ring = Ring(mask, d, split(partition, n, ranks), h, hk, h // hk, softcap=softcap, deterministic=deterministic, fold=fold, together=together, home=home)
    ring.prepare(doc)
    o, lse, dq, dk, dv = ring.run(q, k, v, d_o, token_major)
    o64, lse64, *g64 = dense(*(x.double() for x in (q, k, v, d_o)), keep, False, softcap=softcap)
    peer, peer_name = peer_of(mask, q, k, v, d_o, keep, softcap)
    ours = (o, dq, dk.bfloat16(), dv.bfloat16())
    errors = [(error(x, y), error(z, y)) for x, y, z in zip(ours, (o64, *g64), peer)]
    none = ~keep.any(1)
    lse_error = 0 if none.all() else float((lse.double() - lse64)[:, ~none].abs().max())
    empty_right = bool((lse[:, none] == float("-inf")).all() and (o[:, none] == 0).all() and (dq[:, none] == 0).all())
    near = [a <= LIMIT * b for a, b in errors]
    if n < FEW:
        terms = uncancelled(q, k, v, d_o, keep)
        near = [one or float((x.double() - y).norm()) <= FEW_LIMIT * z
                for one, x, y, z in zip(near, ours, (o64, *g64), terms)]
    good = lse_error < LSE_LIMIT and empty_right and all(near)
    shown = " ".join(f"{m} {a:.2e}/{b:.2e}" for m, (a, b) in zip(names, errors))
    print(f"{'ok  ' if good else 'FAIL'} {mask:20s} d{d} n{n} h{h}/{hk} {partition} x{ranks} by {together} x {fold} {peer_name}: {shown} lse {lse_error:.1e}", flush=True)
    return good


def check_head_parallel():
    """Two launches with half of the heads each (8 query heads on 2 key heads) give what one launch gives."""
    n, d = 333, HEAD_DIMS[-1]
    q, k, v, d_o = inputs(8, 2, n, d, 3)
    whole = Ring("causal", d, split("contiguous", n, 1), 8, 2, 4)
    whole.prepare(documents(n, 0))
    a = whole.run(q, k, v, d_o)
    good = True
    for half in (0, 1):
        part = Ring("causal", d, split("contiguous", n, 1), 4, 1, 4, 4 * half, half)
        part.prepare(documents(n, 0))
        hq, hk = slice(4 * half, 4 * half + 4), slice(half, half + 1)
        b = part.run(q[hq], k[hk], v[hk], d_o[hq])
        for x, y, s in zip(a, b, (hq, hq, hq, hk, hk)):
            good &= bool((x[s].float() - y.float()).norm() <= 1e-3 * y.float().norm())
    print("ok  " if good else "FAIL", "head parallel", flush=True)
    return good


def check_not_a_number():
    """A key that is not a number reaches the queries that see it, and no other. Positions 64 and 65 are left out, so that
    key 63 is all that row 160 sees of its tile of 64 keys, and the rows after it see none."""
    n, window, good = 335, 100, True
    positions = torch.cat([torch.arange(64), torch.arange(66, n)]).int()
    for d, key in itertools.product(HEAD_DIMS, (0, 63, 130, 334)):
        q, k, v, d_o = inputs(2, 2, n, d, 5)
        k[:, key] = float("nan")
        ring = Ring(f"window({window})", d, [positions], 2, 2, 1)
        ring.prepare(documents(n, 0))
        out, lse = (x[:, positions.long()] for x in ring.run(q, k, v, d_o)[:2])
        i = positions.cuda()
        for bad in (torch.isnan(out.float()).any(2), torch.isnan(lse)):
            good &= bool((bad == ((i >= key) & (i - key < window))).all())
    print("ok  " if good else "FAIL", "not a number", flush=True)
    return good


def check_two_runs(n=4096, ranks=4):
    """Tiles of 128 tokens with two runs of 64 are as partial as their own tokens make them, not as all between the runs would."""
    if 128 not in HEAD_DIMS: # others have tiles of three runs
        return True
    ring = Ring("causal", 128, split("blocks", n, ranks, 64), 2, 2, 1)
    ring.prepare(documents(n, 0))
    good = True
    for backward, q, k in itertools.product((0, 1), range(ranks), range(ranks)):
        sizes = ring.tiles[2 * backward:2 * backward + 2]
        queries, keys = (torch.split(ring.index[chunk].cpu(), size) for chunk, size in zip((q, k), sizes))
        seen = {(i, j): x[:, None] >= y[None] for i, x in enumerate(queries) for j, y in enumerate(keys)}
        good &= ring.entries(backward, q, k) == {at: not bool(one.all()) for at, one in seen.items() if one.any()}
    print("ok  " if good else "FAIL", "tiles of two runs", flush=True)
    return good


def check_one_key(n=333):
    """Rows that see one key, as all do whose neighbours are a window away: O is its value, dQ and dK are exactly 0."""
    results = []
    for d, ranks in itertools.product(HEAD_DIMS, (1, 3)):
        positions = torch.arange(n).int() * 100
        q, k, v, d_o = inputs(4, 2, 100 * n, d, 9)
        ring = Ring("window(100)", d, [positions[r::ranks].contiguous() for r in range(ranks)], 4, 2, 2, fold=ranks)
        ring.prepare(documents(100 * n, 0))
        out, _, dq, dk, _ = (x[:, positions.long()] for x in ring.run(q, k, v, d_o))
        own = torch.equal(out, v.repeat_interleave(2, 0)[:, positions.long()])
        results.append(own and not dq.any() and not dk.any())
        print("ok  " if results[-1] else "FAIL", f"one key d{d} x{ranks}: dQ {float(dq.abs().max()):.1e} dK {float(dk.abs().max()):.1e}", flush=True)
    return all(results)


def check_peaked(n=65536, queries=128):
    """One score of 17 among 64Ki scores of 0, whose values weigh as much together: row sums lose no key. Sums over
    queries are check_peaked_gradients'."""
    good, nan = True, float("nan")
    for d in HEAD_DIMS:
        q, d_o = (torch.zeros(1, queries, d, device="cuda", dtype=torch.bfloat16), inputs(1, 1, queries, d, 6)[3])
        k, v = inputs(1, 1, n, d, 7)[1:3]
        q[..., 0], k[..., 0], k[:, 0], k[:, 0, 0] = d ** 0.5, 0, 0, 17
        v[:, 1:] = (1 + v[:, 1:].float()) * (math.exp(17) / n)
        ring = Ring("full", d, [torch.arange(queries).int(), torch.arange(n).int()], 1, 1, 1)
        ring.prepare()
        out, dq_out = torch.full_like(q, nan), torch.full_like(q, nan)
        o, lse, delta = torch.full(q.shape, nan, device="cuda"), *torch.full((2, 1, queries), nan, device="cuda")
        dq, dk, dv = (torch.zeros(x.shape, device="cuda") for x in (q, k, v))
        ring.forward_pairs((0,), (1,), (q,), (q, k), (q, v), (out,), (o,), (lse,), FIRST | LAST)
        ring.delta(out, d_o, delta)
        ring.backward_pairs((0,), (1,), (q,), (q, k), (q, v), (d_o,), (lse,), (delta,), (dq,), (dq, dk), (dq, dv))
        ring.finish_dq(dq, dq_out)
        keep = torch.ones(queries, n, dtype=torch.bool, device="cuda")
        o64, lse64, *g64 = dense(*(x.double() for x in (q, k, v, d_o)), keep, False)
        peer = dense(*(x.float() for x in (q, k, v, d_o)), keep, True, by_head=True)
        ours = (out, dq_out, dv.bfloat16())
        errors = [(error(x, y), error(z, y)) for x, y, z in zip(ours, (o64, g64[0], g64[2]), (peer[0], peer[2], peer[4]))]
        lse_error = float((lse.double() - lse64).abs().max())
        passed = lse_error < LSE_LIMIT and all(a <= LIMIT * b for a, b in errors)
        good &= passed
        shown = " ".join(f"{m} {a:.2e}/{b:.2e}" for m, (a, b) in zip(("O", "dQ", "dV"), errors))
        print(f"{'ok  ' if passed else 'FAIL'} peaked d{d} n{n} torch: {shown} lse {lse_error:.1e}", flush=True)
    return good


def check_peaked_gradients(n=65536, keys=128):
    """One query whose gradient is 64Ki times that of each of the 64Ki others, which weigh as much together: sums over queries lose none.
    All scores are 0 and values are +1 and -1 in one column, so that P, dP and dS have no rounding: what dK and dV differ by from
    float64, before they are rounded, is that of their sums. Each step of 16 queries may round once."""
    good, limit = True, n / 16 * 2.0 ** -23
    for d in HEAD_DIMS:
        q, d_o = inputs(1, 1, n, d, 8)[::3]
        q = (2 + q.float().clamp(-1, 1)).bfloat16()
        d_o = (2 + d_o.float().clamp(-1, 1)).bfloat16()
        d_o[:, 0] = n
        k, v = torch.zeros(2, 1, keys, d, device="cuda", dtype=torch.bfloat16)
        v[:, ::2, 0], v[:, 1::2, 0] = 1, -1
        ring = Ring("full", d, [torch.arange(n).int(), torch.arange(keys).int()], 1, 1, 1)
        ring.prepare()
        lse, delta = torch.full((1, n), math.log(keys), device="cuda"), torch.zeros(1, n, device="cuda")
        dq, dk, dv = torch.zeros(q.shape, device="cuda"), *torch.zeros(2, 1, keys, d, device="cuda")
        ring.backward_pairs((0,), (1,), (q,), (q, k), (q, v), (d_o,), (lse,), (delta,), (dq,), (dq, dk), (dq, dv))
        dv64 = d_o.double().sum(1, keepdim=True).expand(1, keys, d) / keys
        dk64 = v[..., :1].double() * (d_o[..., :1].double() * q.double()).sum(1, keepdim=True) * d ** -0.5 / keys
        errors = error(dk, dk64), error(dv, dv64)
        passed = all(e <= limit for e in errors)
        good &= passed
        print(f"{'ok  ' if passed else 'FAIL'} peaked gradients d{d} n{n}: dK {errors[0]:.1e} dV {errors[1]:.1e}, limit {limit:.1e}", flush=True)
    return good


def check_deterministic():
    """The library that has its sums in order gives the same bits on every run; where there is one."""
    good = True
    for mask, d, n, h, hk, partition, ranks in (("causal", 128, 8192, 16, 16, "contiguous", 1), ("full", 128, 4096, 8, 2, "zigzag", 2),
                                                ("document", 128, 5000, 8, 1, "striped", 4), ("odd", 64, 3000, 8, 4, "blocks", 2),
                                                ("causal", 64, 8192, 16, 4, "zigzag", 2), ("full", 64, 6000, 4, 1, "contiguous", 1)):
        runs = []
        for _ in range(3):
            ring = Ring(mask, d, split(partition, n, ranks), h, hk, h // hk, deterministic=True, fold=min(ranks, 3), together=min(ranks, 2))
            ring.prepare(documents(n, 1))
            runs.append(ring.run(*inputs(h, hk, n, d, 1)))
        same = all(torch.equal(x, y) for run in runs[1:] for x, y in zip(runs[0], run))
        good &= same
        print("ok  " if same else "FAIL", f"the same bits: {mask} d{d} n{n} h{h}/{hk} {partition} x{ranks}", flush=True)
    return good & check("causal", 128, 1031, 8, 2, "zigzag", 2, True, deterministic=True) & \
        check("odd", 64, 997, 4, 4, "striped", 3, False, deterministic=True)


def draw(r):
    d, mask, partition = r.choice(HEAD_DIMS), r.choice(TESTED), r.choice(("contiguous", "zigzag", "striped", "blocks"))
    ranks, hk = r.choice((1, 2, 3, 4, 5, 9)), r.choice((1, 1, 2, 3))
    return mask, d, r.choice((r.randint(1, 300), r.randint(300, 1500))), hk * r.choice((1, 2, 3, 4, 8)), hk, partition, ranks, \
        r.random() < 0.5, r.randint(0, 5), r.randint(1, 1000), 0, False, r.choice((ranks, r.randint(1, ranks))), r.randint(1, ranks), \
        r.randint(0, ranks)


def cases(small):
    if small:
        for d in HEAD_DIMS:
            yield "causal", d, 150, 2, 1, "contiguous", 1, True
            yield "odd", d, 261, 1, 1, "zigzag", 2, False, 0, 1, 0, False, 2, 2
            yield "document", d, 200, 2, 2, "striped", 2, True
        return
    for d, mask in itertools.product(HEAD_DIMS, TESTED):
        yield mask, d, 997, 8, 8, "contiguous", 1, False
        for fold in (1, 2):
            yield mask, d, 1031, 8, 2, "zigzag", 2, True, 0, 1, 0, False, fold
        for fold, together in ((1, 1), (3, 1), (2, 3)):
            yield mask, d, 1111, 8, 1, "striped", 4, False, 0, 1, 0, False, fold, together
        for fold, together, home in ((1, 1, 0), (4, 1, 0), (4, 4, 0), (4, 1, 1), (4, 4, 3)):
            yield mask, d, 769, 4, 4, "blocks", 4, True, 0, 1, 0, False, fold, together, home
    for d in HEAD_DIMS:
        yield "causal", d, 5, 2, 2, "contiguous", 1, False
        yield "causal", d, 3, 2, 1, "striped", 4, False
        yield "causal", d, 3, 2, 1, "striped", 4, False, 0, 1, 0, False, 4, 4
        yield "causal", d, 1300, 4, 2, "zigzag", 9, False, 0, 1, 0, False, 9, 5
        yield "causal", d, 2048, 8, 8, "contiguous", 1, False
        for seed in (1, 2, 3):
            yield "document", d, 1500, 4, 1, "zigzag", 2, True, seed
    for mask in ("full", "causal", "document", "odd") if 128 in HEAD_DIMS else (): # a cap that cuts many scores off
        yield mask, 128, 769, 4, 2, "zigzag", 2, True, 0, 1, SOFTCAP


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    small, drawn, numbers = runner.words(__doc__, "--small", "--random", more="cases_and_seed")
    if drawn:
        count, seed = (int(x) for x in [*numbers, 1][:2])
        r = random.Random(seed)
        results = [check(*draw(r)) for _ in range(count)]
    else:
        results = [check(*c) for c in cases(small)]
    if not small and not drawn:
        results += [check_head_parallel(), check_not_a_number(), check_two_runs(), check_one_key(), check_peaked(), check_peaked_gradients()]
        if torch.cuda.get_device_capability() == (9, 0) and os.environ.get("BURST_FORM") != "80":
            results.append(check_deterministic())
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
