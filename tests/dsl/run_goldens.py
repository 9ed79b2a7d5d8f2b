#!/usr/bin/env python3
"""Tests of the three languages by examples. A case of bad/ must be refused, and one of warned/ accepted, with exactly the messages beside its
lines (tests/lib/cases.py has the form of these files); good/x.* is accepted without a message and prints x.ast.

    run_goldens.py --check DSLCHECK --stock STOCK [--only NAME] [--update]     compares, or writes what is printed into the files
    run_goldens.py --show NAME                                                 prints the input of a case, and what it must print
    run_goldens.py --write FOLDER                                              writes each case as a file, in bad/, good/ and warned/
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import cases  # noqa: E402
import runner  # noqa: E402
from runner import require, same  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SUFFIXES = (".topo", ".burst", ".sched")
KINDS = {"bad": (1, "error: "), "warned": (0, "warning: ")}  # exit status, and what each case must print


class Checker:
    """Runs dslcheck in a folder with all inputs, by whose names messages call them."""

    def __init__(self, options, folder):
        self.program, self.stock, self.folder = options.check, options.stock, folder

    def run(self, path, *options):
        done = subprocess.run([self.program, self.stock, ".", *options, path], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode("utf-8", "backslashreplace").replace(self.stock, "STOCK")

    def case(self, case, update):
        """Whether a case prints what its comments say."""
        return case.holds(*self.run(case.path), *KINDS[case.topic.parent.name], update)

    def good(self, path, update):
        """Whether a right input is accepted without a word, with its syntax tree."""
        status, said = self.run(f"good/{path.name}")
        golden, text = path.with_suffix(".ast"), self.run(f"good/{path.name}", "--ast")[1]
        if update:
            golden.write_text(text)
        if status or said:
            print(f"{path.name}: exit status {status}, and printed is\n{said}")
        return status == 0 and not said and same(golden, golden.read_text(), text) and bool(text)


def write_inputs(topics, folder):
    """Each case as a file, and beside the cases what they read."""
    for name in ("good", "parts"):
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("*.ast"), dirs_exist_ok=True)
    for path in (HERE / "base.topo", HERE / "base.burst", *HERE.glob("bad/*.txt")):
        (folder / path.relative_to(HERE)).parent.mkdir(exist_ok=True)
        shutil.copy(path, folder / path.relative_to(HERE))
    for case in all_cases(topics):
        (folder / case.path).parent.mkdir(exist_ok=True)
        (folder / case.path).write_bytes(case.text())


def all_cases(topics):
    return [case for topic in topics for case in topic.cases]


def show(topics, name):
    found = [case for case in all_cases(topics) if case.name() == name]
    require(found, f"no case is called {name}")
    for case in found:
        sys.stdout.flush()
        sys.stdout.buffer.write(case.text())
        print(f"---- {case} must print\n{case.said()}", end="")


def check(options, topics):
    """How many inputs are not as they should be."""
    right = sorted(p for p in (HERE / "good").iterdir() if p.suffix in SUFFIXES)
    with runner.folder() as folder:
        write_inputs(topics, folder)
        checker = Checker(options, folder)
        named = lambda name: all(re.search(word, name) for word in options.only)
        results = [checker.case(case, options.update) for case in all_cases(topics) if named(case.name())]
        results += [checker.good(path, options.update) for path in right if named(path.stem)]
    for topic in topics if options.update else []:
        topic.write()
    print(f"{len(results)} inputs, {results.count(False)} failed")
    return results.count(False) > 0 or not results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=os.path.abspath)
    parser.add_argument("--stock", type=os.path.abspath)
    parser.add_argument("--only", action="append", default=[], help="regular expression on a name; repeats")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--show", metavar="NAME")
    parser.add_argument("--write", metavar="FOLDER", type=pathlib.Path)
    options = parser.parse_args()
    topics = [topic for kind, (_, word) in KINDS.items() for topic in cases.read_topics(HERE / kind, SUFFIXES, "" if options.update else word)]
    if options.show:
        return show(topics, options.show)
    if options.write:
        shutil.rmtree(options.write, ignore_errors=True)
        options.write.mkdir(parents=True)
        return write_inputs(topics, options.write)
    require(options.check and options.stock, "--check and --stock are missing")
    return check(options, topics)


runner.end(main)
