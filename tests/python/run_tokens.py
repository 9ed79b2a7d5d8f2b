"""`burst tokens` against transformers, and against each text tokenized by itself.

Part templates draws chat templates and conversations, by the date; BURST_TEST_ALL=1: 3000 conversations.

    python3 run_tokens.py --home BUILD [--work FOLDER]

Ends with 77 where tokenizers or transformers is missing.
"""
import argparse
import datetime
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

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[n] / name) for n, name in ((1, "lib"), (2, "python"))]
import runner  # noqa: E402
from runner import require, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Nothing else of the user's, but where compiled Python is kept: not in the source tree, and not compiled by each process.
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin",
               **{name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}}
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


def folder_of(home, source, post_processor=None, **config):
    """A tokenizer folder like another, with another post-processor or configuration."""
    home.mkdir()
    model = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    model["post_processor"] = post_processor
    (home / "tokenizer.json").write_text(json.dumps(model), encoding="utf-8")
    old = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    (home / "tokenizer_config.json").write_text(json.dumps({**old, **config}), encoding="utf-8")
    return home


def byte_level(trim):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trim, "use_regex": True}


def drawn_template(draw):
    """A chat template, and the same one with what the assistant generates marked as transformers marks it, where `weight` is not 0."""
    separator, trim = draw.choice(("\\n", " ", "")), draw.choice(("", " | trim"))
    call = "{% if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}"
    think = draw.choice(("", "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"))
    body = think + "{{ m['content']" + trim + " }}" + call + "<|end|>" + draw.choice(("", "{{ '\\n' }}"))
    ask = draw.choice(("", "{% if add_generation_prompt %}<|assistant|>{{ '" + separator + "' }}{% endif %}"))
    begin = ("{{ bos_token }}" + "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
             + "{% for m in messages %}<|{{ m['role'] }}|>{{ '" + separator + "' }}")
    marked = ("{% if m['role'] == 'assistant' and m.get('weight', 1) %}{% generation %}" + body + "{% endgeneration %}{% else %}" + body
              + "{% endif %}")
    return begin + body + "{% endfor %}" + ask, begin + marked + "{% endfor %}" + ask, bool(think)


class Tokens:
    def __init__(self, args, folder):
        self.all = args.all
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
        return run([sys.executable, "-m", "burst", *words], 120, env=ENVIRONMENT,
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

    def encoder(self, *words, home=None):
        """In this process: many inputs take no more time than one."""
        from burst import encoder, tokens
        parser = argparse.ArgumentParser()
        tokens.add_parser(parser.add_subparsers())
        return encoder.Encoder(parser.parse_args(["tokens", "-", "--tokenizer", str(home or self.home), "-o", "-", *words]))

    def refused(self, expected, record, *words, home=None):
        from burst.command import Wrong
        try:
            found = self.encoder(*words, home=home).encode("PLACE", json.loads(json.dumps(record)))
        except Wrong as error:
            require(str(error).startswith("PLACE: ") and expected in str(error), f"{record}: {error}, expected {expected}")
        else:
            require(False, f"{record} is {found}, expected {expected}")

    def drawn_text(self, draw):
        words = draw.choices(WORDS, k=draw.randrange(0, 8)) + draw.choices(("  ", "\n", "\n\n    ", "\t", " ", "assistant", "<|assistant|>"), k=3)
        draw.shuffle(words)
        return draw.choice(("", " ")).join(words) or "."

    def drawn_chat(self, draw, thinks):
        """A record; messages as transformers takes them."""
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": 1}}}] if draw.random() < 0.3 else None
        messages = [{"role": "system", "content": self.drawn_text(draw)}] if draw.random() < 0.4 else []
        for _ in range(draw.randrange(1, 4)):
            answer = {"role": "assistant", "content": self.drawn_text(draw)}
            if tools and draw.random() < 0.5:
                answer |= {"content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {draw.choice("xyz"): draw.randrange(9)}}}]}
            if draw.random() < 0.3:
                answer["weight"] = draw.randrange(2)
            if thinks and draw.random() < 0.5:
                answer["reasoning_content" if draw.random() < 0.5 else "reasoning"] = self.drawn_text(draw)
            messages += [{"role": "user", "content": self.drawn_text(draw)}, answer]
        if draw.random() < 0.3:
            messages = [{"name": None, "tool_calls": None, **m} for m in messages]
        record = {"messages": messages, "id": "x", "tools": tools if tools and draw.random() < 0.5 else json.dumps(tools or [])}
        if draw.random() < 0.3 and not tools:
            names = {"user": "human", "assistant": "gpt"}
            record = {"conversations": [{k: v for k, v in m.items() if k not in ("role", "content")}
                                        | {"from": names.get(m["role"], m["role"]), "value": m["content"]} for m in messages]}
            if messages[0]["role"] == "system":
                record = {"system": messages[0]["content"], "conversations": record["conversations"][1:]}
        return record, messages, tools

    def templates(self):
        """Tokens and weights of drawn conversations, by drawn templates with a generation prompt or none, offsets trimmed or not."""
        day, draws = datetime.date.today().toordinal(), 3000 if self.all else 150
        counted = 0
        keep = folder_of(self.folder / "keep", self.home, byte_level(False))
        trim = folder_of(self.folder / "trim", self.home, byte_level(True))
        import transformers
        theirs, here = transformers.AutoTokenizer.from_pretrained(keep), [self.encoder(home=home) for home in (keep, trim)]
        from burst.chats import Template
        for i in range(draws):
            draw = random.Random(day * draws + i)
            plain, marked, thinks = drawn_template(draw)
            record, messages, tools = self.drawn_chat(draw, thinks)
            ours = here[i % 2]
            ours.templates = {"default": Template("PLACE", draw.choice((plain, marked.replace(" and m.get('weight', 1)", ""))),
                                                  {"bos_token": "<s>"})}
            wanted = theirs.apply_chat_template(messages, tools=tools, chat_template=marked, return_dict=True, return_assistant_tokens_mask=True)
            found = ours.encode("PLACE", record)
            require(found == (wanted["input_ids"], wanted["assistant_masks"]),
                    f"draw {day * draws + i}: {record} by {plain}: {found}, expected {wanted['input_ids']}, {wanted['assistant_masks']}")
            counted += sum(found[1])
        print(f"templates: {draws} conversations as transformers has them; {counted} tokens count")

    def fields(self):
        """What fields mean that have one; others than these are left out."""
        def prompt(before, after, **record):
            head, tail = self.ids(before), self.ids(after, False) + [self.end]
            return record, (head + tail, [0] * len(head) + [1] * len(tail))

        for record, wanted in (
                prompt("Do it:\nthis", "ok", instruction="Do it:", input="this", output="ok"),
                prompt("Do it:", "ok", instruction="Do it:", input="", output="ok", history=[], system=None, id=7, source="x"),
                prompt("When?\nIn 2000.", "2000", instruction="When?", context="In 2000.", response="2000", category="qa"),
                prompt("Be kind.\nWhy?", "So.", system_prompt="Be kind.", question="Why?", response="So.", label=3),
                prompt("Why?", "So.", question="Why?", answer="So.", text="", messages=None)):
            require(self.encoder().encode("PLACE", record) == wanted, f"{record} is not {wanted}")
        record, wanted = prompt("Do it:", "ok", instruction="Do it:", input="this", output="ok", text="all", loss_mask=[1])
        found = self.encoder("--ignore", "input", "--ignore", "text", "--ignore", "loss_mask").encode("PLACE", record)
        require(found == wanted, f"{record} is {found}, expected {wanted}")
        alpaca, chat = {"instruction": "a", "output": "b"}, {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
        for name, value in (("history", [["a", "b"]]), ("tools", [{"name": "f"}]), ("functions", [{"name": "f"}]), ("choices", ["a", "b"]),
                            ("passage", "a"), ("query", "a"), ("chosen", "a"), ("rejected", "a"), ("label", False), ("loss_mask", [0, 1]),
                            ("weight", 2), ("images", ["a.png"])):
            self.refused(f"'{name}' would change what the record means", {**alpaca, name: value})
        for name, value in (("history", [["a", "b"]]), ("functions", [{"name": "f"}]), ("rejected", "a"), ("label", True), ("loss_mask", [0, 1]),
                            ("assistant_masks", [0, 1]), ("weight", 0), ("images", ["a.png"])):
            self.refused(f"'{name}' would change what the record means", {**chat, name: value})
        self.refused("'loss_mask' would change", {"text": "a", "loss_mask": [0]})
        self.refused("--prompt instruction --answer output or with --text text", {**alpaca, "text": "c"})
        self.refused("--prompt instruction --answer output or with --prompt question --answer output", {**alpaca, "question": "c"})
        self.refused("--chat messages or with --chat conversations", {**chat, "conversations": chat["messages"]})
        self.refused("--text text or with --text content", {"text": "a", "content": "b"})
        self.refused("'text' is null", {"text": None})
        print("fields: used or refused by name")

    def messages(self):
        """What a message may have; what the template leaves out is an error."""
        def chat(*messages, **more):
            return {"messages": [dict(zip(("role", "content"), m[:2])) | (m[2] if len(m) > 2 else {}) for m in messages], **more}

        ask, answer = ("user", "a"), ("assistant", "b")
        call = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}
        skips = TEMPLATE.replace("m['content']", "(m['content'] if m['role'] != 'tool' else '')")
        for expected, record, template in (
                ("leaves out 'name'", chat(("user", "a", {"name": "Bob"}), answer), TEMPLATE),
                ("leaves out 'tool_calls' of message 2", chat(ask, ("assistant", None, call)), TEMPLATE),
                ("leaves out 'function_call'", chat(ask, ("assistant", None, {"function_call": {"name": "f"}})), TEMPLATE),
                ("leaves out 'reasoning'", chat(ask, ("assistant", "b", {"reasoning": "c"})), TEMPLATE),
                ("leaves out 'tools'", chat(ask, answer, tools=[{"name": "f"}]), TEMPLATE),
                ("leaves out 'documents'", chat(ask, answer, documents=[{"title": "f"}]), TEMPLATE),
                ("leaves out the content of message 3, of the role `tool`", chat(ask, answer, ("tool", "7"), answer), skips),
                ("'tools': Expecting value at column 2", chat(ask, answer, tools="["), TEMPLATE),
                ("'tools' must be a list of objects", chat(ask, answer, tools='{"a": 1}'), TEMPLATE),
                ("message 2 of 'messages': 'weight' is 0.5, expected 0 or 1", chat(ask, ("assistant", "b", {"weight": 0.5})), TEMPLATE),
                ("'weight' is a text, expected 0 or 1", chat(ask, ("assistant", "b", {"weight": "0"})), TEMPLATE),
                ("'weight' and 'train' differ", chat(ask, ("assistant", "b", {"weight": 0, "train": True})), TEMPLATE),
                ("message 1 of 'messages': 'train' is 1, but only what the assistant says", chat(("user", "a", {"train": True}), answer), TEMPLATE),
                ("'loss_mask' would change what it means", chat(ask, ("assistant", "b", {"loss_mask": 0})), TEMPLATE),
                ("message 2 of 'messages' has no `content`", chat(ask, ("assistant", None)), TEMPLATE),
                ("'content' is a list, expected a text", chat(("user", [{"type": "text", "text": "a"}]), answer), TEMPLATE),
                ("has both 'role' and 'from'", chat(("user", "a", {"from": "human"}), answer), TEMPLATE),
                ("message 1 of 'messages' is a text, expected an object", {"messages": ["a", "b"]}, TEMPLATE),
                ("the role 'model' would not count", chat(ask, ("model", "b")), TEMPLATE),
                ("has no message of the role `assistant`", chat(ask), TEMPLATE),
                ("another one of the role `system`", chat(("system", "s"), ask, answer, system="t"), TEMPLATE),
                ("the chat template fails: no system", chat(("system", "s"), ask, answer),
                 "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE),
                ("cannot be told from prompts", chat(ask, answer, ask, answer),
                 "{% for m in messages %}{{ '' if loop.last else '!' }}{{ m['content'] }}{% endfor %}"),
                ("surrounds no answer", chat(ask, answer), TEMPLATE + "{% if false %}{% generation %}{% endgeneration %}{% endif %}"),
                ("the chat template cannot be compiled", chat(ask, answer), "{% for %}")):
            home = folder_of(self.folder / "template", self.home, chat_template=template)
            (home / "chat_template.jinja").write_text(template)
            if "compiled" in expected:
                said = self.burst("tokens", self.records(record), "--tokenizer", home, "-o", self.folder / "x", status=1).stderr
                require(f"burst: {home / 'chat_template.jinja'}: {expected}" in said, said)
            else:
                self.refused(expected, record, home=home)
            shutil.rmtree(home)
        for name in ("weight", "train"):
            found = [self.encoder().encode("PLACE", chat(ask, ("assistant", "b", {name: w}), ask, answer)) for w in (1, 0)]
            plain = self.encoder().encode("PLACE", chat(ask, answer, ask, answer))
            require(found[0] == plain and found[1][0] == plain[0] and 0 < sum(found[1][1]) < sum(plain[1]), f"{name}: {found}, {plain}")
        tools = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": "{{ tools | tojson(indent=1) }}" + TEMPLATE}]
        home = folder_of(self.folder / "named", self.home, chat_template=tools)
        (self.folder / "named" / "chat_template.jinja").unlink(missing_ok=True)
        for record in (chat(ask, answer), chat(ask, answer, tools=[{"name": "f"}])):
            text = self.theirs.apply_chat_template(record["messages"], tools=record.get("tools"), tokenize=False,
                                                   chat_template=tools["tools" in record]["template"])
            require(self.encoder(home=home).encode("PLACE", record)[0] == self.ids(text, False), f"{record} is not {text}")
        print("messages: used or refused by name")

    def records(self, *records):
        path = self.folder / "records.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
        return path

    def declared(self):
        """Tokens that tokenizer_config.json alone declares, and properties that it changes."""
        import transformers
        size = self.t.get_vocab_size()
        added = {str(size): {"content": "<new>", "special": True}, str(size + 1): {"content": "seaweed", "special": False, "lstrip": True},
                 str(self.t.token_to_id("<|end|>")): {"content": "<|end|>", "special": True, "rstrip": True}}
        home = folder_of(self.folder / "declared", self.home, byte_level(False), added_tokens_decoder=added, eos_token="<new>")
        theirs = transformers.AutoTokenizer.from_pretrained(home)
        text = "an old <new> seaweed by the <|end|>  sea"
        wanted = theirs(text)["input_ids"]
        require(size in wanted and size + 1 in wanted, f"transformers has {wanted}")
        require(self.encoder(home=home).encode("PLACE", text)[0] == [*wanted, size], f"not {wanted}")
        for name, tokens, expected in (("gap", {str(size + 5): {"content": "<new>"}}, f"'<new>' is declared as {size + 5}, but the next id of"),
                                       ("odd", {"x": {"content": "<new>"}}, "must be an object of tokens by their ids")):
            home = folder_of(self.folder / name, self.home, added_tokens_decoder=tokens)
            said = self.burst("tokens", self.records({"text": "a"}), "--tokenizer", home, "-o", self.folder / "x", status=1).stderr
            require(f"burst: {home / 'tokenizer_config.json'}: " in said and expected in said, said)
        print("declared: as transformers reads them")

    def hostile(self):
        """Each at its file and line, without what a terminal obeys."""
        from burst import documents
        from burst.command import Wrong

        def wrong(path, expected):
            try:
                found = [self.encoder().encode(place, document) for place, document, _ in documents.documents_of(path, False, {"text", "messages"})]
            except Wrong as error:
                require(str(error).startswith(str(path)) and expected in str(error), f"{error}, expected {expected}")
            else:
                require(False, f"{path} is {found}, expected {expected}")

        path = self.folder / "hostile.jsonl"
        for line, expected in (('{"text": "a", "n": ' + "1" * 5000 + "}", ":2: a number has more than 4300 digits"),
                               ('{"text": 1e400}', ":2: 'text' is a number"), ('{"text": "a", "text": "b"}', ":2: there are two fields 'text'"),
                               ('{"text": "a", "n": {"x": 1, "x": 1}}', ":2: there are two fields 'x'")):
            path.write_text('{"text": "a"}\n' + line + "\n")
            wrong(path, expected)
        path.write_text('{"a\\u001b[31mb\\u202ec": 1}\n')
        said = self.burst("tokens", path, "--tokenizer", self.home, "-o", self.folder / "x", status=1).stderr
        require("a\\x1b[31mb\\xe2\\x80\\xaec" in said and said.isprintable() is False and said[:-1].isprintable(), repr(said))
        import tokenizers
        for model in (tokenizers.models.WordLevel({"</s>": 0}, unk_token="<unk>"), tokenizers.models.Unigram([("</s>", 0.0)]),
                      tokenizers.models.WordPiece({"</s>": 0}, unk_token="[UNK]")):
            tokenizers.Tokenizer(model).save(str(self.folder / "unknown.json"))
            self.refused("the tokenizer cannot encode the text: ", {"text": "a"}, "--no-eos", home=self.folder / "unknown.json")
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            return
        path = self.folder / "hostile.parquet"
        times = {"time": pyarrow.array([0, 10 ** 15], pyarrow.timestamp("s")), "date": pyarrow.array([0, 10 ** 8], pyarrow.date32()),
                 "utf8": pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"a\xff")])}
        parquet.write_table(pyarrow.table({"text": ["a", "b"], **times}), path)  # columns that are not read
        rows = [self.encoder().encode(place, document)[0] for place, document, _ in documents.documents_of(path, False, {"text"})]
        require(rows == [self.ids(t) + [self.end] for t in "ab"], f"{rows}")
        for name, column in times.items():
            parquet.write_table(pyarrow.table({"text": column}), path)
            wrong(path, ", row 2: byte 1 of 'text' is not UTF-8" if name == "utf8" else ", row 2: 'text' cannot be read: ")
        for names, columns in ((["text", "text"], [["a"], ["b"]]), (["messages"], [pyarrow.StructArray.from_arrays([["a"], ["b"]], ["role", "role"])])):
            parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(c) for c in columns], names), path)
            wrong(path, f": there are two columns '{'text' if names[0] == 'text' else 'messages.role'}'")
        print("hostile: refused at their lines and rows")

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
        chats = [self.drawn_chat(random.Random(i), False)[1] for i in range(40)]  # rows without a call have null in its place
        calls = self.home.parent / "calls"
        template = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m.content }}{% if m.name is defined %}{{ m.name }}{% endif %}"
                    "{% if m.tool_calls is defined %}{{ m.tool_calls | tojson(sort_keys=true) }}{% endif %}<|end|>{% endfor %}")
        folder_of(calls, self.home, chat_template=template)
        (calls / "chat_template.jinja").unlink(missing_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist([{"messages": m} for m in chats]), self.folder / "chats.parquet")
        self.burst("tokens", self.folder / "chats.parquet", "--tokenizer", calls, "-o", self.folder / "chats.tok", "--ignore", "weight")
        bare = [[{k: v for k, v in m.items() if k != "weight"} for m in chat] for chat in chats]
        tokens = [t for m in bare for t in self.theirs.apply_chat_template(m, chat_template=template, return_dict=False)]
        require(read(self.folder / "chats.tok")[1] == tokens, "keys that are null in Parquet are rendered")
        (self.folder / "cut.parquet").write_bytes((self.folder / "a.parquet").read_bytes()[:-20])
        said = self.burst("tokens", self.folder / "cut.parquet", "--tokenizer", self.home, "-o", self.folder / "x", status=1).stderr
        require(said.startswith(f"burst: {self.folder / 'cut.parquet'}: ") and "Traceback" not in said, said)

    def help(self):
        said = [self.burst(*words).stdout for words in (("help", "tokens"), ("tokens", "--help"), ("tokens", "-h"))]
        require(said[0] == said[1] == said[2] and "--tokenizer FOLDER" in said[0], said[0])
        loaded = run([sys.executable, "-c", "import sys, burst.__main__; print('torch' in sys.modules)"], 120, env=ENVIRONMENT).stdout
        require(loaded == "False\n", "the command imports torch, which takes seconds and may not be installed")

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
                ("i.csv", "text,n\na,1\n", (), "i.csv: a table cannot be read; write each row as a JSON object"),
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
        home = folder_of(self.folder / "kept", self.home)
        (home / "weights").write_bytes(b"weights")
        (home / "link").symlink_to("tokenizer.json")
        before = {path.name: path.read_bytes() for path in home.iterdir()}
        for name, expected in (("tokenizer.json", "it is the tokenizer"), ("tokenizer_config.json", "it is the tokenizer"), ("link", "it is the tokenizer"),
                               ("weights", "it is a file of the tokenizer's folder")):
            said = self.burst("tokens", self.folder / "k.txt", "--tokenizer", home, "-o", home / name, status=1).stderr
            require(expected in said, said)
        require(before == {path.name: path.read_bytes() for path in home.iterdir()}, "a file of the tokenizer was replaced")
        for _ in range(2):
            self.burst("tokens", self.folder / "k.txt", "--tokenizer", home, "-o", home / "own.tok")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            home = folder_of(self.folder / f"fifo_{name}", self.home)
            (home / name).unlink(missing_ok=True)
            os.mkfifo(home / name)
            said = self.burst("tokens", self.records({"messages": [{"role": "assistant", "content": "a"}]}), "--tokenizer", home, "-o", out, status=1).stderr
            require(f"{home / name}: not a regular file" in said, said)
        os.mkfifo(self.folder / "input")
        for path in (self.folder / "input", "/dev/zero"):
            said = self.burst("tokens", path, "--tokenizer", self.home, "-o", out, status=1).stderr
            require(f"burst: {path}: not a regular file" in said, said)
        for words, wanted in ((("-o", out, "-o", out), "-o was given twice"), (("--text", "a", "--text", "b", "-o", out), "--text was given twice"),
                              (("--procesess", 2, "-o", out), "unknown option --procesess; did you mean --processes?"),
                              (("--proc", 2, "-o", out), "unknown option --proc")):
            said = self.burst("tokens", self.folder / "k.txt", "--tokenizer", self.home, *words, status=2).stderr
            require(wanted in said, said)
        for words, wanted in ((("tokens", "k.txt", "--tokeniser", "x"), "unknown option --tokeniser; did you mean --tokenizer?"),  # not what is missing
                              (("token", "k.txt"), "unknown command 'token'; did you mean tokens?"), (("run",), "unknown command 'run'; known are tokens, plot"),
                              (("--hlep",), "unknown option --hlep; did you mean --help?")):
            require(wanted in self.burst(*words, status=2).stderr, wanted)
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
                job = subprocess.Popen(command, env=ENVIRONMENT, stderr=said, start_new_session=True)
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
        self.stops_at_once(command)
        command[-1] = "2"
        job = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
        wait_for("some tokens are written", lambda: any(part.stat().st_size > 1 << 16 for part in self.folder.glob("long.tok.part-*")))
        os.kill(next(pid for pid in alive(job.pid) if "spawn_main" in command_of(pid)), signal.SIGKILL)
        said = job.communicate(timeout=60)[1]
        require(job.returncode == 1 and said.startswith("burst: a process that tokenizes was lost"), said)
        require(not list(self.folder.glob("long.tok*")), "a file is left")
        print("stops: nothing half-written, no process left")


    def stops_at_once(self, command):
        """Also where a process that tokenizes will never answer."""
        for processes in ("1", "2"):
            job = subprocess.Popen([*command[:-1], processes], env=ENVIRONMENT,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
            wait_for("some tokens are written", lambda: any(part.stat().st_size > 1 << 16 for part in self.folder.glob("long.tok.part-*")))
            for pid in alive(job.pid):
                if "spawn_main" in command_of(pid):
                    os.kill(pid, signal.SIGSTOP)
            job.send_signal(signal.SIGINT)
            try:
                said = job.communicate(timeout=60)[1]
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                require(False, f"{processes} processes that are stopped keep it from ending")
            require(job.returncode == 130 and said == f"burst: stopped by signal 2, {signal.strsignal(2)}\n", said)
            wait_for("all processes ended", lambda: not alive(job.pid))
            require(not list(self.folder.glob("long.tok*")), "a file is left")


PARTS = ("help", "texts", "prompts", "chats", "templates", "fields", "messages", "declared", "hostile", "parquet", "refusals", "outputs", "gaps", "stops")


def main():
    args = runner.options(__doc__, "--home", parts=PARTS).parse_args()
    with runner.folder(args.work) as folder:
        tokens = Tokens(args, folder)
        return 1 if runner.run_parts({part: getattr(tokens, part) for part in args.part or PARTS}) else 0


if __name__ == "__main__":
    runner.end(main)
