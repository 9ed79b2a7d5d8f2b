"""A peer for `gpu-test scale`: head-parallel (Ulysses) attention in PyTorch, all-to-all by NCCL and cuDNN's causal attention.

    torchrun --nproc-per-node=N benchmarks/attention_torch.py TOKENS ... [--heads 32] [--kv 8 ...]

Heads of 128, bf16, batch 1. Prints a line a case: milliseconds of forward, and of backward (the time of both less
forward's), of the slowest rank, medians of five after two, a barrier before each.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel

HEAD_DIM = 128


class Exchange(torch.autograd.Function):
    """[tokens / world, heads, d] to [tokens, heads / world, d] where gather, else back; backward is the other one."""

    @staticmethod
    def forward(ctx, x, gather, world):
        ctx.gather, ctx.world = gather, world
        return exchange(x, gather, world)

    @staticmethod
    def backward(ctx, dy):
        return exchange(dy, not ctx.gather, ctx.world), None, None


def moved(x):
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    return y


def exchange(x, gather, world, move=moved):
    """move: the all-to-all between ranks."""
    n, h, d = x.shape
    if gather:
        y = move(x.view(n, world, h // world, d).transpose(0, 1).contiguous())
        return y.view(world * n, h // world, d)
    y = move(x.contiguous().view(world, n // world, h, d))
    return y.transpose(0, 1).reshape(n // world, world * h, d)


def median(function, repeat=5, warm=2):
    times = []
    for _ in range(warm + repeat):
        torch.cuda.synchronize()
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        slowest = torch.tensor([begin.elapsed_time(end)], device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times.append(float(slowest))
    return sorted(times[warm:])[repeat // 2]


def case(tokens, heads, kv_heads, world):
    make = lambda h: torch.randn(tokens // world, h, HEAD_DIM, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    d_o = torch.randn_like(q)

    def forward():
        qh, kh, vh = (Exchange.apply(x, True, world).transpose(0, 1)[None] for x in (q, k, v))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = torch.nn.functional.scaled_dot_product_attention(qh, kh, vh, is_causal=True, enable_gqa=heads != kv_heads)
        return Exchange.apply(o[0].transpose(0, 1), False, world)

    alone = median(forward)
    both = median(lambda: torch.autograd.grad(forward(), (q, k, v), d_o))
    return alone, both - alone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", type=int, nargs="+")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv", type=int, nargs="+", default=[8])
    args = parser.parse_args()
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    for kv_heads in args.kv:
        for tokens in args.tokens:
            forward, backward = case(tokens, args.heads, kv_heads, world)
            if rank == 0:
                print(f"ulysses torch+cuDNN, {world} GPUs, {tokens // 1024}K, {args.heads}/{kv_heads}: forward {forward:.2f} ms, "
                      f"backward {backward:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
