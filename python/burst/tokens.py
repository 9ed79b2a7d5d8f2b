"""`burst tokens`: text to a token file, by a Hugging Face tokenizer, with loss weights and documents. docs/python.md.

Results are written in the order of the input, so that the file does not depend on how many processes there are.
"""
import argparse
import os
import sys
import time

from .command import Once, Wrong, counted, shown
from .documents import documents_of
from .encoder import Encoder, Files
from .output import check_output
from .records import KNOWN
from .token_file import TokenFile, is_token_file
from .workers import Workers

BATCH = 1 << 19  # characters that a worker takes at once


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
        needed = KNOWN | {self.args.text, self.args.prompt, self.args.answer, self.args.chat}
        try:
            for path in self.args.input:
                for place, document, at in documents_of(path, self.args.lines, needed):
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


def write(args):
    width = Encoder(args).width  # here first, so that what is wrong with the tokenizer is said once
    reader, workers, progress, empty = Reader(args), Workers(args), Progress(), 0
    out = TokenFile(args.output, width)
    try:
        for result in workers.results(reader.batches()):
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
        workers.end()
        progress.end()
    weighted = f", {out.counted} of them count in the loss" if out.weighted else ""
    skipped = f"; {empty} without text left out" if empty else ""
    print(f"{shown(args.output)}: {counted(out.documents, 'document')}, {counted(out.tokens, 'token')} of {width} bytes{weighted}{skipped}")


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
    p.add_argument("--ignore", action="append", default=[], metavar="FIELD", help="leaves a field of records or messages out; repeats")
    p.add_argument("--lines", action="store_true", help="each line of a text is a document")
    p.add_argument("--eos", action=Once, metavar="TOKEN", help="ends a document (the tokenizer's eos_token)")
    p.add_argument("--no-eos", action="store_true", help="nothing ends a document but the file's list of documents")
    p.add_argument("--processes", action=Once, type=positive, default=min(len(os.sched_getaffinity(0)), 16), metavar="N",
                   help="processes that tokenize (as many as there are cores, at most 16)")
    p.set_defaults(run=run)


def check_files(args):
    """Inputs and outputs. In a tokenizer's folder only a token file may be replaced."""
    files = Files(args.tokenizer)
    check_output(args.output, [("the input", path) for path in args.input] + [("the tokenizer", path) for path in files.all()])
    to = os.path.realpath(args.output)
    if os.path.exists(to) and os.path.samefile(files.tokenizer.parent, os.path.dirname(to)) and not is_token_file(to):
        raise Wrong(f"cannot write to '{args.output}': it is a file of the tokenizer's folder")
    for path in args.input:
        if not os.path.isfile(path):
            raise Wrong(f"{path}: {'not a regular file' if os.path.exists(path) else 'no such file'}")


def run(args):
    if args.eos and args.no_eos:
        raise Wrong("--eos cannot be combined with --no-eos")
    if sum(bool(x) for x in (args.text, args.prompt or args.answer, args.chat)) > 1 or bool(args.prompt) != bool(args.answer):
        raise Wrong("give --text FIELD, --chat FIELD, or --prompt FIELD with --answer FIELD")
    check_files(args)
    write(args)
