"""A training step of a transformers Llama over the GPUs of a host, with attention by burst or by Ulysses: `gpu-library DIR RANKS step`.

    torchrun --nproc-per-node=N benchmarks/train_torch.py PLANS {burst | ulysses} [TOKENS [LAYERS]]

Shapes of Llama-3-8B with 4 layers, 64Ki tokens of one document. Both ways: transformers' own model, FSDP2 over the same ranks (bf16,
sums in fp32), torch.compile of each layer, selective checkpointing that saves attention's outputs, loss by 4096 rows of logits, fused
AdamW. burst: the plan PLANS/step_TOKENS_N.so, which `gpu-library --prepare DIR step` compiles; ulysses: cuDNN's attention between
all-to-alls of heads, rows in order. Prints the loss before each step, the median of steps after the second, tokens/s a GPU, MFU of 989
TFLOP/s (unmasked pairs only, as the field counts it) and peak memory.
"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import AttentionMaskInterface

import burst
import burst.hf
from attention_torch import exchange
from burst.plan import Plan
from continue_training import Loss, checkpoint_layers, saving_attention

SHAPES = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
          "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False}
STEPS, PEAK = 6, 989e12


def traced(x):
    """An all-to-all that torch.compile and autograd see."""
    return all_to_all_single_autograd(x, None, None, dist.group.WORLD)


def ulysses(module, query, key, value, attention_mask, scaling=None, **more):
    """query [1, heads, t, d], key and value [1, kv_heads, t, d]; o [1, t, heads, d]."""
    world = dist.get_world_size()
    q, k, v = (exchange(x[0].transpose(0, 1), True, world, traced).transpose(0, 1)[None] for x in (query, key, value))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
    return exchange(o[0].transpose(0, 1), False, world, traced)[None], None


AttentionInterface.register("ulysses", ulysses)
AttentionMaskInterface.register("ulysses", lambda **more: None)


def saved_of(name):
    return {"burst": torch.ops.burst.attention.default, "ulysses": torch.ops.aten._scaled_dot_product_cudnn_attention.default}[name]


def build(name, layers, world):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = LlamaForCausalLM._from_config(LlamaConfig(num_hidden_layers=layers, max_position_embeddings=1 << 20, **SHAPES),
                                              attn_implementation=name, dtype=torch.float32).train()
    checkpoint_layers(model, {"context_fn": lambda: saving_attention(saved_of(name))})
    sharding = {"mesh": init_device_mesh("cuda", (world,)),
                "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for layer in model.model.layers:
        layer.compile(fullgraph=True)
        fully_shard(layer, **sharding)
    return fully_shard(Loss(model, 4096), **sharding)


def plan_of(path, layers):
    plan = Plan(path, None, dist.group.WORLD, None)
    plan.softcap, plan.layer_masks, plan.layer_windows = 0.0, [0] * layers, [None] * layers
    return plan


def inputs_of(plan, ids, rank, world):
    """What a rank calls its model with: its rows of one document."""
    if plan is not None:
        return burst.hf.shard(plan, {"input_ids": ids[None], "labels": ids[None]}, cu_seqlens=[0, len(ids)])
    n = len(ids) // world
    rows = slice(rank * n, (rank + 1) * n)
    labels = torch.cat([ids[1:], ids.new_tensor([burst.hf.IGNORE])])[None, rows]
    return {"input_ids": ids[None, rows], "labels": labels, "shift_labels": labels, "num_items_in_batch": (len(ids) - 1) / world,  # FSDP2 takes the mean over ranks
            "position_ids": torch.arange(len(ids), device="cuda")[None, rows]}


def flops(tokens, layers):
    hidden, ffn, kv = SHAPES["hidden_size"], SHAPES["intermediate_size"], SHAPES["num_key_value_heads"] * SHAPES["head_dim"]
    weights = layers * (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn) + SHAPES["vocab_size"] * hidden
    return 6.0 * weights * tokens + 6.0 * layers * hidden * tokens * tokens


def main():
    folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    tokens, layers = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((3, 65536), (4, 4)))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    plan = plan_of(folder / f"step_{tokens}_{world}.so", layers) if name == "burst" else None
    loss = build(name, layers, world)
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-4, fused=True)
    times, losses = [], []
    torch.manual_seed(7)
    ids = torch.randint(0, SHAPES["vocab_size"], (tokens,), device="cuda")
    inputs = inputs_of(plan, ids, rank, world)
    for _ in range(STEPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        begin.record()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            part = loss(inputs)
            part.backward()
        optimizer.step()
        optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
        total = part.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / world)
    if rank == 0:
        later = sorted(times[2:])
        step = later[len(later) // 2]
        print(f"transformers Llama, {layers} layers, {tokens // 1024}Ki tokens, {world} GPUs, {plan.layout if plan else name}: "
              f"step {step:.3f} s, {tokens / step / world:.0f} tokens/s a GPU, MFU {flops(tokens, layers) / step / world / PEAK * 100:.1f} %, "
              f"peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, losses {' '.join(f'{x:.4f}' for x in losses)}", flush=True)
    if plan:
        plan.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
