#!/usr/bin/env python3
"""The lines that matter of what burstc prints for an input, by topic, and a few figures of each.

    run_lines.py BURSTC [--update] [NAME ...]

lines/*.txt holds cases:

    case NAME       a model, whose text follows with each line behind two spaces; its first line is `# CLUSTER.topo c|cuda [SCHEDULE.sched]`
    # text          why it is here
    FORM: text      a line of the form holds the text, after the line that the requirement before it of that form found
    FORM| line      such a line is the form's, with its indentation; further ones are the lines right after it; an empty line ends the part
    FORM! text      no line of the form holds it
    figures: ...    unmasked pairs of each mask, operations of a rank, the simulated step and a rank's bytes

FORM is an --emit form, or explain; text between {{ and }} is a regular expression. --update writes the figures, and parts (FORM|) whose
first and last line are found.
"""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "driver")]
import runner  # noqa: E402
from lit import pattern  # noqa: E402
from run_golden import Pair  # noqa: E402

FIGURE = {"mask": r"^pairs (\d+)", "schedule": r"(\d+ operations?) a rank", "cost": r"^(step \S+ m?s)",
          "plan": r"^memory of a rank: (\d+ bytes)"}


class Requirement:
    """What a form must or must not hold: one line, or for a part (`|`) lines that follow each other."""

    def __init__(self, form, kind, text):
        self.form, self.kind, self.lines = form, kind, [text]

    def written(self):
        return [f"{self.form}{self.kind} {line}".rstrip() for line in self.lines]

    def places(self, lines):
        """Where the form has its first line."""
        if self.kind == "|":
            return [i for i, line in enumerate(lines) if line == self.lines[0]]
        return [i for i, line in enumerate(lines) if pattern(self.lines[0]).search(line)]

    def missing(self, lines, at):
        """Where the form has it after a line, and what is wrong."""
        places = self.places(lines)
        later = [i for i in places if i > at and (self.kind != "|" or lines[i:i + len(self.lines)] == self.lines)]
        if self.kind == "!":
            return at, f"line {places[0] + 1} of {self.form} holds what it must not: {lines[places[0]]}" if places else None
        if later:
            return later[0] + len(self.lines) - 1, None
        wanted, got = self.lines, lines[places[0]:places[0] + len(self.lines)] if self.kind == "|" and places else []
        shown = list(difflib.unified_diff(wanted, got, "wanted", "printed", n=1, lineterm=""))[2:22]
        return at, "\n".join([f"{self.form} does not hold after line {at + 1}", *shown])

    def rewrite(self, lines, at):
        """Replaces a part by what now stands, after a line, between its first and its last line."""
        begin = next((i for i in self.places(lines) if i > at), None)
        if self.kind == "|" and begin is not None and self.lines[-1] in lines[begin:]:
            self.lines = lines[begin:lines.index(self.lines[-1], begin) + 1]


class Case(Pair):
    """A case of a topic file; `texts` are the forms that were asked for."""

    def __init__(self, name, at):
        self.name, self.at, self.reason, self.model, self.wanted, self.held, self.texts = name, at, [], [], [], None, {}

    def __str__(self):
        return f"{self.at}: {self.name}"

    def place(self, folder):
        """Writes the model to a folder that has the clusters."""
        path = folder / f"{self.name}.burst"
        path.write_text("\n".join(self.model) + "\n")
        Pair.__init__(self, path)

    def text(self, burstc, form):
        if form not in self.texts:
            self.texts[form] = self.run(burstc, "--explain" if form == "explain" else f"--emit={form}")
        return self.texts[form]

    def missing(self, burstc, update=False):
        """Requirements that do not hold, as text; with update, after parts and figures are rewritten."""
        at, wrong = {}, []
        for wanted in self.wanted:
            lines, before = self.text(burstc, wanted.form).splitlines(), at.get(wanted.form, -1)
            if update and wanted.missing(lines, before)[1]:
                wanted.rewrite(lines, before)
            at[wanted.form], what = wanted.missing(lines, before)
            wrong += [f"{self}: {what}"] if what else []
        figures = self.figures(burstc)
        self.held = figures if update else self.held
        return wrong + ([f"{self}: figures: {self.held}\n    now: {figures}"] if figures != self.held else [])

    def figures(self, burstc):
        found = (re.findall(FIGURE[form], self.text(burstc, form), re.M) for form in FIGURE)
        return "; ".join(", ".join(values) for values in found)

    def written(self):
        wanted = []
        for before, requirement in zip([None, *self.wanted], self.wanted):
            wanted += [""] if before and before.kind == requirement.kind == "|" and before.form == requirement.form else []
            wanted += requirement.written()
        return [f"case {self.name}", *self.reason, *(f"  {line}" for line in self.model), *wanted, f"figures: {self.held}"]


def read_topic(path):
    cases, before = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = re.fullmatch(r"case (\w+)|(  )(.+)|(#.*)|figures: (.+)|(\w+)([:!|]) ?(.*)|", line)
        at = f"{path.name}:{number}"
        runner.require(words and (cases or words[1] or not line), f"{at}: neither a case nor a part of one: {line}")
        if words[1]:
            cases.append(Case(words[1], at))
        elif words[2]:
            cases[-1].model.append(words[3])
        elif words[4]:
            cases[-1].reason.append(line)
        elif words[5]:
            cases[-1].held = words[5]
        elif words[6] and words[7] == "|" and before and before[6] == words[6] and before[7] == "|":
            cases[-1].wanted[-1].lines.append(words[8])
        elif words[6]:
            runner.require(words[8], f"{at}: nothing is required")
            cases[-1].wanted.append(Requirement(words[6], words[7], words[8]))
        before = words
    for case in cases:
        runner.require(case.model and case.reason, f"{case}: a case has a model, and a reason why it is here")
        runner.require(any(wanted.kind != "!" for wanted in case.wanted), f"{case}: nothing is required")
    return cases


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("burstc", type=os.path.abspath)
    options.add_argument("--update", action="store_true")
    options.add_argument("name", nargs="*")
    o = options.parse_intermixed_args()
    topics = {path: read_topic(path) for path in sorted(HERE.glob("lines/*.txt"))}
    cases = [case for topic in topics.values() for case in topic]
    names = [case.name for case in cases]
    runner.require(len(set(names)) == len(names), "two cases have the same name")
    runner.require(set(o.name) <= set(names), f"no case is called {', '.join(set(o.name) - set(names))}")
    with runner.folder() as folder:
        for path in (p for p in HERE.iterdir() if p.suffix in (".topo", ".sched", ".txt") and p.name != "CMakeLists.txt"):
            shutil.copy(path, folder)
        chosen = [case for case in cases if not o.name or case.name in o.name]
        for case in chosen:
            case.place(folder)
        found, failures = runner.check_all(lambda case: case.missing(o.burstc, o.update), chosen)
    for path, topic in topics.items() if o.update else []:
        path.write_text("\n\n".join("\n".join(case.written()) for case in topic) + "\n")
    failures += sum(not runner.counts_agree(f"{case} {form}", text) for case in chosen for form, text in case.texts.items())
    wrong = [line for _, missing in found for line in missing]
    print("\n".join(wrong + [f"{len(chosen)} cases, {len(wrong) + failures} requirements do not hold"]))
    return len(wrong) + failures > 0


if __name__ == "__main__":
    runner.end(main)
