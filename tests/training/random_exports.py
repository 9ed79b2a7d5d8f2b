"""Random folders through import, training, export, transformers and import again, for run_families.py: fields of masks, windows, RoPE and
softcap drawn for every type, other masks and another RoPE in the model than in the folder. The loss is the same everywhere, or the folder is refused
before a step."""
import json
import os
import random
import re
import shutil

import emitted
import runner
from runner import require

SEQUENCE = 64
LOSS = 1e-6  # relative, fp32 on the host against float64
LAYOUT = emitted.layout(1, 1, "ring", "keys", "contiguous")
TRAIN = "train { steps 1; batch 1; seed 3; optimizer adamw { lr 1e-12; } }\n"  # no weight changes
DRAWN = ("rope_parameters", "rope_scaling", "layer_types", "sliding_window", "use_sliding_window", "max_window_layers",
         "sliding_window_pattern", "max_position_embeddings", "original_max_position_embeddings", "partial_rotary_factor",
         "attn_logit_softcapping", "no_rope_layer_interval")
FLAGS = ("attention_bias", "attention_out_bias", "mlp_bias", "use_bias", "use_qkv_bias", "use_parallel_residual", "tie_word_embeddings")
MASKS = ("causal", "full", "window(8)", "window(16)", "window(100)", "window_sink(16, 4)", "block_causal(8)", "document")


def rope_block(draw, pairs):
    """A block of rope_scaling; pairs: of elements that turn."""
    kind = draw.choice(("default", "linear", "dynamic", "yarn", "llama3", "longrope"))
    block = {"rope_type": kind}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        block["factor"] = draw.choice((2.0, 4.0, 8.0))
    if kind in ("yarn", "llama3", "longrope") or draw.random() < 0.1:
        block["original_max_position_embeddings"] = draw.choice((8, 16, 32))
    if kind == "llama3":
        block.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "longrope":
        block.update(short_factor=[1 + i / 8 for i in range(pairs)], long_factor=[1.0 + i for i in range(pairs)])
    if kind in ("yarn", "longrope") and draw.random() < 0.5:
        block["attention_factor"] = draw.choice((0.9, 1.3))
    return block


def rope_fields(draw, kind, pairs):
    by_type = kind in ("Gemma3", "Olmo3")
    form, theta = draw.choice(("none", "old", "new", "new")), draw.choice((10000.0, 50000.0, 1000000.0))
    if form == "none":
        return {}
    if form == "old":
        local = {"rope_local_base_freq": draw.choice((10000.0, 2000.0))} if by_type or draw.random() < 0.05 else {}
        return {"rope_theta": theta, "rope_scaling": draw.choice((None, rope_block(draw, pairs))), **local}
    if by_type and draw.random() < 0.85:
        types = {"full_attention": {**rope_block(draw, pairs), "rope_theta": theta},
                 "sliding_attention": {**rope_block(draw, pairs), "rope_theta": draw.choice((10000.0, 2000.0))}}
        if draw.random() < 0.2:
            types.pop(draw.choice(list(types)))
        return {"rope_parameters": types, **({"rope_theta": 30000.0} if draw.random() < 0.2 else {})}
    return {"rope_parameters": {**rope_block(draw, pairs), "rope_theta": theta}}


def mask_fields(draw, kind):
    """Flags that a type reads, and some that it does not."""
    values = {"sliding_window": lambda: draw.choice((8, 16, 63, 64, 100, 4096, None)), "use_sliding_window": lambda: draw.random() < 0.7,
              "max_window_layers": lambda: draw.randrange(6), "sliding_window_pattern": lambda: draw.randint(1, 5),
              "layer_types": lambda: [draw.choice(("sliding_attention", "full_attention")) for _ in range(4)],
              "is_causal": lambda: draw.random() < 0.4}
    likely = {"Qwen2": 0.6, "Qwen3": 0.6, "SmolLM3": 0.6, "Mistral": 0.5, "Ministral": 0.5, "Phi3": 0.5, "Starcoder2": 0.5, "Cwm": 0.6,
              "Olmo3": 0.6, "Exaone4": 0.6, "Gemma2": 0.6, "Gemma3": 0.6, "Cohere2": 0.6}.get(kind, 0.08)
    out = {name: value() for name, value in values.items() if draw.random() < (likely if name != "is_causal" else 0.2)}
    if kind == "SmolLM3" and draw.random() < 0.6:
        out["no_rope_layers"] = [draw.randrange(2) for _ in range(4)]
    if draw.random() < (0.4 if kind == "Gemma2" else 0.04):
        out["attn_logit_softcapping"] = draw.choice((2.0, None))
    return out


def attention_block(draw):
    """The masks of a model's text; None: as imported."""
    if draw.random() < 0.4:
        return None
    one, other = (f"default {draw.choice(MASKS)};", f" layers {draw.randrange(4)}: {draw.choice(MASKS)};")
    return f"attention {{ {one}{other * (draw.random() < 0.5)} }}"


def other_rope(draw):
    """The RoPE of a model's text; None: as imported."""
    return draw.choice((None, None, None, "20000;", "10000 linear { factor 2; }", "10000 yarn { factor 4; original 16; }",
                        "30000 dynamic { factor 4; original 32; }", "10000 llama3 { factor 8; original 16; low 1; high 4; }"))


WHOLE_TILES = {"MiniMaxM3VL"}  # of 128 queries on each rank


def model_class(kind):
    """Its name in transformers, which has some types as its Llama."""
    import transformers
    own = kind + "ForCausalLM"
    return own if hasattr(transformers, own) else "LlamaForCausalLM"


def config_class(kind):
    """That of transformers; None: it has no class of such models."""
    import transformers
    return getattr(transformers, kind + ("TextConfig" if kind in ("Gemma3", "MiniMaxM3VL", "Qwen3_5", "Qwen3_5Moe") else "Config"), None)


class Folders:
    def __init__(self, programs, cases, sizes, folder):
        self.programs, self.tools, self.folder, self.sizes = programs, programs.tools, folder, sizes
        self.environment = programs.environment
        self.kinds = {}
        for kind, more in ((kind, more) for kind, more in cases.values() if config_class(kind) and kind not in WHOLE_TILES):
            self.kinds.setdefault(kind, {name: value for name, value in more.items() if name not in DRAWN})
        self.counts = {}
        draw = random.Random(5)
        self.data = folder / "text.bin"
        self.data.write_bytes(bytes(draw.randrange(256) for _ in range(SEQUENCE + 1)))

    def base(self, draw, kind):
        """A folder of random weights of a kind and flags; what config.json says in any case; elements of a head that turn by default."""
        import torch
        import transformers
        known = config_class(kind)()
        config = {field: value for field, value in self.sizes.items() if hasattr(known, field)}
        flags = {name: draw.random() < 0.5 for name in FLAGS if hasattr(known, name) and draw.random() < 0.4}
        folder = self.folder / f"base_{kind}{''.join(f'_{name}_{on}' for name, on in flags.items())}"
        config.update(self.kinds[kind], **flags)
        config.update(model_type=known.model_type, architectures=[model_class(kind)])
        if not folder.exists():
            torch.manual_seed(sum(map(ord, kind)))
            model = getattr(transformers, model_class(kind))(type(known).from_dict(dict(config)))
            for weight in model.parameters():
                if weight.dim() == 1:
                    weight.data += 0.2 * torch.randn_like(weight)
            model.save_pretrained(folder)
        turns = config.get("qk_rope_head_dim") or config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        part = {"StableLm": 0.25, "Nemotron": 0.5, "Phi": 0.5, "GPTNeoX": 0.25, "Glm": 0.5, "Glm4": 0.5, "Qwen3_5": 0.25, "Qwen3_5Moe": 0.25, "Qwen3Next": 0.25}.get(kind, 1)
        return folder, config, int(turns * part)

    def make(self, draw, number):
        """The folder of a case."""
        kind = draw.choice(list(self.kinds))
        weights, config, turns = self.base(draw, kind)
        config = {**config, **mask_fields(draw, kind), **rope_fields(draw, kind, turns // 2)}
        config["max_position_embeddings"] = draw.choice((32, 64, 128, 256))
        folder = self.folder / f"case{number}"
        folder.mkdir()
        os.link(weights / "model.safetensors", folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        return folder

    def loss_of(self, folder):
        """By transformers; a text where it cannot be computed there."""
        import reference_transformers
        try:
            return reference_transformers.loss_of(folder, self.data, SEQUENCE)
        except Exception as error:  # of whatever a config.json makes of the library
            return f"{type(error).__name__}: {error}"

    def imported(self, folder):
        done = runner.run([self.tools.burstc, "import", folder], 60, check=False)
        require(done.returncode in (0, 1), f"{folder}: import ends with {done.returncode}: {done.stderr}")
        return done.stdout if done.returncode == 0 else None

    def emit(self, name, text, attention=None, rope=None):
        if rope:
            text = re.sub(r" rope \S+( \w+ \{.*?\}|;)", f" rope {rope}", text, count=1)
        text = re.sub(r"sequence \S+;", f"sequence {SEQUENCE};", text[:text.index("train {")])
        if attention:
            text = re.sub(r"attention \{(.*?)\n\}", lambda found: attention.replace(" }", "".join(
                re.findall(r" softcap [^;]*;", found.group(1))) + " }"), text, flags=re.S)
        return self.tools.emit(self.folder, name, emitted.topology(1, 1), text + LAYOUT + TRAIN)

    def step(self, program, *options):
        """The loss of a step, or None where it is refused before; and what is said."""
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        done = runner.run([program, "--quiet", "--data", self.data, "--metrics", metrics, *options], 120, self.environment, check=False)
        if done.returncode:
            made = metrics.exists() and metrics.read_text()
            require(done.returncode == 2 and not made, f"{program}: ends with {done.returncode} after {made!r}: {done.stderr}")
            return None, done.stderr
        return json.loads(metrics.read_text().splitlines()[0])["loss"], done.stderr

    def same(self, what, is_, wanted):
        require(abs(is_ / wanted - 1) <= LOSS, f"{what}: {is_}, expected {wanted}")

    def check(self, draw, number):
        """What became of a random folder."""
        folder = self.make(draw, number)
        text, attention, rope, name = self.imported(folder), attention_block(draw), other_rope(draw), folder.name
        if text is None:
            return "refused by import"
        source = self.emit(f"{name}_one", text, attention, rope)
        program, out = self.tools.link(source), self.folder / f"{name}_out"
        loss, said = self.step(program, "--weights", folder, "--plan-masks", "--plan-rope", "--export", out, "--export-dtype", "f32")
        if loss is None:
            require("cannot export" in said, f"{name}: {said}")
            return "refused by export"
        there = self.loss_of(folder)
        if not attention and not rope and not isinstance(there, str):
            self.same(f"{name}, loss of the folder", loss, there)
        self.check_export(name, out, source, program, loss, said)
        by_itself = json.loads((out / "config.json").read_text()).get("burst_attention")
        return ("masks that transformers does not read" if by_itself else "exported") + (", the folder is not read by it" * isinstance(there, str))

    def check_export(self, name, out, source, program, loss, said):
        written = json.loads((out / "config.json").read_text())
        there = self.loss_of(out)
        require(not isinstance(there, str), f"{name}: transformers cannot load the export: {there}")
        unread = "burst_attention" in said
        require(not unread or "burst_attention" in written, f"{name}: masks that transformers does not read: {said}")
        if not unread:
            self.same(f"{name}, loss of the export in transformers", there, loss)
        again, said = self.step(program, "--weights", out)
        require(again is not None, f"{name}: the program refuses its export: {said}")
        self.same(f"{name}, loss of the export", again, loss)
        text = self.imported(out)
        require(text is not None, f"{name}: its export is not imported")
        other = self.emit(f"{name}_two", text)
        if other.read_text() != source.read_text().replace(source.stem, other.stem):
            again, said = self.step(self.tools.link(other), "--weights", out)
            require(again is not None, f"{name}: the program of its export refuses it: {said}")
            self.same(f"{name}, loss of the export's own program", again, loss)

    def campaign(self, seed, numbers):
        for number in numbers:
            try:
                outcome = self.check(random.Random(f"{seed} {number}"), number)
            except runner.Failed as failed:
                config = self.folder / f"case{number}/config.json"
                raise runner.Failed(f"random folder {number} of seed {seed}: {failed}\n{config.read_text()}") from None
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            for path in self.folder.glob(f"case{number}*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        print(f"random folders of seed {seed}: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.counts.items())))
