"""Peers for `gpu-test packed`: training steps of Llama-3-8B shapes in PyTorch, on the lengths of a JSON file.

    torchrun --nproc-per-node=N benchmarks/documents_step_torch.py {flex | varlen} LENGTHS.json ... [--layers 8] [--plain auto]

LENGTHS.json: of each of some sequences the lengths of its documents, which fill it. FSDP2 over all ranks (weights and gradients in bf16,
masters, states and sums in fp32), Ulysses, torch.compile of each layer, fused AdamW, cross entropy by rows of logits that are computed
once. Attention: FlexAttention with a mask of blocks, or torch.nn.attention.varlen. Layers keep
attention's output and recompute the rest; --plain N: N of them keep everything; auto: as many as memory has room for.

Prints a line a file: seconds of a step of the slowest rank (the mean over sequences and --passes), tokens/s, peak memory, and the losses
of the first steps. What depends on lengths alone, such as masks, is made before a step begins. --tiny: tiny shapes in fp32, on CPUs too
(gloo, nothing compiled by inductor); --check: loss and gradients of one step beside one rank's dense attention.
"""
import argparse
import functools
import inspect
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import flex_attention as flex
from torch.nn.attention import varlen
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from attention_torch import exchange

BLOCK, IGNORE, ROWS, WARM = 128, -100, 8192, 3
ROOM = 0.9  # of a GPU's memory: what tensors may take, beside CUDA's and NCCL's own


class Shapes:
    def __init__(self, tiny, layers):
        self.layers = layers
        self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab = (
            (64, 4, 2, 16, 160, 512) if tiny else (4096, 32, 8, 128, 14336, 128256))


# ---- documents ----

class Documents:
    """What attention reads of a sequence's documents."""

    def __init__(self, lengths, device):
        self.ends = torch.tensor(lengths, device=device).cumsum(0)
        self.tokens, self.longest = sum(lengths), max(lengths)
        self.number = torch.repeat_interleave(torch.arange(len(lengths), device=device), torch.tensor(lengths, device=device))
        self.starts = F.pad(self.ends, (1, 0)).int()

    def blocks(self, number):
        """FlexAttention's mask: of a row of blocks those of the row's documents, up to the diagonal, in full where all is one document."""
        first, last = self.number[::BLOCK], self.number[BLOCK - 1::BLOCK]
        rows = torch.arange(len(first), device=number.device)
        kept = (last[None, :] >= first[:, None]) & (rows[None, :] <= rows[:, None])
        full = kept & (first[None, :] == last[:, None]) & (rows[None, :] < rows[:, None])

        def listed(which):
            order = torch.argsort(which.int(), dim=1, descending=True, stable=True)
            return which.sum(1).int()[None, None], order.int()[None, None]

        return flex.BlockMask.from_kv_blocks(*listed(kept & ~full), *listed(full), BLOCK_SIZE=BLOCK,
                                        mask_mod=lambda b, h, i, j: (i >= j) & (number[i] == number[j]),
                                        seq_lengths=(self.tokens, self.tokens))

    def labels(self, ids):
        """The next token's; none at the end of a document."""
        labels = ids.roll(-1)
        labels[self.ends - 1] = IGNORE
        return labels


def copy_mask(to, source):
    for name, old in vars(to).items():
        if isinstance(old, torch.Tensor):
            old.copy_(getattr(source, name))


class Flex:
    """Attention of [tokens, heads, d]."""
    saved = torch._higher_order_ops.flex_attention

    def __init__(self, documents):
        self.number = documents.number.clone()
        self.mask = documents.blocks(self.number)

    def set(self, documents):
        self.number.copy_(documents.number)
        copy_mask(self.mask, documents.blocks(self.number))
        return (self.mask,)

    @staticmethod
    def attend(q, k, v, mask):
        q, k, v = (x.transpose(0, 1)[None].contiguous() for x in (q, k, v))
        return flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])[0].transpose(0, 1)


class Varlen:
    """torch.nn.attention.varlen with the kernel that this release of PyTorch chooses."""

    def __init__(self, documents):
        self.call, self.saved = varlen.varlen_attn, torch.ops.torch_attn._varlen_attn.default
        self.more = {"enable_gqa": True} if "enable_gqa" in inspect.signature(self.call).parameters else {}

    @staticmethod
    def set(documents):
        return documents.starts, documents.longest

    def attend(self, q, k, v, starts, longest):
        return self.call(q.contiguous(), k.contiguous(), v.contiguous(), starts, starts, longest, longest, window_size=(-1, 0), **self.more)


def probabilities(q, k):
    """Causal, of one document: [kv_heads, heads of one, rows, rows], and q in that order."""
    q = q.view(len(q), k.shape[1], -1, q.shape[2]).permute(1, 2, 0, 3)
    scores = q @ k.permute(1, 2, 0)[:, None] / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), float("-inf")), -1), q


def dense(q, k, v, starts, *_):
    """What the operators compute, on CPUs, where what is around them is tested."""
    def one(q, k, v):
        return (probabilities(q, k)[0] @ v.transpose(0, 1)[:, None]).permute(2, 0, 1, 3).reshape(q.shape)
    return torch.cat([one(*parts) for parts in zip(*(x.split(starts.diff().tolist()) for x in (q, k, v)))])


def dense_backward(d_o, q, k, v, o, lse, starts, *_):
    def one(d_o, q, k, v):
        p, q = probabilities(q, k)
        d_o = d_o.view(len(d_o), k.shape[1], -1, d_o.shape[2]).permute(1, 2, 0, 3)
        d_p = d_o @ v.permute(1, 2, 0)[:, None]
        d_s = p * (d_p - (p * d_p).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        rows = lambda x: x.permute(2, 0, 1, 3).reshape(len(k), -1, x.shape[-1])
        return rows(d_s @ k.transpose(0, 1)[:, None]), rows((d_s.mT @ q).sum(1, keepdim=True)), rows((p.mT @ d_o).sum(1, keepdim=True))
    parts = zip(*(x.split(starts.diff().tolist()) for x in (d_o, q, k, v)))
    return tuple(torch.cat(grads) for grads in zip(*(one(*part) for part in parts)))


def register_dense():
    varlen._varlen_attn.register_kernel("cpu")(
        lambda q, *more: (dense(q, *more), q.new_empty(q.shape[1], len(q)), torch.empty(2, dtype=torch.uint64)))
    varlen._varlen_attn_backward.register_kernel("cpu")(dense_backward)
    flex._validate_device = lambda q, k, v: None  # it has a backward on CPUs, but for inductor


WAYS = {"flex": Flex, "varlen": Varlen}


# ---- model ----

def traced(x):
    """An all-to-all that torch.compile and autograd see."""
    return all_to_all_single_autograd(x, None, None, dist.group.WORLD)


def turn(x, cos, sin):
    """Rotary embedding of [tokens, heads, d]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def policy(saved, context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op == saved else CheckpointPolicy.PREFER_RECOMPUTE


class Block(nn.Module):
    def __init__(self, shapes, way, world):
        super().__init__()
        self.shapes, self.way, self.world, self.plain = shapes, way, world, False
        self.contexts = functools.partial(create_selective_checkpoint_contexts, functools.partial(policy, way.saved))
        s = shapes
        heads, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        self.norm, self.ffn_norm = nn.RMSNorm(s.hidden, eps=1e-5), nn.RMSNorm(s.hidden, eps=1e-5)
        self.qkv, self.out = nn.Linear(s.hidden, heads + 2 * kv, bias=False), nn.Linear(heads, s.hidden, bias=False)
        self.gate_up, self.down = nn.Linear(s.hidden, 2 * s.ffn, bias=False), nn.Linear(s.ffn, s.hidden, bias=False)

    def whole(self, x, cos, sin, documents):
        s = self.shapes
        q, k, v = self.qkv(self.norm(x)).view(-1, s.heads + 2 * s.kv_heads, s.head_dim).split((s.heads, s.kv_heads, s.kv_heads), 1)
        q, k, v = (exchange(y, True, self.world, traced) for y in (turn(q, cos, sin), turn(k, cos, sin), v.contiguous()))
        o = exchange(self.way.attend(q, k, v, *documents), False, self.world, traced)
        x = x + self.out(o.reshape(len(x), -1))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def forward(self, x, cos, sin, documents):
        if self.plain:
            return self.whole(x, cos, sin, documents)
        return checkpoint(self.whole, x, cos, sin, documents, use_reentrant=False, context_fn=self.contexts)


def loss_of_logits(logits, labels):
    """The sum over rows, and its gradient."""
    z, counts, at = logits.float(), labels != IGNORE, labels.clamp(min=0)[:, None]
    lse = z.logsumexp(-1, keepdim=True)
    ones = torch.arange(z.shape[1], device=z.device) == at
    return ((lse - z.gather(1, at))[:, 0] * counts).sum(), (((z - lse).exp() - ones.float()) * counts[:, None]).to(logits.dtype)


class Loss(torch.autograd.Function):
    """Cross entropy of x [rows, hidden] by a head's weight, ROWS rows of logits at a time: their gradients are made with them, so that they
    are computed once."""

    @staticmethod
    def forward(ctx, x, weight, labels, of_logits):
        loss, d_x, d_weight = 0.0, torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        for rows, part, y in zip(d_x.split(ROWS), x.split(ROWS), labels.split(ROWS)):
            part_loss, d_logits = of_logits(part @ weight.T, y)
            loss = loss + part_loss
            torch.mm(d_logits, weight, out=rows)
            d_weight += d_logits.T @ part
        ctx.save_for_backward(d_x, d_weight)
        return loss

    @staticmethod
    def backward(ctx, d_loss):
        d_x, d_weight = ctx.saved_tensors
        return (d_x * d_loss).to(d_x.dtype), (d_weight * d_loss).to(d_x.dtype), None, None


class Model(nn.Module):
    def __init__(self, shapes, way, world, compiled):
        super().__init__()
        self.embedding, self.head = nn.Embedding(shapes.vocab, shapes.hidden), nn.Linear(shapes.hidden, shapes.vocab, bias=False)
        self.blocks = nn.ModuleList(Block(shapes, way, world) for _ in range(shapes.layers))
        self.norm = nn.RMSNorm(shapes.hidden, eps=1e-5)
        self.of_logits = compiled(loss_of_logits)

    def forward(self, ids, labels, cos, sin, documents):
        """The sum over this rank's rows."""
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, cos, sin, documents)
        return Loss.apply(self.norm(x), self.head.weight, labels, self.of_logits)


def dense_loss(model, shapes, ids, labels, number, cos, sin):
    """One rank's, with a dense mask, in the precision of model's parameters."""
    p = dict(model)
    x = p["embedding.weight"][ids]
    place = torch.arange(len(ids), device=ids.device)
    mask = (place[:, None] >= place) & (number[:, None] == number)
    for i in range(shapes.layers):
        w = lambda name: p[f"blocks.{i}.{name}.weight"]
        normal = lambda y, name: F.rms_norm(y, (shapes.hidden,), w(name), 1e-5)
        q, k, v = F.linear(normal(x, "norm"), w("qkv")).view(len(ids), -1, shapes.head_dim).split(
            (shapes.heads, shapes.kv_heads, shapes.kv_heads), 1)
        q, k, v = (y.transpose(0, 1) for y in (turn(q, cos, sin), turn(k, cos, sin), v))
        k, v = (y.repeat_interleave(shapes.heads // shapes.kv_heads, 0) for y in (k, v))
        scores = (q @ k.transpose(1, 2) / shapes.head_dim ** 0.5).masked_fill(~mask, float("-inf"))
        x = x + F.linear((scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), -1), w("out"))
        gate, up = F.linear(normal(x, "ffn_norm"), w("gate_up")).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, w("down"))
    x = F.rms_norm(x, (shapes.hidden,), p["norm.weight"], 1e-5)
    return F.cross_entropy(F.linear(x, p["head.weight"]), labels, ignore_index=IGNORE)


# ---- steps ----

class Trainer:
    def __init__(self, args, rank, world, device, documents):
        self.rank, self.world, self.device, self.tiny = rank, world, device, args.tiny
        self.shapes = Shapes(args.tiny, args.layers)
        options = {} if device == "cuda" else {"backend": "aot_eager"}
        self.way = WAYS[args.way](documents)
        torch.manual_seed(1)
        with torch.device(device):
            self.model = Model(self.shapes, self.way, world, lambda f: torch.compile(f, **options))
        self.initial = {name: p.detach().clone() for name, p in self.model.named_parameters()} if args.check else None
        numbers = MixedPrecisionPolicy() if args.tiny else MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)  # rotation stays in fp32
        sharding = {"mesh": init_device_mesh(device, (world,)), "mp_policy": numbers}
        for block in self.model.blocks:
            block.compile(fullgraph=True, **options)
            fully_shard(block, **sharding)
        fully_shard(self.model, **sharding)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device == "cuda")
        tokens = documents.tokens
        rates = 1.0 / 500000 ** (torch.arange(0, self.shapes.head_dim, 2, device=device).float() / self.shapes.head_dim)
        angles = torch.arange(tokens, device=device).float()[:, None] * rates
        self.cos, self.sin = angles.cos()[:, None], angles.sin()[:, None]
        self.rows = slice(rank * tokens // world, (rank + 1) * tokens // world)
        self.ids = torch.randint(0, self.shapes.vocab, (tokens,), generator=torch.Generator().manual_seed(7)).to(device)

    def losses(self, documents):
        """What one step computes before the update: a function, so that tables are made before it is timed."""
        labels = documents.labels(self.ids)
        count = int((labels != IGNORE).sum())
        read = self.way.set(documents)

        def run():
            part = self.model(*(x[self.rows] for x in (self.ids, labels, self.cos, self.sin)), read) / count
            self.kept = torch.cuda.memory_allocated() if self.device == "cuda" else 0
            (part * self.world).backward()  # FSDP2 takes the mean over ranks
            return part.detach()
        return run

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        dist.barrier()

    def step(self, documents):
        """Seconds of the slowest rank, and the loss before."""
        run = self.losses(documents)
        self.sync()
        begin = time.perf_counter()
        part = run()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.sync()
        values = torch.stack([torch.tensor(time.perf_counter() - begin, device=self.device), part.float()])
        every = [torch.empty_like(values) for _ in range(self.world)]
        dist.all_gather(every, values)
        return max(float(v[0]) for v in every), sum(float(v[1]) for v in every)

    def set_plain(self, count):
        for i, block in enumerate(self.model.blocks):
            block.plain = i < count

    def fit_plain(self, documents):
        """As many layers keep everything as memory has room for: by the peak of a step in which none does, and what one keeps."""
        if self.device != "cuda":
            return 1
        self.step(documents)
        torch.cuda.reset_peak_memory_stats()
        self.step(documents)
        peak, none = torch.cuda.max_memory_allocated(), self.kept
        self.set_plain(1)
        self.step(documents)
        room = ROOM * torch.cuda.get_device_properties(0).total_memory - peak
        count = torch.tensor(room / max(1, self.kept - none), device="cuda")
        dist.all_reduce(count, op=dist.ReduceOp.MIN)
        return max(0, min(self.shapes.layers, int(count)))


def other_blocks(documents):
    """How many blocks of the mask are others than create_block_mask has."""
    mask = documents.blocks(documents.number)
    true = flex.create_block_mask(mask.mask_mod, None, None, documents.tokens, documents.tokens, device=documents.number.device)

    def table(counts, order):
        kept = torch.arange(order.shape[-1], device=order.device) < counts[..., None]
        return torch.zeros_like(order).scatter(-1, order.long(), kept.int())

    return sum(int((table(getattr(mask, part + "num_blocks"), getattr(mask, part + "indices")) !=
                    table(getattr(true, part + "num_blocks"), getattr(true, part + "indices"))).sum())
               for part in ("kv_", "full_kv_", "q_", "full_q_"))


def check(trainer, documents):
    """The worst relative error of loss and gradients beside one rank's dense attention."""
    run = trainer.losses(documents)
    loss = run()
    dist.all_reduce(loss)
    weights = {name: w.clone().requires_grad_() for name, w in trainer.initial.items()}
    truth = dense_loss(weights, trainer.shapes, trainer.ids, documents.labels(trainer.ids), documents.number, trainer.cos, trainer.sin)
    truth.backward()
    apart = {"loss": abs(float(loss / truth.detach()) - 1), "blocks": float(other_blocks(documents))}
    for name, p in trainer.model.named_parameters():
        grad, true = p.grad.full_tensor(), weights[name].grad
        apart[name] = float((grad - true).norm() / true.norm())
    trainer.optimizer.zero_grad()
    return max((value, name) for name, value in apart.items())


def measured(trainer, sequences, passes):
    """Seconds a step and tokens/s."""
    times = [sum(row) / passes for row in zip(*([trainer.step(d)[0] for d in sequences] for _ in range(passes)))]
    seconds = sum(times) / len(times)
    return seconds, f"{seconds:.3f} s a step ({' '.join(f'{t:.3f}' for t in times)}), {sequences[0].tokens / seconds:.0f} tokens/s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("lengths", nargs="+")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--plain", default="auto")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check and not args.tiny:
        parser.error("--check is for --tiny: a dense mask of these shapes does not fit")
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    else:
        dist.init_process_group("gloo")
        register_dense()
    files = {path: [Documents(lengths, device) for lengths in json.load(open(path))] for path in args.lengths}
    every = [documents for sequences in files.values() for documents in sequences]
    if len({documents.tokens for documents in every}) > 1 or every[0].tokens % (BLOCK * world):
        parser.error(f"sequences must be equally long, and so many times {BLOCK * world} tokens")
    trainer = Trainer(args, rank, world, device, every[0])
    bad = False
    for path, sequences in files.items():
        for documents in sequences if args.check else []:
            for plain in (0, 1):
                trainer.set_plain(plain)
                worst, name = check(trainer, documents)
                bad |= not worst < 1e-5
                if rank == 0:
                    print(f"check {args.way}, {len(documents.ends)} documents, plain {plain}: worst of {name}, {worst:.1e}", flush=True)
    plain = trainer.fit_plain(max(every, key=lambda d: d.longest)) if args.plain == "auto" else int(args.plain)
    trainer.set_plain(plain)
    # lengths of several sequences: what takes them as numbers is compiled again once
    losses = [f"{trainer.step(documents)[1]:.4f}" for documents in every[::max(1, len(every) // WARM)]]
    for path, sequences in files.items():
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        line = measured(trainer, sequences, args.passes)[1]
        peak = torch.tensor(torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0, device=device)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(f"peer {args.way}, {os.path.basename(path)}: {line}, peak {float(peak):.1f} GiB, {plain} of {args.layers} layers keep "
                  f"everything; first losses {' '.join(losses)}; torch {torch.__version__}", flush=True)
    dist.destroy_process_group()
    return bad


if __name__ == "__main__":
    raise SystemExit(main())
