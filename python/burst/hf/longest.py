"""Rotary embeddings that read the largest position of their call (RoPE of the types dynamic and longrope).

A rank calls its model with its own rows, whose largest position differs from rank to rank. So these embeddings are called
with one position more, the largest of the whole batch, and what they return for it is cut off.
"""
import functools

import torch


def reads_longest(module):
    """Whether its frequencies depend on the largest position."""
    kinds = getattr(module, "rope_type", None)
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(isinstance(kind, str) and ("dynamic" in kind or kind == "longrope") for kind in kinds)


def config_reads_longest(config):
    """The same of a model's config, which may have RoPE by layer type."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    ropes = [rope, *(x for x in rope.values() if isinstance(x, dict))]
    return any("dynamic" in str(x.get("rope_type")) or x.get("rope_type") == "longrope" for x in ropes)


def tell(rotaries, parent, args, kwargs):
    """Before the module that has these embeddings: they get the largest position of its batch."""
    batch = kwargs.get("burst_batch")
    if batch is not None:
        batch.told_longest = True
    for rotary in rotaries:
        rotary.burst_longest = None if batch is None else batch.longest


def add_longest(rotary, args, kwargs):
    longest = rotary.burst_longest
    if longest is None:
        return None  # another attention, on whole rows
    at = args[1] if len(args) > 1 else kwargs["position_ids"]
    last = at.new_full((*at.shape[:-1], 1), longest)
    at = torch.cat([at.clamp(max=longest), last], -1)  # rows of padding may have larger ones
    return ((args[0], at, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "position_ids": at})


def drop_longest(rotary, args, output):
    if rotary.burst_longest is None:
        return output
    return tuple(x[..., :-1, :] for x in output) if isinstance(output, tuple) else output[..., :-1, :]


def follow_longest(model):
    """Once for each model, however many plans are compiled for it."""
    for parent in list(model.modules()):
        rotaries = [m for m in parent.children() if reads_longest(m) and not hasattr(m, "burst_longest")]
        for rotary in rotaries:
            rotary.burst_longest = None
            rotary.register_forward_pre_hook(add_longest, with_kwargs=True)
            rotary.register_forward_hook(drop_longest)
        if rotaries:
            parent.register_forward_pre_hook(functools.partial(tell, rotaries), with_kwargs=True)
