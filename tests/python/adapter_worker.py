"""One rank of run_adapters.py: transformers' models trained by burst.hf equal one rank's eager attention.

The oracle is the same model with attn_implementation="eager", on one rank, with dense masks asked pair by pair.
"""
import argparse
import sys
import time

import torch
import torch.distributed as dist
import transformers

import burst
import burst.hf

LIMIT = 1e-5  # of losses, fp32
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 16, "vocab_size": 97, "max_position_embeddings": 512, "pad_token_id": 0, "attention_dropout": 0.0}
WINDOW, CHUNK, TOKENS, VOCAB = 9, 16, 192, 97
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
MLA = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
       "num_key_value_heads": 4, "head_dim": 8, "first_k_dense_replace": 2}
MODELS = {  # the config's class, its settings, the model's class
    "llama": ("LlamaConfig", {}, "LlamaForCausalLM"),
    "qwen3": ("Qwen3Config", {"use_sliding_window": True, **MIXED}, "Qwen3ForCausalLM"),
    "gpt_oss": ("GptOssConfig", {"num_local_experts": 1, "num_experts_per_tok": 1, **MIXED}, "GptOssForCausalLM"),
    "gemma2": ("Gemma2Config", {"attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 20, **MIXED}, "Gemma2ForCausalLM"),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}, "MistralForCausalLM"),
    "deepseek_v3": ("DeepseekV3Config", MLA, "DeepseekV3ForCausalLM"),
}


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def model_of(name, attention, **more):
    config, settings, kind = MODELS[name]
    torch.manual_seed(5)
    config = getattr(transformers, config)(**{**SMALL, **settings, **more})
    model = getattr(transformers, kind)._from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("sinks"):
                parameter.normal_()
    return model.train()


def dense_masks(config, cu):
    """Of each layer type, what is added to scores: [1, 1, T, T]."""
    doc = torch.searchsorted(torch.tensor(cu[1:]), torch.arange(cu[-1]), right=True).tolist()
    rules = {"full_attention": lambda q, k: True, "sliding_attention": lambda q, k: q - k < WINDOW}

    def dense(rule):
        keep = [[k <= q and doc[q] == doc[k] and rule(q, k) for k in range(cu[-1])] for q in range(cu[-1])]
        return torch.zeros(cu[-1], cu[-1]).masked_fill(~torch.tensor(keep), torch.finfo(torch.float32).min)[None, None]

    masks = {kind: dense(rule) for kind, rule in rules.items() if kind in burst.hf.layer_types(config)}
    return masks if getattr(config, "layer_types", None) else next(iter(masks.values()))


def packed(step):
    """Token ids, where documents end, labels: the first token of a document is not one, some others neither."""
    g = torch.Generator().manual_seed(step)
    cuts = sorted(set(torch.randint(1, TOKENS, (4,), generator=g).tolist()))
    ids = torch.randint(1, VOCAB, (1, TOKENS), generator=g)
    labels = ids.masked_fill(torch.rand(1, TOKENS, generator=g) < 0.2, -100)
    return ids, [0, *cuts, TOKENS], labels


def positions(cu):
    return torch.cat([torch.arange(b - a) for a, b in zip(cu, cu[1:])]).unsqueeze(0)


def eager_loss(model, ids, cu, labels):
    labels = labels.clone()
    labels[:, cu[:-1]] = -100
    return model(input_ids=ids, position_ids=positions(cu), labels=labels, use_cache=False,
                 attention_mask=dense_masks(model.config, cu)).loss


def summed(x):
    x = x.detach().clone()
    dist.all_reduce(x)
    return x


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()


def check_training(name, steps):
    ranks = dist.get_world_size()
    ours, theirs = model_of(name, "burst"), model_of(name, "eager")
    plan = burst.hf.compile(ours, tokens=TOKENS)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (ours, theirs)]
    worst, first = 0.0, None
    for step in range(steps):
        ids, cu, labels = packed(step)
        batch = burst.hf.shard(plan, {"input_ids": ids, "labels": labels, "position_ids": positions(cu)})
        loss = ours(**batch).loss
        loss.backward()
        average_gradients(ours)
        wanted = eager_loss(theirs, ids, cu, labels)
        wanted.backward()
        got = float(summed(loss)) / ranks
        worst = max(worst, abs(got - float(wanted)))
        require(worst <= LIMIT, f"{name}: the loss of step {step} is {got:.7f} on {ranks} ranks, {float(wanted):.7f} on one")
        first = float(wanted) if first is None else first
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    drift = max(float((a - b).abs().max()) for a, b in zip(ours.parameters(), theirs.parameters()))
    plan.close()
    return f"{name}: losses from {first:.4f} to {float(wanted):.4f}, off by {worst:.1e}; weights by {drift:.1e}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", action="append", choices=MODELS)
    o = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    for name in o.model or MODELS:
        begin = time.monotonic()
        text = check_training(name, o.steps)
        if dist.get_rank() == 0:
            print(f"{text}; {time.monotonic() - begin:.0f} s", flush=True)
    dist.destroy_process_group()


sys.exit(main())
