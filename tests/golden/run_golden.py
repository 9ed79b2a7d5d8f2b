#!/usr/bin/env python3
"""Every --emit form and the emitted text of (cluster, model) pairs, held to the byte.

    run_golden.py BURSTC [--update] [NAME ...]

A pair is NAME.burst, whose first line is `# CLUSTER.topo c|cuda [SCHEDULE.sched]`. held/NAME.forms holds its
forms (of a long one, size and hash), held/NAME.text the emitted text. run_lines.py has the cases of one construct.
"""
import argparse
import hashlib
import os
import pathlib
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
        """A pair whose model is a file; the cluster and schedules are beside it."""
        text = path.read_text()
        self.name, self.folder = path.stem, path.parent
        _, self.topo, self.language, *self.schedules = text.split("\n", 1)[0].split()
        self.quiet = ["-Wno-missing-weights"] if ' weights "' in text else []  # directories of nobody

    def run(self, burstc, *options):
        schedules = [word for s in self.schedules for word in ("--schedule", s)] + self.quiet
        done = runner.run([burstc, self.topo, f"{self.name}.burst", *schedules, *options], 100, cwd=self.folder)
        runner.require(not done.stderr, f"{self.name} {' '.join(options)}: {done.stderr}")
        return done.stdout

    def forms(self, burstc):
        text = "#--- explain\n" + self.run(burstc, "--explain")
        for form in FORMS:
            printed = self.run(burstc, f"--emit={form}")
            if len(printed) > LONG:
                digest = hashlib.sha256(printed.encode()).hexdigest()
                printed = f"{printed.count(chr(10))} lines, sha256 {digest}\n"
            text += f"#--- {form}\n{printed}"
        return text

    def printed(self, burstc):
        return self.forms(burstc), self.run(burstc, f"--emit={self.language}")


def held(path):
    return path.read_text() if path.exists() else ""


def check(name, forms, program, update):
    """Compares, or with update writes, what a pair prints."""
    if update:
        (HELD / f"{name}.forms").write_text(forms)
        (HELD / f"{name}.text").write_text(program)
    return (same(f"{name}.forms", held(HELD / f"{name}.forms"), forms) &
            same(f"{name}.text", held(HELD / f"{name}.text"), program) & counts_agree(name, forms + program))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("burstc", type=os.path.abspath)
    options.add_argument("--update", action="store_true")
    options.add_argument("name", nargs="*")
    o = options.parse_intermixed_args()
    pairs = [Pair(HERE / f"{path.stem}.burst") for path in sorted(HELD.glob("*.text"))]
    chosen = [p for p in pairs if not o.name or p.name in o.name]
    printed, failures = runner.check_all(lambda pair: pair.printed(o.burstc), chosen)
    bad = failures + sum(not check(pair.name, *texts, o.update) for pair, texts in printed)
    print(f"{len(chosen)} pairs, {bad} differ")
    return bad > 0


if __name__ == "__main__":
    runner.end(main)
