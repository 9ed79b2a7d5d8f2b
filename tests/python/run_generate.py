"""`burst generate` against transformers: the text that a small model writes, with a tokenizer and with bytes; what is refused.

    python3 run_generate.py --home BUILD [--work FOLDER]

Ends with 77 where torch, transformers or tokenizers is missing.
"""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import runner  # noqa: E402
from runner import require  # noqa: E402

TOKENS = 24


def make(folder, words):
    """A random model; words: with a tokenizer of so many words, else of bytes."""
    import tokenizers
    import torch
    import transformers
    torch.manual_seed(words + 1)
    config = transformers.LlamaConfig(vocab_size=words or 256, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, initializer_range=0.2, eos_token_id=2, bos_token_id=1)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    if words:
        found = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
        found.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        transformers.PreTrainedTokenizerFast(tokenizer_object=found, bos_token="w1", eos_token="w2", unk_token="w0").save_pretrained(folder)
    return model.double().eval()


def wanted(model, prompt):
    """Greedy tokens of transformers in float64."""
    import torch
    with torch.no_grad():
        found = model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False)[0, len(prompt):].tolist()
    return [i for i in found if i != 2]


def stub(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def of_gpus(folder, words, generate):
    """--gpus: what is refused, and what it compiles and runs: nvidia-smi and nvcc are stand-ins, the latter's program answers with one token."""
    tools = folder / "tools"
    tools.mkdir()
    found = {"PATH": f"{tools}:{os.environ['PATH']}"}

    def refused(told, *asked, more=found):
        is_ = generate(words, "--prompt", "w5", *asked, status=1, more=more)
        require(told in is_, f"{asked} is not refused with '{told}': {is_}")

    stub(tools / "nvidia-smi", "exit 9\n")
    refused("no GPU is found: nvidia-smi lists none", "--gpus", 1)
    stub(tools / "nvidia-smi", "echo NVIDIA H100 80GB HBM3; echo NVIDIA H100 80GB HBM3\n")
    refused("--gpus is 3, and nvidia-smi lists 2", "--gpus", 3)
    refused("--gpus cannot be combined with --ranks or --cluster", "--gpus", 1, "--ranks", 2)
    refused("nvcc is not found", "--gpus", 1, more=found | {"NVCC": "nowhere"})
    stub(tools / "nvidia-smi", "echo NVIDIA Unknown 1\n")
    refused("no figures are known for 'NVIDIA Unknown 1': give --cluster FILE", "--gpus", 1, more=found | {"NVCC": "true"})
    stub(tools / "nvidia-smi", "echo NVIDIA H100 80GB HBM3; echo NVIDIA H100 80GB HBM3\n")
    stub(tools / "answer", """read asked
echo '{"prompt": 0, "token": 7}'
echo '{"prompt": 0, "tokens": 1, "length": 256, "first_token_seconds": 1, "token_seconds": 0}'
""")
    stub(tools / "mynvcc", f"""while [ "$1" != -o ]; do
    case "$1" in *.cu) echo "$1" >>{folder}/compiled;; esac
    shift
done
cp {tools}/answer "$2"
""")
    for _ in range(2):
        is_ = generate(words, "--prompt", "w5", "--gpus", 2, more=found | {"NVCC": str(tools / "mynvcc")})
        require(is_ == "w7\n", f"two GPUs wrote {is_!r}")
    require(len((folder / "compiled").read_text().splitlines()) == 1, "a program for GPUs is not compiled once from its CUDA source")


def main():
    args = runner.options(__doc__, "--home").parse_args()
    try:
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"not tested: {error}")
        sys.exit(77)
    with runner.folder(args.work) as folder:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent / "python"), "BURST_HOME": args.home, "BURST_CACHE": str(folder / "cache"),
                       "OPENBLAS_NUM_THREADS": "1"}

        def generate(*words, status=0, more={}):
            done = subprocess.run([sys.executable, "-m", "burst", "generate", *map(str, words)], capture_output=True, env=environment | more, timeout=300)
            require(done.returncode == status, f"burst generate {words} ended with {done.returncode}: {done.stderr.decode()}")
            return (done.stderr if status else done.stdout).decode(errors="replace")

        words, plain = folder / "words", folder / "bytes"
        model = make(words, 90)
        prompt = [5, 7, 9, 80, 3]
        (folder / "prompt").write_text(" ".join(f"w{i}" for i in prompt))
        for ranks in (1, 2):
            is_ = generate(words, "--prompt-file", folder / "prompt", "--tokens", TOKENS, "--ranks", ranks)
            text = " ".join(f"w{i}" for i in wanted(model, prompt))
            require(is_.strip() == text, f"{ranks} ranks wrote {is_!r}, transformers {text!r}")
        require(len(list((folder / "cache").iterdir())) == 2, "a program is not kept, or compiled twice")
        generate(words, "--prompt", "w5 w7", "--tokens", TOKENS)
        require(len(list((folder / "cache").iterdir())) == 2, "a prompt of the same length compiles another program")
        model = make(plain, 0)
        is_ = generate(plain, "--prompt", "To be", "--tokens", TOKENS)
        text = bytes(wanted(model, list(b"To be"))).decode(errors="replace")
        require(is_ == text + "\n", f"of bytes it wrote {is_!r}, transformers {text!r}")
        for asked, told in (((folder / "none", "--prompt", "w1"), "no such folder"), ((words,), "give --prompt TEXT or --prompt-file FILE"),
                            ((words, "--prompt", ""), "the prompt has no token")):
            require(told in generate(*asked, status=1), f"{asked} is not refused with '{told}'")
        of_gpus(folder, words, generate)
        print("texts agree with transformers, on 1 and 2 ranks, of words and of bytes")


if __name__ == "__main__":
    runner.end(main)
