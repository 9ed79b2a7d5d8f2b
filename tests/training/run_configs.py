"""Random config.json files with one field changed, left out or added, beside weights that fit: none is trained differently from
transformers without a word.

    python3 run_configs.py --toolchain toolchain.json [--seed N] [--count N]
    python3 run_configs.py --toolchain toolchain.json --part transformers --count 200

Parts: table         what becomes of each file is what the table below says: accepted, accepted with a line that names the field, refused
                     with its name
       transformers  loss and gradient norm of every file that is accepted without a line are transformers' own; every second file has
                     a field of another of transformers' models, with its value there; ends with 77 where torch or transformers is missing
"""
import array
import json
import math
import random
import shutil
import sys
import time

import run_weights
from run_weights import BIAS, NORM, Shape
from runner import require
import emitted
import runner

SEQUENCE = 64
LOSS, GRADIENT = 1e-5, 1e-4  # relative, fp32 on the host against float64
SHAPES = (Shape(2, 32, 4, 2, 8, 48, 256), Shape(2, 32, 4, 4, 8, 48, 256, True), Shape(2, 32, 4, 2, 8, 48, 256, part=BIAS),
          Shape(2, 32, 4, 2, 8, 48, 256, part=NORM))
LLAMA, TIED, QWEN2, QWEN3 = SHAPES
TRAIN = "train { steps 1; seed 3; optimizer adamw { clip 1000000; } }\n"
ACCEPTED, SAID, REFUSED = "accepted", "said", "refused"
MISSING = "(left out)"


class Change:
    """A field of config.json (or of the folder), its new value, and what becomes of it by docs/runtime.md."""

    def __init__(self, verdict, name, *values, shapes=SHAPES, told=""):
        self.verdict, self.name, self.values, self.shapes, self.told = verdict, name, values, shapes, told or name


def accepted(name, *values, shapes=SHAPES):
    return Change(ACCEPTED, name, *values, shapes=shapes)


def said(name, *values, shapes=SHAPES, told=""):
    return Change(SAID, name, *values, shapes=shapes, told=told)


def refused(name, *values, shapes=SHAPES, told=""):
    return Change(REFUSED, name, *values, shapes=shapes, told=told)


NEITHER = (0.1, 2, True, "x")  # no value that leaves numbers as they are
CHANGES = (
    # the plan has a value
    refused("model_type", "opt", MISSING), refused("model_type", "granite", "smollm3", told="architectures"), refused("model_type", "mistral", shapes=(LLAMA, TIED), told="architectures"),
    refused("model_type", "mistral", shapes=(QWEN2, QWEN3)),
    refused("hidden_size", 64, 32.5, "32", MISSING, None), refused("num_hidden_layers", 1, 3, MISSING), refused("vocab_size", 257, None),
    refused("num_attention_heads", 8, 2, MISSING), refused("intermediate_size", 47, [48], MISSING),
    accepted("num_key_value_heads", None, MISSING, shapes=(TIED,)), refused("num_key_value_heads", None, MISSING, 1, 4, shapes=(LLAMA,)),
    refused("num_key_value_heads", MISSING, shapes=(QWEN2, QWEN3)), refused("num_key_value_heads", None, shapes=(QWEN2, QWEN3)),
    accepted("head_dim", MISSING, shapes=(LLAMA, TIED, QWEN2)), refused("head_dim", 16, 4), refused("head_dim", MISSING, shapes=(QWEN3,)),
    accepted("rms_norm_eps", 0.00001), refused("rms_norm_eps", 1e-6, 1e-3, MISSING, "1e-5", True),
    accepted("rope_theta", 500000), refused("rope_theta", 10000, 1e6, MISSING, "many"),
    refused("tie_word_embeddings", True, shapes=(LLAMA, QWEN2, QWEN3)), refused("tie_word_embeddings", False, MISSING, None, shapes=(TIED,)),
    accepted("tie_word_embeddings", MISSING, False, shapes=(LLAMA, QWEN2, QWEN3)),
    accepted("hidden_act", "silu", MISSING), refused("hidden_act", "gelu", "relu", "gelu_pytorch_tanh"),
    refused("architectures", ["MistralForCausalLM"], ["LlamaForSequenceClassification"], ["LlamaModel", "LlamaForCausalLM"]),
    accepted("architectures", MISSING, None),
    # masks: others than the plan's are refused, and with --plan-masks named
    refused("is_causal", False, None, told="is full, expected causal; use --plan-masks"), accepted("is_causal", True),
    refused("is_causal", "no", 0),
    accepted("sliding_window", 16, None, 4096), accepted("use_sliding_window", False), accepted("max_window_layers", 0, 1, 28),
    accepted("use_sliding_window", True, shapes=(QWEN2, QWEN3)), refused("use_sliding_window", True, "no", shapes=(LLAMA, TIED)),
    refused("sliding_window", "16", -1, 0),
    refused("sliding_window_pattern", 1, 2, 6), accepted("sliding_window_pattern", None),
    refused("windows", (16, 0), (16, 1), (8, 0), (63, 0), shapes=(QWEN2, QWEN3), told="expected causal; use --plan-masks"),
    accepted("windows", (16, 2), (16, 28), (64, 0), (4096, 1), shapes=(QWEN2, QWEN3)),
    refused("windows", (16, 0), (16, 2), (4096, 1), shapes=(LLAMA, TIED), told="use_sliding_window is true, which transformers does not read"),
    refused("burst_attention", ["window(16)", "causal"], ["causal"], told="burst_attention differs from the plan's masks; use --plan-masks"),
    accepted("burst_attention", ["causal", "causal"]),
    accepted("layer_types", ["full_attention", "full_attention"], None, shapes=(LLAMA, TIED)),
    accepted("layer_types", ["full_attention", "full_attention"], shapes=(QWEN2, QWEN3)),
    refused("layer_types", ["sliding_attention", "full_attention"], ["full_attention"], ["linear_attention", "full_attention"],
            ["full_attention", 3]),
    # rotary embedding
    accepted("rope_scaling", None, {}, {"rope_type": "default", "rope_theta": 500000.0}, {"type": "default"}),
    refused("rope_scaling", {"type": "linear", "factor": 2.0}, {"factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}, 2,
            {"rope_type": "default", "mrope_section": [1, 1, 2]}, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, {"rope_type": "default", "partial_rotary_factor": 0.5}),
    accepted("rope_parameters", None, {"rope_type": "default", "rope_theta": 500000.0}, {"rope_theta": 500000}),
    refused("rope_parameters", {"rope_type": "linear", "factor": 2.0}, [1], {"full_attention": {"rope_theta": 1000.0}}),
    refused("rope_parameters", {"rope_theta": 1000.0}, told="rope_theta"),
    refused("partial_rotary_factor", 0.5, 0.25), accepted("partial_rotary_factor", 1.0, None), refused("rotary_pct", 0.25),
    refused("no_rope_layers", [1, 0], [0, 0]), refused("no_rope_layer_interval", 2, 4), refused("rope_interleave", True),
    refused("default_theta", 10000.0), refused("rope_local_base_freq", 10000.0), refused("rope_type", "linear"),
    # parts that the plan has not
    *(refused(name, *NEITHER) for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
                                           "scale_emb", "scale_depth", "logit_scale", "final_logit_softcapping", "query_pre_attn_scalar")),
    accepted("embedding_multiplier", 1.0, 1, None), accepted("residual_multiplier", 1.0), accepted("logits_scaling", 1),
    refused("attn_logit_softcapping", 50.0), accepted("attn_logit_softcapping", None),
    refused("attention_bias", True, shapes=(LLAMA, TIED, QWEN3)), accepted("attention_bias", False, MISSING), accepted("mlp_bias", False),
    refused("mlp_bias", True), *(refused(name, True) for name in ("qkv_bias", "use_bias", "lm_head_bias", "use_qk_norm", "qk_layernorm")),
    *(refused(name, 0.1, 0.5) for name in ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout")),
    *(accepted(name, 0.0, 0) for name in ("attention_dropout", "hidden_dropout", "resid_pdrop")),
    refused("num_experts", 4), refused("num_local_experts", 8), refused("num_nextn_predict_layers", 1), refused("clip_qkv", 8.0),
    refused("attention_chunk_size", 8), refused("quantization_config", {"quant_method": "gptq", "bits": 4}, {}), refused("compression_config", {}),
    accepted("quantization_config", None), refused("pruned_heads", {"0": [1]}), accepted("pruned_heads", {}),
    refused("is_encoder_decoder", True), accepted("is_encoder_decoder", False), refused("add_cross_attention", True),
    refused("per_layer_config", {"0": {"rms_norm_eps": 0.1}}), refused("auto_map", {"AutoModelForCausalLM": "modeling.Mine"}),
    refused("transformers_weights", "other.safetensors"), refused("fusion_config", {"patch": True}), refused("head_dim_ratio", 2),
    refused("layer_norm_eps", 1e-5), refused("n_layer", 3), refused("num_kv_heads", 1), refused("norm_topk_prob", True),
    # of no effect
    accepted("max_position_embeddings", 32, 64, 1 << 20, MISSING), accepted("initializer_range", 0.02, 0.5), accepted("use_cache", True, False),
    accepted("pretraining_tp", 1, 2, 4), accepted("bos_token_id", 1, None), accepted("eos_token_id", 2, [2, 3]), accepted("torch_dtype", "float16"),
    accepted("dtype", "bfloat16", None), accepted("transformers_version", "4.31.0"), accepted("_name_or_path", "somebody/llama", "x\u202ey"),
    accepted("id2label", {"0": "a", "1": "b"}), accepted("tokenizer_class", "LlamaTokenizer"), accepted("output_attentions", False),
    accepted("unsloth_version", "2024.9"), accepted("gradient_checkpointing", False), accepted("chunk_size_feed_forward", 0, 16),
    said("pad_token_id", 0, 7, 255), accepted("pad_token_id", None),
    # the folder
    refused("lm_head.weight", "another", shapes=(TIED,)), accepted("lm_head.weight", "the embedding's", shapes=(TIED,)),
    refused("model.norm.weight", math.nan, math.inf), refused("model.layers.1.mlp.up_proj.weight", -math.inf, math.nan),
    refused("adapter_config.json", "{}"),
)
SYLLABLES = ("attn", "scale", "norm", "rope", "mlp", "use", "num", "head", "bias", "alpha", "gate", "window", "type", "qk", "res", "emb")


# Types whose text part is computed.
PARTS_OF_OTHERS = ("gemma3", "mistral3", "qwen2_5_vl", "qwen3_vl")


class Case:
    """One folder: a shape's, with one change."""

    def __init__(self, seed, number, foreign=()):
        draw = random.Random(f"{seed} {number}")
        self.number, self.data_seed = number, draw.randrange(1 << 30)
        if foreign and number % 2:
            change = Change(None, *draw.choice(foreign))
        elif draw.random() < 0.15:  # a name that nobody knows
            name = "_".join(draw.sample(SYLLABLES, draw.randint(2, 4)))
            change = refused(name, draw.choice([True, False, None, 0, 1, 0.5, "x", [], {}]))
        else:
            change = draw.choice(CHANGES)
        self.shape, self.value = draw.choice(change.shapes), draw.choice(change.values)
        self.verdict, self.field, self.told = change.verdict, change.name, change.told
        if change.verdict is None and self.value in PARTS_OF_OTHERS:
            self.told = "architectures"  # a known type, whose folders have another architecture

    def __str__(self):
        return f"case {self.number}, {self.shape.name()}: {self.field} {json.dumps(self.value)}"


def with_change(case, config):
    if case.field == "windows":
        window, layers = case.value
        config.update(use_sliding_window=True, sliding_window=window, max_window_layers=layers)
    elif case.value is MISSING or case.value == MISSING:
        config.pop(case.field, None)
    else:
        config[case.field] = case.value
    if case.field == "rope_parameters" and isinstance(case.value, dict) and case.verdict == ACCEPTED:
        config.pop("rope_theta")  # where transformers writes it
    return config


def write_file(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, blob) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def changed(blob, draw, amount, one=None):
    """fp32 bytes with noise; one: a value that is written somewhere."""
    values = array.array("f")
    values.frombytes(blob)
    for i in range(len(values) if amount else 0):
        values[i] += draw.gauss(0, amount)
    if one is not None:
        values[draw.randrange(len(values))] = one
    return values.tobytes()


class Campaign:
    def __init__(self, args, folder):
        self.args, self.folder, self.tools = args, folder, emitted.Toolchain(args.toolchain)
        self.programs, self.environment = {}, emitted.quiet_environment()
        self.data = folder / "text.bin"
        draw = random.Random(5)
        self.data.write_bytes(bytes(draw.randrange(256) for _ in range(SEQUENCE + 1)))

    def program(self, shape):
        """The program of a shape, and a folder of weights for it in which nothing is 0 or 1."""
        if shape not in self.programs:
            name, text = shape.name(), run_weights.model_text(shape, 1)
            text = text[:text.index("train {")].replace(f"sequence {run_weights.SEQUENCE};", f"sequence {SEQUENCE};") + TRAIN
            program = self.tools.link(self.tools.emit(self.folder, name, emitted.topology(1, 1), text))
            base = self.folder / f"{name}_base"
            runner.run([program, "--quiet", "--steps", 0, "--export", base, "--export-dtype", "f32"], 60, self.environment)
            draw, tensors = random.Random(11), run_weights.read_folder(base)
            for key, (dtype, sizes, blob) in tensors.items():
                tensors[key] = dtype, sizes, changed(blob, draw, 0.2)
            write_file(base / "model.safetensors", tensors)
            self.programs[shape] = program, base
        return self.programs[shape]

    def make(self, case):
        _, base = self.program(case.shape)
        folder = self.folder / f"case{case.number}"
        shutil.copytree(base, folder)
        config = json.loads((base / "config.json").read_text())
        if "." not in case.field:
            (folder / "config.json").write_text(json.dumps(with_change(case, config), indent=1))
        elif case.field.endswith(".json"):
            (folder / case.field).write_text(case.value)
        else:
            draw, tensors = random.Random(case.data_seed), run_weights.read_folder(base)
            source = "model.embed_tokens.weight" if case.field == "lm_head.weight" else case.field
            dtype, sizes, blob = tensors[source]
            one = case.value if isinstance(case.value, float) else 0.5 if case.value == "another" else None
            tensors[case.field] = dtype, sizes, changed(blob, draw, 0, one)
            write_file(folder / "model.safetensors", tensors)
        return folder

    def run(self, case, folder, *options):
        """What became of it, what was said, and the metrics of its step."""
        program, _ = self.program(case.shape)
        metrics = folder / "metrics.jsonl"
        command = [program, "--quiet", "--data", self.data, "--weights", folder, "--metrics", metrics, *options]
        done = runner.run(command, 60, self.environment, check=False)
        if done.returncode:
            require(done.returncode in (1, 2) and done.stderr.startswith("burst: "), f"{case}: ended with {done.returncode}: {done.stderr}")
            return REFUSED, done.stderr, None
        return SAID if done.stderr else ACCEPTED, done.stderr, json.loads(metrics.read_text())

    def check(self, case, folder):
        """The table's verdict."""
        verdict, text, metrics = self.run(case, folder)
        case.verdict = case.verdict or verdict
        require(verdict == case.verdict, f"{case}: {verdict}, and the table has {case.verdict}: {text}")
        require(verdict == ACCEPTED or case.told in text, f"{case}: '{case.told}' is not in: {text}")
        if "--plan-masks" in text:
            used, line, _ = self.run(case, folder, "--plan-masks")
            require(used == SAID and "using the plan's masks" in line, f"{case}: with --plan-masks {used}: {line}")
        require(not any(ord(c) < 32 and c != "\n" for c in text), f"{case}: control characters in {text!r}")
        return metrics

    def cases(self, foreign=()):
        print(f"seed {self.args.seed}, {self.args.count} files")
        return [Case(self.args.seed, number, foreign) for number in range(self.args.count)]

    # ---- parts ----

    def table(self):
        counts = {ACCEPTED: 0, SAID: 0, REFUSED: 0}
        for case in self.cases():
            folder = self.make(case)
            self.check(case, folder)
            counts[case.verdict] += 1
            shutil.rmtree(folder)
        print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))

    def transformers(self):
        import reference_transformers as reference  # torch is asked for only here
        counts, worst, failures = {}, [0.0, 0.0], []
        for case in self.cases(reference.fields()):
            folder = self.make(case)
            metrics = self.check(case, folder)
            wanted = reference.judge(folder, self.data, SEQUENCE)
            outcome = case.verdict
            if isinstance(wanted, str):
                outcome += ", transformers does not load it"
            elif metrics and case.verdict == ACCEPTED:
                apart = [abs(is_ / x - 1) for is_, x in zip((metrics["loss"], metrics["norm"]), wanted)]
                worst = [max(a, b) for a, b in zip(apart, worst)]
                if apart[0] > LOSS or apart[1] > GRADIENT:
                    failures.append(f"{case}: loss {metrics['loss']}, norm {metrics['norm']}; in transformers {wanted}")
            if outcome.startswith(ACCEPTED) and isinstance(wanted, str):
                print(f"{case}: {outcome}: {wanted}")
            counts[outcome] = counts.get(outcome, 0) + 1
            shutil.rmtree(folder)
        print(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
        print(f"accepted: loss within {worst[0]:.1e}, gradient norm within {worst[1]:.1e} of transformers")
        require(not failures, "\n".join(failures))


def main():
    parser = runner.options(__doc__, "--toolchain", parts=("table", "transformers"))
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400), help="that of the day, if left out")
    parser.add_argument("--count", type=int, default=60)
    args = parser.parse_args()
    with runner.folder(args.work) as folder:
        for part in args.part or ["table"]:
            getattr(Campaign(args, folder), part)()


if __name__ == "__main__":
    runner.end(main)
