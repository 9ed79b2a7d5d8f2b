"""A plan's attention as torchtitan's inner attention.

Typed against torchtitan at b5bcd76 (2026-08): FlexAttention of `models/common/attention.py` (rows [T, N, H]),
`models/common/decoder_sharding.py` and `distributed/context_parallel/api.py`. Tested with stand-ins for its
classes, not with torchtitan.

1. In a model's config, `inner_attention=BurstAttention.Config(mask="full")` takes FlexAttention's place, and
   keep_rows(config.inner_attention) that of set_gqa_inner_attention_local_map: keys stay with their ranks.
2. In the trainer, prepare_burst_input takes the place of prepare_context_parallel_input; its batch travels as
   `attention_masks`. parallelism.context_parallel_degree is the number of the plan's ranks, and the plan's
   group is the mesh "cp":

    plan = burst.compile({"full": "causal and doc[q] == doc[k]"}, heads=32, kv_heads=8, head_dim=128,
                         tokens=131072, group=parallel_dims.get_mesh("cp"))
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.models.common.decoder_sharding import attention_activation_placement
from torchtitan.protocols.module import Module
from torchtitan.protocols.sharding import LocalMapConfig, ShardingConfig

import burst


class BurstAttention(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        mask: str = "full"  # of the plan's masks

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.mask = config.mask

    def forward(self, q_TNH: torch.Tensor, k_TNH: torch.Tensor, v_TNH: torch.Tensor, *,
                attention_masks: burst.Batch, scale: float | None = None, enable_gqa: bool = False,
                out_transform: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
                **kwargs) -> torch.Tensor:
        if kwargs.get("score_mod") is not None:
            raise ValueError("score_mod: a plan's scores are those of its masks and softcap")
        out_TNH, lse_NT = burst.attention(q_TNH, k_TNH, v_TNH, attention_masks, self.mask, scale=scale,
                                          return_lse=True)
        return out_TNH if out_transform is None else out_transform(out_TNH, lse_NT.transpose(0, 1))


def keep_rows(config: BurstAttention.Config) -> None:
    """Rows of q, k, v and o, and of their gradients, are this rank's alone."""
    rows = attention_activation_placement()
    all_three = {"q_TNH": rows, "k_TNH": rows, "v_TNH": rows}
    config.sharding_config = ShardingConfig(in_src_shardings=all_three, in_dst_shardings=all_three,
                                            out_src_shardings=rows,
                                            local_map=LocalMapConfig(in_grad_placements=(rows, rows, rows)))


def prepare_burst_input(inputs: torch.Tensor, labels: torch.Tensor, extra_kwargs: dict[str, Any],
                        plan: burst.Plan) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """This rank's rows of inputs, labels (already those of the next token) and positions, all [num_tokens].

    They are the same on all ranks of the plan. Documents begin where positions are 0.
    """
    begins = (extra_kwargs["positions"] == 0).nonzero().flatten().tolist()
    batch = plan.batch([*begins, plan.tokens])
    rest = {**extra_kwargs, "positions": batch.dispatch(extra_kwargs["positions"]), "attention_masks": batch}
    return batch.dispatch(inputs), batch.dispatch(labels), rest
