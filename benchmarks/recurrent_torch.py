"""A peer for `gpu-test step` of examples/qwen3_5_9b.burst: a training step of Qwen3.5-9B's shapes over the GPUs of a host in PyTorch.

    torchrun --nproc-per-node=N benchmarks/recurrent_torch.py [TOKENS [LAYERS [flash]]]
    python3 benchmarks/recurrent_torch.py --warm
    python3 benchmarks/recurrent_torch.py --rates

Random weights and tokens, one document of 64Ki tokens, 8 layers. Recurrent layers by fla-core's chunk_gated_delta_rule and convolution with
its context of contiguous parts (each rank's one part: it sends least), attention by Ulysses around PyTorch's fused kernels, FSDP2 (bf16, sums in
fp32), each layer checkpointed but for attention's outputs, loss by 4096 rows of logits, fused AdamW. Prints the median of steps after the second
and peak memory. --rates: fla-core's operation alone on one GPU, as bench_scan.py counts, and the configurations of its kernels: each has two
(fla_tuning.py). --warm: compiles these for these shapes on one GPU, a process for each, so that Triton's cache has them.

fla-core refuses a kernel of backward on Hopper with Triton 3.4 to 3.7, whose results may be wrong there; this takes its time all the same.
"""
import datetime
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import fla_tuning # before fla-core's kernels are made

if "--some" in sys.argv:
    fla_tuning.only = int(sys.argv[sys.argv.index("--some") + 1])

import fla.ops.common.chunk_o
from fla.modules import FusedRMSNormGated
from fla.modules.causal_conv1d import causal_conv1d
from fla.ops.cp import build_cp_context
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

from attention_torch import exchange

HIDDEN, FFN, VOCAB, EPS, EVERY = 4096, 12288, 248320, 1e-6, 4 # each EVERY-th layer has attention
HEADS, KV_HEADS, HEAD_DIM, ROTARY, THETA = 16, 4, 256, 64, 1e7
VALUE_HEADS, KEY_HEADS, DIM, KERNEL = 32, 16, 128, 4
STEPS, ROWS, PEAK = 5, 4096, 989e12
FUSED = [SDPBackend.FLASH_ATTENTION] if "flash" in sys.argv else [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
SAVED = {torch.ops.aten._scaled_dot_product_cudnn_attention.default, torch.ops.aten._scaled_dot_product_flash_attention.default}
fla.ops.common.chunk_o.TRITON_ABOVE_3_7_1 = True


def linear(rows, columns):
    layer = nn.Linear(columns, rows, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


@torch.compile
def swiglu(gate, up):
    return F.silu(gate) * up


@torch.compile
def turned(x, weight, cos, sin):
    """Normed by head, then the first ROTARY elements turned. x [t, heads, d]."""
    x = F.rms_norm(x.float(), (HEAD_DIM,), weight.float(), EPS)
    first, rest = x[..., :ROTARY], x[..., ROTARY:]
    a, b = first.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).to(torch.bfloat16)


@torch.compile
def gated(o, gate):
    return o * torch.sigmoid(gate)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        keys, values = KEY_HEADS * DIM, VALUE_HEADS * DIM
        self.sizes = [keys, keys, values]
        self.qkv, self.z, self.out = linear(2 * keys + values, HIDDEN), linear(values, HIDDEN), linear(HIDDEN, values)
        self.steps = linear(2 * VALUE_HEADS, HIDDEN)
        self.conv = nn.Parameter(torch.randn(2 * keys + values, KERNEL) * 0.2)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(VALUE_HEADS)), nn.Parameter(torch.ones(VALUE_HEADS))
        self.norm = FusedRMSNormGated(DIM, eps=EPS)

    def forward(self, x, place):
        qkv, _ = causal_conv1d(self.qkv(x), self.conv, activation="silu", cp_context=place["context"], cu_seqlens=place["cu_seqlens"])
        q, k, v = (part.reshape(*part.shape[:2], -1, DIM) for part in qkv.split(self.sizes, -1))
        b, a = self.steps(x).chunk(2, -1)
        o, _ = chunk_gated_delta_rule(q, k, v, a, b, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=self.A_log,
                                      dt_bias=self.dt_bias, use_beta_sigmoid_in_kernel=True, cp_context=place["context"],
                                      cu_seqlens=place["cu_seqlens"])
        return self.out(self.norm(o, self.z(x).view_as(o)).flatten(2))


def traced(x):
    return all_to_all_single_autograd(x, None, None, dist.group.WORLD)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.gate, self.out = linear(HEADS * HEAD_DIM, HIDDEN), linear(HEADS * HEAD_DIM, HIDDEN), linear(HIDDEN, HEADS * HEAD_DIM)
        self.k, self.v = linear(KV_HEADS * HEAD_DIM, HIDDEN), linear(KV_HEADS * HEAD_DIM, HIDDEN)
        self.q_norm, self.k_norm = nn.Parameter(torch.ones(HEAD_DIM)), nn.Parameter(torch.ones(HEAD_DIM))

    def forward(self, x, place):
        world, t = dist.get_world_size(), x.shape[1]
        q, k, v = (w(x).view(t, -1, HEAD_DIM) for w in (self.q, self.k, self.v))
        q, k = turned(q, self.q_norm, *place["angles"]), turned(k, self.k_norm, *place["angles"])
        q, k, v = (exchange(part, True, world, traced).transpose(0, 1)[None] for part in (q, k, v))
        with sdpa_kernel(FUSED, set_priority=True):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        o = exchange(o[0].transpose(0, 1), False, world, traced).reshape(1, t, -1)
        return self.out(gated(o, self.gate(x)))


class Layer(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.mixer, self.up, self.gate, self.down = mixer, linear(FFN, HIDDEN), linear(FFN, HIDDEN), linear(HIDDEN, FFN)
        self.before, self.between = nn.Parameter(torch.ones(HIDDEN)), nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x, place):
        x = x + self.mixer(F.rms_norm(x, (HIDDEN,), self.before, EPS), place)
        n = F.rms_norm(x, (HIDDEN,), self.between, EPS)
        return x + self.down(swiglu(self.gate(n), self.up(n)))


def saving():
    return create_selective_checkpoint_contexts(
        lambda context, op, *args, **more: CheckpointPolicy.MUST_SAVE if op in SAVED else CheckpointPolicy.PREFER_RECOMPUTE)


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer(Attention() if i % EVERY == EVERY - 1 else Recurrent()) for i in range(layers))
        self.norm, self.head = nn.Parameter(torch.ones(HIDDEN)), linear(VOCAB, HIDDEN)

    def of_rows(self, hidden, labels):
        return F.cross_entropy(self.head(hidden).float(), labels, reduction="sum")

    def forward(self, ids, labels, place):
        x = self.embed(ids)[None]
        for layer in self.layers:
            x = checkpoint(layer, x, place, use_reentrant=False, context_fn=saving)
        x = F.rms_norm(x[0], (HIDDEN,), self.norm, EPS)
        parts = zip(x.split(ROWS), labels.split(ROWS))
        return sum(checkpoint(self.of_rows, h, l, use_reentrant=False) for h, l in parts) / len(labels)


def place_of(tokens, rank, world):
    """What layers read beside their input: the document's part that a rank has."""
    ends = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
    context = build_cp_context(ends, dist.group.WORLD, conv1d_kernel_size=KERNEL) if world > 1 else None
    rows = torch.arange(rank * tokens // world, (rank + 1) * tokens // world, device="cuda", dtype=torch.float32)
    angle = rows[:, None] * THETA ** (-torch.arange(0, ROTARY, 2, device="cuda") / ROTARY)
    return {"context": context, "cu_seqlens": None if context else ends, "angles": (torch.cos(angle)[:, None], torch.sin(angle)[:, None])}


def warm():
    some = [subprocess.Popen([sys.executable, __file__, "--some", str(i)]) for i in range(2)]
    print("ended with", *(one.wait() for one in some), flush=True)


def warm_some():
    """One recurrent layer alone."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29577 + fla_tuning.only)}
    dist.init_process_group("gloo")
    ends = torch.tensor([0, 8192], device="cuda", dtype=torch.int32)
    for context in (build_cp_context(ends, dist.group.WORLD, conv1d_kernel_size=KERNEL), None):
        layer = Recurrent().to("cuda", torch.bfloat16)
        x = torch.randn(1, 8192, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        layer(x, {"context": context, "cu_seqlens": None if context else ends}).sum().backward()
        torch.cuda.synchronize()
        print(f"configuration {fla_tuning.only} compiled with context {context is not None}", flush=True)
    dist.destroy_process_group()


def milliseconds(run, times=10):
    for _ in range(3):
        run()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for a, b in marks:
        a.record()
        run()
        b.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in marks)[times // 2]


def rates(n=65536):
    draw = lambda *shape: torch.randn(1, n, *shape, device="cuda", dtype=torch.bfloat16).requires_grad_()
    q, k, v, a, b = draw(KEY_HEADS, DIM), draw(KEY_HEADS, DIM), draw(VALUE_HEADS, DIM), draw(VALUE_HEADS), draw(VALUE_HEADS)
    A_log, dt_bias = (torch.zeros(VALUE_HEADS, device="cuda").requires_grad_() for _ in range(2))
    run = lambda: chunk_gated_delta_rule(q, k, v, a, b, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias,
                                         use_beta_sigmoid_in_kernel=True)[0]
    o, d_o = run(), torch.randn(1, n, VALUE_HEADS, DIM, device="cuda").bfloat16()
    back = lambda: torch.autograd.grad(o, (q, k, v, a, b, A_log, dt_bias), d_o, retain_graph=True)
    with torch.no_grad():
        forward = milliseconds(run)
    backward, work = milliseconds(back), n * VALUE_HEADS * DIM * DIM / 1e9
    print(f"fla-core, {torch.cuda.get_device_name()}, {n} tokens: forward {forward:.3f} ms, {4 * work / forward:.1f} TFLOP/s; "
          f"backward {backward:.3f} ms, {8 * work / backward:.1f} TFLOP/s", *fla_tuning.chosen(), sep="\n  ", flush=True)


def flops(tokens, layers):
    """Of products with weights, of attention's unmasked pairs, and of states."""
    keys, values, inside = KEY_HEADS * DIM, VALUE_HEADS * DIM, HEADS * HEAD_DIM
    attention = layers // EVERY
    of_layer = layers * 3 * HIDDEN * FFN + attention * HIDDEN * (3 * inside + 2 * KV_HEADS * HEAD_DIM)
    weights = of_layer + (layers - attention) * HIDDEN * (2 * keys + 3 * values + 2 * VALUE_HEADS) + VOCAB * HIDDEN
    return 6.0 * weights * tokens + 6.0 * attention * inside * tokens * tokens + 12.0 * (layers - attention) * VALUE_HEADS * DIM * DIM * tokens


def timed(step):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    begin.record()
    loss = step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3, loss


def main():
    for word, run in (("--warm", warm), ("--some", warm_some), ("--rates", rates)):
        if word in sys.argv:
            run()
            return
    tokens, layers = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((1, 65536), (2, 8)))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank), timeout=datetime.timedelta(minutes=5))
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model(layers)
    sharding = {"mesh": init_device_mesh("cuda", (world,)),
                "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)}
    for layer in model.layers:
        fully_shard(layer, **sharding)
    fully_shard(model, **sharding)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, VOCAB, (tokens + 1,), device="cuda", generator=torch.Generator("cuda").manual_seed(7))
    rows, place = slice(rank * tokens // world, (rank + 1) * tokens // world), place_of(tokens, rank, world)

    def step():
        loss = model(ids[:-1][rows], ids[1:][rows], place)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    times, losses = zip(*(timed(step) for _ in range(STEPS)))
    if rank == 0:
        seconds = sorted(times[2:])[len(times[2:]) // 2]
        print(f"PyTorch, fla-core, Ulysses, FSDP2: {layers} layers, {tokens // 1024}Ki tokens, {world} GPUs: {seconds:.3f} s a step, "
              f"{tokens / seconds / world:.0f} tokens/s/GPU, MFU {100 * flops(tokens, layers) / seconds / world / PEAK:.1f} %, peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB; all "
              f"{' '.join(f'{t:.3f}' for t in times)}; losses of rank 0 {' '.join(f'{float(l):.4f}' for l in losses)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
