"""`burst generate`: continues a prompt with the model of a Hugging Face folder, and prints the text as it comes. docs/python.md.

burstc imports the folder's model and compiles a program that infers, which is kept for the next prompt of the same length; the tokenizer of
the folder makes tokens of the text, or of its bytes where the vocabulary has no more than those.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from . import _c
from .cache import kept
from .command import Once, Wrong
from .encoder import Encoder, json_object, text_file
from .model import cluster_text

SHORTEST, TOKENS = 256, 256  # of a prompt's length; by default, that continue it
NVCC = "/usr/local/cuda/bin/nvcc"  # where its installer puts it


def whole(text):
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


class Bytes:
    """Tokens are bytes."""

    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")


class Words:
    """The folder's tokenizer."""

    def __init__(self, folder):
        reading = dict(text=None, prompt=None, answer=None, chat=None, ignore=[], eos=None, no_eos=True)
        self.encoder = Encoder(argparse.Namespace(tokenizer=str(folder), **reading))

    def encode(self, text):
        found = self.encoder.tokens("the prompt", text)
        ids, special = found.ids, found.special_tokens_mask
        while len(ids) > 1 and special[len(ids) - 1]:
            ids = ids[:-1]  # what ends a text does not end a prompt
        return ids

    def decode(self, ids):
        return self.encoder.tokenizer.decode(ids, skip_special_tokens=True)


def vocabulary_of(folder):
    config = json_object(folder / "config.json")
    words = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size", 0)
    if (folder / "tokenizer.json").exists():
        return Words(folder)
    if 0 < words <= 256:
        return Bytes()
    raise Wrong(f"{folder} has no tokenizer.json")


def ends_of(folder):
    """Tokens that end a text."""
    for name in ("generation_config.json", "config.json"):
        found = json_object(folder / name).get("eos_token_id")
        if found is not None:
            return [i for i in (found if isinstance(found, list) else [found]) if isinstance(i, int)]
    return []


def burstc(folder, *words, environment=None):
    done = subprocess.run([str(_c.home() / "bin/burstc"), *words], cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise Wrong(done.stderr.strip() or f"burstc ended with {done.returncode}")
    return done.stdout


def model_text(folder, length, tokens, layout):
    """What burstc reads: the folder's model, which infers."""
    text = burstc(None, "import", str(folder))
    text = re.sub(r"(?m)^sequence [^;]*;.*\n", "", text[:text.index("train {")] if "train {" in text else text)
    return text + f"layout {{ {layout} }}\ninfer {{ lengths {length}; tokens {tokens}; }}\n"


def gpus(wanted):
    """The cluster of so many GPUs of this machine."""
    names = []
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
        names = [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
    if not names:
        raise Wrong("no GPU is found: nvidia-smi lists none; `--ranks N` runs on CPUs")
    if wanted > len(names):
        raise Wrong(f"--gpus is {wanted}, and nvidia-smi lists {len(names)}")
    if not nvcc():
        raise Wrong(f"nvcc is not found, which compiles programs for GPUs: it is not in $PATH, and {NVCC} is missing; install the CUDA toolkit, set "
                    "NVCC to its path, or use `--ranks N` for CPUs")
    try:
        return cluster_text([wanted], names[0])
    except ValueError:
        raise Wrong(f"no figures are known for '{names[0]}': give --cluster FILE, which `burstc probe gpus` writes")


def nvcc():
    named = os.environ.get("NVCC")
    return shutil.which(named or "nvcc") or (NVCC if not named and os.access(NVCC, os.X_OK) else None)


def program_of(cluster, model, version):
    compilers = {"CC": os.environ.get("CC", ""), "NVCC": nvcc() or os.environ.get("NVCC", "")}

    def make(folder):
        (folder / "cluster.topo").write_text(cluster)
        (folder / "model.burst").write_text(model)
        burstc(folder, "cluster.topo", "model.burst", "-o", "program",
               environment={**os.environ, **{name: value for name, value in compilers.items() if value}})

    name = hashlib.sha256("\0".join((cluster, model, version, *compilers.values(), str(os.geteuid()))).encode()).hexdigest()[:32]
    return kept(name, make, "program") / "program"


def printed(decoder, ids, shown):
    """Prints what the ids add to the text that was shown; the text that is shown then. What a later token completes waits."""
    text = decoder.decode(ids)
    if text.endswith("\ufffd"):
        return shown
    sys.stdout.write(text[len(shown):])
    sys.stdout.flush()
    return text


def continue_prompt(program, folder, asked, decoder, statistics):
    run = subprocess.Popen([str(program), "--weights", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ids, shown = [], ""
    try:
        run.stdin.write(json.dumps(asked) + "\n")
        run.stdin.close()
        for line in run.stdout:
            found = json.loads(line)
            if "token" in found:
                ids += [found["token"]] if found["token"] not in asked["stop"] else []
                shown = printed(decoder, ids, shown)
            elif statistics:
                print(f"\n{len(asked['prompt'])} tokens of a prompt, first token after {found['first_token_seconds']:.3f} s, "
                      f"{found['tokens']} tokens, {found['token_seconds']:.4f} s each", file=sys.stderr)
        if run.wait():
            raise Wrong(f"the program ended with {run.returncode}")
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
            run.wait()
    print(decoder.decode(ids)[len(shown):])


def run(args):
    folder = pathlib.Path(args.folder).resolve()
    if not folder.is_dir():
        raise Wrong(f"{args.folder}: no such folder")
    if (args.prompt is None) == (args.prompt_file is None):
        raise Wrong("give --prompt TEXT or --prompt-file FILE")
    decoder = vocabulary_of(folder)
    prompt = decoder.encode(text_file(pathlib.Path(args.prompt_file)) if args.prompt is None else args.prompt)
    if not prompt:
        raise Wrong("the prompt has no token")
    if args.gpus and (args.ranks or args.cluster):
        raise Wrong("--gpus cannot be combined with --ranks or --cluster")
    length = SHORTEST
    while length < len(prompt):
        length *= 2
    if args.cluster:
        cluster = text_file(pathlib.Path(args.cluster))
    else:
        cluster = gpus(args.gpus) if args.gpus else cluster_text([args.ranks or 1])
    model = model_text(folder, length, args.tokens, args.layout)
    program = program_of(cluster, model, burstc(None, "--version"))
    if args.echo:
        sys.stdout.write(decoder.decode(prompt))
    continue_prompt(program, folder, {"prompt": prompt, "tokens": args.tokens, "stop": ends_of(folder)}, decoder, args.statistics)


def add_parser(commands):
    p = commands.add_parser("generate", allow_abbrev=False, help="continue a prompt with the model of a Hugging Face folder",
                            description="Continues a prompt greedily with the model of a Hugging Face folder, on CPUs or GPUs.")
    p.add_argument("folder", help="a Hugging Face folder")
    p.add_argument("--prompt", action=Once, metavar="TEXT", help="the prompt")
    p.add_argument("--prompt-file", action=Once, metavar="FILE", help="a file with the prompt")
    p.add_argument("--tokens", action=Once, type=whole, default=TOKENS, metavar="N", help=f"at most so many continue it ({TOKENS})")
    p.add_argument("--ranks", action=Once, type=whole, metavar="N", help="processes that share the prompt, on CPUs (1)")
    p.add_argument("--gpus", action=Once, type=whole, metavar="N", help="GPUs of this machine that share the prompt, in place of --ranks")
    p.add_argument("--cluster", action=Once, metavar="FILE", help="a .topo file, such as burstc probe writes, in place of --ranks")
    p.add_argument("--layout", action=Once, default="", metavar="TEXT", help="settings of the layout: \"tensor 2; schedule ring;\"")
    p.add_argument("--echo", action="store_true", help="print the prompt too")
    p.add_argument("--statistics", action="store_true", help="print the times to the first token and of further ones")
    p.set_defaults(run=run)
