"""A plan's attention in PyTorch beside what PyTorch's users have: `gpu-library DIR RANKS times`.

    torchrun --nproc-per-node=N benchmarks/library_torch.py PLANS

64 query heads and 8 key heads of 128, bf16, batch 1; masks causal, window(1024) and packed documents of set D
(tests/programs/part_documents.py). PLANS has times_*_N.so for N ranks, compiled by `gpu-library --prepare DIR times`.
Peers: Ulysses with cuDNN (causal) or FlexAttention (other masks), FlexAttention over gathered keys with zigzag halves of the queries as
torch's context parallelism has it, and a zigzag ring of FlashAttention-2 calls (causal). Prints a line each: milliseconds of forward and
backward (the time of both less forward's) of the slowest rank, medians of five after two, and the relative L2 from Ulysses's output.
"""
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask

import burst
from attention_torch import Exchange, median
from burst.plan import Plan
from documents_torch import Gather, attend

HEADS, KV_HEADS, HEAD_DIM, WINDOW = 64, 8, 128, 1024
FAR = 2e-2  # relative L2 of two right answers in bf16 is below


def passed_on(tensors, rank, world):
    """Those of the rank before."""
    if world == 1:
        return tensors, []
    got = [torch.empty_like(x) for x in tensors]
    after, before = (rank + 1) % world, (rank - 1) % world
    operations = [op for x, y in zip(tensors, got) for op in (dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before))]
    return got, dist.batch_isend_irecv(operations)


def zigzag_part(step, rank, q, k, v):
    """What this rank's queries see of the keys that began step ranks before: queries, keys, values, causal, first row."""
    half = q.shape[1] // 2
    if step == 0:
        return q, k, v, True, 0
    if step <= rank:  # all queries see the first half of the keys
        return q, k[:, :half], v[:, :half], False, 0
    return q[:, half:], k, v, False, half


def flash(q, k, v, causal):
    """o, lse and two values that its backward asks for, of [1, tokens, heads, d]."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    return torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False)[:4]


def flash_backward(d_o, q, k, v, o, lse, causal, random):
    d_o, q, k, v, o, lse = (x.contiguous() for x in (d_o, q, k, v, o, lse))
    return torch.ops.aten._flash_attention_backward(d_o, q, k, v, o, lse, None, None, q.shape[1], k.shape[1], 0.0, causal, *random)


class FlashRing(torch.autograd.Function):
    """A zigzag ring of FlashAttention-2 calls: [tokens, heads, d] of this rank; partial results joined by their lse in fp32."""

    @staticmethod
    def forward(ctx, q, k, v, rank, world):
        q, k, v = (x.unsqueeze(0).contiguous() for x in (q, k, v))
        o = torch.zeros(q.shape, device=q.device)
        lse = torch.full((1, q.shape[2], q.shape[1]), float("-inf"), device=q.device)
        at = [k, v]
        for step in range(world):
            wait = []
            if step + 1 < world:
                coming, wait = passed_on(at, rank, world)
            part_q, part_k, part_v, causal, first = zigzag_part(step, rank, q, *at)
            n = (part_q.shape[1], part_k.shape[1])
            part, part_lse, *random = flash(part_q, part_k, part_v, causal)
            old = lse[:, :, first:].clone()
            lse[:, :, first:] = torch.logaddexp(old, part_lse)
            share = [(x - lse[:, :, first:]).exp().transpose(1, 2).unsqueeze(-1) for x in (old, part_lse)]
            o[:, first:] = o[:, first:] * share[0] + part * share[1]
            for w in wait:
                w.wait()
            if wait:
                at = coming
        o = o.to(q.dtype)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.place, ctx.random = (rank, world), random
        return o[0]

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, o, lse = ctx.saved_tensors
        rank, world = ctx.place
        d_o = d_o.unsqueeze(0).contiguous()
        dq = torch.zeros(q.shape, device=q.device)
        at, sums = [k, v], [torch.zeros(k.shape, device=q.device) for _ in range(2)]
        for step in range(world):
            wait = []
            if step + 1 < world:
                coming, wait = passed_on(at, rank, world)
            part_q, part_k, part_v, causal, first = zigzag_part(step, rank, q, *at)
            found = flash_backward(d_o[:, first:], part_q, part_k, part_v, o[:, first:], lse[:, :, first:], causal, ctx.random)
            dq[:, first:] += found[0]
            for x, d in zip(sums, found[1:3]):
                x[:, :part_k.shape[1]] += d
            for w in wait:
                w.wait()
            sums, last = passed_on(sums, rank, world)  # after the last step they are home
            for w in last:
                w.wait()
            if wait:
                at = coming
        return dq[0].to(q.dtype), *(x[0].to(q.dtype) for x in sums), None, None


def keeps(name, document):
    """The mask as FlexAttention asks for it."""
    if name == "near":
        return lambda i, j: (i >= j) & (i - j < WINDOW)
    if name == "packed":
        return lambda i, j: (i >= j) & (document[i] == document[j])
    return lambda i, j: i >= j


def zigzag_places(tokens, rank, world):
    half = tokens // (2 * world)
    return torch.cat([torch.arange(half, device="cuda") + p * half for p in (rank, 2 * world - 1 - rank)])


class Peers:
    """Each a function of this rank's rows and the rows that it takes: zigzag's or those in order."""

    def __init__(self, name, lengths, rank, world):
        tokens = sum(lengths)
        document = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"), torch.tensor(lengths, device="cuda"))
        keep = keeps(name, document)
        zigzag = zigzag_places(tokens, rank, world)
        order = torch.cat([zigzag_places(tokens, r, world) for r in range(world)])
        plain = torch.arange(tokens // world, device="cuda") + rank * (tokens // world)
        self.of = {"Ulysses, cuDNN": (plain, self.cudnn(world))} if name == "all" else {
            "Ulysses, FlexAttention": (plain, self.flex(keep, tokens, world))}
        self.of["gathered keys, FlexAttention"] = (zigzag, self.gathered(keep, zigzag, order, tokens, world))
        if name == "all":
            self.of["ring of FlashAttention-2"] = (zigzag, lambda q, k, v: FlashRing.apply(q, k, v, rank, world))

    @staticmethod
    def by_heads(attention, world):
        return lambda *x: Exchange.apply(attention(*(Exchange.apply(y, True, world) for y in x)), False, world)

    def cudnn(self, world):
        def attention(q, k, v):
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
        return self.by_heads(attention, world)

    def flex(self, keep, tokens, world):
        mask = create_block_mask(lambda b, h, i, j: keep(i, j), None, None, tokens, tokens, device="cuda", _compile=True)
        return self.by_heads(lambda q, k, v: attend(q, k, v, mask), world)

    @staticmethod
    def gathered(keep, places, order, tokens, world):
        mask = create_block_mask(lambda b, h, i, j: keep(places[i], order[j]), None, None, tokens // world, tokens, device="cuda",
                                 _compile=True)
        return lambda q, k, v: attend(q, Gather.apply(k, world), Gather.apply(v, world), mask)


def timed(function, leaves, d_o):
    forward = median(lambda: function(*leaves))
    both = median(lambda: torch.autograd.grad(function(*leaves), leaves, d_o))
    return forward, both - forward


def rows_of(x, rows):
    return x[rows].clone().requires_grad_()


def whole(y, rows, world):
    """All tokens' rows, in their order, on every rank."""
    got, places = ([torch.empty_like(x) for _ in range(world)] for x in (y, rows))
    dist.all_gather(got, y.contiguous())
    dist.all_gather(places, rows)
    out = y.new_empty(world * y.shape[0], *y.shape[1:])
    out[torch.cat(places)] = torch.cat(got)
    return out


def compare(plan, lengths, name, rank, world):
    torch.manual_seed(1)
    batch = plan.batch([0, *torch.tensor(lengths).cumsum(0).tolist()])
    base = [torch.randn(plan.tokens, h, HEAD_DIM, device="cuda").bfloat16() for h in (HEADS, KV_HEADS, KV_HEADS)]
    d_o, truth, far = torch.randn_like(base[0]), None, False
    torch._dynamo.reset()  # each mask is compiled, also the ninth
    ways = {key: (*way, None) for key, way in Peers(name, lengths, rank, world).of.items()}
    ways[f"burst, {plan.layout}"] = (None, lambda q, k, v: burst.attention(q, k, v, batch, name), batch)
    for title, (rows, function, own) in ways.items():
        leaves = [own.dispatch(x).detach().requires_grad_() if own else rows_of(x, rows) for x in base]
        y = function(*leaves).detach()
        y = own.undispatch(y) if own else whole(y, rows, world)
        truth = y.double() if truth is None else truth
        apart = float((y.double() - truth).norm() / truth.norm())
        far |= not apart < FAR
        forward, backward = timed(function, leaves, own.dispatch(d_o).detach() if own else d_o[rows])
        if rank == 0:
            print(f"{name}, {plan.tokens // world // 1024}K a GPU: {title}: forward {forward:.3f} ms, backward {backward:.3f} ms, "
                  f"apart {apart:.1e}{' BAD' if not apart < FAR else ''}", flush=True)
    return far


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    bad = False
    paths = pathlib.Path(sys.argv[1]).glob(f"times_*_{world}.so")
    for path in sorted(paths, key=lambda path: (int(path.name.split("_")[1]), path.name)):
        lengths = json.loads(path.with_suffix(".json").read_text())["lengths"]
        plan = Plan(path, None, dist.group.WORLD, None)
        for name in plan.masks:
            bad |= compare(plan, lengths if name == "packed" else [plan.tokens], name, rank, world)
        plan.close()
    dist.destroy_process_group()
    return bad


if __name__ == "__main__":
    sys.exit(main())
