#!/usr/bin/env python3
"""Golden tests of the three languages: bad/x.* must be refused with exactly x.err, warned/x.* accepted with exactly the
warnings of x.err, good/x.* accepted without a word and print x.ast.

    run_goldens.py DSLCHECK STOCK [--update]
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import counts_agree, same  # noqa: E402

KINDS = {"bad": (1, b"error: "), "good": (0, b""), "warned": (0, b"warning: ")}  # exit status, and what is said


def run(check, stock, options, path):
    done = subprocess.run([check, stock, ".", *options, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.replace(stock.encode(), b"STOCK")


def shown(blob):
    return blob.decode("utf-8", "backslashreplace")


def check(program, stock, kind, path, update):
    status, said = run(program, stock, [], path)
    wanted_status, word = KINDS[kind]
    if status != wanted_status or word not in said or (not word and said):
        print(f"{path}: exit status {status}; '{shown(word)}' is expected, and said is\n{shown(said)}")
        return False
    golden = path.with_suffix(".ast" if kind == "good" else ".err")
    text = run(program, stock, ["--ast"], path)[1] if kind == "good" else said
    if update:
        golden.write_bytes(text)
    wanted = golden.read_bytes() if golden.exists() else b""
    if kind != "good" and not counts_agree(path, "".join(line for line in shown(said).splitlines(True) if ": " in line)):
        return False
    if not golden.exists():
        print(f"{golden}: missing; --update writes it")
    return wanted == text and bool(text) or same(golden, shown(wanted), shown(text)) and False


def inputs(folder):
    return sorted(p for p in pathlib.Path(folder).iterdir() if p.suffix in (".topo", ".burst", ".sched"))


def main():
    program, stock, update = runner.words(__doc__, "dslcheck", "stock", "--update")
    program, stock = os.path.abspath(program), os.path.abspath(stock)
    os.chdir(pathlib.Path(__file__).resolve().parent) # messages name inputs from here
    texts = {kind: inputs(kind) for kind in KINDS}
    failed = sum(not check(program, stock, kind, path, update) for kind in KINDS for path in texts[kind])
    held = [golden.read_bytes() for p in texts["bad"] if (golden := p.with_suffix(".err")).exists()]
    messages = {line for text in held for line in text.split(b"\n") if b"error: " in line}
    bad, good, warned = (len(texts[kind]) for kind in KINDS)
    print(f"{bad} wrong, {warned} doubtful and {good} right inputs, {failed} failed; {len(messages)} error lines")
    return 1 if failed or bad < 44 or warned < 2 or good < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
