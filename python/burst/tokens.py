"""`burst tokens`: text to a token file, by a Hugging Face tokenizer, with loss weights and documents. docs/python.md.

A token file of version 2 is written (docs/runtime.md, Token files). Workers tokenize batches of documents; their results are
written in the order of the input, so that the file does not depend on how many there are.
"""
import argparse
import array
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from concurrent import futures

from .command import Once, Wrong, counted

CHAT, PROMPT, ANSWER, TEXT = ("messages", "conversations"), ("prompt", "instruction", "question"), (
    "answer", "completion", "response", "output"), ("text", "content")
ROLES = {"human": "user", "gpt": "assistant"}  # of ShareGPT
BATCH = 1 << 19  # characters that a worker takes at once
KINDS = {type(None): "null", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}  # of JSON


# ---- input: (place, document) one after the other, a document being a record or a text ----

def lines_of(path):
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            yield f"{path}:{number}", line, file.tell()


def text_of(place, data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong(f"{place}: byte {error.start + 1} is not UTF-8") from None


def kind_of(value):
    return KINDS.get(type(value), type(value).__name__)


def checked_text(place, name, value):
    if not isinstance(value, str):
        raise Wrong(f"{place}: '{name}' is {kind_of(value)}, expected a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Wrong(f"{place}: character {error.start + 1} of '{name}' is half of a surrogate pair, which is no text") from None
    return value


def json_lines(path):
    for place, line, done in lines_of(path):
        if not line.strip():
            continue
        try:
            record = json.loads(text_of(place, line))
        except json.JSONDecodeError as error:
            raise Wrong(f"{place}: {error.msg} at column {error.colno}; expected a JSON object on each line") from None
        except RecursionError:
            raise Wrong(f"{place}: lists or objects are nested too deeply") from None
        if not isinstance(record, dict):
            raise Wrong(f"{place}: expected a JSON object, found {kind_of(record)}")
        yield place, record, done


def parquet(path):
    try:
        from pyarrow import ArrowException, parquet as pq
    except ModuleNotFoundError:
        raise Wrong(f"{path}: reading Parquet requires pyarrow; install it with pip install pyarrow") from None
    try:
        file, size = pq.ParquetFile(path), os.path.getsize(path)
        rows, number = max(file.metadata.num_rows, 1), 0
        for batch in file.iter_batches(batch_size=256):
            for record in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", record, size * number // rows
    except ArrowException as error:
        raise Wrong(f"{path}: {error}") from None


def plain(path, by_line):
    if by_line:
        for place, line, done in lines_of(path):
            if line.strip():
                yield place, text_of(place, line.rstrip(b"\r\n")), done
    else:
        yield path, text_of(path, pathlib.Path(path).read_bytes()), os.path.getsize(path)


def documents_of(path, by_line):
    kind = pathlib.Path(path).suffix.lower()
    if kind == ".parquet":
        return parquet(path)
    if kind in (".jsonl", ".ndjson"):
        return json_lines(path)
    if kind == ".json":
        raise Wrong(f"{path}: expected JSON lines, one object on each line, in a file NAME.jsonl")
    if kind in (".gz", ".zst", ".xz", ".bz2", ".zip"):
        raise Wrong(f"{path}: unpack it first")
    return plain(path, by_line)


# ---- a worker ----

def read_config(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Wrong(f"{path}: {error}") from None


class Worker:
    """A tokenizer, and which fields of a record are what. Options must be picklable: `args` of the command line."""

    def __init__(self, args):
        import tokenizers
        folder = pathlib.Path(args.tokenizer)
        file = folder / "tokenizer.json" if folder.is_dir() else folder
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library has no class of its own for it
            raise Wrong(f"{file}: {error}") from None
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.args = args
        self.config = {}
        if (file.parent / "tokenizer_config.json").is_file():
            self.config = read_config(file.parent / "tokenizer_config.json")
        template = file.parent / "chat_template.jinja"
        self.template_text = template.read_text(encoding="utf-8") if template.is_file() else self.config.get("chat_template")
        self.template = None
        self.end = self.end_token()
        self.width = 2 if max(self.tokenizer.get_vocab().values(), default=0) < 1 << 16 else 4  # ids may have gaps

    def end_token(self):
        name = None if self.args.no_eos else self.args.eos or self.special("eos_token")
        if name is None:
            if not self.args.no_eos:
                raise Wrong(f"{self.args.tokenizer} names no eos_token; give one with --eos TOKEN, or use --no-eos")
            return None
        found = self.tokenizer.token_to_id(name)
        if found is None:
            raise Wrong(f"the tokenizer has no token '{name}'")
        return found

    def special(self, name):
        token = self.config.get(name)
        return token.get("content") if isinstance(token, dict) else token

    # fields

    def field(self, record, given, usual):
        if given:
            return given
        return next((name for name in usual if name in record), None)

    def value(self, place, record, name):
        if name not in record:
            raise Wrong(f"{place}: there is no field '{name}'; the record has {', '.join(sorted(record)) or 'none'}")
        return checked_text(place, name, record[name])

    def encode(self, place, document):
        """Ids, and the loss weight of each; None: all 1."""
        a = self.args
        if isinstance(document, str):
            return self.of_text(document)
        chat = None if a.text or a.prompt or a.answer else self.field(document, a.chat, CHAT)
        if chat:
            return self.of_chat(place, document, chat)
        prompt = None if a.text else self.field(document, a.prompt, PROMPT)
        answer = None if a.text else self.field(document, a.answer, ANSWER)
        if prompt and answer:
            return self.of_prompt(self.value(place, document, prompt), self.value(place, document, answer))
        text = self.field(document, a.text, TEXT)
        if not text or a.prompt or a.answer:
            raise Wrong(f"{place}: cannot tell what of {', '.join(sorted(document)) or 'an empty record'} is the text; use --text FIELD, "
                        "--prompt FIELD with --answer FIELD, or --chat FIELD")
        return self.of_text(self.value(place, document, text))

    # texts

    def ended(self, ids):
        return ids if self.end is None or (ids and ids[-1] == self.end) else ids + [self.end]

    def of_text(self, text):
        return (self.ended(self.tokenizer.encode(text).ids) if text else []), None

    def of_prompt(self, prompt, answer):
        """Each by itself, as a model that answers meets them."""
        begin = self.tokenizer.encode(prompt)
        ids, special = begin.ids, begin.special_tokens_mask
        while ids and special[len(ids) - 1] and len(ids) > 1:
            ids = ids[:-1]  # what ends a text does not end a prompt
        rest = self.ended(self.tokenizer.encode(answer, add_special_tokens=False).ids)
        return ids + rest, [0] * len(ids) + [1] * len(rest)

    # chats

    def render(self, messages, ask):
        if self.template is None:
            self.template = chat_template(self.template_text, self.args.tokenizer)
        return self.template.render(messages=messages, add_generation_prompt=ask, tools=None,
                                    bos_token=self.special("bos_token") or "", eos_token=self.special("eos_token") or "",
                                    pad_token=self.special("pad_token") or "", unk_token=self.special("unk_token") or "")

    def of_chat(self, place, record, name):
        messages = messages_of(place, record, name)
        try:
            whole = self.render(messages, False)
            spans = [(len(self.answer_begin(place, messages, i, whole)), len(self.answer_end(place, messages, i, whole)))
                     for i, m in enumerate(messages) if m["role"] == "assistant"]
        except Wrong:
            raise
        except Exception as error:  # whatever a template makes of the messages
            raise Wrong(f"{place}: the chat template fails: {error}") from None
        found = self.tokenizer.encode(whole, add_special_tokens=False)
        weights, at = [], 0
        for begin, end in found.offsets:
            while at < len(spans) and begin >= spans[at][1]:
                at += 1
            weights.append(int(at < len(spans) and begin >= spans[at][0] and end > begin))
        return found.ids, weights

    def part(self, place, messages, ask, whole):
        text = self.render(messages, ask)
        if not whole.startswith(text):
            raise Wrong(f"{place}: the chat template writes the first {len(messages)} messages in another way where more follow, so that "
                        "answers cannot be told from prompts; end the conversation there, or write `prompt` and `answer`")
        return text

    def answer_begin(self, place, messages, i, whole):
        return self.part(place, messages[:i], True, whole)

    def answer_end(self, place, messages, i, whole):
        return self.part(place, messages[:i + 1], False, whole)


def messages_of(place, record, name):
    if name not in record:
        raise Wrong(f"{place}: there is no field '{name}'; the record has {', '.join(sorted(record)) or 'none'}")
    found = []
    for m in record[name] if isinstance(record[name], list) else [None]:
        m = m if isinstance(m, dict) else {}
        role, content = m.get("role", m.get("from")), m.get("content", m.get("value"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise Wrong(f"{place}: '{name}' must be a list of messages with `role` and `content`")
        found.append({**m, "role": ROLES.get(role, role), "content": checked_text(place, "content", content)})
    if not any(m["role"] == "assistant" for m in found):
        raise Wrong(f"{place}: '{name}' has no message of the role `assistant`")
    return found


def chat_template(text, folder):
    """As transformers compiles it."""
    if isinstance(text, list):  # several, by name
        text = next((t["template"] for t in text if t.get("name") == "default"), None)
    if not text:
        raise Wrong(f"{folder} has no chat template (chat_template.jinja, or chat_template of tokenizer_config.json)")
    try:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError:
        raise Wrong("chats require jinja2; install it with pip install jinja2") from None

    def fail(message):
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = fail
    environment.globals["strftime_now"] = time.strftime
    return environment.from_string(text)


# ---- batches, in this process or in others ----

worker = None


def end_with_parent():
    """A pool's queue stays open as long as any of its processes is there: none would notice a killed parent."""
    multiprocessing.parent_process().join()
    os._exit(1)


def begin(args):
    global worker
    if multiprocessing.parent_process():
        threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    worker = Worker(args)


def tokenize(batch):
    """(tokens, weights, lengths, documents without a token), as bytes but for the last; or what is wrong."""
    ids, weights, lengths, empty = array.array("I"), bytearray(), array.array("Q"), 0
    weighted = False
    try:
        for place, document in batch:
            tokens, of = worker.encode(place, document)
            empty += not tokens
            if not tokens:
                continue
            ids.extend(tokens)
            lengths.append(len(tokens))
            weighted |= of is not None
            weights.extend(of if of is not None else b"\1" * len(tokens))
    except Wrong as error:
        return str(error)
    blob = array.array("H", ids) if worker.width == 2 else ids
    for numbers in (blob, lengths):
        if sys.byteorder == "big":
            numbers.byteswap()
    return blob.tobytes(), bytes(weights), lengths, empty, weighted


def size_of(document):
    return len(document) if isinstance(document, str) else sum(len(v) if isinstance(v, (str, list)) else 8 for v in document.values()) + 64


class Reader:
    """Batches of documents of all inputs; how many bytes were read of how many."""

    def __init__(self, args):
        self.args, self.done = args, 0
        self.bytes = sum(os.path.getsize(path) for path in args.input) or 1
        self.wrong = None

    def batches(self):
        before, batch, size = 0, [], 0
        try:
            for path in self.args.input:
                for place, document, at in documents_of(path, self.args.lines):
                    batch.append((place, document))
                    size += size_of(document)
                    if size >= BATCH:
                        yield batch
                        batch, size = [], 0
                    self.done = before + at
                before += os.path.getsize(path)
        except Wrong as error:  # told once what was read before it has been: the first fault of the input is the one that is said
            self.wrong = str(error)
        if batch:
            yield batch


# ---- output ----

class Output:
    """A token file that gets its name when it is complete."""

    def __init__(self, path, width):
        self.path, self.width = os.path.realpath(path), width  # of a link, what it names
        self.part = f"{self.path}.part-{os.getpid()}"
        self.file = open(self.part, "wb")
        self.file.write(bytes(40))
        self.weights, self.starts = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.tokens = self.documents = self.counted = 0
        self.weighted = False

    def add(self, blob, weights, lengths, weighted):
        self.file.write(blob)
        self.weights.write(weights)
        for n in lengths:
            self.starts.write(struct.pack("<Q", self.tokens))
            self.tokens += n
        self.documents += len(lengths)
        self.counted += sum(weights)
        self.weighted |= weighted

    def append(self, column):
        self.file.write(bytes(-self.file.tell() % 8))
        column.seek(0)
        shutil.copyfileobj(column, self.file, 1 << 20)

    def finish(self):
        if self.weighted:
            self.append(self.weights)
        self.append(self.starts)
        self.file.seek(0)
        self.file.write(b"BURSTTOK" + struct.pack("<IIQIIQ", 2, self.width, self.tokens, int(self.weighted), 0, self.documents))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.part, self.path)

    def drop(self):
        self.file.close()
        if os.path.exists(self.part):
            os.unlink(self.part)


class Progress:
    """A line that is written over, on a terminal, from the second second on."""

    def __init__(self):
        self.begin = self.last = time.monotonic()
        self.shown = sys.stderr.isatty()

    def show(self, reader, out):
        now = time.monotonic()
        if self.shown and now - self.last >= 1:
            self.last = now
            print(f"\r{100 * reader.done / reader.bytes:3.0f} %  {out.documents} documents  {out.tokens / 1e6:.1f} M tokens  "
                  f"{out.tokens / (now - self.begin) / 1e6:.2f} M tokens/s ", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.shown and self.last > self.begin:
            print(file=sys.stderr)


def results(args, reader):
    if args.processes == 1:
        begin(args)
        yield from map(tokenize, reader.batches())
        return
    pool = futures.ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn"), begin, (args,))
    try:
        yield from in_order(pool, reader.batches(), 4 * args.processes)
    except futures.process.BrokenProcessPool:
        raise Wrong("a process that tokenizes was lost, perhaps for want of memory; try fewer with --processes N") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def submit(pool, batch):
    """A process that this starts inherits that SIGINT is blocked: Ctrl-C is for the one that reads and writes."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(tokenize, batch)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_order(pool, batches, most):
    """At most so many batches are under way: the input may be larger than the memory."""
    waiting = []
    for batch in batches:
        waiting.append(submit(pool, batch))
        if len(waiting) >= most:
            yield waiting.pop(0).result()
    for result in waiting:
        yield result.result()


def write(args):
    width = Worker(args).width  # here first, so that what is wrong with the tokenizer is said once
    reader, out, progress, empty = Reader(args), Output(args.output, width), Progress(), 0
    try:
        for result in results(args, reader):
            if isinstance(result, str):
                raise Wrong(result)
            *columns, none, weighted = result
            out.add(*columns, weighted)
            empty += none
            progress.show(reader, out)
        if reader.wrong:
            raise Wrong(reader.wrong)
        if not out.tokens:
            raise Wrong("the input has no text")
        out.finish()
    except BaseException:
        out.drop()
        raise
    finally:
        progress.end()
    weighted = f", {out.counted} of them count in the loss" if out.weighted else ""
    skipped = f"; {empty} without text left out" if empty else ""
    print(f"{args.output}: {counted(out.documents, 'document')}, {counted(out.tokens, 'token')} of {width} bytes{weighted}{skipped}")


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}', expected a whole number of at least 1")
    return int(text)


def add_parser(commands):
    p = commands.add_parser("tokens", allow_abbrev=False, help="text to a token file, by a Hugging Face tokenizer",
                            description="Writes a token file from JSON lines (.jsonl), Parquet or text, by a Hugging Face tokenizer.")
    p.add_argument("input", nargs="+", help=".jsonl, .parquet, or text: then a file is a document")
    p.add_argument("--tokenizer", required=True, action=Once, metavar="FOLDER", help="a folder with tokenizer.json")
    p.add_argument("-o", "--output", required=True, action=Once, metavar="FILE", help="the token file")
    p.add_argument("--text", action=Once, metavar="FIELD", help="of a record: the text (text, content)")
    p.add_argument("--prompt", action=Once, metavar="FIELD", help="text that does not count in the loss (prompt, instruction, question)")
    p.add_argument("--answer", action=Once, metavar="FIELD", help="text that does (answer, completion, response, output)")
    p.add_argument("--chat", action=Once, metavar="FIELD", help="a list of messages, of which the assistant's count (messages, conversations)")
    p.add_argument("--lines", action="store_true", help="each line of a text is a document")
    p.add_argument("--eos", action=Once, metavar="TOKEN", help="ends a document (the tokenizer's eos_token)")
    p.add_argument("--no-eos", action="store_true", help="nothing ends a document but the file's list of documents")
    p.add_argument("--processes", action=Once, type=positive, default=min(len(os.sched_getaffinity(0)), 16), metavar="N",
                   help="processes that tokenize (as many as there are cores, at most 16)")
    p.set_defaults(run=run)


def check_output(path):
    """Before hours of tokenizing. A device or a FIFO would be replaced by the file."""
    to = os.path.realpath(path)
    if not path or os.path.isdir(to):
        raise Wrong(f"cannot write to '{path}': expected the name of a file")
    if os.path.exists(to) and not os.path.isfile(to):
        raise Wrong(f"cannot write to '{path}': it is not a regular file")
    if not os.path.isdir(os.path.dirname(to)):
        raise Wrong(f"cannot write to '{path}': there is no folder '{os.path.dirname(to)}'")


def run(args):
    if args.eos and args.no_eos:
        raise Wrong("--eos cannot be combined with --no-eos")
    if sum(bool(x) for x in (args.text, args.prompt or args.answer, args.chat)) > 1 or bool(args.prompt) != bool(args.answer):
        raise Wrong("give --text FIELD, --chat FIELD, or --prompt FIELD with --answer FIELD")
    check_output(args.output)
    for path in args.input:
        if not os.path.isfile(path):
            raise Wrong(f"{path}: {'not a regular file' if os.path.exists(path) else 'no such file'}")
        if os.path.exists(args.output) and os.path.samefile(path, args.output):
            raise Wrong(f"{args.output}: it is the input")
    write(args)
