#!/usr/bin/env python3
"""The lines that matter of (cluster, model) pairs whose text is not held whole, and a few figures of each.

    run_lines.py BURSTC [--update] [NAME ...]

lines.txt says for each pair, under `pair NAME` and a reason, what its forms and its emitted text hold:

    FORM: text     a line holds the text, after the line that the requirement before it of that form found
    FORM! text     no line holds it

FORM is an --emit form, or explain; text between {{ and }} is a regular expression. figures.txt has a row a
pair: unmasked pairs of each mask, operations of a rank, the simulated step and a rank's bytes. --update
writes it, and no other file.
"""
import argparse
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "driver")]
import runner  # noqa: E402
from lit import pattern  # noqa: E402
from run_golden import HERE, Pair  # noqa: E402

FIGURES = HERE / "figures.txt"
FIGURE = {"mask": r"^pairs (\d+)", "schedule": r"(\d+ operations?) a rank", "cost": r"^(step \S+ ms)",
          "plan": r"^memory of a rank: (\d+ bytes)"}


class Lines(Pair):
    """A pair, what its texts must hold [(form, kind, text)], and the texts that were asked for."""
    def __init__(self, name):
        super().__init__(HERE / f"{name}.burst")
        self.wanted, self.texts = [], {}

    def __str__(self):
        return self.name

    def text(self, burstc, form):
        if form not in self.texts:
            self.texts[form] = self.run(burstc, "--explain" if form == "explain" else f"--emit={form}")
        return self.texts[form]

    def missing(self, burstc):
        """Requirements that do not hold, as text."""
        at, bad = {}, []
        for form, kind, wanted in self.wanted:
            lines = self.text(burstc, form).splitlines()
            hits = [i for i, line in enumerate(lines) if pattern(wanted).search(line)]
            later = [i for i in hits if i > at.get(form, -1)]
            if kind == "!" and hits:
                bad.append(f"{self}: line {hits[0] + 1} of {form} holds what it must not: {lines[hits[0]]}")
            elif kind == ":" and not later:
                bad.append(f"{self}: no line of {form} after line {at.get(form, -1) + 1} holds: {wanted}")
            elif kind == ":":
                at[form] = later[0]
        return bad

    def figures(self, burstc):
        found = (re.findall(FIGURE[form], self.text(burstc, form), re.M) for form in FIGURE)
        return f"{self.name}: {'; '.join(', '.join(values) for values in found)}"


def read_lines(path):
    pairs = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = re.match(r"pair (\w+)$|(\w+)([:!]) (.+)$|(#.*|\s+.*)?$", line)
        runner.require(words, f"{path.name}:{number}: neither a pair, a requirement nor a comment: {line}")
        if words[1]:
            pairs.append(Lines(words[1]))
        elif words[2]:
            pairs[-1].wanted.append((words[2], words[3], words[4]))
    for pair in pairs:
        required = [wanted for _, kind, wanted in pair.wanted if kind == ":"]
        runner.require(required, f"{path.name}: nothing is required of {pair}")
    return pairs


def main():
    options = argparse.ArgumentParser()
    options.add_argument("burstc", type=os.path.abspath)
    options.add_argument("--update", action="store_true")
    options.add_argument("name", nargs="*")
    o = options.parse_args()
    pairs = [pair for pair in read_lines(HERE / "lines.txt") if not o.name or pair.name in o.name]
    found, failures = runner.check_all(lambda pair: (pair.missing(o.burstc), pair.figures(o.burstc)), pairs)
    bad = [line for _, (missing, _) in found for line in missing]
    failures += sum(not runner.counts_agree(f"{pair} {form}", text)
                    for pair, _ in found for form, text in pair.texts.items())
    rows = {pair.name: figures for pair, (_, figures) in found}
    held = {row.split(":")[0]: row for row in FIGURES.read_text().splitlines()}
    if o.update:
        held |= rows
        FIGURES.write_text("".join(row + "\n" for _, row in sorted(held.items())))
    bad += [f"figures.txt: {held.get(name)}\n       now: {row}"
            for name, row in rows.items() if held.get(name) != row]
    print("\n".join(bad + [f"{len(pairs)} pairs, {len(bad) + failures} lines differ"]))
    return len(bad) + failures > 0


runner.end(main)
