"""A training step of a mixture of experts in PyTorch over the GPUs of a host: the peer of `gpu-test step` with examples/qwen3_30b_a3b.burst.

    torchrun --nproc-per-node=N benchmarks/experts_torch.py TOKENS LAYERS [docs LENGTH] [sac] [compile]

Shapes of Qwen3-30B-A3B, bf16, causal, or documents of LENGTH tokens. FSDP2 by layer, whose gathers bring experts to tokens; Ulysses over all
ranks with cuDNN's attention; torch._grouped_mm over rows sorted by expert; a checkpoint a layer, which keeps attention's outputs with `sac`;
loss by 4096 rows of logits; fused AdamW; `compile`: torch.compile of the experts and of norm and rotation of a head. Random weights, so that
tokens choose nearly uniformly; SKEW=1 adds a bias by Zipf's law. Prints the median of steps after the first (STEPS=4), tokens/s a GPU,
MFU of 989 TFLOP/s (unmasked pairs only) and peak memory.
"""
import os
import sys
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

HIDDEN, HEADS, KV_HEADS, DIM, EXPERTS, TOP, WIDTH, VOCAB = 2048, 32, 4, 128, 128, 8, 768, 151936
ROWS, PEAK = 4096, 989e12


def experts(x, router, bias, gate_up, down):
    """x [n, hidden]; gate_up [experts, hidden, 2 width], down [experts, width, hidden]; a softmax over a token's best experts."""
    n = x.shape[0]
    weight, chosen = (F.linear(x, router).float() + bias).softmax(-1).topk(TOP, -1)
    weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
    order = chosen.flatten().argsort(stable=True)
    ends = torch.bincount(chosen.flatten(), minlength=EXPERTS).cumsum(0).to(torch.int32)
    gate, up = torch._grouped_mm(x[order // TOP], gate_up, offs=ends).chunk(2, -1)
    y = torch._grouped_mm(F.silu(gate) * up * weight.flatten()[order, None], down, offs=ends)
    back = torch.empty_like(order)
    back[order] = torch.arange(n * TOP, device=x.device)
    return y[back].view(n, TOP, -1).sum(1)


def turned(x, weight, cos, sin):
    a, b = F.rms_norm(x, (DIM,), weight).float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def exchanged(x, gather):
    """[tokens, heads, dim]: all tokens of a part of the heads from a rank's tokens of all heads, or back."""
    world = dist.get_world_size()
    if world == 1:
        return x
    s, h, d = x.shape
    if gather:
        x = x.view(s, world, h // world, d).transpose(0, 1).contiguous()
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x)
        return y.view(world * s, h // world, d)
    x = x.contiguous().view(world, s // world, h, d)
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    return y.transpose(0, 1).reshape(s // world, world * h, d)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gather):
        ctx.gather = gather
        return exchanged(x, gather)

    @staticmethod
    def backward(ctx, dy):
        return exchanged(dy, not ctx.gather), None


class Layer(nn.Module):
    def __init__(self, documents, functions):
        super().__init__()
        self.n1, self.n2, self.nq, self.nk = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN), nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.q, self.kv = nn.Linear(HIDDEN, HEADS * DIM, bias=False), nn.Linear(HIDDEN, 2 * KV_HEADS * DIM, bias=False)
        self.o, self.router = nn.Linear(HEADS * DIM, HIDDEN, bias=False), nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, 2 * WIDTH) * .02)
        self.down = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) * .02)
        self.documents, (self.turned, self.experts) = documents, functions

    def forward(self, x, cos, sin, bias):
        h, n = self.n1(x), x.shape[1]
        k, v = self.kv(h).view(n, 2 * KV_HEADS, DIM).chunk(2, 1)
        q, k = self.turned(self.q(h).view(n, HEADS, DIM), self.nq.weight, cos, sin), self.turned(k, self.nk.weight, cos, sin)
        q, k, v = (Exchange.apply(t, True) for t in (q, k, v))
        length = self.documents or q.shape[0]
        q, k, v = (t.reshape(-1, length, t.shape[1], DIM).transpose(1, 2) for t in (q, k, v))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        o = Exchange.apply(o.transpose(1, 2).reshape(-1, o.shape[1], DIM), False)
        x = x + self.o(o.reshape(1, n, HEADS * DIM))
        return x + self.experts(self.n2(x)[0], self.router.weight, bias, self.gate_up, self.down)[None]


def keeping_attention(ctx, operation, *args, **more):
    kept = operation == torch.ops.aten._scaled_dot_product_cudnn_attention.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


class Model(nn.Module):
    def __init__(self, layers, documents, words):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        functions = [torch.compile(f) if "compile" in words else f for f in (turned, experts)]
        self.layers = nn.ModuleList(Layer(documents, functions) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
        self.extra = {"context_fn": partial(create_selective_checkpoint_contexts, keeping_attention)} if "sac" in words else {}

    def part(self, x, labels):
        return F.cross_entropy(self.head(x).float(), labels, reduction="sum")

    def forward(self, ids, labels, cos, sin, bias, tokens):
        x = self.embedding(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, bias, use_reentrant=False, **self.extra)
        x, loss = self.norm(x), 0.
        for i in range(0, x.shape[1], ROWS):
            loss = loss + checkpoint(self.part, x[0, i:i + ROWS], labels[0, i:i + ROWS], use_reentrant=False)
        return loss / tokens


def build(layers, documents, words, mesh):
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Model(layers, documents, words)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def timed_step(model, optimizer, tokens, angles, bias, part):
    ids = torch.randint(0, VOCAB, (1, tokens), device="cuda")
    dist.broadcast(ids, 0)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    loss = model(part(ids, 1), part(ids.roll(-1, 1), 1), *angles, bias, tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3, float(loss.detach())


def operations(tokens, layers, length):
    weights = HIDDEN * (HEADS + 2 * KV_HEADS) * DIM + HEADS * DIM * HIDDEN + 3 * TOP * HIDDEN * WIDTH + HIDDEN * EXPERTS
    return 6.0 * (layers * weights + VOCAB * HIDDEN) * tokens + 6.0 * layers * HEADS * DIM * tokens * length


def main():
    tokens, layers, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    documents = int(words[words.index("docs") + 1]) if "docs" in words else 0
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))

    def part(t, dim):
        return t.chunk(world, dim)[rank].contiguous()

    model, optimizer = build(layers, documents, words, init_device_mesh("cuda", (world,), mesh_dim_names=("ranks",)))
    inverse = 1.0 / (1e6 ** (torch.arange(0, DIM, 2, device="cuda").float() / DIM))
    angle = (torch.arange(tokens, device="cuda") % (documents or tokens)).float()[:, None] * inverse
    angles = part(angle.cos()[:, None], 0), part(angle.sin()[:, None], 0)
    skewed = os.environ.get("SKEW")
    bias = -torch.arange(1, EXPERTS + 1, device="cuda").float().log() if skewed else torch.zeros(EXPERTS, device="cuda")
    name = " ".join([f"torch experts, {tokens} tokens, {layers} layers, {world} ranks", *words, *(["skew"] if skewed else [])])
    try:
        steps = [timed_step(model, optimizer, tokens, angles, bias, part) for _ in range(int(os.environ.get("STEPS", "4")))]
    except torch.OutOfMemoryError:
        if rank == 0:
            print(f"{name}: OOM", flush=True)
        return
    seconds = sorted(s for s, _ in steps[1:] or steps)
    seconds = seconds[len(seconds) // 2]
    mfu = operations(tokens, layers, documents or tokens) / seconds / world / PEAK
    if rank == 0:
        print(f"{name}: step {seconds:.3f} s, {tokens / seconds / world:.0f} tokens/s/GPU, MFU {100 * mfu:.1f} %, peak "
              f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, loss {steps[-1][1]:.3f} (steps {['%.2f' % s for s, _ in steps]})",
              flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
