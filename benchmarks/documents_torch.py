"""Peers for `gpu-test documents`: causal attention over packed documents in PyTorch, on the lengths of a JSON file.

    torchrun --nproc-per-node=N benchmarks/documents_torch.py LENGTHS.json

Ulysses with FlexAttention, and all-gather of keys with FlexAttention over zigzag halves of the queries. 64 query heads and 8 key heads
of 128, bf16. Prints a line each: milliseconds of forward and of backward (the time of both less forward's), of the slowest rank,
medians of five after two; TFLOP/s per GPU over unmasked pairs.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attention_torch import Exchange, median

HEADS, KV_HEADS, HEAD_DIM = 64, 8, 128
flex = torch.compile(flex_attention, dynamic=False)


class Gather(torch.autograd.Function):
    """[tokens of this rank, heads, d] to those of all ranks; the sum of gradients comes back."""

    @staticmethod
    def forward(ctx, x, world):
        ctx.world = world
        y = x.new_empty(world * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(y, x.contiguous())
        return y

    @staticmethod
    def backward(ctx, dy):
        dx = dy.new_empty(dy.shape[0] // ctx.world, *dy.shape[1:])
        dist.reduce_scatter_tensor(dx, dy.contiguous())
        return dx, None


def attend(q, k, v, mask):
    """[tokens, heads, d]"""
    q, k, v = (x.transpose(0, 1).unsqueeze(0).contiguous() for x in (q, k, v))
    return flex(q, k, v, block_mask=mask, enable_gqa=True).squeeze(0).transpose(0, 1)


def time(name, function, leaves, flops, rank):
    forward = median(function)
    gradient = torch.randn_like(function())
    both = median(lambda: torch.autograd.grad(function(), leaves, gradient))
    backward = both - forward
    if rank == 0:
        print(f"peer {name}: forward {forward:.2f} ms ({flops / forward / 1e9:.0f} TFLOP/s per GPU), backward {backward:.2f} ms "
              f"({2.5 * flops / backward / 1e9:.0f})", flush=True)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    lengths = json.load(open(sys.argv[1]))
    tokens = sum(lengths)
    document = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"), torch.tensor(lengths, device="cuda"))
    flops = 4 * sum(n * (n + 1) / 2 for n in lengths) * HEADS * HEAD_DIM / world
    shapes = [(tokens // world, h, HEAD_DIM) for h in (HEADS, KV_HEADS, KV_HEADS)]
    q, k, v = (torch.randn(s, device="cuda", dtype=torch.bfloat16, requires_grad=True) for s in shapes)

    whole = create_block_mask(lambda b, h, i, j: (i >= j) & (document[i] == document[j]), None, None, tokens, tokens, device="cuda",
                              _compile=True)
    time("Ulysses + FlexAttention",
         lambda: Exchange.apply(attend(*(Exchange.apply(x, True, world) for x in (q, k, v)), whole), False, world),
         (q, k, v), flops, rank)

    half = tokens // (2 * world) # of zigzag: rank r has halves r and 2 world - 1 - r
    places = torch.cat([torch.arange(half, device="cuda") + p * half for p in (rank, 2 * world - 1 - rank)])
    order = torch.cat([torch.arange(half, device="cuda") + p * half for r in range(world) for p in (r, 2 * world - 1 - r)])
    zigzag = create_block_mask(lambda b, h, i, j: (places[i] >= order[j]) & (document[places[i]] == document[order[j]]), None, None,
                               tokens // world, tokens, device="cuda", _compile=True)
    time("gathered keys, zigzag + FlexAttention",
         lambda: attend(q, Gather.apply(k, world), Gather.apply(v, world), zigzag), (q, k, v), flops, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
