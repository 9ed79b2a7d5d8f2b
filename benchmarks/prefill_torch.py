"""The first token of Llama-3-8B shapes in PyTorch on the GPUs of a host: the peer of `gpu-test latency`.

    torchrun --nproc-per-node=N benchmarks/prefill_torch.py LAYERS TOKENS [TOKENS ...]

bf16 weights on every rank, Ulysses over all ranks, cuDNN's attention, torch.compile of norms, rotations and feed-forward networks; logits
of the last token alone. Keys and values are kept, as further tokens would need them. Prints for each length the median of three after one
that warms up, in seconds, and the peak memory.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_torch import exchange

HIDDEN, HEADS, KV_HEADS, DIM, FFN, VOCAB = 4096, 32, 8, 128, 14336, 128256
RUNS = 3


@torch.compile
def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


@torch.compile
def norm(x, weight):
    return F.rms_norm(x, (HIDDEN,), weight)


@torch.compile
def feed_forward(x, weight, up, down):
    gate, value = F.linear(F.rms_norm(x, (HIDDEN,), weight), up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * value, down)


def drawn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


def layer():
    ones = [torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    return dict(norms=ones, q=drawn(HEADS * DIM, HIDDEN), kv=drawn(2 * KV_HEADS * DIM, HIDDEN), o=drawn(HIDDEN, HEADS * DIM),
                up=drawn(2 * FFN, HIDDEN), down=drawn(HIDDEN, FFN))


def attend(q, k, v, world):
    """q [tokens of the rank, heads, dim]; the output, as q, and the keys and values that are kept."""
    q, k, v = (exchange(x, True, world) if world > 1 else x for x in (q, k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        o = F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), is_causal=True, enable_gqa=True)
    o = o[0].transpose(0, 1)
    return exchange(o, False, world) if world > 1 else o, (k, v)


@torch.no_grad()
def prefill(layers, embedding, head, tokens, cos, sin, world):
    x, cache, n = F.embedding(tokens, embedding), [], len(tokens)
    for w in layers:
        h = norm(x, w["norms"][0])
        k, v = F.linear(h, w["kv"]).view(n, 2 * KV_HEADS, DIM).chunk(2, 1)
        q = rotate(F.linear(h, w["q"]).view(n, HEADS, DIM), cos, sin)
        o, kept = attend(q, rotate(k, cos, sin), v, world)
        cache.append(kept)
        x = feed_forward(x + F.linear(o.reshape(n, HEADS * DIM), w["o"]), w["norms"][1], w["up"], w["down"])
    return F.linear(x[-1], head).float(), cache


def timed(weights, length, rank, world):
    def own(x):
        return x.chunk(world)[rank].contiguous()
    frequency = 1.0 / (500000 ** (torch.arange(0, DIM, 2, device="cuda").float() / DIM))
    angle = torch.arange(length, device="cuda").float()[:, None] * frequency
    inputs = own(torch.randint(0, VOCAB, (length,), device="cuda")), own(angle.cos()[:, None]), own(angle.sin()[:, None])
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(RUNS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        kept = prefill(*weights, *inputs, world)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
        del kept
    return sorted(times[1:])[RUNS // 2]


def main():
    count, lengths = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(0)
    weights = [layer() for _ in range(count)], drawn(VOCAB, HIDDEN), drawn(VOCAB, HIDDEN)
    for length in lengths:
        seconds = timed(weights, length, rank, world)
        if rank == 0:
            print(f"prefill of {length} tokens: {seconds:.3f} s, at most {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
