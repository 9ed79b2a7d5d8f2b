"""One rank of run_adapters.py: transformers' models trained by burst.hf equal one rank's eager attention.

The oracle is the same model with eager attention, on one rank, with dense masks asked pair by pair.
"""
import argparse
import time

import torch
import torch.distributed as dist
import transformers

import burst
import burst.hf
from leave import leave

LIMIT = 1e-5  # of losses, fp32
SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97, "max_position_embeddings": 512,
    "pad_token_id": 0, "attention_dropout": 0.0, "initializer_range": 0.1
}
WINDOW, TOKENS, VOCAB = 9, 192, 97
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
MLA = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "num_key_value_heads": 4, "head_dim": 8, "first_k_dense_replace": 2
}
ONE_EXPERT = {"num_local_experts": 1, "num_experts_per_tok": 1}
CAPPED = {"attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 20}
ROPE = {"rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 50}
LONG = {**ROPE, "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0 + i for i in range(8)]}
DYNAMIC = {"rope_parameters": {**ROPE, "rope_type": "dynamic"}, "max_position_embeddings": 50}
MODELS = {  # the config's class, its settings, the model's class
    "llama": ("LlamaConfig", {}, "LlamaForCausalLM"),
    "dynamic": ("LlamaConfig", DYNAMIC, "LlamaForCausalLM"),
    "longrope": ("LlamaConfig", {"rope_parameters": LONG}, "LlamaForCausalLM"),
    "qwen3": ("Qwen3Config", {"use_sliding_window": True, **MIXED}, "Qwen3ForCausalLM"),
    "gpt_oss": ("GptOssConfig", {**ONE_EXPERT, **MIXED}, "GptOssForCausalLM"),
    "gemma2": ("Gemma2Config", {**CAPPED, **MIXED}, "Gemma2ForCausalLM"),
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
        least = torch.finfo(torch.float32).min
        return torch.zeros(cu[-1], cu[-1]).masked_fill(~torch.tensor(keep), least)[None, None]

    masks = {kind: dense(rule) for kind, rule in rules.items() if kind in burst.hf.layer_types(config)}
    return masks if getattr(config, "layer_types", None) else next(iter(masks.values()))


def packed(step):
    """Token ids, where documents end, labels, some of which do not count.

    A document repeats a few tokens, which attention can learn.
    """
    g = torch.Generator().manual_seed(step)
    cu = [0, *sorted(set(torch.randint(1, TOKENS, (4,), generator=g).tolist())), TOKENS]
    ids = torch.empty(1, TOKENS, dtype=torch.long)
    for a, b in zip(cu, cu[1:]):
        period = int(torch.randint(2, 8, (1,), generator=g))
        ids[0, a:b] = torch.randint(1, VOCAB, (period,), generator=g).repeat(b - a)[:b - a]
    labels = ids.masked_fill(torch.rand(1, TOKENS, generator=g) < 0.2, -100)
    return ids, cu, labels


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
    optimizers = [torch.optim.AdamW(m.parameters(), lr=3e-3, eps=1e-5) for m in (ours, theirs)]
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
        wanted = wanted.detach()
        worst = max(worst, abs(got - float(wanted)))
        require(worst <= LIMIT,
                f"{name}: the loss of step {step} is {got:.7f} on {ranks} ranks, {float(wanted):.7f} on one")
        first = float(wanted) if first is None else first
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    drift = max(float((a - b).abs().max()) for a, b in zip(ours.parameters(), theirs.parameters()))
    plan.close()
    losses = f"losses from {first:.4f} to {float(wanted):.4f}, off by {worst:.1e}"
    return f"{name}: {losses}; weights by {drift:.1e}"


# ---- batches as data collators make them ----

def check_batch(name, inputs, what, **more):
    """A batch's loss on all ranks is that of transformers' eager attention, with its own masks."""
    ours, theirs = model_of(name, "burst"), model_of(name, "eager")
    plan = burst.hf.compile(ours, tokens=TOKENS)
    loss = summed(ours(**burst.hf.shard(plan, inputs, **more)).loss) / dist.get_world_size()
    given = {k: v for k, v in inputs.items() if k != "cu_seq_lens_q"}
    wanted = theirs(**given, use_cache=False).loss.detach()
    got, wanted = float(loss), float(wanted)
    require(abs(got - wanted) <= LIMIT, f"{name}, {what}: the loss is {got}, not {wanted}")
    plan.close()


def check_batches():
    g = torch.Generator().manual_seed(3)
    rows, length = 3, TOKENS // 3 - 4  # fewer tokens than the plan has
    ids = torch.randint(1, VOCAB, (rows, length), generator=g)
    kept = torch.ones_like(ids)
    kept[1, 40:], kept[2, 11:] = 0, 0
    labels = ids.masked_fill(kept == 0, -100)
    check_batch("llama", {"input_ids": ids, "attention_mask": kept, "labels": labels},
                "rows with padding at their ends")
    check_batch("qwen3", {"input_ids": ids, "attention_mask": kept, "labels": labels},
                "rows with padding at their ends")
    for name in "dynamic", "longrope":  # positions of 1 to 60, of which the first rank has the small ones
        check_batch(name, {"input_ids": ids, "attention_mask": kept, "labels": labels}, "RoPE by the largest position, and padding")
        check_batch(name, {"input_ids": ids[:, :45], "labels": ids[:, :45]}, "no position beyond the original length")
        gaps = {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids), "position_ids": torch.arange(length).expand(rows, -1) * 2}
        check_batch(name, gaps, "given positions",
                    cu_seqlens=[0, length, 2 * length, 3 * length])
    left = {"input_ids": ids.flip(1), "attention_mask": kept.flip(1), "labels": labels.flip(1)}
    left["position_ids"] = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
    left["labels"][left["position_ids"] == 0] = -100  # transformers: padding predicts this token
    check_batch("llama", left, "rows with padding at their beginnings")
    check_batch("llama", {"input_ids": ids, "labels": ids}, "whole rows")
    documents = [{"input_ids": ids[i % 3, :n].tolist()} for i, n in enumerate((30, 1, 60, 44))]
    flat = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)(documents)
    flat = {k: flat[k] for k in ("input_ids", "labels", "position_ids", "cu_seq_lens_q")}
    check_batch("llama", flat, "a flattened batch")
    check_batch("qwen3", flat, "a flattened batch")
    del flat["cu_seq_lens_q"]
    check_batch("mistral", flat, "a batch whose positions begin anew")
    check_batch("llama", flat, "a document without a token", cu_seqlens=[0, 0, 30, 30, 31, 91, 135, 135])
    check_batch("llama", {**flat, "position_ids": flat["position_ids"] + 5}, "a batch of other positions",
                cu_seqlens=[0, 30, 31, 91, 135])


# ---- what a model does with its layers ----

def gradients(model, batch):
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def check_layers():
    """Compiled and checkpointed layers give the same bits; with use_reentrant, too."""
    model = model_of("gpt_oss", "burst", num_local_experts=1)
    plan = burst.hf.compile(model, tokens=TOKENS)
    ids, cu, labels = packed(7)
    batch = burst.hf.shard(plan, {"input_ids": ids, "labels": labels}, cu_seqlens=cu)
    plain = gradients(model, batch)
    for reentrant in False, True:
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
        require(all(map(torch.equal, plain, gradients(model, batch))), "checkpointed layers give other bits")
        model.activation_checkpointing_disable()
    plan.close()
    model = model_of("llama", "burst")
    plan = burst.hf.compile(model, tokens=TOKENS)
    batch = burst.hf.shard(plan, {"input_ids": ids, "labels": labels}, cu_seqlens=cu)
    plain = gradients(model, batch)
    for layer in model.model.layers:
        layer.compile(fullgraph=True, backend="aot_eager")
    for a, b in zip(plain, gradients(model, batch)):
        require(float((a - b).norm()) <= 1e-6 * float(a.norm()), "compiled layers give another result")
    plan.close()


# ---- what cannot be honoured ----

def must_fail(call, error, words, what):
    begin = time.monotonic()
    try:
        call()
    except error as e:
        require(words in str(e), f"{what}: {e}")
        require(time.monotonic() - begin < 60, f"{what}: ranks waited before the error")
        return
    raise AssertionError(f"{what}: no error")


def check_refusals():
    """What a call asks for beside the plan. Each has a plan: after an error it is of no use."""
    ids, cu, labels = packed(1)
    inputs = {"input_ids": ids, "labels": labels}
    own = TOKENS // dist.get_world_size()
    changes = (({"output_attentions": True}, "output_attentions: attention weights are never stored"),
               ({"use_cache": True}, "use_cache: a cache would hold this rank's keys alone"),
               ({"burst_batch": None}, "what burst.hf.shard returns"),
               ({"is_causal": False}, "the model masks by bidirectional_mask_function"),
               ({"attention_mask": torch.zeros(1, 1, 4, 4)}, "attention_mask: the masks are the plan's"),
               ({"attention_mask": torch.zeros(1, own)}, "attention_mask has padding"),
               ({"output_router_logits": True}, "output_router_logits: a rank's rows alone"),
               ({"position_bias": torch.zeros(1)}, "position_bias: biases of scores are not supported"),
               ({"a_new_argument": 3}, "a_new_argument: this argument is not supported"))
    settings = (("sliding_window", 7, "sliding_window=7 in layer 0"),
                ("attn_logit_softcapping", 9.0, "softcap=9.0"),
                ("attention_dropout", 0.1, "dropout=0.1"), ("is_causal", False, "is_causal=False"),
                ("layer_idx", 5, "layer_idx=5"))
    for change, words in changes:
        model = model_of("llama", "burst")
        must_fail_in_model(model, inputs, cu, change, words)
    for setting, value, words in settings:
        model = model_of("gemma2", "burst")
        setattr(model.model.layers[0].self_attn, setting, value)
        must_fail_in_model(model, inputs, cu, {}, words)
    unknown = model_of("dynamic", "burst")  # its rotary embeddings know nothing of a plan
    must_fail_in_model(unknown, inputs, cu, {}, "not the model that burst.hf.compile was called with", compiled=model_of("dynamic", "burst"))
    check_shard_refusals(ids, cu)
    check_config_refusals()


def must_fail_in_model(model, inputs, cu, change, words, compiled=None):
    plan = burst.hf.compile(compiled or model, tokens=TOKENS)
    batch = burst.hf.shard(plan, inputs, cu_seqlens=cu) | change
    must_fail(lambda: model(**batch), (ValueError, burst.BurstError), words, words)
    plan.close()


def check_config_refusals():
    mixed = {"layer_types": ["linear_attention", "full_attention"]}
    for kind, settings, words in (
            ("LlamaConfig", {"attention_dropout": 0.1}, "attention_dropout is 0.1"),
            ("Qwen3NextConfig", mixed, "layers of type 'linear_attention'"),
            ("Llama4TextConfig", {}, "layers of type 'chunked_attention'"),
            ("Llama4TextConfig", {"layer_types": ["full_attention"] * 2, "no_rope_layers": [1, 0]}, "attn_temperature_tuning is set"),
            ("MixtralConfig", {"output_router_logits": True}, "output_router_logits is set in the config"),
            ("LlamaConfig", DYNAMIC, "give the model itself"),
            ("LlamaConfig", {"rope_parameters": LONG}, "give the model itself"),
            ("Gemma3TextConfig", {"use_bidirectional_attention": True}, "use_bidirectional_attention is set"),
            ("Qwen3Config", {"layer_types": MIXED["layer_types"]}, "no sliding_window")):
        config = getattr(transformers, kind)(**{**SMALL, **settings})
        must_fail(lambda: burst.hf.compile(config, tokens=TOKENS), ValueError, words, words)
    small = {"vocab_size": 97, "d_model": 64, "decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
    model = transformers.BlenderbotSmallForCausalLM._from_config(transformers.BlenderbotSmallConfig(**small), attn_implementation="burst")
    must_fail(lambda: burst.hf.compile(model, tokens=TOKENS), ValueError, "takes no position_ids", "places by rows")


def check_shard_refusals(ids, cu):
    plan = burst.hf.compile(model_of("llama", "burst"), tokens=TOKENS)
    odd = dist.get_rank() == dist.get_world_size() - 1
    holes = torch.arange(TOKENS).view(1, -1) != cu[1] // 2
    for inputs, more, words in (
            ({"input_ids": ids.repeat(1, 2)}, {}, f"{2 * TOKENS} tokens, more than the plan's {TOKENS}"),
            ({"input_ids": ids}, {"cu_seqlens": [0, 9]}, "cu_seqlens ends with 9"),
            ({"input_ids": ids}, {"cu_seqlens": [0, 9, 8, TOKENS]}, "cu_seqlens begins with 0 and never falls"),
            ({"input_ids": ids}, {"cu_seqlens": [0, 9.5, TOKENS]}, "cu_seqlens is torch.float32"),
            ({"input_ids": ids[:, :0]}, {}, "it has no tokens"),
            *(({"input_ids": ids, name: labels}, {}, f"{name} is {words}") for name in ("labels", "shift_labels") for labels, words in (
                (ids[:, 1:], f"(1, {TOKENS - 1}), not (1, {TOKENS})"), (ids.repeat(2, 1), f"(2, {TOKENS}), not"), (ids[0], f"({TOKENS},), not"),
                (ids.float(), "torch.float32, not torch.int64"), (ids > 3, "torch.bool, not"))),
            *(({"input_ids": ids, "labels": ids}, {"count": count}, "count is") for count in (0, -1, float("nan"), float("inf"), True, torch.ones(2))),
            ({"input_ids": ids}, {"pad": 0.5}, "pad is 0.5, not a whole number"),
            ({"input_ids": ids, "attention_mask": torch.full((1, TOKENS), 0.5)}, {}, "other values than 0 and 1"),
            ({"input_ids": ids, "attention_mask": torch.arange(TOKENS)[None] // 9}, {}, "other values than 0 and 1"),
            ({"input_ids": ids, "position_ids": torch.arange(TOKENS - 1)[None]}, {}, f"position_ids is (1, {TOKENS - 1}), not"),
            ({"input_ids": ids, "labels": ids}, {"count": 9 + odd}, "has another batch than rank 0"),
            ({"input_ids": ids, "position_ids": torch.arange(TOKENS)[None] + odd}, {}, "has another batch than rank 0"),
            ({"input_ids": ids, "pixel_values": torch.zeros(1, 3, 8, 8)}, {}, "pixel_values is (1, 3, 8, 8)"),
            ({"input_ids": ids, "attention_mask": torch.ones(1, 1, 4, 4)}, {}, "attention_mask is (1, 1, 4"),
            ({"input_ids": ids, "attention_mask": holes}, {"cu_seqlens": cu}, "tokens inside of a document"),
            ({"labels": ids}, {}, "a batch needs input_ids"),
            ({"input_ids": ids + odd}, {}, "has another batch than rank 0"),
            ({"input_ids": ids}, {"cu_seqlens": [0, 30 + odd, TOKENS]}, "has another batch than rank 0")):
        if dist.get_world_size() > 1 or "another" not in words:
            must_fail(lambda: burst.hf.shard(plan, inputs, **more), ValueError, words, words)
    plan.close()


def check_masks():
    """Mask functions that a plan's masks do not stand for."""
    from transformers import masking_utils as m
    model = model_of("llama", "burst")
    x, position = torch.zeros(1, 6, 4), torch.tensor([[0, 3, 1, 2, 5, 4]])
    common = {"config": model.config, "inputs_embeds": x, "attention_mask": None, "cache": None,
              "position_ids": position}
    require(m.create_causal_mask(**common) is None, "a dense mask was made")
    whole = m.create_causal_mask(**{**common, "attention_mask": torch.ones(1, 6)})
    require(whole is None, "a mask without padding was made")
    blocks = torch.tensor([[0, 0, -1, -1, 1, 1]])
    must_fail(lambda: m.create_causal_mask(**common, block_sequence_ids=blocks), ValueError,
              "masks by or_masks", "blocks")
    must_fail(lambda: m.create_bidirectional_mask(model.config, x, None), ValueError,
              "bidirectional_mask_function", "both ways")
    cache = transformers.DynamicCache(config=model.config)
    for layer in range(2):
        cache.update(torch.zeros(1, 2, 3, 16), torch.zeros(1, 2, 3, 16), layer)
    must_fail(lambda: m.create_causal_mask(**{**common, "cache": cache}), ValueError,
              "a cache holds earlier tokens", "a cache")


# ---- transformers' Trainer ----

class Rows(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, VOCAB, (count, TOKENS // 2), generator=g)
        self.ids[:, 20:] = self.ids[:, :TOKENS // 2 - 20]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def eager_steps(model, data, lr, accumulate):
    """Losses of plain gradient descent: two rows a batch, in order."""
    optimizer, losses, size = torch.optim.SGD(model.parameters(), lr=lr), [], 2 * accumulate
    for i in range(0, len(data), size):
        loss = model(input_ids=data.ids[i:i + size], labels=data.ids[i:i + size], use_cache=False).loss
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def check_trainer():
    try:
        import accelerate  # noqa: F401, which the Trainer needs
    except ImportError:
        if dist.get_rank() == 0:
            print("trainer: not tested, accelerate is not installed")
        return
    data, held, lr = Rows(12, 1), Rows(4, 2), 0.3
    for accumulate in 1, 2:
        ours, theirs = model_of("qwen3", "burst"), model_of("qwen3", "eager")
        plan = burst.hf.compile(ours, tokens=TOKENS)
        arguments = dict(output_dir="unused", use_cpu=True, per_device_train_batch_size=2,
                         per_device_eval_batch_size=2, optim="sgd", learning_rate=lr,
                         lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1e9,
                         num_train_epochs=1, logging_steps=1, save_strategy="no", report_to=[],
                         disable_tqdm=True, train_sampling_strategy="sequential",
                         gradient_accumulation_steps=accumulate, prediction_loss_only=True)
        Trainer = burst.hf.trainer(plan)
        run = Trainer(model=ours, args=transformers.TrainingArguments(**arguments), train_dataset=data,
                      eval_dataset=held)
        run.train()
        got = [log["loss"] for log in run.state.log_history if "loss" in log]
        wanted = eager_steps(theirs, data, lr, accumulate)
        alike = all(abs(a - b) <= LIMIT for a, b in zip(got, wanted))
        require(alike and len(got) == len(wanted), f"losses {got}, not {wanted}")
        loss, rows = run.evaluate()["eval_loss"], [held.ids[i:i + 2] for i in (0, 2)]
        with torch.no_grad():
            wanted = sum(float(theirs(input_ids=x, labels=x, use_cache=False).loss) for x in rows) / 2
        require(abs(loss - wanted) <= LIMIT, f"the loss of evaluation is {loss}, not {wanted}")
        for setting in ({"label_smoothing_factor": 0.1}, {"average_tokens_across_devices": False},
                        {"train_sampling_strategy": "batch_rebalance"}):
            refused = transformers.TrainingArguments(**{**arguments, **setting})
            must_fail(lambda: Trainer(model=ours, args=refused, train_dataset=data), ValueError,
                      "is not supported: the ranks of a plan share", str(setting))
        # A random order is the same on all ranks: shard would notice.
        arguments |= {"train_sampling_strategy": "random", "num_train_epochs": 2}
        Trainer(model=ours, args=transformers.TrainingArguments(**arguments), train_dataset=data).train()
        plan.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--part", action="append", choices=["training", *PARTS])
    o = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    for name in (o.model or MODELS) if not o.part or "training" in o.part else []:
        begin = time.monotonic()
        text = check_training(name, o.steps)
        if dist.get_rank() == 0:
            print(f"{text}; {time.monotonic() - begin:.0f} s", flush=True)
    for part, check in PARTS.items():
        if not o.part or part in o.part:
            check()
            if dist.get_rank() == 0:
                print(f"{part}: ok", flush=True)
    leave()


PARTS = {
    "batches": check_batches, "layers": check_layers, "refusals": check_refusals, "masks": check_masks,
    "trainer": check_trainer
}
main()
