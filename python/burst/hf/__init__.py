"""transformers: `attn_implementation="burst"`, known once this module is imported. docs/python.md.

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="burst")
    plan = burst.hf.compile(model, tokens=131072)          # masks by layer, heads, softcap: from model.config
    model(**burst.hf.shard(plan, batch)).loss.backward()   # batch: of all ranks, alike on each
"""
from .attention import NAME
from .config import compile, layer_types
from .shard import IGNORE, shard
from .trainer import trainer

__all__ = ["IGNORE", "NAME", "compile", "layer_types", "shard", "trainer"]
