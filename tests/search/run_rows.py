#!/usr/bin/env python3
"""Each row of --explain has the time of its layout.

    run_rows.py BURSTC [--rows N] [--seed S]

Of each drawn problem one row that works is drawn and its layout compiled by itself: the chosen layout with the values of the row's columns.
Both times differ by no more than 0.1 %, beside the row's last digit. Where a row has the optimizer in the host's memory, which of both
updates it is no column, and the layout may be faster.
"""
import re
import sys

from problems import ask, count_faults, output_of

TIE = 1.001
OPEN = "weights auto; overlap auto;"


def settings_of(layout):
    """'layout { a 1; b c, d; }' as {'a': '1', 'b': 'c, d'}."""
    inside = layout[layout.index("{") + 1:layout.rindex("}")]
    names = ["ffn chunks", "head chunks", "token chunks", "loss tile"]
    split = [s.strip() for s in inside.split(";") if s.strip()]
    return dict(next(((n, s[len(n) + 1:]) for n in names if s.startswith(n + " ")), tuple(s.split(" ", 1))) for s in split)


def rows_of(table):
    """[({setting: value}, seconds, half a unit of the last digit)] of rows that work."""
    lines = table.splitlines()
    header = next(i for i, line in enumerate(lines) if re.match(r"(data +)?schedule .* step$", line))
    names = [(m.start(), m.group()) for m in re.finditer(r"\S+( (chunks|tile))?", lines[header][:lines[header].index(" step") + 1])]
    for line in lines[header + 1:]:
        step = re.search(r" ([0-9.,]+) (m?s) .*GiB|MiB", line)
        if not step or " - proof" in line or " GiB sent" in line or not step.group(1):
            continue
        ends = [at for at, _ in names[1:]] + [step.start()]
        number, unit = step.group(1).replace(",", ""), 1e-3 if step.group(2) == "ms" else 1
        digits = len(number.partition(".")[2])
        yield {name: line[at:end].strip() for (at, name), end in zip(names, ends)}, float(number) * unit, 0.5 * 10**-digits * unit


def check(burstc, problem, source):
    """Of one problem: what is wrong, or None."""
    chosen = ask(burstc, problem, OPEN)
    if chosen is None:
        return None
    values, seconds, digit = source.choice(list(rows_of(output_of(burstc, problem, OPEN, "--explain"))))
    fixed = settings_of(chosen.layout)
    fixed.update(values)
    for name, value in values.items():
        if value == "-":
            fixed.update({name: "none"}) if name == "offload" else fixed.pop(name)
    for name in {"update", "ranges", "data", "heads", "context"} - set(values):  # no columns: what follows, or was decided by time
        if name != "data" or problem.data:  # without a column all rows have as many groups
            fixed.pop(name, None)
    layout = " ".join(f"{name} {value};" for name, value in fixed.items())
    alone = ask(burstc, problem, layout)
    least = 0 if "optimizer" in fixed.get("offload", "") else seconds / TIE - digit
    if alone and least <= alone.step <= seconds * TIE + digit:
        return None
    return f"{problem}\n  row:   {seconds * 1e3:.3f} ms {values}\n  alone: {alone and alone.step * 1e3} ms {layout}"


if __name__ == "__main__":
    sys.exit(count_faults(__doc__, "rows", 40, check, "whose layout takes another time"))
