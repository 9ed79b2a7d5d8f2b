#!/usr/bin/env python3
"""Every --emit form and the emitted text of (cluster, model) pairs, held to the byte.

    run_golden.py BURSTC [--update] [NAME ...]

A pair is NAME.burst, whose first line is `# CLUSTER.topo c|cuda [SCHEDULE.sched]`. held/NAME.forms holds its forms (of a
long one, size and hash), held/NAME.text the emitted text: of the pairs `c` and `cuda` whole, of A_B the differences to
A's: `=N` repeats N lines, `-` leaves a line out, `+` adds one.
"""
import argparse
import difflib
import hashlib
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import counts_agree, same  # noqa: E402

FORMS = ("ast", "mask", "partition", "schedule", "step", "plan", "cost", "trace", "kernels")
LONG = 12000 # characters of a form that is not held whole
HERE = pathlib.Path(__file__).resolve().parent
HELD = HERE / "held"


class Pair:
    def __init__(self, path):
        words = path.read_text().split("\n", 1)[0].split()
        self.name, self.topo, self.language, self.schedules = path.stem, words[1], words[2], words[3:]

    def run(self, burstc, *options):
        schedules = [word for s in self.schedules for word in ("--schedule", s)]
        done = runner.run([burstc, self.topo, f"{self.name}.burst", *schedules, *options], 100, cwd=HERE)
        runner.require(not done.stderr, f"{self.name} {' '.join(options)}: {done.stderr}")
        return done.stdout

    def forms(self, burstc):
        text = "#--- explain\n" + self.run(burstc, "--explain")
        for form in FORMS:
            printed = self.run(burstc, f"--emit={form}")
            if len(printed) > LONG:
                printed = f"{printed.count(chr(10))} lines, sha256 {hashlib.sha256(printed.encode()).hexdigest()}\n"
            text += f"#--- {form}\n{printed}"
        return text

    def printed(self, burstc):
        return self.forms(burstc), self.run(burstc, f"--emit={self.language}")


def differences(base, text):
    base, text, out = base.splitlines(), text.splitlines(), []
    for op, i, j, k, m in difflib.SequenceMatcher(None, base, text, autojunk=False).get_opcodes():
        out += [f"={j - i}"] if op == "equal" else [f"-{line}" for line in base[i:j]] + [f"+{line}" for line in text[k:m]]
    return "".join(line + "\n" for line in out)


def applied(base, changes):
    base, at, out = base.splitlines(), 0, []
    for line in changes.splitlines():
        if line[0] == "+":
            out.append(line[1:])
            continue
        step = int(line[1:]) if line[0] == "=" else 1
        out += base[at:at + step] if line[0] == "=" else []
        at += step
    return "".join(line + "\n" for line in out)


def held(path):
    return path.read_text() if path.exists() else ""


def base_of(name):
    """A_B for A_B_C, or A where there is no pair A_B; empty for `c` and `cuda`."""
    base = name.rpartition("_")[0]
    return base if not base or (HERE / f"{base}.burst").exists() else base_of(base)


def held_text(name):
    """The emitted text of a pair as it is held."""
    own = held(HELD / f"{name}.text")
    return applied(held_text(base_of(name)), own) if base_of(name) else own


def check(name, forms, program, update):
    """Compares, or with update writes, what a pair prints."""
    if update:
        (HELD / f"{name}.forms").write_text(forms)
        (HELD / f"{name}.text").write_text(differences(held_text(base_of(name)), program) if base_of(name) else program)
    return (same(f"{name}.forms", held(HELD / f"{name}.forms"), forms) & same(f"{name}.text", held_text(name), program) &
            counts_agree(name, forms + program))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("burstc", type=os.path.abspath)
    options.add_argument("--update", action="store_true")
    options.add_argument("name", nargs="*")
    o = options.parse_args()
    pairs = [Pair(path) for path in sorted(HERE.glob("*.burst"))]
    chosen = [p for p in pairs if not o.name or p.name in o.name]
    printed, failures = runner.check_all(lambda pair: pair.printed(o.burstc), chosen)
    bad = failures + sum(not check(pair.name, *texts, o.update) for pair, texts in printed)
    print(f"{len(chosen)} pairs, {bad} differ")
    return bad > 0


runner.end(main)
