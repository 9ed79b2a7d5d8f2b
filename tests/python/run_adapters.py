"""burst.hf: adapter_worker.py and examples/continue_training.py on 4 ranks with gloo (fork_ranks.py), the example on one under torchrun.

Models trained by the adapter equal one rank's eager attention. --part: training (of --model), batches,
layers, refusals, masks, trainer (which needs accelerate), example. 77 without transformers.
"""
import datetime
import json
import os
import pathlib
import random
import re
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ["training", "batches", "layers", "refusals", "masks", "trainer", "example"]
MODELS = ("llama", "qwen3", "gpt_oss")  # one a day; with --all: those of adapter_worker.py
# torch._inductor: also the backend aot_eager imports it.
MODULES = "torch.distributed,torch._dynamo,torch._inductor.pattern_matcher,transformers.masking_utils,transformers.modeling_utils"
TOKENS, SEPARATOR, VOCAB, STEPS, LIMIT = 256, 0, 97, 4, 1e-5
COUNT = TOKENS * (2 * STEPS + 1)
CONFIG = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": VOCAB, "max_position_embeddings": 512, "initializer_range": 0.1, "attention_dropout": 0.0,
    "use_sliding_window": True, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]
}
# The loss of one rank's eager attention on the sequences that the example printed, by transformers alone.
EAGER = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
folder, seed = sys.argv[1], 1
torch.manual_seed(seed)
config = AutoConfig.from_pretrained(folder)
model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
sys.path.append(sys.argv[3])
import numpy
from continue_training import Tokens
path, count, length, separator = sys.argv[2], %d, %d, %d
data = Tokens(path, length, seed)
ids = data[0]
blob = open(path, "rb").read()
tokens, weights = numpy.frombuffer(blob, "<u2", count, 40), numpy.frombuffer(blob, "u1", count, 40 + 2 * count)
at = next(at for at in range(0, count, length) if (tokens[at:at + length] == ids.numpy()).all())
begins = [0] + [i + 1 for i in range(length - 1) if ids[i] == separator]
position = torch.tensor([i - max(b for b in begins if b <= i) for i in range(length)])
labels = torch.where(torch.tensor(weights[at:at + length]) == 1, ids, -100)
plain = Tokens(path + ".1", length, seed)  # without documents and weights
assert (plain[0] == ids).all() and (plain.labels(0) == ids).all() and plain.ends(0, None) == [0, length]
assert plain.ends(0, separator) == data.ends(0, None) == [*begins, length]
labels[begins] = -100
inputs = {"input_ids": ids[None], "position_ids": position[None], "labels": labels[None], "use_cache": False}
print(float(model(**inputs).loss))
""" % (COUNT, TOKENS, SEPARATOR)


def torchrun(ranks, env, *words, timeout=900):
    return runner.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, *words],
        timeout, env=env).stdout


def forked(env, *words):
    """On 4 ranks. Under torchrun each of them would import all of MODULES."""
    return runner.run([sys.executable, HERE / "fork_ranks.py", 4, MODULES, *words], 900, env=env).stdout


def losses_of(text):
    return [float(x) for x in re.findall(r"^step \d+: loss (\S+),", text, re.M)]


def require_alike(a, b, what):
    alike = len(a) == len(b) > 0 and all(abs(x - y) <= LIMIT for x, y in zip(a, b))
    runner.require(alike, f"{what}: {a} and {b}")


def check_example(folder, env, whole):
    """The same losses on one rank and on four, with --all in two groups; the first is eager attention's."""
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(CONFIG))
    r = random.Random(3)
    ids = [r.randrange(VOCAB) for _ in range(COUNT)]
    documents = [0, *(i + 1 for i in range(COUNT - 1) if ids[i] == SEPARATOR)]
    tokens, weights = struct.pack(f"<{COUNT}H", *ids), bytes(r.randrange(2) for _ in range(COUNT))
    (folder / "data.tok").write_bytes(struct.pack("<8sIIQIIQ", b"BURSTTOK", 2, 2, COUNT, 1, 0, len(documents)) + tokens + weights
                                      + struct.pack(f"<{len(documents)}Q", *documents))
    (folder / "data.tok.1").write_bytes(struct.pack("<8sIIQ", b"BURSTTOK", 1, 2, COUNT) + tokens)
    examples = HERE.parent.parent / "examples"
    call = [examples / "continue_training.py", "--model", folder / "model", "--random", "--data",
            folder / "data.tok", "--tokens", TOKENS, "--lr", "1e-3", "--warmup", 2]
    alone = losses_of(torchrun(1, env, *call, "--steps", STEPS, "--recompute", "none", "--loss-rows", 0))
    four = losses_of(forked(env, *call, "--steps", STEPS, "--loss-rows", 50, "--save", folder / "out"))
    require_alike(alone, four, "losses on one rank and on four")
    command = [sys.executable, "-c", EAGER, folder / "model", folder / "data.tok", examples]
    eager = float(runner.run(command, 200, env=env).stdout)
    require_alike(alone[:1], [eager], "the first loss and eager attention's")
    runner.require((folder / "out/model.safetensors").exists(), "nothing was saved")
    if whole:
        two = [losses_of(torchrun(n, env, *call, "--steps", 2, "--groups", 2)) for n in (2, 4)]
        require_alike(*two, "losses of two groups, of one rank and of two")
    print(f"example: losses {four}; eager {eager:.6f}")


def main():
    parser = runner.options(__doc__, "--home", parts=PARTS)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--steps", type=int, default=20)
    o = parser.parse_args()
    if runner.lacks("torch", "transformers"):
        return 77
    with runner.folder(o.work) as folder:
        env = dict(os.environ, BURST_HOME=o.home, BURST_CACHE=str(folder / "cache"),
                   PYTHONPATH=str(HERE.parent.parent / "python"), OMP_NUM_THREADS="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1")
        parts = [word for part in o.part or [] if part != "example" for word in ("--part", part)]
        models = [word for model in o.model or ([] if o.all else [MODELS[datetime.date.today().toordinal() % len(MODELS)]]) for word in ("--model", model)]
        if parts or not o.part:
            print(forked(env, HERE / "adapter_worker.py", "--steps", o.steps, *parts, *models), end="")
        if not o.part or "example" in o.part:
            check_example(folder, env, o.all)
    return 0


sys.exit(main())
