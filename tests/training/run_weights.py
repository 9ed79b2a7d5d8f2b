"""Weights through Hugging Face folders, by emitted programs.

    python3 run_weights.py --part folders --toolchain toolchain.json
    python3 run_weights.py --part transformers --toolchain toolchain.json [--work FOLDER]

Parts: folders       what programs write is what their checkpoints hold, and starts programs of other worlds with the same bits
       transformers  loss and gradients from weights that transformers wrote against transformers' own, and what the program
                     writes loaded by transformers; ends with 77 where torch or transformers is missing

On GPUs scripts/gpu-test's part hf does the same.
"""
import array
import json
import math
import pathlib
import struct
import sys
import tempfile
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

SEQUENCE, BETA1 = 512, 0.9
LOSS, GRADIENT = 1e-5, 1e-4  # relative, fp32 on the host against float64
TRAIN = f"""train {{ steps 20; batch BATCH seed 3;
  optimizer adamw {{ lr 1e-3; betas {BETA1} 0.95; decay 0.1; clip 1000000; }} }}
"""  # without clipping the first moment after a step is (1 - beta1) times the gradient


BIAS, NORM = "qkv_bias yes;", "qk_norm yes;"
PARTS = {BIAS: {f"self_attn.{x}_proj.weight": f"self_attn.{x}_proj.bias" for x in "qkv"},
         NORM: {f"self_attn.{x}_proj.weight": f"self_attn.{x}_norm.weight" for x in "qk"}}  # a model's tensors beside a Llama's: after which


class Shape(typing.NamedTuple):
    layers: int = 2
    hidden: int = 128
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    ffn: int = 192
    vocab: int = 256
    tied: bool = False
    part: str = ""

    def name(self):
        return ("tied" if self.tied else "untied") + (f"_{self.part.split()[0]}" if self.part else "")


def model_text(shape, ranks, data=1, schedule="ring", more="", tensor=1):
    s, tied = shape, "yes" if shape.tied else "no"
    return (f'import "masks";\nmodel test {{ layers {s.layers}; hidden {s.hidden}; heads {s.heads}; kv_heads {s.kv_heads}; '
            f"head_dim {s.head_dim}; ffn swiglu {s.ffn}; norm rmsnorm 1e-5; rope 500000; vocab {s.vocab}; tied {tied}; {s.part} }}\n"
            f"attention {{ default causal; }}\nsequence {SEQUENCE};\n"
            + emitted.layout(data, ranks, schedule, "keys", "zigzag" if ranks > 1 else "contiguous").replace("tensor 1", f"tensor {tensor}")
            + TRAIN.replace("BATCH", f"{data}; {more}"))


def names_of(shape):
    """Units of a checkpoint's sections: the names of their tensors, in order."""
    parts = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
             "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    parts = [f"{part}.weight" for part in parts]
    for after, name in PARTS.get(shape.part, {}).items():
        parts.insert(parts.index(after) + 1, name)
    layers = [[f"model.layers.{i}.{part}" for part in parts] for i in range(shape.layers)]
    return [["model.embed_tokens.weight"], *layers, ["model.norm.weight"] + ([] if shape.tied else ["lm_head.weight"])]


# ---- files, read by the few lines that their formats take ----

def read_file(path):
    """{name: (dtype, shape, bytes)} of one safetensors file."""
    blob = path.read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    header, data = json.loads(blob[8:8 + length]), blob[8 + length:]
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def read_folder(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        out.update(read_file(path))
    return out


def read_checkpoint(path, shape, sizes, units=None):
    """{name: (param, first moment)} as bytes of fp32; sizes: {name: elements}; units: names_of another model."""
    blob = path.read_bytes()
    (length,) = struct.unpack("<I", blob[12:16])
    at, out = (16 + length + 4095) // 4096 * 4096, {}
    for unit in units or names_of(shape):
        unit_bytes = 4 * sum(sizes[name] for name in unit)
        for name in unit:
            n = 4 * sizes[name]
            out[name] = blob[at:at + n], blob[at + unit_bytes:at + unit_bytes + n]
            at += n
        at += 2 * unit_bytes
    return out


def floats(blob):
    out = array.array("f")
    out.frombytes(blob)
    return out


def to_bf16(blob):
    """fp32 bytes to bf16 bytes, to nearest, ties to even."""
    words = array.array("I")
    words.frombytes(blob)
    return array.array("H", [(w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words]).tobytes()


def distance(is_, wanted):
    """Relative L2."""
    apart, size = sum((a - b) ** 2 for a, b in zip(is_, wanted)), sum(b * b for b in wanted)
    return math.sqrt(apart / size) if size else math.inf if apart else 0.0  # an expert that no token chose


# ---- running ----

class Programs:
    def __init__(self, args, folder):
        self.folder = folder
        self.tools = emitted.Toolchain(args.toolchain)
        self.environment = emitted.quiet_environment()
        self.data = folder / "text.bin"

    def build(self, name, shape, nodes=1, lanes=1, data=1, schedule="ring", more="", tensor=1):
        text = model_text(shape, nodes * lanes // data // tensor, data, schedule, more, tensor)
        return self.tools.link(self.tools.emit(self.folder, name, emitted.topology(nodes, lanes), text))

    def run(self, program, *options):
        """Losses, by step."""
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        run([program, "--quiet", "--data", self.data, "--metrics", metrics, *options], 300, self.environment)
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]

    # ---- parts ----

    def folders(self):
        self.data.write_bytes(bytes((i * i // 7) % 251 for i in range(3 * SEQUENCE + 1)))
        for shape in (Shape(3, 24, 4, 2, 6, 40), Shape(2, 24, 4, 4, 8, 40, 251, True), Shape(2, 24, 4, 2, 6, 40, part=BIAS),
                      Shape(2, 24, 4, 2, 8, 40, part=NORM)):
            self.folders_of(shape)
        self.takes_over()

    def takes_over(self):
        """Files and fields of the directory that the weights came from, also in a run that resumes; without it, a line says so."""
        shape, start, away = Shape(2, 24, 4, 2, 6, 40), self.folder / "start", self.folder / "away"
        ck, old, later, last, told = (self.folder / f"over_{name}" for name in ("ck", "old", "later", "last", "told"))
        self.run(self.build("over1", shape), "--steps", 0, "--export", start)
        config = json.loads((start / "config.json").read_text())
        ours = {"bos_token_id": 5, "eos_token_id": [6, 7], "pad_token_id": 8, "max_position_embeddings": 4 * SEQUENCE, "initializer_range": 0.5}
        (start / "config.json").write_text(json.dumps({**config, **ours, "torch_dtype": "float16", "rope_scaling": {"rope_type": "default"}}))
        files = {"tokenizer.json": b"[]" * 40000, "tokenization_mine.py": b"", "chat_template.jinja": b"{{", "generation_config.json": b"{}",
                 "vocab.txt": b"a", "mine.tiktoken": b"\0\xff"}
        for name, content in {**files, "original.bin": b"x", "merges": b"x"}.items():
            (start / name).write_bytes(content)
        (start / "tokenizer").mkdir()
        program = self.build("over2", shape, 1, 2, more=f'weights "{start}";')
        self.run(program, "--steps", 1, "--checkpoint", ck, "--export", old, "--export-dtype", "f32")
        self.run(program, "--steps", 2, "--resume", "--checkpoint", ck, "--export", later)
        for out, dtype in ((old, "float32"), (later, "bfloat16")):
            is_ = json.loads((out / "config.json").read_text())
            require(is_ == {**config, **ours, "torch_dtype": dtype}, f"{out.name}: config.json is {is_}")
            there = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".safetensors" and path.name != "config.json"}
            require(there == files, f"{out.name} has {sorted(there)}")
        (start / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2}))
        self.run(program, "--steps", 3, "--resume", "--checkpoint", ck, "--export", last)
        is_ = json.loads((last / "config.json").read_text())
        require(is_["max_position_embeddings"] == SEQUENCE, f"a shorter length is taken over: {is_}")
        start.rename(away)
        done = run([program, "--quiet", "--data", self.data, "--steps", 4, "--resume", "--checkpoint", ck, "--export", told], 300, self.environment)
        require("is exported without the tokenizer" in done.stderr, f"without the directory the run says: {done.stderr}")
        require(sorted(path.name for path in told.iterdir()) == ["config.json", "model.safetensors"], f"{told.name} has more")
        print("an export takes over the tokenizer, ids and other fields of the weights' directory")

    def folders_of(self, shape):
        name = shape.name()
        eight = self.build(f"{name}8", shape, 2, 4, 2, "burst")
        one, three = self.build(f"{name}1", shape), self.build(f"{name}3", shape, 1, 3)
        split = self.build(f"{name}8s", shape, 2, 4, 2, tensor=4)
        out = {key: self.folder / f"{name}_{key}" for key in ("ck", "f32", "again", "third", "split", "bf16", "other", "tensor", "ck_split")}
        fresh = self.run(eight, "--steps", 3, "--checkpoint", out["ck"], "--export", out["f32"], "--export-dtype", "f32")
        is_ = read_folder(out["f32"])
        require(sorted(is_) == sorted(sum(names_of(shape), [])), f"{name}: the tensors are {sorted(is_)}")
        kept = read_checkpoint(out["ck"] / "step-00000003.burst", shape, {t: math.prod(v[1]) for t, v in is_.items()})
        for tensor, (dtype, _, blob) in is_.items():
            require(dtype == "F32" and blob == kept[tensor][0], f"{name}: {tensor} is not what the checkpoint holds")
        self.run(one, "--steps", 0, "--weights", out["f32"], "--export", out["again"], "--export-dtype", "f32")
        self.run(three, "--steps", 0, "--weights", out["again"], "--export", out["third"], "--export-dtype", "f32")
        self.run(split, "--steps", 0, "--weights", out["third"], "--export", out["split"], "--export-dtype", "f32")
        for key in ("again", "third", "split"):
            same = all((out[key] / f).read_bytes() == (out["f32"] / f).read_bytes() for f in ("model.safetensors", "config.json"))
            require(same, f"{name}: {key} is not, byte for byte, what it started from")
        self.run(split, "--steps", 1, "--checkpoint", out["ck_split"], "--export", out["tensor"], "--export-dtype", "f32")
        kept = read_checkpoint(out["ck_split"] / "step-00000001.burst", shape, {t: math.prod(v[1]) for t, v in is_.items()})
        for tensor, (_, _, blob) in read_folder(out["tensor"]).items():
            require(blob == kept[tensor][0], f"{name}: {tensor} of ranks that split layers is not what their checkpoint holds")
        told = self.build(f"{name}2", shape, 1, 2, more=f'weights "{out["f32"]}"; export "{out["other"]}" f32;')
        self.run(told, "--steps", 0, "--resume", "--checkpoint", self.folder / "none")  # no checkpoint: the train block's weights
        require(read_folder(out["other"]) == is_, f"{name}: the train block's folders are not used")
        self.run(three, "--steps", 0, "--weights", out["f32"], "--export", out["bf16"])
        for tensor, (dtype, _, blob) in read_folder(out["bf16"]).items():
            require(dtype == "BF16" and blob == to_bf16(is_[tensor][2]), f"{name}: {tensor} is not rounded to bf16")
        losses = [self.run(p, "--steps", 1, "--weights", out["f32"])[0] for p in (one, three)]
        apart = abs(losses[0] / losses[1] - 1)
        require(apart <= LOSS and losses[0] < fresh[0] - 0.02, f"{name}: the losses are {losses}, at first {fresh[0]}")
        print(f"{name}: 8, 1 and 3 ranks, and 8 of which two split layers, keep every bit; losses after it differ by {apart:.1e}")

    def transformers(self):
        import reference_transformers as reference  # torch is asked for only here
        for shape in (Shape(), Shape(tied=True), Shape(part=BIAS), Shape(part=NORM)):
            name = shape.name()
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            reference.write(folder, shape, SEQUENCE)
            if shape == Shape():
                self.other_forms(folder, reference)
            for ranks, dtype in ((1, "f32"), (4, "bf16")):
                program = self.build(f"{name}{ranks}", shape, 1, ranks)
                after = folder / f"after{ranks}"
                self.compare(program, folder, "--export", after, "--export-dtype", dtype)
                wanted = reference.loss_of(after, folder / "text.bin", SEQUENCE)
                is_ = self.run(program, "--steps", 1, "--weights", after)[0]
                print(f"{name}, {ranks} ranks: what it wrote as {dtype} loads; relative difference of the loss {abs(is_ / wanted - 1):.1e}")
                require(abs(is_ / wanted - 1) <= LOSS, f"{name}: loss {is_} from the exported weights, {wanted} in transformers")

    def other_forms(self, folder, reference):
        """Where burstc refuses a folder and says what to run, that makes a folder that it imports, of the same tensors."""
        for form, write in reference.FORMS.items():
            (folder / form).mkdir()
            wanted = write(folder / "start", folder / form)
            line = run([self.tools.burstc, "import", folder / form], 60, status=1).stderr
            is_ = reference.follow(line, folder / f"{form}_converted")
            require(is_.keys() == wanted.keys(), f"{form}: the conversion has {sorted(is_)}")
            apart = reference.distance(is_, wanted)
            require(apart <= 2 ** -8, f"{form}: a converted tensor differs by {apart:.1e}")  # fp8 becomes bf16
            run([self.tools.burstc, "import", folder / f"{form}_converted"], 60)
            print(f"{form}: converted as burstc says, imported; the worst tensor differs by {apart:.1e}")

    def compare(self, program, folder, *options):
        """One step of the program from folder/start; loss and gradients against those in the folder."""
        reference = json.loads((folder / "reference.json").read_text())
        shape = Shape(**reference["shape"])
        wanted = read_file(folder / "gradients.safetensors")
        self.data = folder / "text.bin"
        with tempfile.TemporaryDirectory(dir=folder) as checkpoints:
            is_ = self.run(program, "--weights", folder / "start", "--steps", 1, "--checkpoint", checkpoints, *options)[0]
            kept = read_checkpoint(pathlib.Path(checkpoints) / "step-00000001.burst", shape,
                                   {t: math.prod(v[1]) for t, v in wanted.items()})
        apart = abs(is_ / reference["loss"] - 1)
        gradients = {t: distance([m / (1 - BETA1) for m in floats(kept[t][1])], floats(v[2])) for t, v in wanted.items()}
        worst = max(gradients, key=gradients.get)
        print(f"{program.name}: loss {is_:.7f}, in transformers {reference['loss']:.7f}, relative difference {apart:.1e}; "
              f"worst gradient {worst}, relative L2 {gradients[worst]:.1e}")
        require(apart <= LOSS, f"the loss is {is_}, in transformers {reference['loss']}")
        require(gradients[worst] <= GRADIENT, f"the gradient of {worst} differs by {gradients[worst]:.2e}")


def main():
    args = runner.options(__doc__, "--toolchain", parts=("folders", "transformers")).parse_args()
    with runner.folder(args.work) as folder:
        for part in args.part or ["folders"]:
            getattr(Programs(args, folder), part)()


if __name__ == "__main__":
    runner.end(main)
