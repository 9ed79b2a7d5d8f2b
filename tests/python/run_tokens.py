"""`burst tokens` against transformers, and against each text tokenized by itself.

    python3 run_tokens.py --home BUILD [--work FOLDER]

Ends with 77 where tokenizers or transformers is missing.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

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


def wait_for(what, holds):
    until = time.monotonic() + 60
    while not holds():
        require(time.monotonic() < until, f"waited for a minute: {what}")
        time.sleep(0.05)


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def alive(session):
    """Processes of a session that still run."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


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
        (self.folder / "cut.parquet").write_bytes((self.folder / "a.parquet").read_bytes()[:-20])
        said = self.burst("tokens", self.folder / "cut.parquet", "--tokenizer", self.home, "-o", self.folder / "x", status=1).stderr
        require(said.startswith(f"burst: {self.folder / 'cut.parquet'}: ") and "Traceback" not in said, said)

    def help(self):
        said = [self.burst(*words).stdout for words in (("help", "tokens"), ("tokens", "--help"), ("tokens", "-h"))]
        require(said[0] == said[1] == said[2] and "--tokenizer FOLDER" in said[0], said[0])

    def refusals(self):
        out = self.folder / "out.tok"
        out.write_bytes(b"before")
        for name, text, words, wanted in (
                ("a.jsonl", '{"text": "x"}\n{"text": }\n', (), "a.jsonl:2: Expecting value at column 10"),
                ("b.jsonl", '["text"]\n', (), "b.jsonl:1: expected a JSON object, found a list"),
                ("c.jsonl", '{"body": "x", "n": 1}\n', (), "c.jsonl:1: cannot tell what of body, n is the text"),
                ("d.jsonl", '{"text": "x"}\n', ("--text", "body"), "there is no field 'body'; the record has text"),
                ("e.jsonl", '{"text": 7}\n', (), "'text' is a number, expected a text"),
                ("e.jsonl", '{"text": null}\n', (), "'text' is null, expected a text"),
                ("e.jsonl", '{"text": "a"}\n{"text": "\\ud800 x"}\n', (), "e.jsonl:2: character 1 of 'text' is half of a surrogate pair"),
                ("e.jsonl", '{"messages": [{"role": "assistant", "content": "x\\udc00"}]}\n', (), "character 2 of 'content' is half of"),
                ("e.jsonl", '{"text": ' + "[" * 100000 + "\n", (), "e.jsonl:1: lists or objects are nested too deeply"),
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
        for words in (("-o", out, "-o", out), ("--text", "a", "--text", "b", "-o", out), ("--proc", 2, "-o", out)):
            said = self.burst("tokens", self.folder / "k.txt", "--tokenizer", self.home, *words, status=2).stderr
            require("was given twice" in said or "unrecognized arguments: --proc" in said, said)
        home = self.folder / "broken"
        home.mkdir()
        shutil.copy(self.home / "tokenizer.json", home)
        (home / "tokenizer_config.json").write_text("{")
        said = self.burst("tokens", self.folder / "k.txt", "--tokenizer", home, "-o", out, status=1).stderr
        require(f"burst: {home / 'tokenizer_config.json'}: " in said and "Traceback" not in said, said)
        require(out.read_bytes() == b"before", "the output was touched")
        print("refusals: the output stays as it was")

    def outputs(self):
        """A link is followed; what is not a file is left alone, and said before anything is tokenized."""
        text = self.folder / "text.txt"
        text.write_text("an old house")
        (self.folder / "to.tok").write_bytes(b"before")
        (self.folder / "link.tok").symlink_to("to.tok")
        self.burst("tokens", text, "--tokenizer", self.home, "-o", self.folder / "link.tok")
        require((self.folder / "link.tok").is_symlink() and read(self.folder / "to.tok")[1], "the link was replaced")
        os.mkfifo(self.folder / "fifo")
        for name, wanted in (("fifo", "it is not a regular file"), ("tokenizer", "expected the name of a file"), ("", "expected the name of a file"),
                             ("none/x.tok", "there is no folder")):
            said = self.burst("tokens", self.folder / "absent", "--tokenizer", self.home, "-o", name and self.folder / name, status=1).stderr
            require(said.startswith("burst: cannot write to") and wanted in said, f"{name}: {said}")
        require(stat.S_ISFIFO(os.stat(self.folder / "fifo").st_mode), "the FIFO was replaced")
        print("outputs: a link is followed, a FIFO left alone")

    def gaps(self):
        """Ids above the number of tokens."""
        import tokenizers
        t = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 70000, "?": 1}, unk_token="?"))
        t.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        t.save(str(self.folder / "gaps.json"))
        text, out = self.folder / "gaps.txt", self.folder / "gaps.tok"
        text.write_text("b a b")
        self.burst("tokens", text, "--tokenizer", self.folder / "gaps.json", "--no-eos", "-o", out)
        require(read(out)[:2] == (4, [70000, 0, 70000]), f"{read(out)}")
        print("gaps: ids above 65535 take 4 bytes")

    def stops(self):
        """Whatever ends it: nothing under the output's name; no process is left; SIGINT and SIGTERM leave no file and say one line."""
        text, out = self.folder / "long.jsonl", self.folder / "long.tok"
        text.write_text(json.dumps({"text": " ".join(WORDS * 50)}) + "\n", encoding="utf-8")
        line = text.read_bytes()
        text.write_bytes(line * 40000)
        for processes, number in ((1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM), (2, signal.SIGKILL)):
            command = [sys.executable, "-m", "burst", "tokens", str(text), "--tokenizer", str(self.home), "-o", str(out), "--processes", str(processes)]
            with open(self.folder / "said", "w+") as said:
                job = subprocess.Popen(command, env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}, stderr=said, start_new_session=True)
                wait_for("some tokens are written", lambda: any(part.stat().st_size > 1 << 16 for part in self.folder.glob("long.tok.part-*")))
                require(job.poll() is None, "it ended before it was stopped")
                if number == signal.SIGINT:
                    os.killpg(job.pid, number)  # as a terminal does
                else:
                    job.send_signal(number)
                status = job.wait(60)
                wait_for("all processes ended", lambda: not alive(job.pid))
                said.seek(0)
                if number == signal.SIGKILL:  # Python's own process that counts semaphores may warn
                    require(status == -number, f"{status}")
                else:
                    wanted = (128 + number, f"burst: stopped by signal {int(number)}, {signal.strsignal(number)}\n")
                    found = (status, said.read())
                    require(found == wanted, f"{found}, expected {wanted}")
            require(not out.exists(), "a half-written file has the output's name")
            parts = list(self.folder.glob("long.tok.part-*"))
            require(bool(parts) == (number == signal.SIGKILL), f"{number}: {parts}")
            for part in parts:
                part.unlink()
        command[-1] = "2"
        job = subprocess.Popen(command, env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
        wait_for("some tokens are written", lambda: any(part.stat().st_size > 1 << 16 for part in self.folder.glob("long.tok.part-*")))
        os.kill(next(pid for pid in alive(job.pid) if "spawn_main" in command_of(pid)), signal.SIGKILL)
        said = job.communicate(timeout=60)[1]
        require(job.returncode == 1 and said.startswith("burst: a process that tokenizes was lost"), said)
        require(not list(self.folder.glob("long.tok*")), "a file is left")
        print("stops: nothing half-written, no process left")


PARTS = ("help", "texts", "prompts", "chats", "parquet", "refusals", "outputs", "gaps", "stops")


def main():
    args = runner.options(__doc__, "--home", parts=PARTS).parse_args()
    with runner.folder(args.work) as folder:
        tokens = Tokens(args, folder)
        return 1 if runner.run_parts({part: getattr(tokens, part) for part in args.part or PARTS}) else 0


if __name__ == "__main__":
    runner.end(main)
