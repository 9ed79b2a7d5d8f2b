"""`burst tokens` against transformers, and against each text tokenized by itself.

    python3 run_tokens.py --home BUILD [--work FOLDER]

Ends with 77 where tokenizers or transformers is missing.
"""
import json
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import require, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' }}\n{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}\n{% endif %}")
WORDS = "an old house by the sea where nobody had lived for ür 日本 years {} \\n \"quoted\" 17 3.5".split()


def read(path):
    """(width, tokens, weights or None, first tokens of documents), by the format's description."""
    blob = path.read_bytes()
    magic, version, width, count, weight, zero, documents = struct.unpack("<8sIIQIIQ", blob[:40])
    require((magic, version, zero) == (b"BURSTTOK", 2, 0) and weight in (0, 1), f"the header is {blob[:40]}")
    at = 40 + count * width
    tokens = list(struct.unpack(f"<{count}{'H' if width == 2 else 'I'}", blob[40:at]))
    at = (at + 7) // 8 * 8
    weights = list(blob[at:at + count]) if weight else None
    at = (at + (count if weight else 0) + 7) // 8 * 8
    require(len(blob) == at + 8 * documents, f"{path} has {len(blob)} bytes, expected {at + 8 * documents}")
    return width, tokens, weights, list(struct.unpack(f"<{documents}Q", blob[at:]))


class Tokens:
    def __init__(self, args, folder):
        import tokenizers
        import transformers
        self.folder, self.random = folder, random.Random(3)
        t = tokenizers.Tokenizer(tokenizers.models.BPE())
        t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = tokenizers.decoders.ByteLevel()
        specials = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
        t.train_from_iterator([self.text() for _ in range(200)], tokenizers.trainers.BpeTrainer(
            vocab_size=500, special_tokens=specials, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        t.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        self.home = folder / "tokenizer"
        transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>",
                                             chat_template=TEMPLATE).save_pretrained(self.home)
        self.theirs, self.t = transformers.AutoTokenizer.from_pretrained(self.home), t
        self.end = t.token_to_id("</s>")

    def text(self):
        return " ".join(self.random.choices(WORDS, k=self.random.randrange(1, 60)))

    def burst(self, *words, status=0):
        return run([sys.executable, "-m", "burst", *words], 120, env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"},
                   status=status)

    def tokens(self, name, records, *words):
        path = self.folder / name
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
        found = []
        for processes in (1, 3):
            out = self.folder / f"{name}.{processes}.tok"
            self.burst("tokens", path, "--tokenizer", self.home, "-o", out, "--processes", processes, *words)
            found.append(out.read_bytes())
        require(found[0] == found[1], f"{name}: the file depends on the number of processes")
        return read(self.folder / f"{name}.1.tok")

    def ids(self, text, special=True):
        return self.theirs(text, add_special_tokens=special)["input_ids"]

    def compare(self, name, is_, documents):
        """documents: [(ids, weights)]"""
        width, tokens, weights, first = is_
        wanted = [t for ids, _ in documents for t in ids]
        require(width == 2 and tokens == wanted, f"{name}: the tokens differ")
        starts, at = [], 0
        for ids, _ in documents:
            starts.append(at)
            at += len(ids)
        require(first == starts, f"{name}: documents begin at {first[:5]}, expected {starts[:5]}")
        expected = None if documents[0][1] is None else [w for _, of in documents for w in of]
        require(weights == expected, f"{name}: the weights differ")
        print(f"{name}: {len(documents)} documents, {len(tokens)} tokens")

    def texts(self):
        texts = [self.text() for _ in range(3000)]
        documents = [(self.ids(t) + [self.end], None) for t in texts]
        self.compare("texts", self.tokens("texts.jsonl", [{"text": t, "id": i} for i, t in enumerate(texts)]), documents)
        self.compare("another field", self.tokens("field.jsonl", [{"body": t} for t in texts[:9]], "--text", "body"), documents[:9])
        self.compare("no end", self.tokens("no.jsonl", [{"text": t} for t in texts[:9]], "--no-eos"), [(self.ids(t), None) for t in texts[:9]])
        plain = self.folder / "plain.txt"
        plain.write_text("\n".join(texts[:9]) + "\n\n", encoding="utf-8")
        for words, wanted in ((("--lines",), documents[:9]), ((), [(self.ids(plain.read_text(encoding="utf-8")) + [self.end], None)])):
            out = self.folder / "plain.tok"
            self.burst("tokens", plain, "--tokenizer", self.home / "tokenizer.json", "-o", out, *words)
            self.compare(f"plain {words}", read(out), wanted)

    def prompts(self):
        pairs = [(self.text(), self.text()) for _ in range(500)]
        documents = []
        for prompt, answer in pairs:
            head, tail = self.ids(prompt), self.ids(answer, False) + [self.end]
            documents.append((head + tail, [0] * len(head) + [1] * len(tail)))
        self.compare("prompts", self.tokens("prompts.jsonl", [{"prompt": p, "completion": a} for p, a in pairs]), documents)
        self.compare("named", self.tokens("named.jsonl", [{"a": p, "b": a, "text": ""} for p, a in pairs], "--prompt", "a", "--answer", "b"), documents)

    def chats(self):
        chats, documents = [], []
        for i in range(300):
            roles = (["system"] if i % 3 else []) + ["user", "assistant"] * self.random.randrange(1, 4)
            chats.append([{"role": r, "content": self.text()} for r in roles])
            ids, weights = [self.t.token_to_id("<s>")], [0]
            for m in chats[-1]:
                head = [self.t.token_to_id(f"<|{m['role']}|>")]
                body = self.ids("\n" + m["content"], False)
                answers = m["role"] == "assistant"
                ids += head + body + [self.t.token_to_id("<|end|>")]
                weights += [0] + [int(answers)] * (len(body) + 1)
                if answers:  # the line's end belongs to what asks for an answer
                    weights[-len(body) - 1] = 0
            require(ids == self.theirs.apply_chat_template(chats[-1], tokenize=True, return_dict=True)["input_ids"], "the test's own tokens are not transformers'")
            documents.append((ids, weights))
        self.compare("chats", self.tokens("chats.jsonl", [{"messages": c} for c in chats]), documents)
        names = {"user": "human", "assistant": "gpt", "system": "system"}
        self.compare("ShareGPT", self.tokens("share.jsonl", [{"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in c]}
                                                             for c in chats]), documents)

    def parquet(self):
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            (self.folder / "a.parquet").write_bytes(b"PAR1")
            said = self.burst("tokens", self.folder / "a.parquet", "--tokenizer", self.home, "-o", self.folder / "x", status=1).stderr
            require("requires pyarrow" in said, said)
            print("parquet: pyarrow is not installed, and the command says so")
            return
        texts = [self.text() for _ in range(700)]
        parquet.write_table(pyarrow.table({"text": texts}), self.folder / "a.parquet")
        self.burst("tokens", self.folder / "a.parquet", "--tokenizer", self.home, "-o", self.folder / "a.tok")
        self.compare("parquet", read(self.folder / "a.tok"), [(self.ids(t) + [self.end], None) for t in texts])

    def help(self):
        said = [self.burst(*words).stdout for words in (("help", "tokens"), ("tokens", "--help"), ("tokens", "-h"))]
        require(said[0] == said[1] == said[2] and "--tokenizer FOLDER" in said[0], said[0])

    def refusals(self):
        out = self.folder / "out.tok"
        out.write_bytes(b"before")
        for name, text, words, wanted in (
                ("a.jsonl", '{"text": "x"}\n{"text": }\n', (), "a.jsonl:2: Expecting value at column 10"),
                ("b.jsonl", '["text"]\n', (), "b.jsonl:1: expected a JSON object, found list"),
                ("c.jsonl", '{"body": "x", "n": 1}\n', (), "c.jsonl:1: cannot tell what of body, n is the text"),
                ("d.jsonl", '{"text": "x"}\n', ("--text", "body"), "there is no field 'body'; the record has text"),
                ("e.jsonl", '{"text": 7}\n', (), "'text' is int, expected a text"),
                ("f.jsonl", '{"messages": [{"role": "user", "content": "x"}]}\n', (), "has no message of the role `assistant`"),
                ("g.jsonl", '{"messages": "x"}\n', (), "must be a list of messages"),
                ("h.jsonl", "\n", (), "the input has no text"),
                ("i.json", "[]", (), "expected JSON lines"),
                ("j.jsonl.gz", "", (), "unpack it first"),
                ("k.txt", "x", ("--eos", "<none>"), "no token '<none>'"),
                ("l.txt", "x", ("--prompt", "a"), "--prompt FIELD with --answer FIELD"),
                ("m.jsonl", '{"text": "x"}\n' * 9 + "{\n", ("--processes", 3), "m.jsonl:10:")):
            (self.folder / name).write_text(text)
            said = self.burst("tokens", self.folder / name, "--tokenizer", self.home, "-o", out, *words, status=1).stderr
            require(wanted in said, f"{name}: {said}, expected {wanted}")
            require(out.read_bytes() == b"before" and not list(self.folder.glob("out.tok.part*")), f"{name}: the output was touched")
        (self.folder / "latin.txt").write_bytes(b"caf\xe9")
        said = self.burst("tokens", self.folder / "latin.txt", "--tokenizer", self.home, "-o", out, status=1).stderr
        require("byte 4 is not UTF-8" in said, said)
        said = self.burst("tokens", self.folder / "none", "--tokenizer", self.home, "-o", out, status=1).stderr
        require("no such file" in said, said)
        said = self.burst("tokens", out, "--tokenizer", self.home, "-o", out, status=1).stderr
        require("it is the input" in said, said)
        print("refusals: the output stays as it was")


PARTS = ("help", "texts", "prompts", "chats", "parquet", "refusals")


def main():
    args = runner.options(__doc__, "--home", parts=PARTS).parse_args()
    with runner.folder(args.work) as folder:
        tokens = Tokens(args, folder)
        return 1 if runner.run_parts({part: getattr(tokens, part) for part in args.part or PARTS}) else 0


if __name__ == "__main__":
    runner.end(main)
