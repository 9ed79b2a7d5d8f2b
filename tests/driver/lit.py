#!/usr/bin/env python3
"""Runs a test that is written as commands and expected lines (after LLVM's lit and FileCheck, the part needed here).

    lit.py TOOLCHAIN.json SCRATCH FILE.test                runs the file's RUN lines
    lit.py --check FILE.test PREFIX                        compares standard input with the file's PREFIX lines

In a test, anywhere in a line:
    RUN: command          run by bash with -eu -o pipefail, in a fresh folder; a trailing backslash goes on
    CHECK: text           a line of the input that holds the text, after the line that matched before
    CHECK-NEXT: text      the line right after it
    CHECK-NOT: text       no line of the input holds the text
Text between {{ and }} is a regular expression. A line `#--- NAME` starts the text of a file NAME, which the test finds
in its folder. Words that are replaced in commands:
    %burstc %source %build %share %cc %mpirun     the compiler, folders, tools
    %s %S                                         the test, its folder
    %check [PREFIX]                               this program, as --check
and `exits N command...` expects an exit status.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

SHELL = r"""
exits() { local want=$1 got=0; shift; "$@" || got=$?
  if [ "$got" != "$want" ]; then echo "exit status $got, not $want: $*" >&2; return 1; fi; }
# The end of a pipeline reads all of it: grep -q leaves at the first match, and what the writer then writes fails (SIGPIPE).
grep() { local got=0; command grep "$@" || got=$?; if [ -p /dev/stdin ]; then cat >/dev/null; fi; return $got; }
"""


def pattern(text):
    parts = re.split(r"\{\{(.*?)\}\}", text.strip())
    return re.compile("".join(f"(?:{p})" if i % 2 else re.escape(p) for i, p in enumerate(parts)))


def expectations(path, prefix):
    found = []
    for line in path.read_text().splitlines():
        match = re.search(rf"(?:^|[^\w-]){re.escape(prefix)}(-NEXT|-NOT)?: ?(.*)$", line)
        if match:
            found.append((match.group(1) or "", match.group(2)))
    return found


def check(path, prefix):
    lines = sys.stdin.read().splitlines()
    wanted = expectations(path, prefix)
    if not wanted:
        return f"{path}: no {prefix} lines"
    at = -1
    for kind, text in wanted:
        hits = [i for i, line in enumerate(lines) if pattern(text).search(line)]
        if kind == "-NOT":
            if hits:
                return f"{prefix}-NOT: {text}\nbut line {hits[0] + 1} is: {lines[hits[0]]}"
            continue
        later = [i for i in hits if (i == at + 1 if kind else i > at)]
        if not later:
            return f"{prefix}{kind}: {text}\nnot found after line {at + 1} of:\n" + "\n".join(lines)
        at = later[0]
    return None


def split_parts(text, folder):
    """Writes the files a test carries; returns what is before the first."""
    pieces = re.split(r"^#--- (\S+)\n", text, flags=re.M)
    for name, body in zip(pieces[1::2], pieces[2::2]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    return pieces[0]


def commands(text):
    joined = re.sub(r"\\\n[^\n]*?RUN:", " ", text)
    return re.findall(r"(?:^|\s)RUN: (.*)$", joined, flags=re.M)


def replace(command, words):
    return re.sub(r"%(\w+)", lambda m: words.get(m.group(1), m.group(0)), command)


def run(toolchain, scratch, path):
    tools = json.loads(pathlib.Path(toolchain).read_text())
    folder = pathlib.Path(scratch).resolve() / path.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = path.resolve()
    me = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(pathlib.Path(__file__).resolve()))}"
    words = {k: shlex.quote(v) for k, v in tools.items() if isinstance(v, str)}
    words |= {"s": shlex.quote(str(path)), "S": shlex.quote(str(path.parent)), "check": f"{me} --check {shlex.quote(str(path))}"}
    wanted = commands(split_parts(path.read_text(), folder))
    if not wanted:
        return f"{path}: no RUN lines"
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "BURSTC_SHARE")} | {"LC_ALL": "C", "BURSTC_PROGRESS": "no"}
    for command in wanted:
        text = SHELL + replace(command, words)
        result = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", text], cwd=folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        if result.returncode == 77:
            print(result.stdout.decode(errors="replace"))
            sys.exit(77)
        if result.returncode:
            return f"{path}: RUN: {command}\nexit status {result.returncode}\n{result.stdout.decode(errors='replace')}"
    return None


def main():
    arguments = sys.argv[1:]
    if arguments[0] == "--check":
        problem = check(pathlib.Path(arguments[1]), arguments[2] if len(arguments) > 2 else "CHECK")
    else:
        problem = run(arguments[0], arguments[1], pathlib.Path(arguments[2]))
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
