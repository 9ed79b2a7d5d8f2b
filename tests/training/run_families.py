"""Model families of Hugging Face transformers: imported, trained for a step, exported, loaded again.

    python3 run_families.py --toolchain toolchain.json [--only REGEX] [--work FOLDER]

Each case is a tiny model of transformers' own class with random weights (norms and biases too). `burstc import` writes its model; its
loss and every gradient on 1 rank, and on 4 that share a sequence by a ring or by heads or split layers, with latents also by chunks of
queries and of keys, and with latents as what travels, with norms over all heads in more layouts that split layers, are compared with
transformers in float64; transformers loads what was exported, and has the same loss. Folders with five differences must name five. Random
folders follow (random_exports.py). A run tests some of the families and of the folders, by the day; BURST_TEST_ALL=1 all. Ends with 77
where torch or transformers is missing.
"""
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
import random_exports  # noqa: E402
import run_weights  # noqa: E402
from runner import require  # noqa: E402

SEQUENCE = 64
LOSS, GRADIENT = 1e-6, 1e-4  # relative, fp32 on the host against float64
TILE = 128
APART = 1e-4  # scores of experts, the last chosen and the next
LAYOUTS = {"one": (1, emitted.layout(1, 1, "ring", "keys", "contiguous")),  # ranks, their layout
           "ring": (4, emitted.layout(1, 4, "ring", "keys", "zigzag")),
           "ulysses": (4, emitted.layout(1, 4, "ulysses", "keys", "contiguous")),
           "tensor": (4, emitted.layout(1, 2, "ring", "keys", "zigzag").replace("tensor 1", "tensor 2"))}
LAYOUTS.update({f"chunks_of_{word}": (4, LAYOUTS["ring"][1].replace("recompute none", f"recompute selective; token chunks 2, {word}"))
                for word in ("attention", "keys")})
LAYOUTS.update({f"latents_{name}": (ranks, layout.replace("travel keys", "travel latents")) for name, ranks, layout in (
    ("of_two", 2, emitted.layout(1, 2, "ring", "keys", "contiguous")), ("ring", *LAYOUTS["ring"]), ("tensor", *LAYOUTS["tensor"]),
    ("recompute", 4, LAYOUTS["ring"][1].replace("recompute none", "recompute selective")))})
SPLIT = LAYOUTS["tensor"][1]
LAYOUTS.update({"tensor_ulysses": (4, emitted.layout(1, 2, "ulysses", "keys", "contiguous").replace("tensor 1", "tensor 2")),
                "tensor_two": (2, emitted.layout(1, 1, "ring", "keys", "contiguous").replace("tensor 1", "tensor 2")),
                "tensor_four": (4, emitted.layout(1, 1, "ring", "keys", "contiguous").replace("tensor 1", "tensor 4")),
                **{f"tensor_{name}": (4, SPLIT.replace("recompute none", settings)) for name, settings in (
                    ("selective", "recompute selective; token chunks 3"), ("full", "recompute full; overlap no"),
                    ("tail", "recompute tail(0.3); offload activations"), ("some", "recompute save(q_raw(2), rstd_k, k)"))}})
LAYOUTS.update({f"alone_{name}": (1, LAYOUTS["one"][1].replace("recompute none", settings)) for name, settings in (
    ("full", "recompute full(2); offload activations"), ("chunks", "recompute selective; token chunks 3, attention"), ("ffn", "recompute ffn"))})
LAYOUTS.update({f"pieces_{name}": (ranks, emitted.layout(1, ranks, schedule, "keys", partition).replace("recompute none", settings))
                for name, ranks, schedule, partition, settings in (
    ("of_two", 2, "ring", "zigzag", "recompute none"), ("contiguous", 4, "ring", "contiguous", "recompute full(2)"),
    ("blocks", 4, "ring", "blocks(24)", "recompute selective; token chunks 2, attention"), ("ulysses", 4, "ulysses", "zigzag", "recompute ffn"))})
LAYOUTS["gather_of_two"] = (2, emitted.layout(1, 2, "gather", "keys", "zigzag").replace("recompute none", "recompute full"))
OF_SCANS = tuple(name for name in LAYOUTS if name.startswith(("alone_", "pieces_")))
SEVERAL = ("ring", "ulysses", "tensor")
OF_LATENTS = ("chunks_of_attention", "chunks_of_keys", "latents_of_two", "latents_ring", "latents_tensor", "latents_recompute")
OF_WHOLE_NORMS = tuple(name for name in LAYOUTS if name.startswith("tensor_"))
FOLDERS, SAMPLE = 300, 4  # random ones, in all and each day
SEQUENCES = {"minimax_m3": 1024}  # of cases whose tiles choose blocks of keys
TURNS = 4  # runs until every family was tested
TRAIN = run_weights.TRAIN.replace("BATCH", "1;")
SIZES = dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=4 * SEQUENCE, rms_norm_eps=1e-5, initializer_range=0.1, pad_token_id=None, bos_token_id=1, eos_token_id=2)


def rope(kind, theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


LLAMA3 = rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=16)
LONG = dict(short_factor=[1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0], long_factor=[1.0, 1.5, 2.0, 4.0, 6.5, 8.0, 12.0, 16.0])
WINDOW = dict(sliding_window=16)
MLA = dict(num_key_value_heads=4, kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10)  # q and k 20, v 10 elements
BIASED = dict(attention_bias=True, mlp_bias=True)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2)
ROUTED = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=24)
MAMBA = dict(mamba_n_heads=8, mamba_d_head=16, mamba_d_state=12, mamba_expand=2, time_step_limit=(0.0, 8.0), position_embedding_type=None,
             layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"])
NEMOTRON = dict(head_dim=16, mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=12, n_groups=2, time_step_limit=(0.0, 8.0))
NANO = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40, n_group=4, topk_group=2,
            routed_scaling_factor=2.5)
FALCON = dict(mamba_n_heads=8, mamba_d_head=16, mamba_d_ssm=128, mamba_d_state=12, time_step_limit=(0.0, 8.0), mamba_norm_before_gate=False,
              embedding_multiplier=5.5, lm_head_multiplier=0.3, mlp_multipliers=[0.8, 0.3], key_multiplier=0.7, attention_in_multiplier=1.3,
              attention_out_multiplier=0.6, ssm_multipliers=[0.35, 0.5, 1.7, 0.7, 0.4], ssm_in_multiplier=1.25, ssm_out_multiplier=0.4)
SHORT = dict(conv_L_cache=3, layer_types=["conv", "full_attention", "conv", "conv"], bos_token_id=1)
TYPES = ["sliding_attention", "full_attention"] * 2
CASES = {  # name: class, its configuration
    "llama2": ("Llama", dict(num_key_value_heads=4)),
    "llama3": ("Llama", rope("default", 500000.0)),
    "llama31": ("Llama", LLAMA3),
    "llama32": ("Llama", dict(LLAMA3, tie_word_embeddings=True, head_dim=32)),
    "linear": ("Llama", rope("linear", 100000.0, factor=4.0)),
    "dynamic": ("Llama", dict(rope("dynamic", factor=2.0), max_position_embeddings=32)),
    "dynamic_short": ("Llama", rope("dynamic", factor=2.0)),
    "yarn": ("Llama", rope("yarn", factor=8.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=0.5, attention_factor=0.9)),
    "yarn_step": ("Llama", rope("yarn", factor=8.0, original_max_position_embeddings=16, beta_fast=1.0, beta_slow=1.0)),  # as Kimi-K2
    "yarn_mscale": ("Llama", rope("yarn", factor=8.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=0.5)),
    "mistral": ("Mistral", WINDOW),
    "nemo": ("Mistral", dict(rope("default", 1e6), sliding_window=None, head_dim=24)),
    "ministral": ("Ministral", dict(WINDOW, head_dim=16, layer_types=["sliding_attention", "full_attention"] * 2)),
    "qwen2": ("Qwen2", {}),
    "qwen2_window": ("Qwen2", dict(WINDOW, use_sliding_window=True, max_window_layers=2)),
    "qwen2_yarn": ("Qwen2", YARN),
    "qwen3": ("Qwen3", dict(head_dim=32)),
    "qwen3_yarn": ("Qwen3", dict(rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=16, truncate=False), head_dim=32,
                                 attention_bias=True)),
    "seed_oss": ("SeedOss", dict(BIASED, attention_out_bias=True, attention_dropout=0.0, residual_dropout=0.0, head_dim=16)),
    "seed_oss_plain": ("SeedOss", dict(attention_bias=False, attention_dropout=0.0, residual_dropout=0.0, head_dim=16)),
    "phi3": ("Phi3", WINDOW),
    "phi4": ("Phi3", dict(sliding_window=None)),
    "phi3_128k": ("Phi3", dict(rope("longrope", **LONG), original_max_position_embeddings=32, sliding_window=None)),
    "phi3_128k_short": ("Phi3", dict(rope("longrope", **LONG), original_max_position_embeddings=64, max_position_embeddings=256,
                                     sliding_window=None)),
    "granite_code": ("Llama", dict(BIASED, tie_word_embeddings=True)),
    "longrope": ("Llama", rope("longrope", factor=4.0, original_max_position_embeddings=16, attention_factor=1.3, **LONG)),
    "olmo2": ("Olmo2", {}),
    "olmo2_one_key": ("Olmo2", dict(num_key_value_heads=1, head_dim=16, attention_bias=True)),  # of which tensor ranks have the same
    "olmo3": ("Olmo3", dict(sliding_window=16, layer_types=TYPES, rope_parameters={
        "sliding_attention": dict(rope_type="default", rope_theta=20000.0),
        "full_attention": dict(YARN["rope_parameters"], attention_factor=1.1)})),
    "olmo_hybrid": ("OlmoHybrid", dict(DELTA, rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=None))),
    "olmo_hybrid_rope": ("OlmoHybrid", dict(linear_num_key_heads=4, linear_key_head_dim=12, attention_bias=True, linear_allow_neg_eigval=False,
                                            linear_conv_kernel_dim=3, layer_types=["full_attention", "linear_attention"] * 2)),
    "exaone4": ("Exaone4", dict(head_dim=16, sliding_window=16, sliding_window_pattern=2)),
    "exaone4_full": ("Exaone4", dict(head_dim=16, sliding_window=None, layer_types=["full_attention"] * 4)),
    "glm4": ("Glm4", dict(head_dim=16, attention_bias=True)),
    "gemma": ("Gemma", dict(head_dim=32)),
    "gemma2": ("Gemma2", dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=24, layer_types=TYPES, attn_logit_softcapping=2.0,
                              final_logit_softcapping=1.5)),
    "gemma2_uncapped": ("Gemma2", dict(head_dim=16, attn_logit_softcapping=None, final_logit_softcapping=None)),
    "vaultgemma": ("VaultGemma", dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
                                      final_logit_softcapping=1.5)),
    "gemma3": ("Gemma3", dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=24, layer_types=TYPES, rope_parameters={
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0),
        "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1000000.0)})),
    "arcee": ("Arcee", dict(head_dim=16)),
    "stablelm": ("StableLm", dict(partial_rotary_factor=0.25)),
    "stablelm_bias": ("StableLm", dict(partial_rotary_factor=0.5, use_qkv_bias=True)),
    "stablelm_parallel": ("StableLm", dict(use_parallel_residual=True)),
    "starcoder2": ("Starcoder2", dict(sliding_window=16)),
    "starcoder2_plain": ("Starcoder2", dict(use_bias=False)),
    "nemotron": ("Nemotron", dict(partial_rotary_factor=0.5, head_dim=16)),
    "nemotron_third": ("Nemotron", dict(BIASED, partial_rotary_factor=1 / 3, head_dim=48)),  # its digits make 15.99 elements
    "cohere": ("Cohere", dict(logit_scale=0.25)),
    "cohere2": ("Cohere2", dict(logit_scale=0.25, sliding_window=16, layer_types=TYPES)),
    "jais2": ("Jais2", {}),
    "phi2": ("Phi", dict(partial_rotary_factor=0.25, num_key_value_heads=4)),
    "phi_grouped": ("Phi", {}),
    "pythia": ("GPTNeoX", {}),
    "pythia_sequential": ("GPTNeoX", dict(use_parallel_residual=False, attention_bias=False)),
    "pythia_scaled": ("GPTNeoX", rope("linear", 20000.0, factor=4.0, partial_rotary_factor=0.5)),
    "internlm3": ("InternLM3", dict(rope("dynamic", 50000000.0, factor=6.0), head_dim=16, max_position_embeddings=32)),
    "exaone35": ("Exaone", LLAMA3),
    "minicpm": ("MiniCPM", dict(scale_emb=12, scale_depth=1.4, dim_model_base=16, num_key_value_heads=4)),
    "minicpm4": ("MiniCPM", dict(scale_emb=12, scale_depth=1.4, dim_model_base=32, tie_word_embeddings=False,
                                 max_position_embeddings=128, rope_scaling=dict(LONG, rope_type="longrope",
                                                                                original_max_position_embeddings=32))),
    "minicpm3": ("MiniCPM3", dict(MLA, q_lora_rank=24, scale_emb=12, scale_depth=1.4, dim_model_base=16)),
    "minicpm3_long": ("MiniCPM3", dict(rope("longrope", original_max_position_embeddings=32, **LONG), **{
        **MLA, "qk_rope_head_dim": 16}, q_lora_rank=None, scale_depth=None, dim_model_base=None, tie_word_embeddings=False)),
    "minicpm3_yarn": ("MiniCPM3", dict(rope("yarn", factor=8.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=0.7), **{
        **MLA, "v_head_dim": 24}, q_lora_rank=24)),
    "deepseek_v2": ("DeepseekV2", dict(MLA, q_lora_rank=24, first_k_dense_replace=4)),
    "deepseek_v2_lite": ("DeepseekV2", dict(rope("yarn", factor=8.0, original_max_position_embeddings=8, mscale=0.707,
                                                 mscale_all_dim=0.707), **MLA, q_lora_rank=None, first_k_dense_replace=4)),
    "youtu": ("Youtu", dict(rope("yarn", factor=8.0, original_max_position_embeddings=8, mscale=0.707, mscale_all_dim=0.707), **MLA,
                            q_lora_rank=24, tie_word_embeddings=False)),
    "iquestcoder": ("IQuestCoder", dict(head_dim=16)),
    "internlm2": ("InternLM2", dict(bias=False, rope_theta=1000000, max_position_embeddings=32,
                                    rope_scaling=dict(type="dynamic", factor=2.0))),
    "smollm3": ("SmolLM3", dict(no_rope_layer_interval=2)),
    "helium": ("Helium", dict(head_dim=16)),
    "ernie4_5": ("Ernie4_5", dict(head_dim=16)),
    "glm": ("Glm", dict(head_dim=16, attention_bias=True)),
    "phi4_mini": ("Phi3", dict(sliding_window=None, partial_rotary_factor=0.75, head_dim=32)),
    "phi4_mini_128k": ("Phi3", dict(rope("longrope", short_factor=[1.0] * 6, long_factor=[1 + i / 2 for i in range(6)]),
                                    partial_rotary_factor=0.75, original_max_position_embeddings=32, sliding_window=None)),
    "granite": ("Granite", dict(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=4.0)),
    "granite_ones": ("Granite", BIASED),
    "granite4": ("GraniteMoeHybrid", dict(shared_intermediate_size=96, num_local_experts=0, layer_types=["full_attention"] * 4,
                                          position_embedding_type="rope", mamba_n_heads=4, time_step_limit=(0.0, 1.0), embedding_multiplier=12.0,
                                          residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=4.0)),
    "granite4_h": ("GraniteMoeHybrid", dict(MAMBA, shared_intermediate_size=96, num_local_experts=0, embedding_multiplier=12.0,
                                            residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=4.0)),
    "granite4_h_moe": ("GraniteMoeHybrid", dict(MAMBA, shared_intermediate_size=56, num_local_experts=8, num_experts_per_tok=3, intermediate_size=24,
                                                mamba_n_groups=2, position_embedding_type="rope", mamba_d_conv=3, residual_multiplier=0.5,
                                                attention_multiplier=0.3, time_step_limit=(0.3, 0.9))),
    "qwen3_moe": ("Qwen3Moe", dict(EXPERTS, head_dim=32, norm_topk_prob=True, moe_intermediate_size=48)),
    "qwen3_moe_some": ("Qwen3Moe", dict(EXPERTS, head_dim=16, norm_topk_prob=True, moe_intermediate_size=48, mlp_only_layers=[0, 2])),
    "qwen2_moe_some": ("Qwen2Moe", dict(EXPERTS, moe_intermediate_size=40, shared_expert_intermediate_size=56, mlp_only_layers=[1, 3])),
    "qwen3_moe_plain": ("Qwen3Moe", dict(EXPERTS, head_dim=16, norm_topk_prob=False, moe_intermediate_size=40, num_experts_per_tok=3)),
    "qwen3_moe_one": ("Qwen3Moe", dict(EXPERTS, head_dim=16, norm_topk_prob=False, moe_intermediate_size=48, num_experts_per_tok=1)),
    "qwen3_moe_all": ("Qwen3Moe", dict(EXPERTS, head_dim=16, norm_topk_prob=True, moe_intermediate_size=48, num_experts_per_tok=8)),
    "olmoe": ("Olmoe", EXPERTS),
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=16, head_dim=16)),
    "granitemoe": ("GraniteMoe", dict(num_local_experts=6, num_experts_per_tok=3, embedding_multiplier=12.0, residual_multiplier=0.22,
                                      attention_multiplier=0.3, logits_scaling=4.0)),
    "qwen2_moe": ("Qwen2Moe", dict(EXPERTS, moe_intermediate_size=40, shared_expert_intermediate_size=56, num_experts_per_tok=3)),
    "qwen2_moe_normed": ("Qwen2Moe", dict(EXPERTS, moe_intermediate_size=40, shared_expert_intermediate_size=48, norm_topk_prob=True,
                                          qkv_bias=False)),
    "gpt_oss": ("GptOss", dict(num_local_experts=8, num_experts_per_tok=2, intermediate_size=32, head_dim=16, sliding_window=16,
                               rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                                    original_max_position_embeddings=16, truncate=False), swiglu_limit=0.3)),
    "gpt_oss_plain": ("GptOss", dict(rope("default", 10000.0), num_local_experts=4, num_experts_per_tok=3, intermediate_size=48, head_dim=32,
                                     attention_bias=False, layer_types=TYPES[::-1], sliding_window=16)),
    "hunyuan_moe": ("HunYuanMoEV1", dict(num_experts=8, moe_topk=3, intermediate_size=40, head_dim=16,
                                         **rope("dynamic", 10000.0, alpha=50.0, factor=1.0))),
    "hunyuan_moe_listed": ("HunYuanMoEV1", dict(num_experts=4, moe_topk=[2] * 4, intermediate_size=24, head_dim=32, attention_bias=True,
                                                tie_word_embeddings=True)),
    "hunyuan_dense": ("HunYuanDenseV1", dict(head_dim=16, **rope("dynamic", 20000.0, alpha=8.0, factor=1.0))),
    "minimax_m2": ("MiniMaxM2", dict(num_local_experts=8, num_experts_per_tok=3, intermediate_size=40, head_dim=16,
                                     rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "minimax_m3": ("MiniMaxM3VL", dict(num_local_experts=8, num_experts_per_tok=3, intermediate_size=40, dense_intermediate_size=96, head_dim=16,
                                       shared_intermediate_size=96, max_position_embeddings=4096, swiglu_alpha=1.3, swiglu_limit=0.5,
                                       rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
                                       index_n_heads=2, index_head_dim=24, index_topk_blocks=3, mlp_layer_types=["dense"] + ["sparse"] * 3,
                                       layer_types=["full_attention"] + ["minimax_m3_sparse"] * 3)),
    "deepseek_v2_moe": ("DeepseekV2", dict(MLA, **ROUTED, q_lora_rank=24, first_k_dense_replace=1, n_shared_experts=2, routed_scaling_factor=1.5,
                                           topk_method="group_limited_greedy", n_group=4, topk_group=2)),
    "deepseek_v2_greedy": ("DeepseekV2", dict(MLA, **ROUTED, q_lora_rank=None, first_k_dense_replace=0, topk_method="greedy", n_group=4, topk_group=2)),
    "deepseek_v3": ("DeepseekV3", dict(MLA, **ROUTED, q_lora_rank=24, first_k_dense_replace=2, n_group=4, topk_group=2)),
    "moonlight": ("DeepseekV3", dict(MLA, **ROUTED, q_lora_rank=None, first_k_dense_replace=1, n_group=1, topk_group=1, n_shared_experts=2,
                                     routed_scaling_factor=2.446)),
    "glm4_moe": ("Glm4Moe", dict(ROUTED, head_dim=16, attention_bias=True, use_qk_norm=True, routed_scaling_factor=1.8)),
    "glm4_moe_air": ("Glm4Moe", dict(ROUTED, head_dim=32, attention_bias=True, first_k_dense_replace=0, norm_topk_prob=False)),
    "glm4_moe_lite": ("Glm4MoeLite", dict(MLA, **ROUTED, q_lora_rank=24)),
    "ernie4_5_moe_alone": ("Ernie4_5_Moe", dict(moe_num_experts=3, moe_k=2, moe_intermediate_size=24, head_dim=24, moe_num_shared_experts=0,
                                                moe_layer_start_index=0)),  # no shared expert
    "ernie4_5_moe": ("Ernie4_5_Moe", dict(moe_num_experts=8, moe_k=3, moe_intermediate_size=24, head_dim=16)),
    "lfm2": ("Lfm2", dict(SHORT, block_auto_adjust_ff_dim=False)),
    "lfm2_adjusted": ("Lfm2", dict(SHORT, intermediate_size=190, block_multiple_of=32, block_ffn_dim_multiplier=0.7, conv_L_cache=4,
                                   tie_word_embeddings=False, layer_types=["conv", "conv", "full_attention", "full_attention"])),
    "nemotron_h": ("NemotronH", dict(NEMOTRON, layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"])),
    "nemotron_h_bias": ("NemotronH", dict(NEMOTRON, layers_block_type=["mlp", "full_attention", "linear_attention", "mlp"], n_groups=4, mlp_bias=True,
                                          conv_kernel=3, time_step_min=0.4)),
    "nemotron_h_moe": ("NemotronH", dict(NEMOTRON, **NANO, layers_block_type=["linear_attention", "moe", "full_attention", "moe"])),
    "nemotron_h_four": ("NemotronH", dict(NEMOTRON, **{**NANO, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0}, norm_topk_prob=False,
                                          layers_block_type=["mlp", "full_attention", "linear_attention", "moe"])),
    "falcon_h1": ("FalconH1", FALCON),
    "falcon_h1_norm": ("FalconH1", dict(FALCON, mamba_rms_norm=True, mamba_n_groups=2, mamba_d_conv=3, mlp_bias=True, mamba_d_ssm=None, mamba_expand=2,
                                        tie_word_embeddings=True, head_dim=32, num_key_value_heads=1, time_step_limit=(0.3, 0.9))),
    "qwen3_5": ("Qwen3_5", dict(DELTA, head_dim=16)),
    "qwen3_5_wide": ("Qwen3_5", dict(DELTA, head_dim=256, num_attention_heads=4, num_key_value_heads=1, linear_num_key_heads=4, linear_key_head_dim=8,
                                     linear_value_head_dim=40, tie_word_embeddings=True, linear_conv_kernel_dim=3,
                                     layer_types=["full_attention", "linear_attention"] * 2)),
    "qwen3_5_moe": ("Qwen3_5Moe", dict(DELTA, **EXPERTS, head_dim=16, moe_intermediate_size=40, shared_expert_intermediate_size=56)),
    "qwen3_next": ("Qwen3Next", dict(DELTA, **EXPERTS, head_dim=16, moe_intermediate_size=40, shared_expert_intermediate_size=48)),
    "qwen3_next_plain": ("Qwen3Next", dict(DELTA, **{**EXPERTS, "num_experts_per_tok": 3}, head_dim=32, linear_num_value_heads=6, norm_topk_prob=False,
                                           moe_intermediate_size=24, shared_expert_intermediate_size=24, linear_conv_kernel_dim=2)),
    "cwm": ("Cwm", dict(WINDOW, head_dim=16, **LLAMA3)),
}
EYE = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
QWEN_EYE = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=64)
QWEN_IDS = dict(image_token_id=250, video_token_id=251, vision_start_token_id=252, vision_end_token_id=253)
WHOLES = {"Gemma3": dict(vision_config=EYE, mm_tokens_per_image=4, boi_token_index=248, eoi_token_index=249, image_token_index=250),
          "Mistral3": dict(vision_config=dict(EYE, model_type="pixtral", head_dim=8), image_token_index=10, tie_word_embeddings=False),
          "Qwen2_5_VL": dict(vision_config=dict(QWEN_EYE, fullatt_block_indexes=[0]), **QWEN_IDS),
          **{name: dict(vision_config=dict(QWEN_EYE, num_position_embeddings=16, deepstack_visual_indexes=[0]), **QWEN_IDS)
             for name in ("Qwen3VL", "Qwen3VLMoe")},
          **{name: dict(vision_config=dict(QWEN_EYE, num_position_embeddings=16), **QWEN_IDS) for name in ("Qwen3_5", "Qwen3_5Moe")}}
MROPE = rope("default", 1e6, mrope_section=[2, 3, 3])
PARTS = {  # name: the larger model, the text model's class, its configuration
    "gemma3_part": ("Gemma3", "Gemma3", dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=24, layer_types=TYPES)),
    "mistral_part": ("Mistral3", "Mistral", dict(head_dim=16, sliding_window=None)),
    "ministral3_part": ("Mistral3", "Ministral3", dict(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e6, factor=16.0, original_max_position_embeddings=16, max_position_embeddings=256, beta_fast=32.0,
        beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "qwen2_5_vl_part": ("Qwen2_5_VL", "Qwen2", MROPE),
    "qwen3_5_part": ("Qwen3_5", "Qwen3_5", dict(rope("default", 1e6, mrope_section=[2, 1, 1], mrope_interleaved=True,
                                                     partial_rotary_factor=0.25), **DELTA, head_dim=32)),
    "qwen3_5_moe_part": ("Qwen3_5Moe", "Qwen3_5Moe", dict(DELTA, **EXPERTS, head_dim=16, moe_intermediate_size=40,
                                                          shared_expert_intermediate_size=56)),
    "qwen3_vl_part": ("Qwen3VL", "Qwen3", dict(MROPE, head_dim=16)),
    "qwen3_vl_moe_part": ("Qwen3VLMoe", "Qwen3Moe", dict(MROPE, **EXPERTS, head_dim=16, moe_intermediate_size=40)),
}
# a plan's tensors of a layer, in its order; those that a model has
LAYER = ["input_layernorm.weight", "input_layernorm.bias",
         *(f"self_attn.{x}.weight" for x in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj", "k_shared_proj", "kv_a_layernorm",
                                             "k_b_proj", "v_b_proj")),
         *(f"self_attn.{x}_{part}" for x in "q" for part in ("proj.weight", "proj.bias", "norm.weight")), "self_attn.gate_proj.weight",
         *(f"self_attn.{x}_{part}" for x in "k" for part in ("proj.weight", "proj.bias", "norm.weight")),
         "self_attn.v_proj.weight", "self_attn.v_proj.bias", "self_attn.o_proj.weight", "self_attn.o_proj.bias",
         *(f"self_attn.indexer.{x}.weight" for x in ("q_proj", "k_proj", "q_norm", "k_norm")),
         *(f"linear_attn.{x}.weight" for x in ("b_proj", "c_proj", "x_proj", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d")),
         "linear_attn.conv1d.bias",
         "linear_attn.norm.weight", "linear_attn.out_proj.weight",
         "self_attn.output_norm.weight", "post_attention_layernorm.weight", "post_attention_layernorm.bias", "mlp.gate_proj.weight",
         "mlp.up_proj.weight", "mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.weight", "mlp.down_proj.bias",
         *(f"mlp.shared_expert.{x}_proj.weight" for x in ("gate", "up", "down")), "mlp.shared_expert_gate.weight", "mlp.router.weight",
         *(f"mlp.experts.{i}.{x}_proj.{part}" for part, several in (("weight", (("gate", "up"), ("down",))), ("bias", (("gate", "up"), ("down",))))
           for names in several for i in range(8) for x in names),
         "mlp.router.bias", "mlp.router.correction", "mlp.output_norm.weight", "linear_attn.A_log", "linear_attn.dt_bias", "linear_attn.D",
         "self_attn.sinks"]
MAMBA_LAYER = [part for part in LAYER if "in_proj_z" not in part]
MAMBA_LAYER.insert(MAMBA_LAYER.index("linear_attn.in_proj_qkv.weight"), "linear_attn.in_proj_z.weight")
AFTER = {"post_attention_layernorm": "self_attn.output_norm", "post_feedforward_layernorm": "mlp.output_norm"}
GEMMA = {"pre_feedforward_layernorm": "post_attention_layernorm", **AFTER}
NAMES = {"VaultGemma": {"pre_feedforward_layernorm": "post_attention_layernorm"}, "GraniteMoeHybrid": {
             "shared_mlp.output_linear": "mlp.down_proj"}, "Olmo2": AFTER, "Olmo3": AFTER, "Exaone4": AFTER, "Gemma2": GEMMA, "Gemma3": GEMMA,
         **{kind: {"query_layernorm": "q_norm", "key_layernorm": "k_norm", "mlp.gate.wg": "mlp.router", "mlp.shared_mlp": "mlp.shared_expert"}
            for kind in ("HunYuanMoEV1", "HunYuanDenseV1")},
         "FalconH1": {"model.final_layernorm": "model.norm", "pre_ff_layernorm": "post_attention_layernorm", "feed_forward.gate_proj": "mlp.gate_proj",
                      "feed_forward.up_proj": "mlp.up_proj", "feed_forward.down_proj": "mlp.down_proj"},
         "Glm4": {"post_self_attn_layernorm": "self_attn.output_norm", "post_mlp_layernorm": "mlp.output_norm"},
         "Starcoder2": {"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"},
         "InternLM2": {"model.tok_embeddings": "model.embed_tokens", "attention_norm": "input_layernorm",
                       "ffn_norm": "post_attention_layernorm", "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj",
                       "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj", "output": "lm_head"},
         "Lfm2": {"model.embedding_norm": "model.norm", "operator_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                  "q_layernorm": "q_norm", "k_layernorm": "k_norm", "self_attn.out_proj": "self_attn.o_proj", "conv.conv": "linear_attn.conv1d",
                  "conv.out_proj": "linear_attn.out_proj", "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj",
                  "feed_forward.w2": "mlp.down_proj"},
         "Phi": {"self_attn.dense": "self_attn.o_proj", "mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj",
                 "model.final_layernorm": "model.norm"},
         "GPTNeoX": {"gpt_neox.embed_in": "model.embed_tokens", "gpt_neox.final_layer_norm": "model.norm", "embed_out": "lm_head",
                     "attention.dense": "self_attn.o_proj", "mlp.dense_h_to_4h": "mlp.up_proj",
                     "mlp.dense_4h_to_h": "mlp.down_proj"}}  # in a folder, in a plan
PREFIX = {"GPTNeoX": "gpt_neox.layers."}  # of layers' names
WHOLE_NORMS = {"Olmo2", "Olmo3", "Olmoe"}  # norms over all heads, of which each tensor rank has a part
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"),
         "shared_mlp.input_linear": ("mlp.gate_proj", "mlp.up_proj")}


def split_latent(name, gradient, config):
    """The same of multi-head latent attention."""
    if "kv_a_proj_with_mqa" in name:  # the latent, then what all heads share
        parts = gradient.split([config.kv_lora_rank, config.qk_rope_head_dim])
        return [(name.replace("kv_a_proj_with_mqa", part), g) for part, g in zip(("kv_a_proj", "k_shared_proj"), parts)]
    if "kv_b_proj" in name:  # of each head its key's own elements, its value
        parts = gradient.reshape(config.num_attention_heads, -1, config.kv_lora_rank).split([config.qk_nope_head_dim, config.v_head_dim], 1)
        return [(name.replace("kv_b_proj", part), g) for part, g in zip(("k_b_proj", "v_b_proj"), parts)]
    return [(name, gradient)]


def split_experts(name, gradient, turned):
    """The same of the matrices of experts, each of which is a plan's tensor. turned: they are transposed, gate and up in turns."""
    layer, kind = re.match(r"model\.layers\.\d+\.", name)[0], "bias" if name.endswith("_bias") else "weight"
    if turned and kind == "weight":
        gradient = gradient.transpose(1, 2)
    if "experts.down_proj" in name:
        return [(f"{layer}mlp.experts.{i}.down_proj.{kind}", g) for i, g in enumerate(gradient)]
    return [(f"{layer}mlp.experts.{i}.{part}_proj.{kind}", g) for i, both in enumerate(gradient)
            for part, g in zip(("gate", "up"), (both[::2], both[1::2]) if turned else both.chunk(2))]


def split_single(name, gradient, config):
    """The same of layers with one part, NemotronH's."""
    name = name.replace("model.embeddings.", "model.embed_tokens.").replace("model.norm_f.", "model.norm.")
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    kind = config.layers_block_type[int(layer[1])] if layer else ""
    network = kind in ("mlp", "moe")
    name = re.sub(r"(\d)\.norm\.", r"\1.post_attention_layernorm." if network else r"\1.input_layernorm.", name)
    name = name.replace(".mixer.", {"mlp": ".mlp.", "moe": ".mlp.", "full_attention": ".self_attn."}.get(kind, ".linear_attn."))
    name = name.replace(".mlp.gate.", ".mlp.router.").replace(".mlp.shared_experts.", ".mlp.shared_expert.")
    if ".mlp.experts." in name:  # all experts' in one tensor
        return [(f"{name.replace('.experts.', f'.experts.{i}.')}.weight", g) for i, g in enumerate(gradient)]
    if "linear_attn.in_proj" not in name:
        return [(name, gradient)]
    inner = config.mamba_num_heads * config.mamba_head_dim
    sizes = [inner, inner + 2 * config.n_groups * config.ssm_state_size, config.mamba_num_heads]
    return [(name.replace("in_proj", f"in_proj_{part}"), g) for part, g in zip(("z", "qkv", "a"), gradient.split(sizes))]


def split_olmo_hybrid(name, gradient, config):
    """The same of OlmoHybrid; queries, keys and values of a scan are parts of one: NAME#0, NAME#1, NAME#2."""
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    if layer and config.layer_types[int(layer[1])] == "full_attention":
        for theirs, ours in AFTER.items():
            name = name.replace(theirs, ours)
        return [(name, gradient)]
    for theirs, ours in {"q_proj": "in_proj_qkv", "k_proj": "in_proj_qkv", "v_proj": "in_proj_qkv", "g_proj": "in_proj_z", "b_proj": "in_proj_b",
                         "a_proj": "in_proj_a", "o_norm": "norm", "o_proj": "out_proj"}.items():
        if f"linear_attn.{theirs}." in name:
            part = f"#{'qkv'.index(theirs[0])}" if ours == "in_proj_qkv" else ""
            return [(name.replace(theirs, ours) + part, gradient)]
    return [(name, gradient)]


def joined(gradients):
    """Parts of one tensor, NAME#0 and so on, as one."""
    whole = {}
    for name in sorted(gradients, key=lambda name: name.partition("#")[::2]):
        whole.setdefault(name.partition("#")[0], []).extend(gradients[name])
    return whole


def torch_cat(parts):
    import torch
    return torch.cat(parts)


def split(kind, name, gradient, shape, config):
    """[(name of a plan's tensor, its part of the gradient)]"""
    if kind == "OlmoHybrid":
        return split_olmo_hybrid(name, gradient, config)
    if kind == "NemotronH":
        return split_single(name, gradient, config)
    name = name.replace("mlp.shared_experts.", "mlp.shared_expert.")
    if hasattr(config, "kv_lora_rank") and "self_attn.kv_" in name:
        return split_latent(name, gradient, config)
    if ".experts." in name:
        return split_experts(name, gradient, kind == "GptOss")
    name = re.sub(r"(mlp\.gate|block_sparse_moe\.router)\.weight", "mlp.router.weight", name)
    name = name.replace(PREFIX.get(kind, "model.layers."), "model.layers.")
    if hasattr(config, "mamba_d_state") and getattr(config, "num_local_experts", 0):
        if "shared_mlp.output_linear" in name:
            return [(name.replace("shared_mlp.output_linear", "mlp.shared_expert.down_proj"), gradient)]
        if "shared_mlp.input_linear" in name:
            return [(name.replace("shared_mlp.input_linear", f"mlp.shared_expert.{part}_proj"), g) for part, g in zip(("gate", "up"), gradient.chunk(2))]
    if kind == "Lfm2" and "conv.in_proj" in name:
        return [(name.replace("conv.in_proj", f"linear_attn.{part}_proj"), g) for part, g in zip("bcx", gradient.chunk(3))]
    for theirs, ours in NAMES.get(kind, {}).items():
        if f".{theirs}." in f".{name}":
            return [(name.replace(theirs, ours), gradient)]
    if "mamba.in_proj" in name:  # gates, what is convolved, steps
        inner = config.mamba_n_heads * config.mamba_d_head
        sizes = [inner, inner + 2 * config.mamba_n_groups * config.mamba_d_state, config.mamba_n_heads]
        return [(name.replace("mamba.in_proj", f"linear_attn.in_proj_{part}"), g) for part, g in zip(("z", "qkv", "a"), gradient.split(sizes))]
    name = name.replace(".mamba.", ".linear_attn.")
    if "linear_attn.in_proj_qkvz" in name:  # of each key head its query, its key, its values, their gates
        heads = gradient.reshape(config.linear_num_key_heads, -1, shape.hidden)
        values = (heads.shape[1] - 2 * config.linear_key_head_dim) // 2
        q, k, v, z = heads.split([config.linear_key_head_dim] * 2 + [values] * 2, 1)
        return [(name.replace("qkvz", "qkv"), torch_cat([part.reshape(-1, shape.hidden) for part in (q, k, v)])), (name.replace("qkvz", "z"), z)]
    if "linear_attn.in_proj_ba" in name:
        return [(name.replace("_ba", f"_{part}"), g) for part, g in zip("ba", gradient.reshape(config.linear_num_key_heads, 2, -1, shape.hidden).unbind(1))]
    if hasattr(config, "linear_num_key_heads") and "self_attn.q_proj." in name:  # of each head its query, its gate
        heads = gradient.reshape(shape.heads, 2, shape.head_dim, shape.hidden)
        return [(name.replace("q_proj", f"{part}_proj"), heads[:, i]) for i, part in enumerate(("q", "gate"))]
    if "attention.wqkv." in name:  # of each key head its queries, its key, its value
        heads = gradient.reshape(shape.kv_heads, -1, shape.head_dim, shape.hidden)
        return [(name.replace("attention.wqkv", f"self_attn.{part}_proj"), g)
                for part, g in (("q", heads[:, :-2]), ("k", heads[:, -2]), ("v", heads[:, -1]))]
    if "attention.query_key_value." in name:  # of each head q, k, v
        heads = gradient.reshape(shape.heads, 3, shape.head_dim, -1)
        return [(name.replace("attention.query_key_value", f"self_attn.{part}_proj"), heads[:, i]) for i, part in enumerate("qkv")]
    rows = {"q_proj": shape.heads * shape.head_dim, "k_proj": shape.kv_heads * shape.head_dim, "v_proj": shape.kv_heads * shape.head_dim,
            "gate_proj": shape.ffn, "up_proj": shape.ffn}
    for whole, parts in FUSED.items():
        if f".{whole}." in name:
            return [(name.replace(whole, part), g) for part, g in zip(parts, gradient.split([rows[part.removeprefix("mlp.")] for part in parts]))]
    return [(name, gradient)]


def run_weights_tensors(folder):
    import safetensors.torch
    return {name: value for path in folder.glob("*.safetensors") for name, value in safetensors.torch.load_file(path).items()}


def corrections(model):
    """What corrects scores: buffers, or parameters without a gradient."""
    return [(name, x) for name, x in [*model.named_buffers(), *model.named_parameters()] if name.endswith("correction_bias")]


def frozen(model):
    """Weights that choose blocks of keys, which have no gradient."""
    return [(name, x) for name, x in model.named_parameters() if ".indexer." in name]


def choose_by_tiles():
    """MiniMax-M3's queries choose blocks of keys as the first of their tile does, here: burstc's tiles choose together."""
    import torch
    from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLIndexer as Indexer
    if hasattr(Indexer, "for_each_query"):
        return
    Indexer.for_each_query = Indexer.forward

    def forward(self, *args, **named):
        blocks = self.for_each_query(*args, **named)
        return blocks[:, :, torch.arange(blocks.shape[2]) // TILE * TILE]
    Indexer.forward = forward


def corrected(name):
    """A plan's name of a buffer that corrects scores."""
    return re.match(r"model\.layers\.\d+\.", name)[0] + "mlp.router.correction"


def filled(rope, longest):
    """Rope parameters with what transformers means where a number of yarn or longrope is not given: two ways to say the same become one.
    longest: max_position_embeddings. A base that alpha stretches is the base of other parameters, for heads of 16 here."""
    if rope and rope.get("alpha"):
        return filled({"rope_type": "default", "rope_theta": rope["rope_theta"] * rope["alpha"] ** (16 / 14)}, longest)
    if rope and rope.get("rope_type") == "default":
        return {**rope, "rope_theta": float(f"{rope['rope_theta']:.9g}")} if rope.get("rope_theta") else rope
    if rope and rope.get("rope_type") == "longrope":
        original = rope["original_max_position_embeddings"]
        factor = max(rope.get("factor") or longest / original, 1)
        amplitude = rope.get("attention_factor") or math.sqrt(1 + math.log(factor) / math.log(original))
        return {**{name: value for name, value in rope.items() if name != "factor"}, "attention_factor": round(amplitude, 9)}
    if not rope or rope.get("rope_type", "yarn") != "yarn":
        return rope
    if "full_attention" in rope:
        return {kind: filled(one, longest) for kind, one in rope.items()}
    rope = {"beta_fast": 32.0, "beta_slow": 1.0, **rope}
    mscale, all_dim = (rope.pop(name, None) or 0 for name in ("mscale", "mscale_all_dim"))
    amplitudes = [0.1 * m * math.log(rope["factor"]) + 1 for m in ((mscale, all_dim) if mscale and all_dim else (1, 0))]
    rope.setdefault("attention_factor", amplitudes[0] / amplitudes[1])
    return {**rope, "attention_factor": round(rope["attention_factor"], 9)}


def folded(config):
    """FalconH1's factors of what mixers read as factors of what follows, and the width of the scan's values where another field says it."""
    of_attention, of_scan = (config.pop(f"{part}_in_multiplier") for part in ("attention", "ssm"))
    config["key_multiplier"] *= of_attention ** 2
    config["attention_out_multiplier"] *= of_attention
    config["ssm_multipliers"] = [each * of_scan for each in config["ssm_multipliers"]]
    for name in ("key_multiplier", "attention_out_multiplier", "ssm_multipliers"):
        config[name] = rounded(config[name])
    config["mamba_d_ssm"] = config["mamba_d_ssm"] or config.get("mamba_expand", 2) * config["hidden_size"]
    config.pop("mamba_expand", None)


def rounded(x):
    return [round(each, 6) for each in x] if isinstance(x, list) else round(x, 6)


class Case:
    def __init__(self, programs, name, folder):
        self.programs, self.name, self.folder = programs, name, folder
        self.whole, *self.case = PARTS[name] if name in PARTS else (None, *CASES[name])
        self.sequence = SEQUENCES.get(name, SEQUENCE)
        self.described = self.case[0] in ("MiniCPM", "InternLM2")  # transformers has no class of theirs

    def larger_model(self, kind, more):
        """A random one with a text model as a part, and the text model's configuration."""
        import transformers
        config = getattr(transformers, self.whole + "Config")
        text = {**SIZES, **more}
        if "Mistral" in self.whole:
            text["model_type"] = {"Mistral": "mistral", "Ministral3": "ministral3"}[kind]
        config = config(text_config=text, **WHOLES[self.whole])
        config._experts_implementation = config.text_config._experts_implementation = "eager"  # others refuse float64
        return getattr(transformers, self.whole + "ForConditionalGeneration")(config), config.text_config

    def model(self, kind, more):
        """A random one, and its configuration."""
        import transformers
        if self.whole:
            return self.larger_model(kind, more)
        if self.described:
            import reference_described
            sizes = {name: value for name, value in SIZES.items() if name != "initializer_range"}
            model = reference_described.Model(kind, {**sizes, **more})
            return model, model.config
        known = random_exports.config_class(kind)()
        config = type(known)(**{**{name: value for name, value in SIZES.items() if hasattr(known, name)}, **more})
        if getattr(config, "attn_logit_softcapping", None):
            config._attn_implementation = "eager"  # others leave it out
        if hasattr(config, "num_experts_per_tok"):
            config._experts_implementation = "eager"  # others refuse float64
        return getattr(transformers, random_exports.model_class(kind))(config), config

    def draw(self, kind, more, seed):
        """A random model: norms, biases and corrections of scores too."""
        import torch
        torch.manual_seed(seed)
        model, config = self.model(kind, more)
        for weight in model.parameters():
            if weight.dim() == 1 or not weight.any():
                weight.data += 0.2 * torch.randn_like(weight)
        for _, correction in corrections(model):
            correction.data = 0.1 * torch.randn_like(correction)
        (self.folder / "text.bin").write_bytes(bytes(torch.randint(0, 256, (self.sequence + 1,)).tolist()))
        return model, config

    def draw_apart(self, kind, more):
        """One whose experts no rounding chooses otherwise."""
        seed = sum(map(ord, self.name))
        while True:
            model, config = self.draw(kind, more, seed)
            if self.gap(model) > APART * SEQUENCE / self.sequence:
                return model.float(), config
            seed += 1

    def gap(self, model):
        """The least distance from a chosen score to the next."""
        import torch
        gaps, topk = [1.0], torch.topk
        kept = torch.Tensor.topk

        def watched(x, k, *others, **named):
            if 1 < x.dim() < 4 and k < x.shape[-1] and x.is_floating_point():
                best = topk(x.detach(), k + 1, dim=-1).values
                gaps.append((best[..., k - 1] - best[..., k]).min().item())
            return topk(x, k, *others, **named)
        torch.topk = torch.Tensor.topk = watched
        try:
            model = model.double()
            self.reference().loss(model.eval() if self.whole else model.train(), self.folder / "text.bin", self.sequence)
        finally:
            torch.topk, torch.Tensor.topk = topk, kept
        return min(gaps)

    def make(self):
        """start, text.bin, gradients and loss by transformers."""
        import torch
        kind, more = self.case
        model, config = self.draw_apart(kind, more)
        model.save_pretrained(self.folder / "start", max_shard_size="200KB")
        if self.described:
            import described_code
            described_code.write(kind, self.folder / "start")
        self.make_tokenizer()
        part = run_weights.NORM if kind == "Qwen3" else ""
        part = run_weights.BIAS if any("q_proj.bias" in n for n, _ in model.named_parameters()) else part
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", 4)
        self.shape = run_weights.Shape(4, 64, 4, kv_heads, head_dim, 96, 256, model.config.tie_word_embeddings, part)
        model = model.double()
        model = model.eval() if self.whole else model.train()  # Gemma 3 with images asks for kinds of tokens where it trains
        value = self.reference().loss(model, self.folder / "text.bin", self.sequence)
        value.backward()
        self.loss = value.item()
        self.gradients = joined({part: g.float().flatten().tolist() for n, w in model.named_parameters() if w.grad is not None
                                 for part, g in split(kind, n.replace("model.language_model.", "model."), w.grad, self.shape, config)})
        self.gradients |= {corrected(n): [0.0] * correction.numel() for n, correction in corrections(model)}
        self.gradients |= {n: [0.0] * w.numel() for n, w in frozen(model)}
        order = MAMBA_LAYER if hasattr(config, "mamba_d_state") or hasattr(config, "ssm_state_size") else LAYER
        layers = [[name for part in order if (name := f"model.layers.{i}.{part}") in self.gradients] for i in range(4)]
        head = [name for name in ("model.norm.weight", "model.norm.bias", "lm_head.weight", "lm_head.bias") if name in self.gradients]
        self.units = [["model.embed_tokens.weight"], *layers, head]
        require({name for unit in self.units for name in unit} == set(self.gradients), f"{self.name}: tensors that no plan has")

    def loss_of(self, folder):
        """Of what was exported."""
        if self.whole:
            return self.reference().loss_of_whole(folder, self.folder / "text.bin", self.sequence)
        return self.reference().loss_of(folder, self.folder / "text.bin", self.sequence, self.described)

    def make_tokenizer(self):
        """Files of every kind that an export takes over, and some that it does not."""
        import tokenizers
        import transformers
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(256)}, unk_token="w0"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", unk_token="w0")
        fast.chat_template = "{% for m in messages %}w3 {{ m['content'] }} w2{% endfor %}"
        fast.save_pretrained(self.folder / "start")
        (self.folder / "start/special_tokens_map.json").write_text('{"bos_token": "w1"}')
        if self.whole:
            (self.folder / "start/preprocessor_config.json").write_text("{}")
        for name in ("tokenizer.model.v3", "qwen.tiktoken"):
            (self.folder / "start" / name).write_bytes(bytes(range(256)) * 1000)
        (self.folder / "start/README.md").write_text("not taken over\n")

    def check_whole(self, after):
        """Tensors beside the text model are as they were, byte for byte, and so are config.json and other files."""
        start = self.folder / "start"
        is_, wanted = run_weights.read_folder(after), run_weights.read_folder(start)
        others = [name for name in wanted if any(part in name for part in ("visual.", "vision_tower.", "multi_modal_projector."))]
        require(others and is_.keys() == wanted.keys(), f"{self.name}: the export has {sorted(is_.keys() ^ wanted.keys())} more or less")
        require(all(is_[name] == wanted[name] for name in others), f"{self.name}: tensors beside the text model are others")
        one, other = (json.loads((f / "config.json").read_text()) for f in (after, start))
        require(one == other, f"{self.name}: config.json is {json.dumps(one, indent=1)}, expected {json.dumps(other, indent=1)}")
        require((after / "preprocessor_config.json").read_bytes() == (start / "preprocessor_config.json").read_bytes(), f"{self.name}: other files")
        print(f"{self.name}: {len(others)} tensors beside the text model and config.json are the same")

    def check_other_rope(self):
        """A text part trained with another RoPE than the folder's: the export has it, and is what transformers computes."""
        text = re.sub(r" rope \S+;", " rope 20000 yarn { factor 4; original 16; }", self.model_text(LAYOUTS["one"][1]), count=1)
        tools, after = self.programs.tools, self.folder / "after_other_rope"
        program = tools.link(tools.emit(self.folder, "p_other_rope", emitted.topology(1, 1), text))
        self.programs.run(program, "--weights", self.folder / "start", "--steps", 0, "--plan-rope", "--export", after, "--export-dtype", "f32")
        is_, wanted = self.run(program, "--weights", after, "--steps", 1), self.loss_of(after)
        print(f"{self.name}, another RoPE: loss {is_:.7f}, relative difference {abs(is_ / wanted - 1):.1e}")
        require(abs(is_ / wanted - 1) <= LOSS and abs(is_ / self.loss - 1) > LOSS, f"{self.name}: another RoPE: loss {is_}, {wanted} in transformers")

    def check_export(self, after):
        """What transformers loads is the same model: its configuration, tokenizer, generation; no file more than that."""
        import transformers
        start = self.folder / "start"
        require((start / "tokenizer.json").exists() and (start / "chat_template.jinja").exists() and (start / "generation_config.json").exists(),
                f"{self.name}: transformers wrote {sorted(p.name for p in start.iterdir())}")
        taken = {p.name for p in start.iterdir() if not p.name.endswith(".safetensors") and p.name not in (
            "config.json", "model.safetensors.index.json", "README.md")}
        for name in taken:
            require((after / name).read_bytes() == (start / name).read_bytes(), f"{self.name}: {name} of the export is another")
        there = {p.name for p in after.iterdir()}
        require(there == taken | {"config.json", "model.safetensors"}, f"{self.name}: the export has {sorted(there)}")
        is_, wanted = (transformers.AutoConfig.from_pretrained(f, trust_remote_code=self.described).to_dict() for f in (after, start))
        if self.described:
            is_, wanted = is_["fields"], wanted["fields"]
        for name in ("dtype", "_name_or_path", "transformers_version", *self.described * ("torch_dtype", "bias", "attention_bias")):
            is_.pop(name, None), wanted.pop(name, None)
        for config in (is_, wanted):  # said in any case, where the family has it
            config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
        for config in () if self.described else (is_, wanted):
            rope = config["rope_parameters"] = filled(config.get("rope_parameters"), config["max_position_embeddings"])
            if isinstance(config.get("moe_topk"), list):  # a number for each layer, of which there is one
                config["moe_topk"] = config["moe_topk"][0]
            if rope and "partial_rotary_factor" in rope:  # the elements that turn, of which several factors are rounded down to one number
                rope["partial_rotary_factor"] = int(rope["partial_rotary_factor"] * config["head_dim"])
        for config in (is_, wanted):  # a width that is adjusted, and what adjusts it
            adjusts, times, multiple = (config.pop(f"block_{name}", None) for name in ("auto_adjust_ff_dim", "ffn_dim_multiplier", "multiple_of"))
            if adjusts:
                config["intermediate_size"] = -(-int(times * int(2 * config["intermediate_size"] / 3)) // multiple) * multiple
        for config in (is_, wanted):  # this method of choosing reads no groups
            for name in ("n_group", "topk_group") if config.get("topk_method") == "greedy" else ():
                config.pop(name)
        for config in (is_, wanted) if self.case[0] == "FalconH1" else ():
            folded(config)
        apart = {name for name in is_.keys() | wanted.keys() if is_.get(name) != wanted.get(name)}
        require(not apart, f"{self.name}: the configuration differs: " + ", ".join(f"{n} {is_.get(n)}, {wanted.get(n)}" for n in sorted(apart)))
        text = "w5 w7 w9"
        one, other = (transformers.AutoTokenizer.from_pretrained(f, trust_remote_code=self.described) for f in (after, start))
        require(one.encode(text) == other.encode(text) and one.chat_template == other.chat_template and one.chat_template,
                f"{self.name}: the tokenizer is another: {one.encode(text)}, {other.encode(text)}")
        model = transformers.AutoModelForCausalLM.from_pretrained(after, dtype="auto", trust_remote_code=self.described)
        require(str(model.dtype) == "torch.float32", f"{self.name}: the export's dtype is {model.dtype}")

    def check_code(self, program):
        """An export that transformers will lack code for says so."""
        start, kind = self.folder / "start", self.case[0]
        config = json.loads((start / "config.json").read_text())

        def told(name):
            return self.programs.told(program, "--weights", start, "--steps", 0, "--export", self.folder / name)
        (start / f"modeling_{kind.lower()}.py").unlink()
        text = told("no_file")
        require(text.count("does not have") == 1 and f"modeling_{kind.lower()}.py" in text, f"{self.name}: without a file the export says: {text}")
        for name, auto_map in (("null", None), ("elsewhere", {"AutoModelForCausalLM": f"somebody/x--modeling.{kind}ForCausalLM"})):
            (start / "config.json").write_text(json.dumps({**config, "auto_map": auto_map}))
            text = told(name)
            require(text == "" if auto_map else f"transformers has no {kind}ForCausalLM" in text, f"{self.name}: auto_map {auto_map}: {text}")

    def check_corrections(self, program):
        """An export in bf16 has what corrects scores in fp32, as it was: no optimizer moves it."""
        import torch
        after = self.folder / "after_bf16"
        self.programs.run(program, "--weights", self.folder / "start", "--steps", 1, "--export", after)
        there, start = run_weights_tensors(after), run_weights_tensors(self.folder / "start")
        for name, value in there.items():
            correction = name.endswith("correction_bias")
            require(value.dtype == (torch.float32 if correction else torch.bfloat16), f"{self.name}: {name} of an export in bf16 is {value.dtype}")
            require(torch.equal(value, start[name].to(value.dtype)) == correction, f"{self.name}: {name} is {'another' if correction else 'the same'} after a step")

    def check_frozen(self, after):
        """A step with weight decay leaves an indexer's weights as they are, and changes the others."""
        import torch
        start, there = run_weights_tensors(self.folder / "start"), run_weights_tensors(after)
        for name, value in start.items():
            kept = ".indexer." in name or name.endswith("correction_bias")
            same = torch.allclose(there[name], value, rtol=0, atol=2e-7 * ("norm" in name))  # norms are stored less one
            require(same == kept, f"{self.name}: {name} is {'another' if kept else 'the same'} after a step")

    def check_step(self):
        """Every layer but each second, as a list and as a step."""
        config = json.loads((self.folder / "start/config.json").read_text())
        texts = [self.programs.imports(self.folder / "step", json.dumps({**config, **more})) for more in (
            {}, dict(mlp_only_layers=[], decoder_sparse_step=2), dict(mlp_only_layers=[0, 2], decoder_sparse_step=2),
            dict(mlp_only_layers=[0], decoder_sparse_step=2), dict(mlp_only_layers=[0, 1, 3], decoder_sparse_step=1), dict(mlp_only_layers=[0, 1, 2, 3]))]
        require(texts[0][0] == 0 and texts[0] == texts[1] == texts[2] == texts[3] and "ffn layers 0, 2:" in texts[0][1], f"{self.name}: {texts[:4]}")
        require("ffn layers 0 .. 1, 3:" in texts[4][1] and "ffn swiglu 96;" in texts[5][1] and "moe {" not in texts[5][1].split("{", 1)[1],
                f"{self.name}: {texts[4:]}")
        told = [self.programs.imports(self.folder / "step", json.dumps({**config, **more})) for more in (dict(decoder_sparse_step=0), dict(mlp_only_layers=["0"]))]
        require(all(code == 1 and "only a list of layers, and a decoder_sparse_step from 1 on" in text for code, text in told), f"{self.name}: {told}")

    def check_pattern(self):
        """Layers by the letters of older folders, by older words, and without a list."""
        config = json.loads((self.folder / "start/config.json").read_text())
        others = {name: value for name, value in config.items() if name != "layers_block_type"}
        words = ["mamba", "mlp", "attention", "mamba"]
        texts = [self.programs.imports(self.folder / "letters", json.dumps(one)) for one in (
            config, {**others, "hybrid_override_pattern": "M-*M", "num_hidden_layers": 4}, {**others, "layers_block_type": words},
            {**others, "layers_block_type": words, "hybrid_override_pattern": "MMMM"})]
        require(texts[0][0] == 0 and all(text == texts[0] for text in texts), f"{self.name}: {texts}")
        for letters, wanted in ((None, "config.json has no layers_block_type, and no hybrid_override_pattern"),
                                ("E-E-", "only a nemotron_h with layers of both linear_attention"),
                                ("M-*x", 'layer_types has "x" for layer 3'), ("M-M-", "only a nemotron_h with layers of both linear_attention")):
            code, text = self.programs.imports(self.folder / "letters", json.dumps({**others, "hybrid_override_pattern": letters}))
            require(code == 1 and wanted in text, f"{self.name}: {letters}: {text}")
        code, text = self.programs.imports(self.folder / "letters", json.dumps({**config, "tie_word_embeddings": True}))
        require(code == 1 and "transformers ties no weights of a nemotron_h; set it to false" in text, f"{self.name}: tied: {text}")
        code, text = self.programs.imports(self.folder / "letters", json.dumps({**others, "hybrid_override_pattern": "M*E", "moe_latent_size": 64}))
        require(code == 1 and "moe_latent_size is 64; only null is supported" in text, f"{self.name}: latents of experts: {text}")

    def check_saved(self, program):
        """Norms by the names of published folders, and convolutions of queries, keys and values; what transformers saves has three of one size."""
        import safetensors.torch
        import torch
        start, published, after = (self.folder / name for name in ("start", "published", "after_published"))
        tensors = {(name.replace("layers.3.feedforward_layer_norm", "layers.3.post_attention_layernorm")): value
                   for name, value in run_weights_tensors(start).items()}
        for layer in range(3):
            names = [f"model.layers.{layer}.linear_attn.{x}_conv1d.weight" for x in "qkv"]
            tensors |= zip(names, torch.cat([tensors[name] for name in names]).split([32, 32, 96]))
        tensors = {name: value.contiguous() for name, value in tensors.items()}
        published.mkdir()
        (published / "config.json").write_bytes((start / "config.json").read_bytes())
        safetensors.torch.save_file(tensors, published / "model.safetensors", {"format": "pt"})
        is_ = self.run(program, "--weights", published, "--steps", 1)
        require(abs(is_ / self.loss - 1) <= LOSS, f"{self.name}: loss {is_} of published names, {self.loss} in transformers")
        self.programs.run(program, "--weights", published, "--steps", 0, "--export", after, "--export-dtype", "f32")
        there = run_weights_tensors(after)
        require(there.keys() == tensors.keys(), f"{self.name}: the export has other tensors: {sorted(there.keys() ^ tensors.keys())}")
        require(all((there[name] == value).all() for name, value in tensors.items()), f"{self.name}: tensors of the export are others")

    def check_kimi(self):
        """The same folder as Kimi-K2 names its type: the same model, which an export calls by that name."""
        start, kimi, out = self.folder / "start", self.folder / "kimi", self.folder / "after_kimi"
        shutil.copytree(start, kimi)
        config = json.loads((start / "config.json").read_text())
        (kimi / "config.json").write_text(json.dumps({**config, "model_type": "kimi_k2"}))
        text, as_v3 = self.programs.imported(kimi), self.programs.imported(start)
        require(text.replace("kimi_k2", "deepseek_v3").replace(str(kimi), str(start)).replace('"kimi"', '"start"') == as_v3, f"kimi_k2 is imported as {text}")
        tools, source = self.programs.tools, self.model_text(LAYOUTS["ring"][1]).replace("family deepseek_v3", "family kimi_k2")
        program = tools.link(tools.emit(self.folder, "p_kimi", emitted.topology(1, 4), source))
        is_ = self.run(program, "--weights", kimi, "--steps", 1, "--export", out)
        require(abs(is_ / self.loss - 1) <= LOSS, f"{self.name}: loss {is_} of kimi_k2, {self.loss} in transformers")
        kept = json.loads((out / "config.json").read_text())
        require((kept["model_type"], kept["architectures"]) == ("kimi_k2", ["DeepseekV3ForCausalLM"]), f"an export of kimi_k2 is a {kept['model_type']}")

    def check_refused(self):
        """Tensors of experts that are missing, or of another shape, and numbers that make no sense, are named."""
        import safetensors.torch
        start, other = self.folder / "start", self.folder / "other"
        tensors, config = run_weights_tensors(start), json.loads((start / "config.json").read_text())
        other.mkdir()
        up, down, correction = (f"model.layers.3.mlp.{name}" for name in (
            "experts.5.up_proj.weight", "experts.2.down_proj.weight", "gate.e_score_correction_bias"))
        changed = {name: value for name, value in tensors.items() if name not in (up, correction)} | {down: tensors[down].T.contiguous()}
        for more, stored, wanted in (
                ({}, changed, [f"tensor {up} is missing", f"tensor {correction} is missing", f"{down} is [24, 64], expected [64, 24]"]),
                (dict(num_experts_per_tok=9), tensors, ["num_experts_per_tok is 9; only a number up to n_routed_experts, which is 8, is computed"]),
                (dict(n_group=3), tensors, ["n_group is 3 and topk_group 2; only groups that divide n_routed_experts, which is 8, are computed"]),
                (dict(topk_group=1, n_group=8), tensors, ["'top' is 3, but 'top_groups 1' leaves 1 expert to choose from"]),
                (dict(first_k_dense_replace=1), tensors, ["tensor model.layers.1.mlp.gate.weight is missing"])):
            (other / "config.json").write_text(json.dumps({**config, **more}))
            safetensors.torch.save_file(stored, other / "model.safetensors", {"format": "pt"})
            done = runner.run([self.programs.tools.burstc, "import", other], 60, check=False)
            require(done.returncode == 1 and all(line in done.stderr for line in wanted), f"{self.name}: {more} is told as {done.stderr}")
        print(f"{self.name}: missing tensors, other shapes and numbers of experts are named", flush=True)

    def check_methods(self):
        """Another method of choosing, and lists where transformers reads a number, are refused; and the folder where a plan has groups."""
        config = json.loads((self.folder / "start/config.json").read_text())
        for more, wanted in ((dict(topk_method="noaux_tc"), 'topk_method is "noaux_tc"; only "greedy" and "group_limited_greedy" are computed'),
                             (dict(topk_method=None), "topk_method is null; only"), (dict(num_experts_per_tok=[3] * 4), "num_experts_per_tok is [3,3,3,3]; only a whole number"),
                             (dict(routed_scaling_factor=[1.0]), "routed_scaling_factor is [1.0]; only")):
            status, told = self.programs.imports(self.folder / "method", json.dumps({**config, **more}))
            require(status == 1 and wanted in told, f"{self.name}: {more} is told as {told}")
        text = self.programs.imported(self.folder / "start")
        require(" groups " not in text and " top 3;" in text, f"{self.name} is imported as {text}")
        (self.folder / "grouped.burst").write_text(text.replace(" top 3;", " top 3; groups 4; top_groups 2;"))
        told = runner.run([self.programs.tools.burstc, "one.topo", "grouped.burst", "--emit=plan"], 60, cwd=self.folder, check=False)
        require(told.returncode == 1 and 'topk_method is not "group_limited_greedy", and the plan\'s experts have groups' in told.stderr, f"{self.name}: groups: {told.stderr}")

    def check_mxfp4(self, program):
        """A folder of MXFP4 blocks is what transformers makes of them; an export of it has plain weights."""
        import safetensors.torch
        import torch
        import transformers
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
        start, packed, dense, after = (self.folder / name for name in ("start", "packed", "dense", "after_packed"))
        tensors = run_weights_tensors(start)
        model = transformers.AutoModelForCausalLM.from_pretrained(start)
        for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
            experts, columns, rows = tensors.pop(name).shape
            blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
            scales = torch.randint(120, 126, (experts, rows, columns // 32), dtype=torch.uint8)
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            model.get_parameter(name).data = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).float()
        model.save_pretrained(dense)
        packed.mkdir()
        config = json.loads((start / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
        (packed / "config.json").write_text(json.dumps(config))
        safetensors.torch.save_file(tensors, packed / "model.safetensors", {"format": "pt"})
        text = self.programs.imported(packed).replace('"packed"', '"start"')
        require(text.replace(str(packed), str(start)) == self.programs.imported(start), f"{self.name}: MXFP4 is imported as {text}")
        wanted = self.loss_of(dense)
        is_ = self.run(program, "--weights", packed, "--steps", 1)
        print(f"{self.name}, MXFP4: loss {is_:.7f}, relative difference {abs(is_ / wanted - 1):.1e}", flush=True)
        require(abs(is_ / wanted - 1) <= LOSS, f"{self.name}: loss {is_} from MXFP4, {wanted} of what transformers makes of it")
        self.programs.run(program, "--weights", packed, "--steps", 0, "--export", after)
        require("quantization_config" not in json.loads((after / "config.json").read_text()), f"{self.name}: the export says that it is quantized")
        there = run_weights_tensors(after)
        for name, value in model.state_dict().items():
            require(torch.equal(there[name], value.bfloat16()), f"{self.name}: {name} of the export is not what MXFP4 had")
        del tensors[next(name for name in tensors if name.endswith("_scales"))]
        safetensors.torch.save_file(tensors, packed / "model.safetensors", {"format": "pt"})
        told = runner.run([program, "--quiet", "--data", self.programs.data, "--weights", packed, "--steps", 0], 60, self.programs.environment,
                          status=2).stderr
        require("_scales is missing, beside" in told, f"{self.name}: without scales it is told: {told}")

    def check_packed(self, program):
        """A folder with all experts' matrices in one tensor, as published ones have them, and its export."""
        import safetensors.torch
        import torch
        start, packed, after = (self.folder / name for name in ("start", "packed", "after_packed"))
        tensors = run_weights_tensors(start)
        for layer in range(4):
            up, down = ([tensors.pop(f"model.layers.{layer}.mlp.experts.{i}.{part}_proj.weight") for i in range(8)] for part in ("up", "down"))
            gate = [tensors.pop(f"model.layers.{layer}.mlp.experts.{i}.gate_proj.weight") for i in range(8)]
            tensors[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
            tensors[f"model.layers.{layer}.mlp.experts.down_proj"] = torch.stack(down)
        packed.mkdir()
        (packed / "config.json").write_bytes((start / "config.json").read_bytes())
        safetensors.torch.save_file(tensors, packed / "model.safetensors", {"format": "pt"})
        is_ = self.run(program, "--weights", packed, "--steps", 1)
        require(abs(is_ / self.loss - 1) <= LOSS, f"{self.name}: loss {is_} of packed experts, {self.loss} in transformers")
        self.programs.run(program, "--weights", packed, "--steps", 0, "--export", after, "--export-dtype", "f32")
        there = run_weights_tensors(after)
        require(there.keys() == tensors.keys() and all(torch.allclose(there[name], value, rtol=0, atol=2e-7 * ("norm" in name)) for name, value in tensors.items()),
                f"{self.name}: the export of packed experts has other tensors: {sorted(there.keys() ^ tensors.keys())}")
        print(f"{self.name}: packed experts: loss {is_:.7f}, and the export has the same tensors", flush=True)

    def reference(self):
        import reference_transformers
        return reference_transformers

    def model_text(self, layout):
        """The imported model with the test's layout and training."""
        text = self.programs.imported(self.folder / "start")
        require("train {" in text, f"{self.name}: what import wrote has no train block")
        text = re.sub(r"sequence \S+;", f"sequence {self.sequence};", text[:text.index("train {")])
        return text + layout + TRAIN

    def check_absent(self):
        """Each field of config.json left out, or null: if it is imported, it means what transformers reads there."""
        import transformers
        start, cut, meant = (self.folder / name for name in ("start", "cut", "meant"))
        fields, both = json.loads((start / "config.json").read_text()), 0
        for name in fields.keys() - {"model_type", "architectures", "auto_map"}:
            for config in ({n: v for n, v in fields.items() if n != name}, {**fields, name: None}):
                status, text = self.programs.imports(cut, json.dumps(config))
                if status:
                    continue
                try:
                    kind = type(transformers.AutoConfig.for_model(fields["model_type"]))
                    kind.from_dict(config, architectures=fields["architectures"]).save_pretrained(meant)
                except Exception:  # a field has a type in transformers
                    continue
                both += 1
                is_ = self.programs.imports(meant, (meant / "config.json").read_text())
                require(is_ == (0, text.replace(f'"{cut}"', f'"{meant}"')), f"{self.name}: {name} {config.get(name, 'left out')} is imported as\n"
                                                                          f"{text}and what transformers reads of it as\n{is_[1]}")
        return both

    def check(self, layouts):
        """Each of the layouts trains a step; what the last one writes is loaded again."""
        if self.case[0] == "MiniMaxM3VL":
            choose_by_tiles()
        self.make()
        if not self.described and not self.whole:
            print(f"{self.name}: {self.check_absent()} folders without a field are read as by transformers", flush=True)
        self.programs.compiles(self.folder, self.programs.imported(self.folder / "start"))
        for name in layouts:
            ranks, layout = LAYOUTS[name]
            tools = self.programs.tools
            program = tools.link(tools.emit(self.folder, f"p_{name}", emitted.topology(1, ranks), self.model_text(layout)))
            after = self.folder / f"after_{name}"
            self.compare(program, name, after)
            if name != layouts[-1]:
                continue
            if self.whole:
                self.check_whole(after)
                if "Qwen3" in self.whole:
                    self.check_other_rope()
            else:
                self.check_export(after)
            wanted = self.loss_of(after)
            is_ = self.run(program, "--weights", after, "--steps", 1)
            require(abs(is_ / wanted - 1) <= LOSS, f"{self.name}: loss {is_} from what {name} wrote, {wanted} in transformers")
            if self.described:
                self.check_code(program)
            if self.name == "gpt_oss":
                self.check_mxfp4(program)
            if self.name == "qwen3_5_moe":
                self.check_packed(program)
            if self.name == "olmo_hybrid":
                self.check_saved(program)
            if self.name == "nemotron_h":
                self.check_pattern()
            if self.name == "minimax_m3":
                self.check_frozen(after)
            if self.name == "qwen3_moe_some":
                self.check_step()
            if self.name == "deepseek_v2_greedy":
                self.check_methods()
            if self.name == "deepseek_v3":
                self.check_refused()
                self.check_corrections(program)
                self.check_kimi()
            kept = json.loads((after / "config.json").read_text())["model_type"]
            require(kept == json.loads((self.folder / "start/config.json").read_text())["model_type"], f"{self.name} became a {kept}")

    def run(self, program, *options):
        self.programs.data = self.folder / "text.bin"
        return self.programs.run(program, *options)[0]

    def compare(self, program, layout, after):
        sizes = {name: len(g) for name, g in self.gradients.items()}
        with tempfile.TemporaryDirectory(dir=self.folder) as checkpoints:
            is_ = self.run(program, "--weights", self.folder / "start", "--steps", 1, "--checkpoint", checkpoints, "--export", after,
                           "--export-dtype", "f32")
            kept = run_weights.read_checkpoint(pathlib.Path(checkpoints) / "step-00000001.burst", self.shape, sizes, self.units)
        apart = abs(is_ / self.loss - 1)
        distances = {t: run_weights.distance([m / (1 - run_weights.BETA1) for m in run_weights.floats(kept[t][1])], g)
                     for t, g in self.gradients.items()}
        worst = max(distances, key=distances.get)
        print(f"{self.name}, {layout}: loss {is_:.7f}, relative difference {apart:.1e}; worst gradient {worst}, {distances[worst]:.1e}",
              flush=True)
        require(apart <= LOSS, f"{self.name}: the loss is {is_}, in transformers {self.loss}")
        require(distances[worst] <= GRADIENT, f"{self.name}: the gradient of {worst} differs by {distances[worst]:.2e}")


class Programs(run_weights.Programs):
    def imported(self, folder):
        return emitted.burstc(self.tools.burstc, self.folder, "import", str(folder))

    def told(self, program, *options):
        return runner.run([program, "--quiet", "--data", self.data, *options], 300, self.environment).stderr

    def imports(self, folder, config):
        """The exit status, and the model or the errors."""
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(config)
        done = runner.run([self.tools.burstc, "import", folder], 60, check=False)
        return done.returncode, done.stderr if done.returncode else done.stdout

    def compiles(self, folder, text):
        """As it was written."""
        (folder / "as_written.burst").write_text(text)
        (folder / "one.topo").write_text(emitted.topology(1, 1))
        emitted.burstc(self.tools.burstc, folder, "one.topo", "as_written.burst", "--emit=plan")

    def longer(self):
        """A folder of 64 tokens, continued at 16 times its length with another RoPE, which the program is told to use."""
        import torch
        import transformers
        import reference_transformers as reference
        start, length, text = self.folder / "short", 16 * SEQUENCE, self.folder / "long.bin"
        torch.manual_seed(3)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": SEQUENCE})).save_pretrained(start)
        text.write_bytes(bytes(torch.randint(0, 256, (length + 1,)).tolist()))
        self.data, model = text, self.imported(start)
        (self.folder / "one.topo").write_text(emitted.topology(1, 1))
        (self.folder / "plain.burst").write_text(model.replace("sequence 64;", f"sequence {length};"))
        said = runner.run([self.tools.burstc, "one.topo", "plain.burst", "--emit=plan"], 60, cwd=self.folder).stderr
        require("[-Wlong-sequence]" in said and "16 times max_position_embeddings (64)" in said
                and "`rope 10000 yarn { factor 16; original 64; }`" in said, f"a sequence of {length} tokens is told as: {said}")
        for rope, ranks, layout in (("10000 yarn { factor 16; original 64; }", *LAYOUTS["ring"]), ("160000;", *LAYOUTS["one"])):
            longer = model[:model.index("train {")].replace("sequence 64;", f"sequence {length};").replace("rope 10000;", f"rope {rope}")
            program = self.tools.link(self.tools.emit(self.folder, f"longer{ranks}", emitted.topology(1, ranks),
                                                      longer + layout + TRAIN.replace("train {", f'train {{ weights "{start}";')))
            require("use --plan-rope to train with the plan's RoPE" in runner.run(
                [program, "--quiet", "--data", text, "--weights", start, "--steps", 1], 60, self.environment, status=2).stderr, "another RoPE is not refused")
            out = self.folder / f"longer{ranks}_out"
            self.run(program, "--weights", start, "--steps", 0, "--plan-rope", "--export", out, "--export-dtype", "f32")
            is_, wanted = self.run(program, "--weights", out, "--steps", 1)[0], reference.loss_of(out, text, length)
            print(f"{length} tokens, rope {rope} on {ranks} ranks: loss {is_:.7f}, relative difference {abs(is_ / wanted - 1):.1e}")
            require(abs(is_ / wanted - 1) <= LOSS, f"rope {rope}: loss {is_}, {wanted} in transformers")
        self.resumes(program, start, lambda folder: reference.loss_of(folder, text, length))

    def resumes(self, program, start, loss_of):
        """A run with another RoPE, resumed: the same losses, and its export has that RoPE. Layers beside the model go through byte for byte."""
        import safetensors.torch
        import torch
        tensors = safetensors.torch.load_file(start / "model.safetensors")
        mtp = {"mtp.layers.0.proj.weight": torch.randn(3, 5).bfloat16(), "mtp.norm.weight": torch.randn(7)}
        safetensors.torch.save_file({**tensors, **mtp}, start / "model.safetensors", {"format": "pt"})
        ck, out = self.folder / "longer_ck", self.folder / "longer_resumed"
        straight = self.run(program, "--weights", start, "--plan-rope", "--steps", 2)
        parts = [*self.run(program, "--weights", start, "--plan-rope", "--steps", 1, "--checkpoint", ck),
                 *self.run(program, "--steps", 2, "--resume", "--checkpoint", ck, "--export", out, "--export-dtype", "f32")]
        require(parts == straight, f"resumed with --plan-rope, losses are {parts}, expected {straight}")
        there = {name: value for path in out.glob("*.safetensors") for name, value in safetensors.torch.load_file(path).items()}
        require(all(name in there and there[name].dtype == value.dtype and torch.equal(there[name], value) for name, value in mtp.items()),
                f"mtp.* of the export is not that of the folder: {sorted(there)}")
        plain = self.folder / "longer_plain"  # without what transformers does not have
        plain.mkdir(exist_ok=True)
        (plain / "config.json").write_bytes((out / "config.json").read_bytes())
        safetensors.torch.save_file({name: value for name, value in there.items() if name not in mtp}, plain / "model.safetensors", {"format": "pt"})
        is_, wanted = self.run(program, "--steps", 3, "--resume", "--checkpoint", ck)[0], loss_of(plain)
        print(f"resumed with --plan-rope: loss {is_:.7f}, relative difference {abs(is_ / wanted - 1):.1e}")
        require(abs(is_ / wanted - 1) <= LOSS, f"resumed with --plan-rope: loss {is_}, {wanted} in transformers of the export")

    def refuses(self):
        """Five differences are told in one run, each with its field."""
        folder = self.folder / "five"
        folder.mkdir(exist_ok=True)
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 256, "max_position_embeddings": 64}
        odd = {"hidden_act": "gelu", "attention_dropout": 0.1, "rope_scaling": {"rope_type": "longrope"}, "partial_rotary_factor": 0.5,
               "embedding_multiplier": 12.0}
        (folder / "config.json").write_text(json.dumps({**config, **odd}))
        told = emitted.burstc(self.tools.burstc, self.folder, "import", str(folder), status=1)
        require(told.count("error:") == len(odd) and all(name in told for name in odd), f"five differences are told as:\n{told}")
        print("five differences: five errors")
        phi = {"model_type": "phi", "architectures": ["PhiForCausalLM"], "hidden_act": "gelu_new", "tie_word_embeddings": True}
        (folder / "config.json").write_text(json.dumps({**config, **phi}))
        told = emitted.burstc(self.tools.burstc, self.folder, "import", str(folder), status=1)
        require(told.count("error:") == 1 and "tie_word_embeddings is true; only false is computed of a phi" in told, told)


def chosen(args):
    """[(case, its layouts)]: a quarter of the cases each on one rank and on four, which all come in turn; those that --only names, or
    with --all all, in every layout."""
    every = args.all or args.only
    for i, (name, (kind, more)) in enumerate({**CASES, **{name: part[1:] for name, part in PARTS.items()}}.items()):
        by_heads = more.get("linear_num_key_heads", more.get("mamba_n_groups", more.get("n_groups", 1))) % 2 == 0 or kind == "Lfm2"  # of a scan
        scans = any(field in more for field in ("linear_key_head_dim", "mamba_d_state", "ssm_state_size", "conv_L_cache"))
        layouts = ("ring", "ulysses", "gather_of_two", "alone_full") if name in SEQUENCES else SEVERAL
        several = (*OF_SCANS, *("tensor", "tensor_full") * by_heads) if scans else [*layouts, *(OF_LATENTS if "kv_lora_rank" in more else ()), *(OF_WHOLE_NORMS if kind in WHOLE_NORMS else ())]
        if every and all(re.search(word, name) for word in args.only):
            yield name, ["one", *several]
        elif not every and i % TURNS == args.turn % TURNS:
            yield name, ["one", several[(i // TURNS + args.turn // TURNS) % len(several)]]


def main():
    options = runner.options(__doc__, "--toolchain")
    options.add_argument("--turn", type=int, default=datetime.date.today().toordinal(), help="which families, and which layouts of four ranks")
    options.add_argument("--folders", type=int, help="how many random folders; 0 with --only")
    options.add_argument("--first", type=int, default=0, help="number of the first of them")
    args = options.parse_args()
    if args.folders is None:
        args.folders = FOLDERS if args.all else SAMPLE
        args.folders *= not args.only
    print(f"turn {args.turn}", flush=True)
    with runner.folder(args.work) as folder:
        os.environ["HF_MODULES_CACHE"] = str(folder / "modules")  # where transformers copies code of folders
        try:
            import torch  # noqa: F401
            import transformers
            transformers.logging.disable_progress_bar()
        except ImportError as error:
            print(f"not tested: {error}")
            sys.exit(77)
        programs = Programs(args, folder)
        if not args.only:
            programs.refuses()
            programs.longer()
        for name, layouts in chosen(args):
            (folder / name).mkdir(exist_ok=True)
            Case(programs, name, folder / name).check(layouts)
        if args.folders:
            random_exports.Folders(programs, CASES, SIZES, folder).campaign(args.turn, range(args.first, args.first + args.folders))


if __name__ == "__main__":
    runner.end(main)
