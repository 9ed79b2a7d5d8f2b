#!/usr/bin/env python3
"""burst-tokens: what it writes against a writer of a few lines, and that no file is lost by it.

    run_tokens.py BURST_TOKENS [--part NAME]
"""
import bisect
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
        source = {} if "stdin" in more else {"input": data}
        done = subprocess.run([self.program, *map(str, options)], capture_output=True, timeout=scaled_timeout(30), **source, **more)
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
    zero = 'cannot read \'/dev/zero\': it is a device'
    for words in (["/dev/zero", "out"], ["--bytes", "/dev/zero", "out"], ["--draw", "/dev/zero", "--documents", 1, "out"]):
        tool.run(1, zero, *words)
    tool.run(1, "...', expected a whole number", "-", "out", stdin=os.open("/dev/zero", os.O_RDONLY))
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


# Of each published set: quantiles of lengths, and mean, share of tokens and of pairs in documents over 32Ki, each with the
# difference allowed. As many draws are below a quantile as its share says, give or take four standard deviations. The other
# figures of 400000 draws differ by some per cent of themselves, as few documents decide.
PUBLISHED = {
    "A": ({.5: 3227, .9: 5784, .99: 26070, .999: 119836}, (3962, .05), (.17, .025), (.78, .04)),
    "B": ({.5: 1914, .9: 6051, .99: 16273, .999: 47500}, (3052, .05), (.05, .02), (.53, .06)),
    "C": ({.5: 347, .9: 2112, .99: 10921, .999: 37367}, (1014, .05), (.08, .03), (.65, .12)),
    "D": ({.186: 200, .468: 500, .714: 1024, .871: 2048, .944: 4096, .9745: 8192, .9874: 16384, .9959: 32768}, None, (.26, .04), (.86, .05)),
}


def lengths_of(tool, *words):
    tool.run(0, "", "--draw", *words, "--lengths", "lengths")
    return [int(line) for line in pathlib.Path("lengths").read_text().split()]


def drawn_sets(tool):
    """Lengths against the published figures."""
    for name, (quantiles, mean, tokens, pairs) in PUBLISHED.items():
        lengths = sorted(lengths_of(tool, name, "--documents", 400000))
        require(len(lengths) == 400000 and lengths[0] >= 1, f"{name}: {len(lengths)} documents from {lengths[0]} tokens")
        for share, wanted in quantiles.items():
            found, most = bisect.bisect_left(lengths, wanted) / len(lengths), 4 * (share * (1 - share) / len(lengths)) ** .5
            require(abs(found - share) <= most, f"{name}: {found} of documents are below {wanted} tokens, not {share}")
        long = [n for n in lengths if n > 32 << 10]
        found_mean, found_tokens, found_pairs = sum(lengths) / len(lengths), sum(long) / sum(lengths), sum(n * n for n in long) / sum(n * n for n in lengths)
        print(f"{name}: mean {found_mean:.0f}, over 32Ki {found_tokens:.3f} of tokens, {found_pairs:.3f} of pairs")
        require(not mean or abs(found_mean / mean[0] - 1) <= mean[1], f"{name}: a mean of {found_mean}")
        require(abs(found_tokens - tokens[0]) <= tokens[1], f"{name}: {found_tokens} of tokens over 32Ki")
        require(abs(found_pairs - pairs[0]) <= pairs[1], f"{name}: {found_pairs} of pairs over 32Ki")


def drawn_files(tool):
    """A token file by a reader of a few lines: the listed lengths, tokens of the vocabulary; the same for the same seed."""
    for width, vocabulary, count in ((2, 300, 1), (4, 70000, 50), (2, 65536, 51)):
        words = ("D", "--documents", count, "--seed", 7)
        lengths = lengths_of(tool, *words)
        require(lengths == lengths_of(tool, *words) and lengths != lengths_of(tool, "D", "--documents", count), "the seed")
        tool.run(0, "", "--draw", *words, "--vocab", vocabulary, "--width", width, "out")
        data = pathlib.Path("out").read_bytes()
        version, bytes_a_token, tokens, weights, tables, documents = struct.unpack("<IIQIIQ", data[8:40])
        require(data[:8] == b"BURSTTOK" and (version, bytes_a_token, tokens, weights, tables, documents) == (2, width, sum(lengths), 0, 0, count), "its header")
        ids = [int.from_bytes(data[40 + i * width:40 + (i + 1) * width], "little") for i in range(tokens)]
        require(max(ids) < vocabulary and len(set(ids)) > min(vocabulary, tokens) / 3, "its tokens")
        begins = struct.unpack(f"<{count}Q", data[-8 * count:])
        require(list(begins) == [sum(lengths[:i]) for i in range(count)], "where documents begin")
        require(len(data) == 40 + -(-tokens * width // 8) * 8 + 8 * count, "its size")


def drawn_from_files(tool):
    """Lengths of a list are drawn as often as it has them; what is wrong with a list."""
    pathlib.Path("table").write_text("# of a corpus\n100 30\n7\t60  # short\n\n250000 \n9 9\r\n")
    lengths = lengths_of(tool, "table", "--documents", 100000)
    for value, share in ((100, .3), (7, .6), (250000, .01), (9, .09)):
        require(abs(lengths.count(value) / 100000 - share) < .01 * share ** .5 + .001, f"{lengths.count(value)} of {value}")
    require(set(lengths) == {100, 7, 250000, 9}, "lengths that are not listed")
    for text, said in (("", "table:1: it has no length"), ("5\n0\n", "table:2: expected the length of a document"), ("5 x", "table:1: expected a number of documents"),
                       ("1\n\n-3", "table:3: expected the length"), ("5 6 7", "table:1: expected one length a line"), ("5x", "table:1: expected the length"),
                       ("2147483649", "table:1: expected the length"), ("99999999999999999999999", "table:1: expected the length"),
                       ("1 1099511627776\n2", "table:2: too many lengths"), ("\x00", "table:1: expected the length")):
        pathlib.Path("table").write_text(text)
        tool.run(1, said, "--draw", "table", "--documents", 1, "out")
    pathlib.Path("table").write_text("9 9\n")
    os.symlink("table", "lengths_again")
    tool.run(1, "cannot write 'lengths_again': it is the input", "--draw", "table", "--documents", 1, "lengths_again")
    require(pathlib.Path("table").read_text() == "9 9\n", "the list has changed")
    tool.run(1, "cannot read 'E': No such file", "--draw", "E", "--documents", 1, "out")
    tool.run(1, "cannot write 'none/out'", "--draw", "A", "--documents", 1, "none/out")


def options(tool):
    for words, said in ((["--width", 2, "--width", 4, "a", "b"], "--width was given twice"), (["--width", "3", "a", "b"], "must be 2 or 4"),
                        (["--width", "4x", "a", "b"], "must be 2 or 4"), (["--raw", "2", "--bytes", "a", "b"], "--bytes cannot be combined with --raw"),
                        (["--wide", "a", "b"], "unknown option --wide"), (["--widht", "2", "a", "b"], "unknown option --widht; did you mean --width?"),
                        (["a", "b", "--raw", "3"], "must be 2 or 4"), (["a"], "an input and an output"), (["--width"], "must be 2 or 4"),
                        (["a", "b", "c"], "an input and an output"), (["--draw", "A", "out"], "--draw requires --documents"),
                        (["--seed", "3", "a", "b"], "require --draw"), (["--lengths", "a", "b"], "require --draw"),
                        (["--draw", "A", "--documents", "0", "out"], "--documents must be from 1 to"),
                        (["--draw", "A", "--documents", "1e3", "out"], "--documents must be from 1 to"),
                        (["--draw", "A", "--documents", "3", "in", "out"], "expected an output"),
                        (["--draw", "A", "--documents", "3", "--bytes", "out"], "--draw cannot be combined with --bytes"),
                        (["--draw", "A", "--documents", "3", "--vocab", "65537", "--width", "2", "out"], "--vocab must be from 1 to 65536"),
                        (["--draw", "A", "--documents", "3", "--lengths", "--width", "2", "out"], "--lengths cannot be combined with --width"),
                        (["--draw", "A", "--draw", "B", "--documents", "3", "out"], "--draw was given twice"), (["--draw"], "--draw requires a value")):
        tool.run(2, said, *words)


def main():
    parts = (forms, wrong_input, same_file, other_outputs, devices, drawn_sets, drawn_files, drawn_from_files, options)
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
