#!/usr/bin/env python3
"""burst-tokens: what it writes against a writer of a few lines, and that no file is lost by it.

    run_tokens.py BURST_TOKENS [--part NAME]
"""
import os
import pathlib
import random
import stat
import struct
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import require, scaled_timeout  # noqa: E402

OLD = b"what was here before"


def token_file(tokens, width):
    return b"BURSTTOK" + struct.pack("<IIQ", 1, width, len(tokens)) + b"".join(t.to_bytes(width, "little") for t in tokens)


class Tool:
    def __init__(self, program):
        self.program = program

    def run(self, status, text, *options, data=None, **more):
        done = subprocess.run([self.program, *map(str, options)], input=data, capture_output=True, timeout=scaled_timeout(30), **more)
        said = done.stderr.decode()
        require(done.returncode == status and text in said and bool(said) == bool(status), f"{options}: {done.returncode}: {said}")
        require(not any(ord(c) < 32 and c != "\n" for c in said), f"{options}: control characters: {said!r}")
        left = [name for name in os.listdir() if name.startswith(".burst")]
        require(not left, f"{options}: left {left}")
        return done.stdout


def device(name, minor):
    """A memory device of the test's own: a fault that removes its output must not reach the machine's."""
    os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    os.close(os.open(name, os.O_WRONLY))  # PermissionError where the file system has no devices
    return name


def devices(tool):
    """They are written through and stay, also after an error. Root only."""
    pathlib.Path("in").write_text("1 2 3")
    pathlib.Path("bad").write_text("1 2 x")
    try:
        null, full = device("null", 3), device("full", 7)
    except PermissionError as reason:
        print(f"not tested: {reason}")
        return
    tool.run(0, "", "in", null)
    tool.run(1, "token 2", "bad", null)
    tool.run(1, "cannot write 'full': No space left", "in", full)
    require(all(stat.S_ISCHR(os.lstat(name).st_mode) for name in (null, full)), "a device is none")


def forms(tool):
    """Decimal, raw and bytes, of both widths, into files and streams."""
    draw = random.Random(3)
    os.symlink("/proc/self/fd/1", "stdout")
    for case in range(24):
        width, raw = draw.choice((2, 4)), draw.choice((2, 4))
        tokens = [draw.randrange(1 << 8 * min(width, raw)) for _ in range(draw.choice((0, 1, 7, 5000)))]
        inputs = {(): " ".join(map(str, tokens)).encode(), ("--raw", raw): b"".join(t.to_bytes(raw, "little") for t in tokens)}
        if all(t < 256 for t in tokens):
            inputs["--bytes",] = bytes(tokens)
        for option, data in inputs.items():
            pathlib.Path("in").write_bytes(data)
            tool.run(0, "", *option, "--width", width, "in", "out")
            require(pathlib.Path("out").read_bytes() == token_file(tokens, width), f"{option} of {len(tokens)}: another file")
            require(tool.run(0, "", *option, "--width", width, "-", "stdout", data=data) == token_file(tokens, width), f"{option}: another stream")
    pathlib.Path("in").write_text("0000000000000000000000000000000007")
    tool.run(0, "", "in", "out")
    require(pathlib.Path("out").read_bytes() == token_file([7], 4), "zeros in front")


def wrong_input(tool):
    """An error that names the token, and the output as it was."""
    texts = (("1 2 -3", "token 2 is '-3'"), ("1 2 x", "token 2 is 'x'"), ("1 2.5", "token 1 is '2.5'"), ("+3", "token 0 is '+3'"),
             ("1 65536", "token 1 is 65536, which does not fit in 2 bytes"), ("18446744073709551616", "is 18446744073709551616, which does not fit"),
             ("1\x002", "token 0 is '1?2'"), ("7 \x1b[2J", r"token 1 is '\x1b[2J'"), ("0" * 70 + "1", "...', expected a whole number"))
    for text, said in texts:
        pathlib.Path("in").write_bytes(text.encode())
        for there in (False, True):
            pathlib.Path("out").unlink(missing_ok=True)
            if there:
                pathlib.Path("out").write_bytes(OLD)
            tool.run(1, said, "--width", 2, "in", "out")
            require(pathlib.Path("out").exists() == there, f"{text}: a file came or went")
            require(not there or pathlib.Path("out").read_bytes() == OLD, f"{text}: the file of before has changed")
    tool.run(1, "ends within token 1: its size is not a multiple of 2 bytes", "--raw", 2, "-", "out", data=b"abc")
    tool.run(1, "cannot read '.': Is a directory", ".", "out")
    tool.run(1, "cannot read 'none': No such file", "none", "out")
    tool.run(1, "cannot write 'none/out': No such file", "in", "none/out")


def same_file(tool):
    """By its name, another name, a symbolic and a hard link, through standard input."""
    os.mkdir("folder")
    pathlib.Path("in").write_text("1 2 3")
    os.symlink("in", "symbolic")
    os.link("in", "folder/hard")
    for output in ("in", "./in", "folder/../in", "symbolic", "folder/hard", os.path.abspath("in")):
        tool.run(1, "it is the input", "in", output)
        with open("in", "rb") as stream:
            tool.run(1, "it is the input", "-", output, stdin=stream)
        require(pathlib.Path("in").read_text() == "1 2 3", f"{output}: the input has changed")
    require(os.readlink("symbolic") == "in", "the link is none")


def other_outputs(tool):
    """Links are followed; FIFOs are written through and stay."""
    pathlib.Path("in").write_text("1 2 3")
    pathlib.Path("bad").write_text("1 2 x")
    pathlib.Path("there").write_bytes(OLD)
    os.chmod("there", 0o640)
    os.symlink("there", "link")
    tool.run(0, "", "in", "link")
    require(os.readlink("link") == "there" and pathlib.Path("there").read_bytes() == token_file([1, 2, 3], 4), "not through the link")
    require(os.stat("there").st_mode & 0o777 == 0o640, "another mode")
    os.mkfifo("fifo")
    for source, status, wanted in (("in", 0, token_file([1, 2, 3], 4)), ("bad", 1, b"")):
        read = []
        reader = threading.Thread(target=lambda: read.append(pathlib.Path("fifo").read_bytes()))
        reader.start()
        tool.run(status, "token 2" if status else "", source, "fifo")
        reader.join(scaled_timeout(20))
        require(read == [wanted], f"{source}: the FIFO's reader got {read}")
    require(pathlib.Path("fifo").is_fifo(), "the FIFO is none")


def options(tool):
    for words, said in ((["--width", 2, "--width", 4, "a", "b"], "--width was given twice"), (["--width", "3", "a", "b"], "must be 2 or 4"),
                        (["--width", "4x", "a", "b"], "must be 2 or 4"), (["--raw", "2", "--bytes", "a", "b"], "--bytes cannot be combined with --raw"),
                        (["--wide", "a", "b"], "unknown option --wide"), (["a"], "an input and an output"), (["--width"], "must be 2 or 4"),
                        (["a", "b", "c"], "an input and an output")):
        tool.run(2, said, *words)


def main():
    parts = (forms, wrong_input, same_file, other_outputs, devices, options)
    parser = runner.options(__doc__, parts=[p.__name__ for p in parts])
    parser.add_argument("program", type=os.path.abspath)
    args = parser.parse_args()

    def alone(part):
        with runner.folder() as folder:
            os.chdir(folder)
            part(Tool(args.program))
            os.chdir("/")

    named = {part.__name__: lambda part=part: alone(part) for part in parts}
    sys.exit(runner.run_parts({name: part for name, part in named.items() if name in (args.part or named)}) > 0)


if __name__ == "__main__":
    main()
