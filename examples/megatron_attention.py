"""A plan's attention as Megatron-Core's core attention.

Typed against Megatron-LM at d98e8a6 (2026-08): CoreAttentionBuilder and CoreAttentionInterface of
`core/transformer/attention.py`, `core/packed_seq_params.py`, RotaryEmbedding. Tested with stand-ins for its
classes, not with Megatron.

In a layer's spec, `core_attention=BurstCoreAttention` takes the place of TEDotProductAttention. The ranks of
the plan count as data-parallel ones (context_parallel_size 1) that load the same data: Megatron neither
shards rows nor sends keys. For each batch:

    batch = plan.batch(cu_seqlens)
    model.rotary_pos_emb.batch = batch                     # a BurstRotary: angles of this rank's positions
    model(batch.dispatch(tokens)[None], ..., packed_seq_params=BurstParams(qkv_format="sbhd", batch=batch))

Labels are batch.dispatch(labels, shift=-1). The loss is a rank's sum divided by the batch's count, times the
plan's ranks where gradients are averaged.
"""
from dataclasses import dataclass

import torch
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.utils import is_layer_window_attention

import burst


def masks(config) -> dict[str, str]:
    """For burst.compile. Megatron's window (w, 0) keeps a query's own key and the w before."""
    if config.window_size and (config.window_size[0] < 0 or config.window_size[1] != 0):
        raise ValueError(f"window_size={config.window_size}: a window is (w, 0)")
    document = "causal and doc[q] == doc[k]"
    window = {"window": f"{document} and q - k <= {config.window_size[0]}"} if config.window_size else {}
    return {"full": document, **window}


@dataclass
class BurstParams(PackedSeqParams):
    """Carries the batch to attention. qkv_format is "sbhd": rows are [t, 1, heads, head_dim]."""
    batch: burst.Batch = None


class BurstCoreAttention(MegatronModule):
    def __init__(self, config, layer_number, attn_mask_type, attention_type, attention_dropout=None,
                 softmax_scale=None, cp_comm_type=None, pg_collection=None):
        super().__init__(config=config)
        dropout = config.attention_dropout if attention_dropout is None else attention_dropout
        if dropout or attention_type != "self" or config.apply_query_key_layer_scaling:
            raise ValueError("a plan has self-attention without dropout and without scaling by layers")
        windowed = is_layer_window_attention(config.window_size, config.window_attn_skip_freq, layer_number)
        self.mask, self.scale, self.softmax_offset = "window" if windowed else "full", softmax_scale, None
        if config.softmax_type == "off-by-one":
            self.register_buffer("softmax_offset", torch.zeros(config.num_attention_heads))
        elif config.softmax_type == "learnable":
            self.softmax_offset = torch.nn.Parameter(
                torch.empty(config.num_attention_heads, dtype=config.params_dtype))
            config.init_method(self.softmax_offset)

    def forward(self, query, key, value, attention_mask, /, *, attn_mask_type=None, attention_bias=None,
                packed_seq_params=None):
        if attention_bias is not None:
            raise ValueError("attention_bias: a plan's scores have none")
        q, k, v = (x.squeeze(1) for x in (query, key, value))
        sinks = self.softmax_offset.float() if self.softmax_offset is not None else None
        o = burst.attention(q, k, v, packed_seq_params.batch, self.mask, sinks=sinks, scale=self.scale)
        return o.reshape(o.shape[0], 1, -1)


class BurstRotary(RotaryEmbedding):
    batch: burst.Batch = None

    def forward(self, max_seq_len, offset=0, packed_seq=False, cp_group=None):
        return self.get_emb(self.batch.plan.tokens)[self.batch.positions]
