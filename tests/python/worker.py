"""One rank of run_torch.py: the package burst against dense attention in float64 torch. Every rank draws the same cases."""
import argparse
import random
import time

import torch
import torch.distributed as dist

import burst
from leave import leave

LIMIT = 3e-6  # relative, L2: fp32 against float64
MASKS = ["true", "k <= q", "k <= q and q - k < {w}", "k <= q and (q - k < {w} or k < {s})", "q / {w} == k / {w}",
         "k <= q or k < {w}", "(q * q + 3 * k) mod 13 != 4 and abs(q - k) < {w}"]
SCHEDULES = ["auto", "ring", "biring", "gather", "burst", "ulysses", "doubling", "near"]
PARTITIONS = ["auto", "contiguous", "zigzag", "striped", "blocks(16)", "balanced(64)", "balanced(64)"]


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def close(got, wanted, what, limit=LIMIT):
    error = float((got.detach().double() - wanted.detach()).norm() / wanted.detach().norm().clamp(min=1e-30))
    require(error <= limit, f"{what} is off by {error:.3g}, more than {limit:g}")
    return error


def documents(cu, tokens):
    """The document of each token."""
    return torch.searchsorted(torch.tensor(cu[1:]), torch.arange(tokens), right=True)


def kept(expression, doc):
    """Each pair is asked by itself."""
    n = len(doc)
    code = compile(expression.replace(" mod ", " % ").replace(" / ", " // ").replace("true", "True"), expression, "eval")
    keep = torch.tensor([[bool(eval(code, {"q": q, "k": k, "abs": abs})) for k in range(n)] for q in range(n)])
    return keep & (doc.view(-1, 1) == doc.view(1, -1))


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


def random_case(seed, ranks):
    r = random.Random(1000 * seed + ranks)
    kv_heads, tokens = r.choice([1, 2, 3]), r.randrange(8, 200)
    heads, head_dim = kv_heads * r.choice([1, 2, 4]), 2 * r.randrange(4, 33)
    layout = {"schedule": r.choice(SCHEDULES), "partition": r.choice(PARTITIONS)}
    if layout["partition"].startswith("balanced"):
        tokens = 64 * ranks * r.choice([1, 2])
        layout |= {"ranges": "yes"} if r.random() < 0.5 else {}
    cuts = sorted(r.sample(range(1, tokens), r.randrange(min(5, tokens - 1))))
    expression = r.choice(MASKS).format(w=r.randrange(1, tokens), s=r.randrange(1, 9))
    scale, sinks, value_dim = r.choice([None, 0.3]), r.random() < 0.5, r.choice([None, None, r.randrange(1, 70)])
    return kv_heads, tokens, heads, (head_dim, value_dim), [0, *cuts, tokens], expression, layout, scale, sinks


def check_random(seed, ranks):
    kv_heads, tokens, heads, (head_dim, value_dim), cu, expression, layout, scale, with_sinks = random_case(seed, ranks)
    doc, what = documents(cu, tokens), f"case {seed} on {ranks} ranks, {expression}, {layout}"
    try:
        plan = burst.compile({"m": f"({expression}) and doc[q] == doc[k]"}, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
                             value_dim=value_dim, tokens=tokens, **layout)
    except burst.CompileError:
        return None
    batch = plan.batch(cu)
    torch.manual_seed(seed)
    value_dim = value_dim or head_dim
    leaf = [torch.randn(tokens, h, d, requires_grad=True) for h, d in ((heads, head_dim), (kv_heads, head_dim), (kv_heads, value_dim))]
    sinks = (torch.randn(heads) - (seed % 4) * 4).requires_grad_() if with_sinks else None  # to those whose weights are next to none
    q, k, v = map(batch.dispatch, leaf)
    o, lse = burst.attention(q, k, v, batch, "m", sinks=sinks, scale=scale, return_lse=True)
    out = batch.undispatch(o)
    d_o, d_lse = torch.randn(tokens, heads, value_dim), torch.randn(heads, tokens)
    seen = torch.isfinite(lse)
    own = d_lse[:, batch.rows]
    (out * d_o).sum().add((torch.where(seen, lse, 0) * own).sum()).backward()
    wide = [x.detach().double().requires_grad_() for x in leaf]
    wide_sinks = sinks.detach().double().requires_grad_() if with_sinks else None
    keep = kept(expression, doc)
    dense_o, dense_lse = dense(*wide, keep, wide_sinks, scale or head_dim ** -0.5)
    there = torch.isfinite(dense_lse)
    (dense_o * d_o).sum().add((torch.where(there, dense_lse, 0) * d_lse).sum()).backward()
    require(torch.equal(there[:, batch.rows], seen), f"{what}: rows without a key")
    errors = [close(out, dense_o, f"{what}: o")]
    errors += [close(x.grad, y.grad, f"{what}: d{n}") for x, y, n in zip(leaf, wide, "qkv")]
    if with_sinks:
        total = sinks.grad.clone()
        if ranks > 1:
            dist.all_reduce(total)
        terms = torch.sigmoid(wide_sinks.detach().view(-1, 1) - dense_lse) * (dense_o * d_o).sum(-1).T  # which may cancel in the sum
        far = (total.double() - wide_sinks.grad).abs() / terms.abs().sum(1).clamp(min=1e-30)
        require(float(far.max()) <= LIMIT, f"{what}: dsinks is off by {float(far.max()):.3g} of its terms, more than {LIMIT:g}")
    plan.close()
    return max(errors)


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
        torch.library.opcheck(torch.ops.burst.attention.default, (q, k, v, s, batch.number, 0, 0.0))
        plain = [x.detach() if x is not None else None for x in (q, k, v, s)]
        o, lse = torch.ops.burst.attention(*plain, batch.number, 0, 0.0)
        for d_lse in None, torch.randn_like(lse):
            torch.library.opcheck(torch.ops.burst.attention_backward.default,
                                  (*plain, o, lse, torch.randn_like(o), d_lse, batch.number, 0, 0.0))
    for layouts in (0, 1), (0, 2), (2, 0):
        rows = torch.randn(batch.rows_of(layouts[0]), 3, requires_grad=True)
        torch.library.opcheck(torch.ops.burst.move.default, (rows, batch.number, *layouts))

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
    direct, by_operator = burst.attention(q, k, v, batch), torch.ops.burst.attention(q, k, v, None, batch.number, 0, 0.0)[0]
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


def check_refusals(plan):
    batch = plan.batch([0, 64])
    q, k, v = inputs(batch)
    for error, call in ((ValueError, lambda: burst.attention(q[:-1], k, v, batch)),
                        (ValueError, lambda: burst.attention(q.double(), k, v, batch)),
                        (ValueError, lambda: burst.attention(q, k, v, batch, "none")),
                        (burst.BurstError, lambda: plan.batch([0, 30])),
                        (burst.BurstError, lambda: plan.batch([0, 40, 30, 64])),
                        (ValueError, lambda: burst.compile({"a b": "k <= q"}, heads=1, head_dim=16, tokens=8)),
                        (ValueError, lambda: burst.compile("k <= q; sequence 9", heads=1, head_dim=16, tokens=8)),
                        (burst.CompileError, lambda: burst.compile("k <= w", heads=1, head_dim=16, tokens=8))):
        try:
            call()
        except error:
            continue
        raise AssertionError("a call that must fail did not")


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
    ranks, worst, refused = dist.get_world_size(), 0.0, 0
    for seed in range(o.seed, o.seed + o.count):
        error = check_random(seed, ranks)
        worst, refused = max(worst, error or 0), refused + (error is None)
    require(refused * 3 <= o.count, f"{refused} of {o.count} layouts were refused: these cases say little")
    check_batches(ranks)
    if ranks == 1:
        plan = burst.compile({"all": "k <= q and doc[q] == doc[k]", "near": "k <= q and doc[q] == doc[k] and q - k < 9"}, heads=4,
                             kv_heads=2, head_dim=16, tokens=64)
        for check in check_operators, check_checkpointing, check_differences, check_refusals:
            check(plan)
    else:
        for what in "mask", "lengths", "shape":
            check_mismatch(ranks, what)
        check_other_plan(ranks)
    if dist.get_rank() == 0:
        print(f"{ranks} ranks: {o.count} cases, {refused} refused layouts, worst error {worst:.2g}")
    leave()


main()
