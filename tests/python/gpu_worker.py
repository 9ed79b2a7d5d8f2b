"""One rank of scripts/gpu-library: plans on GPUs against float64, beside torch's bf16 attention on the same inputs.

gpu_worker.py PLANS: of its plans (NAME.so with NAME.json) those for as many ranks as there are.
"""
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import burst
import selections_torch as chosen
from burst import _c
from burst.plan import Plan

LIMIT = 1.25  # of the error of torch's attention in bf16
CALLS, AT_ONCE = 1000, 10


def dense(q, k, v, keep, sinks, scale):
    share = q.shape[1] // k.shape[1]
    s = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(share, 1)) * scale
    s = s.masked_fill(~keep, float("-inf"))
    lse = s.logsumexp(-1)
    p = (s - lse.unsqueeze(-1)).exp()
    if sinks is not None:
        p = p * torch.sigmoid(lse - sinks.view(-1, 1)).unsqueeze(-1)
    return torch.einsum("hqk,khd->qhd", p, v.repeat_interleave(share, 1))


def rounded(q, k, v, keep, sinks, scale):
    """The same with torch's attention in bf16; with sinks its products are rounded where a kernel would."""
    share = q.shape[1] // k.shape[1]
    if sinks is not None:
        return None
    wide = [x.transpose(0, 1).unsqueeze(0) for x in (q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1))]
    return F.scaled_dot_product_attention(*wide, attn_mask=keep, scale=scale)[0].transpose(0, 1)


def gradients(f, leaves, d_o):
    o = f(*leaves)
    if o is None:
        return None
    o.backward(d_o.to(o.dtype))
    return [o.detach(), *(x.grad for x in leaves)]


def error(x, y):
    return float((x.double() - y).norm() / y.norm())


def kept(mask, q, k, doc):
    """The pairs that a mask keeps: an expression of positions, or a selection, whose lists are chosen in float64."""
    i = torch.arange(len(q), device=q.device)
    pairs = lambda text, q, k: eval(text, {"q": q, "k": k})  # noqa: E731
    if isinstance(mask, str):
        return pairs(mask, i[:, None], i[None]) & (doc[:, None] == doc[None])
    s = chosen.Selection(0, 0, mask["block"], getattr(chosen, mask["query"]), getattr(chosen, mask["key"]), getattr(chosen, mask["heads"]),
                         lambda q, k, doc: pairs(mask["where"], q, k) & (doc[q] == doc[k]), lambda q, k: pairs(mask["always"], q, k), documents=True)
    q, k = (x.transpose(0, 1) for x in (q, k))
    return chosen.kept(s, chosen.best(s, mask["top"], q, k, doc), q.shape[0], q.shape[1], doc)


def check(path, case):
    plan = Plan(path, None, dist.group.WORLD, None)
    batch, rank = plan.batch(case["cu_seqlens"]), dist.get_rank()
    torch.manual_seed(1)
    T, d, device = plan.tokens, plan.head_dim, plan.device
    base = [torch.randn(T, h, d, device=device).bfloat16() for h in (plan.heads, plan.kv_heads, plan.kv_heads)]
    sinks = torch.randn(plan.heads, device=device) - 3 if case["sinks"] else None  # with weights of a hundredth and less
    scale, d_o = case["scale"] or d ** -0.5, torch.randn(T, plan.heads, d, device=device).bfloat16()
    i = torch.arange(T, device=device)
    doc = torch.searchsorted(torch.tensor(case["cu_seqlens"][1:], device=device), i, right=True)
    failed = False
    for mask, expression in case["masks"].items():
        keep = kept(expression, *base[:2], doc)
        ours = [batch.dispatch(x).requires_grad_() for x in base]
        own_sinks = None if sinks is None else sinks.clone().requires_grad_()
        o = burst.attention(*ours, batch, mask, sinks=own_sinks, scale=scale)
        o.backward(batch.dispatch(d_o))
        got = [batch.undispatch(x) for x in (o.detach(), *(x.grad for x in ours))]
        wide_sinks = None if sinks is None else sinks.double().requires_grad_()
        exact = gradients(lambda *x: dense(*x, keep, wide_sinks, scale), [x.double().requires_grad_() for x in base], d_o)
        peer = gradients(lambda *x: rounded(*x, keep, sinks, scale), [x.clone().requires_grad_() for x in base], d_o)
        errors = [error(x, y) for x, y in zip(got, exact)]
        peers = [error(x, y) for x, y in zip(peer, exact)] if peer else [1e-2] * 4
        if sinks is not None:
            dist.all_reduce(own_sinks.grad)
            errors, peers = [*errors, error(own_sinks.grad, wide_sinks.grad)], [*peers, 1e-2]
        bad = any(e > LIMIT * p for e, p in zip(errors, peers))
        failed |= bad
        if rank == 0:
            print(path.stem, mask, "BAD" if bad else "ok", " ".join(f"{n} {e:.2e}/{p:.2e}" for n, e, p in zip(("o", "dq", "dk", "dv", "dsinks"), errors, peers)))
    failed |= not check_calls(plan, batch, base)
    failed |= not check_captured_first(plan, plan.batch(case["cu_seqlens"]), base, o.detach())
    plan.close()
    return failed


def check_calls(plan, batch, base):
    """CALLS calls take no memory, a captured one gives the same bits, and how long one takes."""
    q, k, v = (batch.dispatch(x) for x in base)
    call = lambda: burst.attention(q, k, v, batch)  # noqa: E731
    first = call().clone()
    torch.cuda.synchronize()
    queued, whole = [], []
    taken = lambda: (torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0])
    before = None
    for _ in range(CALLS // AT_ONCE):  # so few that the queue of the device is never full
        begin = time.perf_counter()
        for _ in range(AT_ONCE):
            call()
        queued.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        whole.append(time.perf_counter() - begin)
        before = before or taken()  # after the first calls
    none = taken() == before
    lib, o, lse = _c.library(), torch.empty_like(first), torch.empty(plan.heads, q.shape[0], device=q.device)
    inside = []
    for _ in range(CALLS // AT_ONCE):
        begin = time.perf_counter()
        for _ in range(AT_ONCE):
            lib.burst_attention_forward(batch.handle, 0, q.data_ptr(), k.data_ptr(), v.data_ptr(), None, 0.0, o.data_ptr(), lse.data_ptr(),
                                        plan.workspace, torch.cuda.current_stream().cuda_stream)
        inside.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    captured.zero_()
    graph.replay()
    torch.cuda.synchronize()
    same = torch.equal(captured, first)
    if dist.get_rank() == 0:
        host, forward, library = (sorted(x)[len(x) // 2] / AT_ONCE * 1e6 for x in (queued, whole, inside))
        print(f"{plan.layout}: {host:.0f} us of the host, {library:.0f} of them the library's, {forward:.0f} us a forward;"
              f" {CALLS} calls take {'no' if none else 'SOME'} memory; a captured call gives {'the same' if same else 'OTHER'} bits")
    return same and none


def check_captured_first(plan, batch, base, like):
    """A batch whose first call is captured, and so cannot keep its lists: its bits are those of its later calls."""
    q, k, v = (batch.dispatch(x).requires_grad_() for x in base)
    d_o = torch.randn_like(like)

    def call():
        o = burst.attention(q, k, v, batch)
        return [o.detach(), *torch.autograd.grad(o, (q, k, v), d_o)]

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    graph.replay()
    first = [x.clone() for x in captured]
    eager = [call() for _ in range(3)]
    graph.replay()
    torch.cuda.synchronize()
    same = all(torch.equal(a[0], first[0]) for a in (*eager, captured))
    near = all(error(x, y.double()) < 1e-3 for a in (*eager, captured) for x, y in zip(a, first))
    if dist.get_rank() == 0 and not (same and near):
        print(f"{plan.layout}: a batch that was captured first gives OTHER {'gradients' if same else 'bits'}")
    return same and near


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    failed, checked = False, 0
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.so")):
        if not path.with_suffix(".json").exists():
            continue  # of a training step
        case = json.loads(path.with_suffix(".json").read_text())
        if case.get("ranks") == dist.get_world_size():
            failed, checked = check(path, case) or failed, checked + 1
    dist.destroy_process_group()
    return failed or not checked


sys.exit(main())
