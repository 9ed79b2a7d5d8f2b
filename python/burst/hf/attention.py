"""Attention and masks as transformers calls them: AttentionInterface and AttentionMaskInterface."""
import torch
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from ..ops import attention, refuse

NAME = "burst"
ABSENT = object()
NO_CACHE = "pass use_cache=False, or generate with another attn_implementation"
BALANCE = "a rank's rows alone would make its balance loss; set it to False"

HARMLESS = {  # arguments of models and their layers that say nothing about attention's pairs
    "position_ids", "position_embeddings", "cache_position", "num_items_in_batch", "output_hidden_states",
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "shift_labels",
    "logits_to_keep", "deterministic",
}
UNSUPPORTED = {  # arguments that would change the results, and why they cannot
    "output_attentions": "attention weights are never stored",
    "use_cache": f"a cache would hold this rank's keys alone; {NO_CACHE}",
    "output_router_logits": BALANCE,
    "position_bias": "biases of scores are not supported",
    "indices": "indexed keys are not supported",
    "block_indices": "indexed keys are not supported",
}


def wrong_argument(more):
    """Of the arguments that attention's function has no name for: one that it may not ignore, or None."""
    for name, value in more.items():
        if name not in HARMLESS and value is not None and value is not False:
            return f"{name}: {UNSUPPORTED.get(name, 'this argument is not supported')}"
    return None


def wrong_rows(query, key, attention_mask):
    if attention_mask is not None:
        return "attention_mask: the masks are the plan's; burst.hf.shard makes documents of padding"
    if query.shape[0] != 1:
        return f"{query.shape[0]} sequences: all rows are one sequence; call the model with what " \
               "burst.hf.shard returns"
    if key.shape[2] != query.shape[2]:
        return f"{key.shape[2]} keys for {query.shape[2]} queries: no caches, no cross-attention"
    return None


def wrong_setting(module, plan, dropout, sliding_window, softcap, is_causal):
    layer = getattr(module, "layer_idx", None)
    if dropout:
        return f"dropout={dropout}: burst's attention has no dropout; set attention_dropout to 0"
    if is_causal is False or (is_causal is None and getattr(module, "is_causal", True) is False):
        return "is_causal=False: this part of the model needs another attention, for example " \
               'attn_implementation={"": "sdpa", "text_config": "burst"}'
    if layer is None or layer >= len(plan.layer_masks):
        return f"layer_idx={layer}: the plan has {len(plan.layer_masks)} layers"
    if getattr(getattr(module, "config", None), "output_router_logits", False):
        return f"output_router_logits: {BALANCE}"
    window = plan.layer_windows[layer]
    if sliding_window is not ABSENT and (sliding_window or None) != window:
        return f"sliding_window={sliding_window} in layer {layer}: the plan was compiled with {window}"
    if (softcap or 0.0) != plan.softcap:
        return f"softcap={softcap}: the plan was compiled with {plan.softcap}"
    return None


def wrong_model(plan, batch):
    if plan.reads_longest and not getattr(batch, "told_longest", False):
        return "RoPE by the largest position: this is not the model that burst.hf.compile was called with"
    return None


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=ABSENT,
           softcap=None, is_causal=None, s_aux=None, burst_batch=None, **more):
    """query [1, heads, t, d], key [1, kv_heads, t, d], value [1, kv_heads, t, e]; o [1, t, heads, e]."""
    if burst_batch is None:
        raise ValueError(f'attn_implementation="{NAME}" attends within a batch: call the model with what '
                         "burst.hf.shard returns")
    plan = burst_batch.plan
    why = wrong_argument(more) or wrong_rows(query, key, attention_mask)
    why = why or wrong_setting(module, plan, dropout, sliding_window, softcap, is_causal) or wrong_model(plan, burst_batch)
    if why is not None:
        refuse(plan, f"{type(module).__name__}: {why}")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if torch.is_autocast_enabled(query.device.type):
        q, k, v = (x.to(plan.dtype) for x in (q, k, v))
    sinks = s_aux.float() if s_aux is not None else None
    o = attention(q, k, v, burst_batch, plan.layer_masks[module.layer_idx], sinks=sinks, scale=scaling)
    return o.to(query.dtype).unsqueeze(0), None


KNOWN = {  # mask functions of transformers that a plan's masks stand for
    "causal_mask_function", "and_masks", "sliding_window_overlay",
    "packed_sequence_mask_function", "remap_positions_for_packed_sequence", "add_offsets_to_mask_function",
}


def mask_names(function):
    """The names of a mask function of transformers and of those that it is made of."""
    yield function.__qualname__.split(".")[0]
    for cell in function.__closure__ or ():
        inside = cell.cell_contents
        for part in inside if isinstance(inside, tuple) else (inside,):
            if callable(part) and hasattr(part, "__qualname__"):
                yield from mask_names(part)


def no_mask(*, q_length, kv_length, mask_function, attention_mask=None, q_offset=0, **_):
    """In place of a dense mask: None, if the plan's masks stand for it."""
    tracing = torch.compiler.is_compiling()
    unknown = [] if tracing else [name for name in mask_names(mask_function) if name not in KNOWN]
    if unknown:
        raise ValueError(f"the model masks by {unknown[0]}, which a plan's masks do not stand for")
    if kv_length != q_length or isinstance(q_offset, int) and q_offset != 0:
        raise ValueError(f"a cache holds earlier tokens: {NO_CACHE}")
    if attention_mask is not None and (tracing or not bool(attention_mask.all())):
        raise ValueError("attention_mask has padding: call the model with what burst.hf.shard returns")
    return None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, no_mask)
