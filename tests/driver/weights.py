#!/usr/bin/env python3
"""weights.py BURSTC: folders of weights compared with a model before anything is emitted, by `weights "FOLDER"` and by `burstc import`: what is
told of each folder below is exactly what was changed in it, no more and no less."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

BURSTC = pathlib.Path(sys.argv[1]).resolve()
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 3, 32, 4, 2, 8, 48, 64
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": FFN, "vocab_size": VOCAB,
          "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 256, "tie_word_embeddings": False}
MODEL = f"""model m {{ layers {LAYERS}; hidden {HIDDEN}; heads {HEADS}; kv_heads {KV_HEADS}; head_dim {HEAD_DIM}; ffn swiglu {FFN};
  norm rmsnorm 1e-5; rope 500000; vocab {VOCAB}; tied no; }}
attention {{ default causal; }}
sequence 256;
train {{ weights "folder"; }}
"""
TOPO = pathlib.Path(__file__).with_name("small.topo").read_text()
Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
PARTS = {"input_layernorm": [HIDDEN], "self_attn.q_proj": [Q, HIDDEN], "self_attn.k_proj": [KV, HIDDEN], "self_attn.v_proj": [KV, HIDDEN],
         "self_attn.o_proj": [HIDDEN, Q], "post_attention_layernorm": [HIDDEN], "mlp.gate_proj": [FFN, HIDDEN], "mlp.up_proj": [FFN, HIDDEN],
         "mlp.down_proj": [HIDDEN, FFN]}


def tensors():
    """{name: shape}"""
    out = {"model.embed_tokens.weight": [VOCAB, HIDDEN]}
    for i in range(LAYERS):
        out |= {f"model.layers.{i}.{part}.weight": shape for part, shape in PARTS.items()}
    return out | {"model.norm.weight": [HIDDEN], "lm_head.weight": [VOCAB, HIDDEN]}


class Folder:
    """What a change may touch: config; shapes, dtypes of tensors; shards, which of them has a tensor, and bytes to write instead."""

    def __init__(self):
        self.config, self.shapes, self.dtypes = dict(CONFIG), tensors(), {}
        self.shards, self.text, self.files, self.folders = 1, None, {}, {}
        self.kept = lambda name: True

    def shard(self, number):
        return "model.safetensors" if self.shards == 1 else f"model-{number + 1:05d}-of-{self.shards:05d}.safetensors"

    def write(self, path):
        path.mkdir()
        (path / "config.json").write_text(json.dumps(self.config) if self.text is None else self.text)
        headers, map_ = [{} for _ in range(self.shards)], {}
        for i, (name, shape) in enumerate(self.shapes.items()):
            header, dtype, elements = headers[i * self.shards // len(self.shapes)], self.dtypes.get(name, "BF16"), 1
            for n in shape:
                elements *= n
            at = max((t["data_offsets"][1] for t in header.values()), default=0)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + elements * {"BF16": 2, "F32": 4, "I8": 1}[dtype]]}
            map_[name] = self.shard(i * self.shards // len(self.shapes))
        for number, header in enumerate(headers):
            text = json.dumps(header).encode()
            size = max((t["data_offsets"][1] for t in header.values()), default=0)
            (path / self.shard(number)).write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
        if self.shards > 1:
            (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": map_}))
        for name, content in self.files.items():
            if content is None:
                (path / name).unlink()
            else:
                (path / name).write_bytes(content)
        for name, config in self.folders.items():
            (path / name).mkdir(parents=True)
            (path / name / "config.json").write_bytes(config)


def change(folder, config=None, shards=1, drop=(), shapes=None, dtypes=None, files=None, text=None, rename=None, folders=None):
    folder.config |= config or {}
    folder.shards, folder.text = shards, text
    folder.shapes = {(rename or {}).get(name, name): shape for name, shape in folder.shapes.items() if not any(re.fullmatch(d, name) for d in drop)}
    folder.shapes |= shapes or {}
    folder.dtypes, folder.files, folder.folders = dtypes or {}, files or {}, folders or {}


UP = {f"model.layers.{i}.mlp.up_proj.weight": [HIDDEN, FFN] for i in range(LAYERS)}
ONLY, ALONE = {"model.safetensors": None}, {"model.safetensors": None, "config.json": None}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 42\n"
BIAS = {f"model.layers.{i}.self_attn.q_proj.bias": [Q] for i in range(LAYERS)}
CASES = {  # name: what is changed; what each note says, in order; what import tells, where that is something else
    "right": ({}, []),
    "right_shards": ({"shards": 3}, []),
    "size": ({"config": {"vocab_size": 65}},
             ["vocab_size is 65, expected 64"],
             ["model.embed_tokens.weight is [64, 32], expected [65, 32]", "lm_head.weight is [64, 32], expected [65, 32]"]),
    "shape": ({"shapes": UP}, ["model.layers.0.mlp.up_proj.weight is [32, 48], expected [48, 32] (the same in 2 other layers)"]),
    "missing": ({"drop": ("lm_head.weight", r"model.layers.1.*q_proj.weight")},
                ["tensor model.layers.1.self_attn.q_proj.weight is missing", "tensor lm_head.weight is missing"]),
    "unexpected": ({"shapes": BIAS | {"score.weight": [2, HIDDEN]}},
                   ["tensor model.layers.0.self_attn.q_proj.bias is not part of the model (the same in 2 other layers)",
                    "tensor score.weight is not part of the model"]),
    "dtype": ({"dtypes": {"lm_head.weight": "I8"}}, ["lm_head.weight is I8, expected F32, BF16 or F16"]),
    "buffers": ({"shapes": {"model.layers.0.self_attn.rotary_emb.inv_freq": [4]}}, []),
    "shards_lost": ({"shards": 4, "files": {"model-00002-of-00004.safetensors": None, "model-00004-of-00004.safetensors": None}},
                    ["cannot read 'folder/model-00002-of-00004.safetensors': No such file or directory",
                     "cannot read 'folder/model-00004-of-00004.safetensors': No such file or directory"]),
    "shard_cut": ({"shards": 4, "files": {"model-00003-of-00004.safetensors": b"\x10\0\0\0\0\0\0\0{}"}},
                  ["'folder/model-00003-of-00004.safetensors' is truncated or not a safetensors file: its header gives 16 bytes, the file has 10"]),
    "file_empty": ({"files": {"model.safetensors": b""}}, ["'folder/model.safetensors' is not a safetensors file: it has only 0 bytes"]),
    # one line says what to do first, and no other what follows from it
    "adapter": ({"files": {"adapter_config.json": b"{}"}},
                ["it has an adapter (adapter_config.json: PEFT of an unnamed model); merge it into that model first, in Python"]),
    "adapter_alone": ({"files": ALONE | {"adapter_config.json": b'{"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}',
                                         "adapter_model.safetensors": b""}},
                      ['it has an adapter (adapter_config.json: LORA of meta-llama/Llama-3.1-8B); merge it into that model first, in Python: '
                       'peft.AutoPeftModelForCausalLM.from_pretrained("folder").merge_and_unload().save_pretrained("MERGED")']),
    "adapter_prompt": ({"files": ALONE | {"adapter_config.json": b'{"peft_type": "PREFIX_TUNING", "base_model_name_or_path": "a/b"}'}},
                       ["it has an adapter of the type PREFIX_TUNING (adapter_config.json), which cannot be merged into weights and is not computed; start from its base, a/b"]),
    "adapter_damaged": ({"files": ALONE | {"adapter_config.json": b"{"}}, ["it has an adapter (adapter_config.json: PEFT of an unnamed model)"]),
    "merged_by_hand": ({"rename": {name: "base_model.model." + name for name in tensors()}},
                       ["its tensors' names (base_model.model.lm_head.weight) are those of a PEFT model; save the model that merge_and_unload() returns instead"]),
    "lora_beside": ({"shapes": {"model.layers.0.self_attn.q_proj.lora_A.default.weight": [8, HIDDEN]}},
                    ["it has tensors of LoRA beside the weights (model.layers.0.self_attn.q_proj.lora_A.default.weight)"]),
    "torch_compiled": ({"rename": {name: "_orig_mod." + name for name in tensors()}},
                       ["its tensors' names (_orig_mod.lm_head.weight) are those of a model from torch.compile; save its _orig_mod instead"]),
    "pytorch": ({"files": ONLY | {"pytorch_model.bin": b"PK"}},
                ['convert its weights (pytorch_model.bin) first, in Python: transformers.AutoModelForCausalLM.from_pretrained("folder", dtype="auto").save_pretrained("CONVERTED")']),
    "pytorch_shards": ({"files": ONLY | {f"pytorch_model-0000{i}-of-00002.bin": b"PK" for i in (2, 1)} | {"pytorch_model.bin.index.json": b"{}"}},
                       ["convert its weights (pytorch_model-00001-of-00002.bin) first, in Python"]),
    "pytorch_beside": ({"files": {"pytorch_model.bin": b"PK", "training_args.bin": b"PK"}}, []),
    "gguf": ({"files": ONLY | {"q4_k_m.gguf": b"GGUF", "README.md": b""}},
             ['it has only GGUF files; convert one first, in Python: transformers.AutoModelForCausalLM.from_pretrained("folder", gguf_file="q4_k_m.gguf")']),
    "meta": ({"files": ALONE | {"consolidated.00.pth": b"PK", "params.json": b"{}"}}, ["its weights (consolidated.00.pth) are in Meta's own form"]),
    "mistral_own": ({"files": ALONE | {"consolidated.safetensors": b"", "params.json": b"{}"}}, ["its weights (consolidated.safetensors) are in Mistral's own form"]),
    "deepspeed": ({"files": ONLY | {"zero_to_fp32.py": b"", "latest": b"global_step1"}},
                  ["it is a DeepSpeed checkpoint; convert it first: python folder/zero_to_fp32.py folder CONVERTED --safe_serialization"]),
    "no_index": ({"files": ONLY | {"model-00001-of-00002.safetensors": b"", "model-00002-of-00002.safetensors": b""}},
                 ["it has model-00001-of-00002.safetensors, but model.safetensors.index.json, which lists the shards, is missing; download that too"]),
    "pointer": ({"files": {"model.safetensors": POINTER}},
                ["'folder/model.safetensors' is a git-lfs pointer, not the file itself; run `git lfs pull` in its folder"]),
    "pointers": ({"shards": 3, "files": {f"model-0000{i}-of-00003.safetensors": POINTER for i in (1, 2, 3)}},
                 ["'folder/model-00001-of-00003.safetensors' is a git-lfs pointer, not the file itself"]),
    "pointer_config": ({"text": POINTER.decode()}, ["'folder/config.json' is a git-lfs pointer, not the file itself"]),
    "web_page": ({"files": {"model.safetensors": b"<!DOCTYPE html><html>"}},
                 ["'folder/model.safetensors' is a web page, not the file itself; download it again, signed in if the model is gated"]),
    "torch_saved": ({"files": {"model.safetensors": b"PK\x03\x04....."}}, ["'folder/model.safetensors' was written by torch.save; load it in torch"]),
    "inner": ({"files": ONLY | {"config.json": None}, "folders": {"checkpoint-20": b"{}", "checkpoint-10": b"{}"}},
              ["it has no config.json; 'folder/checkpoint-10' has one"]),
    "hub_cache": ({"files": ALONE, "folders": {"snapshots/0123": b"{}"}},
                  ["it is a cache of the Hugging Face hub; the model's folder is 'folder/snapshots/0123'"]),
    "no_config": ({"files": {"config.json": None}}, ["it has no config.json, which describes the model"]),
    "infinity": ({"text": json.dumps(CONFIG | {"dt\"": "NaN", "time_step_limit": [0.0, float("inf")], "other": float("nan")}, indent=1)},
                 ["folder/config.json:19: time_step_limit is Infinity, which JSON does not have; write 1e308 instead"]),
    "nan": ({"text": json.dumps(CONFIG | {"rms_norm_eps": float("nan")})},
            ["folder/config.json:1: rms_norm_eps is NaN, which JSON does not have; write a number instead"]),
} | {f"quantized_{name}": ({"config": {"quantization_config": config}, "shapes": {"model.layers.0.mlp.up_proj.qweight": [4, 4]}},
                           [f"its weights are quantized (config.json: {name}); {how}"]) for name, config, how in (
    ("gptq", {"quant_method": "gptq", "bits": 4}, 'dequantize them first, in Python: gptqmodel.utils.model_dequant.dequantize_model("folder", "DEQUANTIZED")'),
    ("awq", {"quant_method": "awq", "bits": 4}, "dequantize them first, in Python: gptqmodel."),
    ("bitsandbytes", {"load_in_4bit": True}, 'dequantize them first, in Python: transformers.AutoModelForCausalLM.from_pretrained("folder").dequantize().save_'),
    ("fp8", {"quant_method": "fp8"}, 'dequantize them first, in Python: transformers.AutoModelForCausalLM.from_pretrained("folder", '
                                     'quantization_config=transformers.FineGrainedFP8Config(dequantize=True)).save_pretrained("DEQUANTIZED")'),
    ("mxfp4", {"quant_method": "mxfp4"}, "dequantize them first, in Python: transformers.AutoModelForCausalLM.from_pretrained(\"folder\", quantization_config=transformers.Mxfp4Config("),
    ("compressed-tensors", {"quant_method": "compressed-tensors"}, "dequantize them first, in Python: "),
    ("hqq", {"quant_method": "hqq"}, "use the folder from which they were quantized"))
} | {
    "quantized_mlx": ({"config": {"quantization": {"bits": 4}}, "dtypes": {"lm_head.weight": "I8"}}, ["its weights are quantized (config.json: mlx); dequantize them first: mlx_lm.convert"]),
    "quantized_untold": ({"shapes": {"model.layers.1.mlp.up_proj.weight_scale_inv": [1, 1]}},
                         ["its weights are quantized (model.layers.1.mlp.up_proj.weight_scale_inv: fp8); dequantize them first"]),
    "dequantized_by_hand": ({"config": {"quantization_config": {"quant_method": "fp8"}}},
                            ["config.json says that the weights are quantized (fp8), but none of them is; remove quantization_config from it if they were dequantized"]),
    "experts_of_many": ({"config": {"model_type": "dots1", "n_routed_experts": 8}, "shapes": {f"model.layers.0.mlp.experts.{i}.up_proj.weight": [4, 4] for i in range(8)}},
                        ['model_type is "dots1", which is a mixture of experts (n_routed_experts is 8)']),
    "json": ({"text": '{"hidden_size": '}, ["folder/config.json:1:16: unexpected token near end of file"]),
    "five": ({"config": {"rms_norm_eps": 1e-6, "embedding_multiplier": 12.0, "attention_dropout": 0.1}, "drop": ("model.norm.weight",),
              "shapes": UP},
             ["rms_norm_eps is 1e-6, expected 1e-5", "embedding_multiplier is 12.0; only 1 is supported", "attention_dropout is 0.1: dropout is not computed; set it to 0 in config.json",
              "model.layers.0.mlp.up_proj.weight is [32, 48], expected [48, 32] (the same in 2 other layers)", "tensor model.norm.weight is missing"],
             ["embedding_multiplier is 12.0; only 1 is supported", "attention_dropout is 0.1: dropout is not computed; set it to 0 in config.json",
              "model.layers.0.mlp.up_proj.weight is [32, 48], expected [48, 32] (the same in 2 other layers)", "tensor model.norm.weight is missing"]),
    "five_of_import": ({"config": {"hidden_act": "gelu", "rope_scaling": {"rope_type": "longrope_of_nobody"}, "partial_rotary_factor": 0.5},
                        "rename": {"model.norm.weight": "model.final_norm.weight"}},
                       ['hidden_act is "gelu", expected "silu"', 'rope_scaling is {"rope_type":"longrope_of_nobody"}',
                        "partial_rotary_factor is 0.5; only 1 is supported", "tensor model.norm.weight is missing",
                        "tensor model.final_norm.weight is not part of the model"],
                       ['hidden_act is "gelu"; only "silu" is computed', 'rope_scaling is {"rope_type":"longrope_of_nobody"}',
                        "partial_rotary_factor is 0.5; only 1 is supported", "tensor model.norm.weight is missing",
                        "tensor model.final_norm.weight is not part of the model"]),
    # of the types to which transformers reads them these are windows and a softcap, of a llama nothing
    "unread": ({"config": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0, "sliding_window_pattern": 2,
                           "attn_logit_softcapping": 50.0, "rope_local_base_freq": 10000.0, "layer_types": ["sliding_attention"] * 3}},
               [f"{name} is {value}, which transformers does not read of a llama; remove it" for name, value in (
                   ("use_sliding_window", "true"), ("sliding_window_pattern", "2"), ("attn_logit_softcapping", "50.0"),
                   ("rope_local_base_freq", "10000.0"), ("layer_types", '["sliding_attention","sliding_attention","sliding_attention"]'))]),
    "both_sides": ({"config": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "is_causal": False, "sliding_window": 16}},
                   [], ["is_causal is false and sliding_window is 16: no stock mask has a window on both sides; write the model yourself, with `mask both(w) = abs(q - k) < w;`"]),
    # fields of published folders that change nothing, and other names of the same activation
    "harmless": ({"config": {"hidden_act": "swish", "is_llama_config": True, "rope_interleaved": False, "mup_denominator": 32,
                             "transformers.js_config": {"dtype": "q4"}}}, []),
    # one line, whatever else does not fit
    "experts": ({"config": {"model_type": "dots1", "n_routed_experts": 8, "num_experts_per_tok": 2, "hidden_act": "gelu"}},
                ['model_type is "dots1", which is a mixture of experts (n_routed_experts is 8): types with experts that are known: qwen3_moe, qwen2_moe, olmoe']),
    "recurrent": ({"config": {"model_type": "bamba", "text_config": {"mamba_d_state": 16}, "num_experts": 1}},
                  ['model_type is "bamba", which has recurrent layers (mamba_d_state is 16)']),
    "kimi_linear": ({"config": {"model_type": "kimi_linear", "linear_attn_config": {"num_heads": 4}}},
                    ['model_type is "kimi_linear": the decay of its recurrent layers is by channel of the key (Kimi delta attention); this is not computed']),
    "flag": ({"config": {"attention_bias": True, "mlp_bias": 1}},
             ["attention_bias is true, expected false", "mlp_bias is 1; only true or false is read"],
             ["mlp_bias is 1; only true or false is read"] + [f"tensor model.layers.0.self_attn.{x}_proj.bias is missing" for x in "qkvo"]),
    "full_attention_by_list": ({"config": {"model_type": "minimax_m4", "attn_type_list": [1, 1, 1], "num_local_experts": 256}},
                               ['model_type is "minimax_m4", which is a mixture of experts (num_local_experts is 256)']),
    "recurrent_by_list": ({"config": {"model_type": "minimax_text_02", "attn_type_list": [1, 0, 1]}},
                          ['model_type is "minimax_text_02", which has recurrent layers (layer 1 of attn_type_list is 0)']),
    "recurrent_by_type": ({"config": {"model_type": "olmo_hybrid_next", "layer_types": ["full_attention", "full_attention", "linear_attention"]}},
                          ['model_type is "olmo_hybrid_next", which has recurrent layers (layer 2 of layer_types is "linear_attention")']),
    # nothing else of a type that is not known can be told
    "other_family": ({"config": {"model_type": "opt", "hidden_act": "relu", "activation_dropout": 0.1}}, ['model_type is "opt"; known are llama, ']),
    "other_part": ({"config": {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model"}, "vision_config": {}}}, ['model_type is "mllama"; known are llama, ']),
    "sentences": ({"text": '{"prompts": {}, "similarity_fn_name": "cosine"}'}, ["config.json has no model_type; known are llama, "]),
    "own_code": ({"config": {"auto_map": {"AutoModel": "modeling.Mine"}}}, ['auto_map names code of the folder\'s own ({"AutoModel":"modeling.Mine"})']),
    "unknown_field": ({"config": {"new_thing": 1}}, ["unknown field new_thing; remove it from config.json only if the code that computes a llama does not read it"]),
    "quantized_modelopt": ({"files": {"hf_quant_config.json": b"{}"}, "dtypes": {"lm_head.weight": "I8"}},
                           ["its weights are quantized (config.json: modelopt); use the folder from which they were quantized"]),
    "dequantized_beside": ({"files": {"quantize_config.json": b"{}"}}, []),
    "dumped": ({"config": {"tf_legacy_loss": False, "pruned_heads": {}, "is_decoder": False, "_from_model_config": True}}, []),
}


def run(folder, *words):
    done = subprocess.run([BURSTC, *words], cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def is_same(told, wanted):
    return len(told) == len(wanted) and all(is_.startswith(text) or text in is_ for is_, text in zip(told, wanted))


def check(name, work):
    what, notes, *other = CASES[name]
    folder = Folder()
    change(folder, **what)
    folder.write(work / "folder")
    (work / "m.burst").write_text(MODEL)
    (work / "c.topo").write_text(TOPO)
    status, out, said = run(work, "c.topo", "m.burst", "--emit=plan")
    told = re.findall(r"^(?:(?:\S+: )?note|m.burst:5:17: error: 'folder' cannot be used): (.*)$", said, re.M)
    errors = said.count("error: ")
    assert status == bool(notes) and errors == bool(notes) and bool(out) != bool(notes) and is_same(told, notes), \
        f"{name}: compiling ends with {status} and says\n{said}"
    assert not notes or re.search("m.burst:5:17: error: 'folder' (does not match the model|cannot be used)", said), said
    status, out, said = run(work, "import", "folder")
    wanted = other[0] if other else notes
    told = re.findall(r"^burstc: error: 'folder' cannot be imported: (.*)$", said, re.M)
    assert status == bool(wanted) and bool(out) != bool(wanted) and is_same(told, wanted), \
        f"{name}: import ends with {status} and says\n{said}"


def absent(work):
    """No folder, and none with weights: warnings of their own; other masks too."""
    (work / "m.burst").write_text(MODEL)
    (work / "c.topo").write_text(TOPO)
    status, out, said = run(work, "c.topo", "m.burst", "--emit=plan")
    assert status == 0 and "cannot compare 'folder' with the model: No such file or directory" in said and "[-Wmissing-weights]" in said, said
    assert run(work, "c.topo", "m.burst", "--emit=plan", "-Wno-missing-weights")[2] == "" and out
    assert run(work, "c.topo", "m.burst", "--emit=plan", "-Werror=missing-weights")[:2] == (1, "")
    folder = Folder()
    folder.write(work / "folder")
    (work / "folder/model.safetensors").unlink()
    status, _, said = run(work, "c.topo", "m.burst", "--emit=plan")
    assert status == 0 and "'folder' has neither model.safetensors nor its index, so only its config.json was compared" in said and "[-Wmissing-weights]" in said, said
    assert run(work, "import", "folder")[0::2] == (0, "")
    (work / "folder/config.json").write_text(json.dumps(CONFIG | {"vocab_size": 65}))
    status, _, said = run(work, "c.topo", "m.burst", "--emit=plan")
    assert status == 1 and "vocab_size is 65, expected 64" in said and "warning" not in said, said # what was compared differs


def masks(work):
    folder = Folder()
    folder.config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 16}
    folder.write(work / "folder")
    (work / "m.burst").write_text(MODEL)
    (work / "c.topo").write_text(TOPO)
    status, out, said = run(work, "c.topo", "m.burst", "--emit=plan")
    assert status == 0 and out and "[-Wother-masks]" in said and "the mask of layer 0 is window(16), expected causal; use --plan-masks" in said, said
    assert run(work, "c.topo", "m.burst", "--emit=plan", "-Wno-other-masks")[2] == ""


EYE = {"vision_config": {"hidden_size": 1152}}
TEXT = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM, "intermediate_size": FFN, "vocab_size": VOCAB, "max_position_embeddings": 256}
YARN = {"rope_type": "yarn", "type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "max_position_embeddings": 256, "llama_4_scaling_beta": 0.1}
WHOLES = {  # name: config.json of a larger model, how its text model is imported
    "gemma3": ({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256, **EYE, "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}},
        ("sequence 128Ki;", "family gemma3_text;", "layers 34; hidden 2560; heads 8; kv_heads 4; head_dim 256;", "vocab 262208; tied yes;",
         "rope 1000000 linear { factor 8; }", "rope layers 0 .. 4: 10000;", "default window(1024);")),
    "mistral3": ({"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], **EYE, "tie_word_embeddings": False,
                  "text_config": {**TEXT, "model_type": "mistral", "rope_theta": 1e9, "sliding_window": None}},
                 ("family mistral;", "rope 1000000000;", "tied no;", "default causal;")),
    "ministral3": ({"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], **EYE, "text_config": {
        **TEXT, "model_type": "ministral3", "tie_word_embeddings": True, "rope_parameters": YARN}},
        ("sequence 256;", "family ministral3;", "rope 1000000 yarn { factor 16; original 64; slow 1; fast 32; attention 1; query_beta 0.1; }", "tied yes;")),
    "qwen2_5_vl": ({**TEXT, "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], **EYE, "image_token_id": 3,
                    "vision_start_token_id": 4, "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
                   ("family qwen2_5_vl_text;", "qkv_bias yes;", "rope 1000000;", "tied no;")),
    "qwen3_vl": ({"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], **EYE, "text_config": {
        **TEXT, "model_type": "qwen3_vl_text", "rope_theta": 5e6,
        "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]}}},
        ("family qwen3_vl_text;", "qk_norm yes;", "rope 5000000;")),
}


def parts(work):
    """Text models that are a part of a larger one: their fields, names of tensors, and tensors beside them."""
    for name, (config, wanted) in WHOLES.items():
        folder = work / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        status, out, said = run(work, "import", name)
        assert status == 0 and all(text in out for text in wanted), f"{name}: {said}{out}"
    (work / "c.topo").write_text(TOPO)
    for prefix, head, tied in (("model.language_model.", "lm_head.weight", "no"), ("language_model.model.", "language_model.lm_head.weight", "no"),
                               ("language_model.model.", None, "yes")):
        folder = Folder()
        folder.config = {key: value for key, value in WHOLES["mistral3"][0].items() if key != "tie_word_embeddings"}
        names = {name: name.replace("model.", prefix, 1) for name in tensors()} | {"lm_head.weight": head}
        folder.shapes = {names[name]: shape for name, shape in tensors().items() if names[name]} | {"vision_tower.patch.weight": [3, 3]}
        path = work / f"whole_{prefix}{tied}"
        folder.write(path)
        status, out, said = run(work, "import", path.name)
        assert status == 0 and f"tied {tied};" in out, f"{prefix}: {said}{out}"
        (work / "m.burst").write_text(out)
        status, _, said = run(work, "c.topo", "m.burst", "--emit=plan")
        assert (status, said) == (0, ""), said
        folder.shapes[f"{prefix}extra.weight"] = [1]
        folder.write(work / f"odd_{prefix}{tied}")
        assert f"tensor {prefix}extra.weight is not part of the model" in run(work, "import", f"odd_{prefix}{tied}")[2]


def many(work):
    """Folders with more differences than a message has room for: all are counted."""
    folder = Folder()
    folder.shapes |= {f"extra.{i:03d}": [1] for i in range(100)}
    folder.write(work / "folder")
    (work / "m.burst").write_text(MODEL)
    (work / "c.topo").write_text(TOPO)
    _, _, said = run(work, "c.topo", "m.burst", "--emit=plan")
    assert said.count("is not part of the model") == 64 and "note: and 36 more" in said, said


READ = ["folder/config.json", "folder/model.safetensors", "folder/tokenizer.json", "folder/merges.txt", "folder/vocab.bpe", "folder/README.md", "blob", "soft", "hard",
        "train.bin", "train.idx", "mixed.npy", "valid", "near.burst", "some.txt", "r.sched", "ck/step-00000002.burst", "out/config.json", "m.burst", "c.topo",
        "folder/../m.burst", "again/config.json", "folder/new.safetensors", "folder/generation_config.json"]
NOT_READ = {"import": READ[9:21], "bench": ["m.burst", "folder/../m.burst", "c.topo", "r.sched"]}


def outputs(work):
    """No command writes over what it reads, or what its model names, by whatever name; new files that are none of the folder's are written."""
    folder = Folder()
    folder.files = {"tokenizer.json": b"{}", "merges.txt": b"a b\n", "vocab.bpe": b"a b\n", "README.md": b"read"}
    folder.write(work / "folder")
    (work / "folder" / "vocab.json").symlink_to("../blob")  # as in a hub's cache
    texts = {"blob": "{}", "train.bin": "train", "train.idx": "MMIDIDX\0\0", "mixed.npy": "mixed", "valid": "valid", "near.burst": "mask near(w) = causal and q - k < w;",
             "some.txt": "1 0\n1 1\n", "ck/step-00000002.burst": "ck", "out/config.json": "{}", "c.topo": TOPO,
             "r.sched": (BURSTC.parent.parent / "share/burstc/schedules/ring.sched").read_text().replace("schedule ring", "schedule r")}
    texts["m.burst"] = 'import "near.burst";\nmask some() = causal and file "some.txt" at (q / 128, k / 128);\n' + MODEL.replace(
        "default causal;", "default some; layers 1: near(16);").replace(
        'weights "folder";', 'weights "folder"; data "train.bin" 0.5, "mixed.npy" 0.5; evaluate "valid" every 2; checkpoint "ck" every 2; export "out";') + "layout { schedule r; }\n"
    texts["b.burst"] = texts["m.burst"].replace("schedule r;", "")  # for bench, which takes no --schedule
    texts["wrong.burst"] = texts["m.burst"].replace("heads 4", "heads 5", 1)
    for name, text in texts.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    (work / "soft").symlink_to("folder/config.json")
    (work / "hard").hardlink_to(work / "folder/model.safetensors")
    (work / "again").symlink_to("folder")
    kept = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    model = ["c.topo", "m.burst", "--schedule", "r.sched"]
    commands = [[*model, "--emit=ast"], ["c.topo", "wrong.burst", "--schedule", "r.sched", "--emit=ast"], [*model, "--emit=mask"], [*model, "--emit=cost"], [*model, "--emit=c"], model, ["fit", *model],
                ["import", "folder"], ["bench", "b.burst"]]
    for command in commands:
        for name in READ:
            if name in NOT_READ.get(command[0], ()) or (command[1] == "wrong.burst" and name.endswith("m.burst")):
                continue
            status, out, said = run(work, *command, "-o", name)
            assert status == 1 and re.search(f"cannot write '{re.escape(name)}': it is an? (input|file of the directory)", said), f"{command} -o {name}: {status} {said}"
            changed = [str(path) for path in kept if path.read_bytes() != kept[path]] + [str(p) for p in work.rglob("*") if p.is_file() and p not in kept]
            assert not changed, f"{command} -o {name}: {changed}"
    for name in ("folder/m.burst", "folder/m.burst", "ck/m.burst"):
        assert run(work, "import", "folder", "-o", name)[0] == 0, name
    for name in ("folder/run.c", "folder/run.c", "out/plan"):
        assert run(work, *model, "--emit=c", "-Wno-other-masks", "-o", name)[0] == 0, name
    assert all(path.read_bytes() == text for path, text in kept.items())


def main():
    for name in CASES:
        with tempfile.TemporaryDirectory(prefix="burst_test_") as work:
            check(name, pathlib.Path(work))
    for part in (absent, masks, parts, many, outputs):
        with tempfile.TemporaryDirectory(prefix="burst_test_") as work:
            part(pathlib.Path(work))
    print(f"{len(CASES)} folders: each difference is told, once")


main()
