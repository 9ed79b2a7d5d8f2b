"""One rank of run_torch.py: the package burst against dense attention in float64 torch. Every rank draws the same cases."""
import argparse
import copy
import gc
import os
import pathlib
import pickle
import random
import tempfile
import time

import torch
import torch.distributed as dist

import burst
from leave import leave

LIMIT = 3e-6  # relative, L2: fp32 against float64
MASKS = ["true", "k <= q", "k <= q and q - k < {w}", "k <= q and (q - k < {w} or k < {s})", "q / {w} == k / {w}",
         "k <= q or k < {w}", "k <= q and kind[q] == kind[k]", "kind[k] <= kind[q]", "(q * q + 3 * k) mod 13 != 4 and abs(q - k) < {w}"]
SCHEDULES = ["auto", "ring", "biring", "gather", "burst", "ulysses", "doubling", "near"]
PARTITIONS = ["auto", "contiguous", "zigzag", "striped", "blocks(16)", "balanced(64)", "balanced(64)"]


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def must_refuse(call, error, words):
    try:
        call()
    except error as e:
        require(words in str(e), f"it says: {e}; expected: {words}")
        return
    raise AssertionError(f"no error, expected: {words}")


def close(got, wanted, what, limit=LIMIT, least=1e-30):
    error = float((got.detach().double() - wanted.detach()).norm() / wanted.detach().norm().clamp(min=least))
    require(error <= limit, f"{what} is off by {error:.3g}, more than {limit:g}")
    return error


def documents(cu, tokens):
    """The document of each token."""
    return torch.searchsorted(torch.tensor(cu[1:]), torch.arange(tokens), right=True)


def kept(expression, kind, tokens):
    """Each pair is asked by itself."""
    code = compile(expression.replace(" mod ", " % ").replace(" / ", " // ").replace("true", "True"), expression, "eval")
    names = {"abs": abs, "kind": kind.tolist()}
    return torch.tensor([[bool(eval(code, names | {"q": q, "k": k})) for k in range(tokens)] for q in range(tokens)])


def dense(q, k, v, keep, sinks, scale):
    """o and lse [heads, tokens] in float64; rows without a key are 0 and -inf."""
    share = q.shape[1] // k.shape[1]
    s = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(share, 1)) * scale
    s = s.masked_fill(~keep, float("-inf"))
    lse = s.logsumexp(-1)
    p = (s - lse.masked_fill(lse == float("-inf"), 0).unsqueeze(-1)).exp()
    if sinks is not None:
        p = p * torch.sigmoid(lse - sinks.view(-1, 1)).unsqueeze(-1)
    return torch.einsum("hqk,khd->qhd", p, v.repeat_interleave(share, 1)), lse


def least_norms(q, k, v, keep, scale, d_o, d_lse):
    """A tenth of the norms of the terms of dq and dk, which cancel where rows see few keys: errors are relative to no less."""
    share = q.shape[1] // k.shape[1]
    wide_k, wide_v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    p = (torch.einsum("qhd,khd->hqk", q, wide_k) * scale).masked_fill(~keep, float("-inf")).softmax(-1).nan_to_num(0)
    of_pairs = torch.einsum("qhd,khd->hqk", d_o.double(), wide_v).abs()
    terms = p * (of_pairs + (p * of_pairs).sum(-1, keepdim=True) + d_lse.abs().unsqueeze(-1)) * scale
    dq = torch.einsum("hqk,khd->qhd", terms, wide_k.abs())
    dk = torch.einsum("hqk,qhd->khd", terms, q.abs()).unflatten(1, (-1, share)).sum(2)
    return [max(0.1 * float(x.norm()), 1e-30) for x in (dq, dk)] + [1e-30]


class Case:
    """A plan, and one to three batches that are there at once: compiled or not, dropped before their backward, whose order is drawn."""

    def __init__(self, seed, ranks):
        r = self.draw = random.Random(1000 * seed + ranks)
        self.seed, self.ranks = seed, ranks
        self.kv_heads, self.tokens = r.choice([1, 2, 3]), r.choice([r.randrange(ranks, 9), r.randrange(8, 200), r.randrange(8, 200)])
        self.heads, self.head_dim = self.kv_heads * r.choice([1, 2, 4]), r.randrange(1, 66)
        self.layout = {"schedule": r.choice(SCHEDULES), "partition": r.choice(PARTITIONS)}
        if self.layout["partition"].startswith("balanced"):
            self.tokens = 64 * ranks * r.choice([1, 2])
            self.layout |= {"ranges": "yes"} if r.random() < 0.5 else {}
        self.expression = r.choice(MASKS).format(w=r.randrange(1, self.tokens + 1), s=r.randrange(1, 9))
        self.scale, self.with_sinks, self.value_dim = r.choice([None, 0.3]), r.random() < 0.5, r.choice([None, None, r.randrange(1, 70)])
        self.compiled, self.batches = r.random() < 0.5 / ranks, r.randrange(1, 4)  # each rank compiles

    def text(self):
        shape = f"{self.tokens} tokens, {self.heads}/{self.kv_heads} heads of {self.head_dim}"
        return f"case {self.seed} on {self.ranks} ranks, {self.expression}, {shape}, {self.layout}{', compiled' if self.compiled else ''}"

    def plan(self):
        """None: the layout is refused."""
        try:
            return burst.compile({"m": f"({self.expression}) and doc[q] == doc[k]"}, heads=self.heads, kv_heads=self.kv_heads,
                                 head_dim=self.head_dim, value_dim=self.value_dim, tokens=self.tokens, **self.layout)
        except burst.CompileError:
            return None

    def documents(self):
        """Where documents end; some have no token."""
        cuts = self.draw.sample(range(1, self.tokens), self.draw.randrange(min(5, self.tokens)))
        return [0, *sorted(cuts + self.draw.choices([0, self.tokens, *cuts], k=self.draw.choice([0, 0, 2]))), self.tokens]


def attend(q, k, v, sinks, batch, scale):
    """What is compiled, or not: from all tokens to all tokens."""
    own = map(batch.dispatch, (q, k, v))
    o, lse = burst.attention(*own, batch, "m", sinks=sinks, scale=scale, return_lse=True)
    return batch.undispatch(o), lse


class Run:
    """One batch of a case: forward, and later backward, against dense attention."""

    def __init__(self, case, plan, number, call, values):
        self.case, self.cu, self.what = case, case.documents(), f"{case.text()}, batch {number} of {case.batches}"
        self.kind = torch.tensor([case.draw.choice(values) for _ in range(case.tokens)])
        value_dim = case.value_dim or case.head_dim
        sizes = (case.heads, case.head_dim), (case.kv_heads, case.head_dim), (case.kv_heads, value_dim)
        self.leaf = [torch.randn(case.tokens, h, d, requires_grad=True) for h, d in sizes]
        self.sinks = None
        if case.with_sinks:  # to those whose weights are next to none
            self.sinks = (torch.randn(case.heads) - (case.seed % 4) * 4).requires_grad_()
        self.d_o, self.d_lse = torch.randn(case.tokens, case.heads, value_dim), torch.randn(case.heads, case.tokens)
        self.batch = plan.batch(self.cu, {"kind": self.kind} if "kind" in plan.tables else None)
        self.rows = self.batch.rows
        self.out, self.lse = call(*self.leaf, self.sinks, self.batch, case.scale)

    def backward(self):
        self.seen = torch.isfinite(self.lse)
        (self.out * self.d_o).sum().add((torch.where(self.seen, self.lse, 0) * self.d_lse[:, self.rows]).sum()).backward()

    def judge(self):
        """The largest error, relative."""
        case, wide = self.case, [x.detach().double().requires_grad_() for x in self.leaf]
        wide_sinks = self.sinks.detach().double().requires_grad_() if case.with_sinks else None
        doc = documents(self.cu, case.tokens)
        keep = kept(case.expression, self.kind, case.tokens) & (doc.view(-1, 1) == doc.view(1, -1))
        o, lse = dense(*wide, keep, wide_sinks, case.scale or case.head_dim ** -0.5)
        there = torch.isfinite(lse)
        (o * self.d_o).sum().add((torch.where(there, lse, 0) * self.d_lse).sum()).backward()
        require(torch.equal(there[:, self.rows], self.seen), f"{self.what}: rows without a key")
        floor = least_norms(*(x.detach() for x in wide), keep, case.scale or case.head_dim ** -0.5, self.d_o, self.d_lse)
        errors = [close(self.out, o, f"{self.what}: o")]
        errors += [close(x.grad, y.grad, f"{self.what}: d{n}", least=least) for x, y, n, least in zip(self.leaf, wide, "qkv", floor)]
        if case.with_sinks:
            self.judge_sinks(wide_sinks, o.detach(), lse.detach())
        return max(errors)

    def judge_sinks(self, wide, o, lse):
        total = self.sinks.grad.clone()
        if self.case.ranks > 1:
            dist.all_reduce(total)
        terms = torch.sigmoid(wide.detach().view(-1, 1) - lse) * (o * self.d_o).sum(-1).T  # which may cancel in the sum
        far = (total.double() - wide.grad).abs() / terms.abs().sum(1).clamp(min=1e-30)
        require(float(far.max()) <= LIMIT, f"{self.what}: dsinks is off by {float(far.max()):.3g} of its terms, more than {LIMIT:g}")


def check_random(seed, ranks):
    case = Case(seed, ranks)
    plan = case.plan()
    if plan is None:
        return None
    torch.manual_seed(seed)
    torch._dynamo.reset()
    call = torch.compile(attend, backend="aot_eager", fullgraph=True) if case.compiled else attend
    runs = [Run(case, plan, i, call, [-2**31, 0, 1, 2**31 - 1]) for i in range(case.batches)]
    for run in runs:
        if case.draw.random() < 0.5:
            run.batch = None  # its backward keeps it
    gc.collect()
    again = Run(case, plan, case.batches, call, [3, 4])  # would have the number of one that was dropped
    case.draw.shuffle(runs)
    for run in runs:
        run.backward()
    error = max(run.judge() for run in runs)
    if ranks > 1:
        dist.barrier()  # a rank's error ends the calls that others have not finished
    again.batch.close()
    must_refuse(again.backward, burst.BurstError, "batch of this call is closed")
    plan.close()
    return error


# ---- batches ----

def check_batches(ranks):
    torch.manual_seed(0)  # every rank draws the same rows
    tokens, cu = 70, [0, 1, 30, 70]
    plan = burst.compile("k <= q and doc[q] == doc[k]", heads=2, head_dim=16, tokens=tokens, partition="zigzag")
    batch = plan.batch(cu)
    doc = documents(cu, tokens)
    ids = torch.arange(tokens) * 3
    require(torch.equal(batch.dispatch(ids), ids[batch.rows]), "ids")
    labels = torch.tensor([ids[t + 1] if t + 1 < tokens and doc[t + 1] == doc[t] else -100 for t in range(tokens)])
    require(torch.equal(batch.dispatch(ids, shift=-1), labels[batch.rows]), "labels cross documents, or miss their tokens")
    starts = torch.tensor(cu)[doc]
    require(torch.equal(batch.positions, (torch.arange(tokens) - starts)[batch.rows]), "positions")
    require(torch.equal(batch.undispatch(batch.rows.float()), torch.arange(tokens).float()), "undispatch")
    x = torch.randn(tokens, 3)
    own = x[batch.rows].requires_grad_()
    line = batch.contiguous(own)
    begin = tokens * plan.rank // ranks
    require(torch.equal(line, x[begin:begin + len(line)]), "contiguous rows")
    require(torch.equal(batch.balanced(line), own), "balanced rows")
    line.backward(2 * line.detach())
    require(torch.equal(own.grad, 2 * own.detach()), "the gradient of rows that moved")
    count = (batch.dispatch(ids, shift=-1) >= 0).sum()
    part = batch.mean(count.float() * 5, count)
    if ranks > 1:
        dist.all_reduce(part)
    require(abs(float(part) - 5) < 1e-6, f"a mean of 5 is {float(part)}")
    plan.close()


# ---- selections ----

def chosen_blocks(q, k, block, top):
    """[heads, tiles, blocks]: what tiles of 128 queries choose for each key head, of the blocks before them."""
    tokens, share = len(q), q.shape[1] // k.shape[1]
    means = k.double().view(tokens // block, block, *k.shape[1:]).mean(1).float().double()
    score = torch.einsum("thd,bhd->htb", q[::128].double(), means.repeat_interleave(share, 1))
    score = score.view(k.shape[1], share, *score.shape[1:]).sum(1).repeat_interleave(share, 0)
    before = (torch.arange(1, tokens // block + 1) * block - 1)[None] <= (torch.arange(tokens // 128) * 128)[:, None]
    best = score.masked_fill(~before, float("-inf")).topk(top, -1).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, best, True) & before


def check_selection(ranks):
    """Tiles of queries choose blocks of keys by their own scores; a static mask of the same plan is as without."""
    tokens, block, top = 1024, 64, 3
    own = "q / 128 == k / 128"
    plan = burst.compile({"chosen": f"top {top} of k / {block} by dot(first Q, mean K) for kv_head per 128 queries where k <= q always {own}",
                          "near": "k <= q and q - k < 100"}, heads=4, kv_heads=2, head_dim=16, tokens=tokens, partition="contiguous")
    torch.manual_seed(3)  # every rank draws the same
    leaf = [torch.randn(tokens, h, 16, requires_grad=True) for h in (4, 2, 2)]
    d_o, q, k = torch.randn(tokens, 4, 16), torch.arange(tokens)[:, None], torch.arange(tokens)[None]
    batch = plan.batch([0, tokens])
    blocks = chosen_blocks(*(x.detach() for x in leaf[:2]), block, top)
    for mask, keep in ("chosen", (k <= q) & ((q // 128 == k // 128) | blocks[:, q // 128, k // block])), ("near", (k <= q) & (q - k < 100)):
        for x in leaf:
            x.grad = None
        out = batch.undispatch(burst.attention(*map(batch.dispatch, leaf), batch, mask))
        (out * d_o).sum().backward()
        wide = [x.detach().double().requires_grad_() for x in leaf]
        o, _ = dense(*wide, keep, None, 0.25)
        (o * d_o).sum().backward()
        close(out, o, f"{mask}: o")
        for x, y, name in zip(leaf, wide, "qkv"):
            close(x.grad, y.grad, f"{mask}: d{name}")
    plan.close()


# ---- what torch does with operators ----

def inputs(batch, seed=0):
    torch.manual_seed(seed)
    p = batch.plan
    return [torch.randn(batch.count, h, p.head_dim, requires_grad=True) for h in (p.heads, p.kv_heads, p.kv_heads)]


def check_operators(plan):
    batch = plan.batch([0, 20, 64])
    q, k, v = inputs(batch)
    sinks = torch.randn(plan.heads, requires_grad=True)
    for s in None, sinks:
        torch.library.opcheck(torch.ops.burst.attention.default, (q, k, v, s, batch.tag, 0, 0.0))
        plain = [x.detach() if x is not None else None for x in (q, k, v, s)]
        o, lse = torch.ops.burst.attention(*plain, batch.tag, 0, 0.0)
        for d_lse in None, torch.randn_like(lse):
            torch.library.opcheck(torch.ops.burst.attention_backward.default,
                                  (*plain, o, lse, torch.randn_like(o), d_lse, batch.tag, 0, 0.0))
    for layouts in (0, 1), (0, 2), (2, 0):
        rows = torch.randn(batch.rows_of(layouts[0]), 3, requires_grad=True)
        torch.library.opcheck(torch.ops.burst.move.default, (rows, batch.tag, *layouts, batch.rows_of(layouts[1])))

    def block(q, k, v):
        return burst.attention(q * 2, k, v, batch, "near").sin()

    whole = torch.compile(block, fullgraph=True, backend="aot_eager")
    grads = []
    for f in block, whole:
        x = [t.detach().requires_grad_() for t in (q, k, v)]
        y = f(*x)
        y.sum().backward()
        grads.append([y.detach(), *(t.grad for t in x)])
    require(all(torch.equal(a, b) for a, b in zip(*grads)), "a compiled block gives other bits")
    direct, by_operator = burst.attention(q, k, v, batch), torch.ops.burst.attention(q, k, v, None, batch.tag, 0, 0.0)[0]
    of_both = [torch.autograd.grad(o.square().sum(), (q, k, v)) for o in (direct, by_operator)]
    require(torch.equal(direct, by_operator) and all(torch.equal(a, b) for a, b in zip(*of_both)), "the operator gives other bits")
    first = torch.autograd.grad(burst.attention(q, k, v, batch).square().sum(), q, create_graph=True)[0]
    try:
        first.sum().backward()
        require(False, "a second derivative is computed")
    except NotImplementedError as e:
        require("second derivatives" in str(e), f"second derivative: {e}")


def check_checkpointing(plan):
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
    batch, calls = plan.batch([0, 64]), []

    def policy(ctx, op, *args, **kwargs):
        saved = op == torch.ops.burst.attention.default
        calls.append(saved and not ctx.is_recompute)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    x = inputs(batch)
    y = checkpoint(lambda q, k, v: burst.attention(q * 2, k, v, batch), *x, use_reentrant=False,
                   context_fn=lambda: create_selective_checkpoint_contexts(policy))
    y.sum().backward()
    z = [t.detach().requires_grad_() for t in x]
    burst.attention(z[0] * 2, z[1], z[2], batch).sum().backward()
    require(all(torch.equal(a.grad, b.grad) for a, b in zip(x, z)), "checkpointing changes the gradients")
    require(sum(calls) == 1, f"attention ran {sum(calls)} times forward, though its output was saved")


def check_differences(plan):
    """Finite differences in fp32, of a sum in float64."""
    batch = plan.batch([0, 64])
    x = inputs(batch, 3)
    weight = torch.randn(batch.count, plan.heads, plan.head_dim)
    (burst.attention(*x, batch) * weight).sum().backward()
    step = 1e-2
    for i in range(3):
        direction = torch.randn_like(x[i])
        both = []
        for sign in 1, -1:
            moved = [t.detach() + (sign * step * direction if j == i else 0) for j, t in enumerate(x)]
            both.append((burst.attention(*moved, batch) * weight).double().sum())
        slope, wanted = float(both[0] - both[1]) / (2 * step), float((x[i].grad.double() * direction).sum())
        require(abs(slope - wanted) < 2e-3 * max(1, abs(wanted)), f"the slope of input {i} is {slope}, its gradient says {wanted}")


NAN, INF = float("nan"), float("inf")


def check_refusals(plan):
    batch = plan.batch([0, 64])
    q, k, v = inputs(batch)

    def compiled(mask="k <= q", **more):
        return burst.compile(mask, **({"heads": 1, "head_dim": 16, "tokens": 8} | more))

    for error, words, call in (
            (ValueError, "q is torch.float32 (63, 4, 16)", lambda: burst.attention(q[:-1], k, v, batch)),
            (ValueError, "q is torch.float64", lambda: burst.attention(q.double(), k, v, batch)),
            (ValueError, "on meta", lambda: burst.attention(q.detach().to("meta"), k, v, batch)),
            (ValueError, "the plan has no mask 'none'", lambda: burst.attention(q, k, v, batch, "none")),
            (TypeError, "batch is a list", lambda: burst.attention(q, k, v, [0, 64])),
            (burst.BurstError, "cu_seqlens goes from 0 to 30", lambda: plan.batch([0, 30])),
            (burst.BurstError, "cu_seqlens must not fall", lambda: plan.batch([0, 40, 30, 64])),
            (ValueError, "'a b' is not a name", lambda: compiled({"a b": "k <= q"})),
            (ValueError, "has one of ;", lambda: compiled("k <= q; sequence 9")),
            (ValueError, "has one of ;", lambda: compiled('k <= q and "hand.txt"')),
            (ValueError, "masks is empty", lambda: compiled({})),
            (ValueError, "mask main is 7, not a text", lambda: compiled({"main": 7})),
            (ValueError, "it is a list of names", lambda: compiled("a[q] == a[k]", tables="a")),
            (ValueError, "device is mps", lambda: compiled(device="mps")),
            (burst.CompileError, "cannot be divided evenly", lambda: compiled(kv_heads=3, heads=4)),
            (burst.CompileError, "w", lambda: compiled("k <= w"))):
        must_refuse(call, error, words)
    for name in "heads", "kv_heads", "head_dim", "value_dim", "tokens":
        for value in 2.7, 2.0, True, torch.tensor(True), torch.tensor(2.0), "2", NAN, 0, -1, 2**31:
            must_refuse(lambda: compiled(**{name: value}), ValueError, f"{name} is {value!r}")
    for value in True, NAN, INF, -1.0, "3":
        must_refuse(lambda: compiled(softcap=value), ValueError, f"softcap is {value!r}")
    for value in (None, 3, ["causal"]):
        must_refuse(lambda: compiled(value), ValueError, f"masks is {value!r}, not an expression such as")
    for value in 0.0, -0.3, NAN, INF, -INF, 1e39, 1e-46, True, "0.3", torch.tensor(0.3):
        must_refuse(lambda: burst.attention(q, k, v, batch, scale=value), ValueError, f"scale is {value!r}")
    for value in 7, -1, 0.9, True, NAN, None, 2**40:
        must_refuse(lambda: burst.attention(q, k, v, batch, value), ValueError, f"mask is {value!r}")
    for value in 0.5, True, NAN, "1":
        must_refuse(lambda: batch.dispatch(torch.arange(64), shift=value), ValueError, f"shift is {value!r}")
    must_refuse(lambda: batch.dispatch(torch.arange(64), shift=1, ignore=0.5), ValueError, "ignore is 0.5")
    must_refuse(lambda: batch.dispatch(torch.zeros(64, dtype=torch.uint8), shift=1), ValueError, "ignore is -100")
    must_refuse(lambda: batch.dispatch(torch.zeros(63)), ValueError, "a batch of this plan has 64 tokens")
    must_refuse(lambda: batch.undispatch(torch.tensor(1.0)), ValueError, "this rank has 64 rows")
    for value in NAN, -1, INF, torch.tensor([-3]):
        must_refuse(lambda: batch.mean(torch.tensor(1.0), value), ValueError, "negative or not finite")
    must_refuse(lambda: batch.mean(torch.tensor(1.0), torch.ones(64)), ValueError, "count has the shape (64,)")
    require(float(batch.mean(torch.tensor(0.25), 0.5)) == 0.5 and float(batch.mean(torch.tensor(0.0), 0)) == 0, "means of half a token and of none")
    wanted = burst.attention(q, k, v, plan.batch([0, 64]))
    require(torch.equal(wanted, burst.attention(q, k, v, batch)), "a refused call has ended the plan")


def check_tables():
    """Tables and cu_seqlens of any type: the same numbers, or refused by name."""
    plan = burst.compile("causal and kind[q] == kind[k]", heads=1, head_dim=16, tokens=64)
    group, x = torch.arange(64) // 16, torch.randn(64, 1, 16)
    wanted = burst.attention(x, x, x, plan.batch(tables={"kind": group}))
    same = [group.to(kind) for kind in (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.uint64)]
    far = torch.tensor([-2**31, -1, 7, 2**31 - 1])[group]
    for table in (*same, group.tolist(), group.numpy(), far, torch.arange(128).view(64, 2)[:, 0] // 32):
        require(torch.equal(wanted, burst.attention(x, x, x, plan.batch(tables={"kind": table}))), f"a table of {table}")
    two = burst.attention(x, x, x, plan.batch(tables={"kind": group > 1}))
    require(torch.equal(two, burst.attention(x, x, x, plan.batch(tables={"kind": (group > 1).int()}))), "a table of bool")
    for table, words in ((group * 2**32, "table kind[16] is 4294967296, outside of int32"), (group + 2**31, "table kind[0] is 2147483648"),
                         (-group - 2**31, "table kind[16] is -2147483649"), ((group - 1).to(torch.uint64), "table kind[0] is 18446744073709551615"),
                         ([2**70] * 64, "table kind is no list of numbers"), (group * 0.25, "table kind is torch.float32"),
                         (group.double(), "table kind is torch.float64"), (torch.full((64,), NAN), "table kind is torch.float32"),
                         (group * 1j, "table kind is torch.complex64"), (group[:-1], "table kind has the shape (63,), not (64,)"),
                         (group[:, None], "table kind has the shape (64, 1)"), (["a"] * 64, "table kind is no list of numbers")):
        must_refuse(lambda: plan.batch(tables={"kind": table}), ValueError, words)
    must_refuse(lambda: plan.batch(tables={"kinds": group}), ValueError, "read no table kinds")
    for cu, words in (([0.0, 64.0], "cu_seqlens is torch.float32"), ([0, NAN, 64], "cu_seqlens is torch.float32"), ([0, 2**32 + 64], "cu_seqlens[1] is 4294967360"),
                      ([[0, 64]], "cu_seqlens has the shape (1, 2)"), ([64], "cu_seqlens has the shape (1,)"), (64, "cu_seqlens has the shape ()")):
        must_refuse(lambda: plan.batch(cu, {"kind": group}), ValueError, words)
    plan.close()


# ---- what is closed, copied, kept ----

def check_closed():
    def make():
        return burst.compile("k <= q and doc[q] == doc[k]", heads=1, head_dim=16, tokens=64)

    plan = make()
    batch, other = plan.batch(), plan.batch([0, 20, 64])
    x = torch.randn(64, 1, 16, requires_grad=True)
    kept, moved = burst.attention(x, x, x, batch), batch.undispatch(x)
    batch.close()
    batch.close()
    following = [plan.batch([0, i, 64]) for i in range(1, 9)]  # none of them has its number
    for call in (lambda: burst.attention(x, x, x, batch), lambda: batch.dispatch(x), lambda: batch.contiguous(x), lambda: batch.handle,
                 lambda: kept.sum().backward(), lambda: moved.sum().backward()):
        must_refuse(call, burst.BurstError, "closed")
    require(batch.rows_of(0) == 64, "the rows of a closed batch")
    burst.attention(x, x, x, other).sum().backward()
    plan.close()
    plan.close()
    for call in (lambda: plan.batch(), lambda: burst.attention(x, x, x, other), lambda: following[0].undispatch(x), lambda: plan.handle):
        must_refuse(call, burst.BurstError, "plan")

    module = torch.nn.Linear(2, 2)
    module.plan = make()
    module.batch = module.plan.batch()
    for twin in copy.deepcopy(module), copy.copy(module):
        require(twin.plan is module.plan and twin.batch is module.batch, "a copy of a module has another plan")
    twin = copy.deepcopy(module)
    for thing in module, module.plan, module.batch:
        must_refuse(lambda: pickle.dumps(thing), TypeError, "cannot be pickled")
    del module
    gc.collect()
    require(burst.attention(x, x, x, twin.plan.batch()).shape == x.shape, "the plan of a copy")


def check_compiled(plan):
    """Graphs are for any batch: three at once, dropped, closed, and calls with other numbers."""
    def plain(x, batch, mask="all", scale=None):
        y = batch.dispatch(x)
        return burst.attention(y * 2, y[:, :2], y[:, :2], batch, mask, scale=scale), batch.dispatch(x, shift=-1), batch.contiguous(y)

    block, runs = torch.compile(plain, backend="aot_eager", fullgraph=True), []
    for cu in ([0, 64], [0, 20, 64], [0, 1, 1, 30, 64], [0, 64], [0, 33, 64]):
        both = [torch.randn(64, 4, 16, generator=torch.Generator().manual_seed(5), requires_grad=True) for _ in range(2)]
        batch = plan.batch(cu)
        runs.append((both, [f(x, batch) for f, x in zip((block, plain), both)], batch if len(runs) == 3 else None))
        del batch
        gc.collect()
    runs[3][2].close()
    must_refuse(runs[3][1][0][0].sum().backward, burst.BurstError, "closed")
    del runs[3]
    for both, results, _ in reversed(runs):
        for result in results:
            sum(y.sin().sum() for y in result).backward()
        require(all(map(torch.equal, *results)) and torch.equal(both[0].grad, both[1].grad), "a compiled block gives other bits")
    batch, x = plan.batch([0, 9, 64]), both[0]
    for more in {"mask": 1}, {"mask": "near"}, {"scale": 0.2}, {"scale": 0.3}, {"scale": 0.4}:
        require(all(map(torch.equal, block(x, batch, **more), plain(x, batch, **more))), f"a compiled block with {more}")


def check_patterns():
    """A pattern file of the current folder, as part of the plan."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            x = torch.randn(64, 1, 16)
            pattern = torch.tensor([[1, 0], [1, 1]])
            for name, rows in ("a[q]; {1}.txt", pattern), ("a[q]; {1}.txt", pattern.T):  # the same file with other content
                pathlib.Path(name).write_text("".join("".join(map(str, row)) + "\n" for row in rows.tolist()))
                plan = burst.compile(f'causal and file "{name}" at (q / 32, k / 32)', heads=1, head_dim=16, tokens=64)
                keep = rows.bool().repeat_interleave(32, 0).repeat_interleave(32, 1) & torch.ones(64, 64).tril().bool()
                close(burst.attention(x, x, x, plan.batch()), dense(*[x.double()] * 3, keep, None, 0.25)[0], f"the pattern of {name}")
                plan.close()
            must_refuse(lambda: burst.compile('file "none.txt" at (q, k)', heads=1, head_dim=16, tokens=8), OSError, "none.txt")
            pathlib.Path("bad.txt").write_text("01\n2\n")
            must_refuse(lambda: burst.compile('file "bad.txt" at (q, k)', heads=1, head_dim=16, tokens=8), burst.CompileError, "'bad.txt' is not a pattern")
        finally:
            os.chdir(before)


def check_cache():
    """Plans that somebody else may have put in the cache are not loaded."""
    before = os.environ["BURST_CACHE"]
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder) / "cache"
        os.environ["BURST_CACHE"] = str(cache)
        try:
            def make():
                burst.compile("k <= q", heads=1, head_dim=16, tokens=8).close()

            make()
            plan, = cache.glob("*/plan.so")
            inside = plan.parent
            require(all(p.stat().st_mode & 0o022 == 0 for p in (cache, inside, plan)), "a plan that others can write")
            for path, mode, words in (plan, 0o777, "plan.so is not loaded"), (inside, 0o777, "is not loaded"), (cache, 0o777, "every user can replace"):
                was = path.stat().st_mode
                path.chmod(mode)
                must_refuse(make, (PermissionError, burst.CompileError), words)
                path.chmod(was)
            cache.chmod(0o1777)
            make()
            elsewhere = inside.rename(pathlib.Path(folder) / "elsewhere")
            inside.symlink_to(elsewhere)
            must_refuse(make, (PermissionError, burst.CompileError), "it is a link")
            inside.unlink()
            elsewhere.rename(inside)
            for path in (inside, plan, cache) if os.geteuid() == 0 else ():
                os.chown(path, 65534, -1)
                must_refuse(make, (PermissionError, burst.CompileError), "another user")
                os.chown(path, 0, -1)
            make()
        finally:
            os.environ["BURST_CACHE"] = before


def check_mismatch(ranks, what):
    """The last rank does something else: every rank gets an error that says so, within a second."""
    plan = burst.compile({"all": "k <= q and doc[q] == doc[k]", "near": "k <= q and doc[q] == doc[k] and q - k < 9"}, heads=2,
                         head_dim=16, tokens=60)
    odd = plan.rank == ranks - 1
    batch = plan.batch([0, 20 if odd and what == "lengths" else 30, 60])
    q, k, v = inputs(batch)
    q = q[1:] if odd and what == "shape" else q
    dist.barrier()
    begin = time.monotonic()
    try:
        burst.attention(q, k, v, batch, "near" if odd and what == "mask" else "all")
    except ValueError if odd and what == "shape" else burst.BurstError as e:
        text = str(e)
    else:
        raise AssertionError(f"ranks with another {what} do not notice")
    require(time.monotonic() - begin < 1, f"{what}: the error came after {time.monotonic() - begin:.2f} s")
    require({"lengths": "different batches", "mask": "mask 1", "shape": "this batch needs"}[what] in text, f"{what}: {text}")
    dist.barrier()
    plan.close()


def check_other_plan(ranks):
    """The last rank compiles for other tokens, another mask, another schedule."""
    for mask, tokens, schedule in (("k <= q", 61, "auto"), ("true", 60, "auto"), ("k <= q", 60, "ring")):
        odd = dist.get_rank() == ranks - 1
        wanted = (mask, tokens, schedule) if odd else ("k <= q", 60, "auto")
        begin = time.monotonic()
        try:
            burst.compile(wanted[0], heads=2, head_dim=16, tokens=wanted[1], schedule=wanted[2])
        except ValueError as e:
            require(f"rank {ranks - 1} compiles another plan" in str(e), str(e))
        else:
            raise AssertionError("a rank that compiles another plan is not noticed")
        require(time.monotonic() - begin < 1, f"another plan: the error came after {time.monotonic() - begin:.2f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    ranks, worst, refused, checked = dist.get_world_size(), 0.0, 0, 0
    most = max(o.count, 10) // 2
    while checked < o.count and refused <= most:
        error = check_random(o.seed + checked + refused, ranks)
        worst, refused, checked = max(worst, error or 0), refused + (error is None), checked + (error is not None)
    require(checked == o.count, f"{refused} of {checked + refused} layouts were refused: these cases say little")
    check_batches(ranks)
    check_selection(ranks)
    if ranks == 1:
        plan = burst.compile({"all": "k <= q and doc[q] == doc[k]", "near": "k <= q and doc[q] == doc[k] and q - k < 9"}, heads=4,
                             kv_heads=2, head_dim=16, tokens=64)
        for check in check_operators, check_checkpointing, check_differences, check_refusals, check_compiled:
            check(plan)
        for check in check_tables, check_closed, check_patterns, check_cache:
            check()
    else:
        for what in "mask", "lengths", "shape":
            check_mismatch(ranks, what)
        check_other_plan(ranks)
    if dist.get_rank() == 0:
        print(f"{ranks} ranks: {o.count} cases, {refused} refused layouts, worst error {worst:.2g}")
    leave()


main()
