#!/usr/bin/env python3
"""What burstc predicts beside what was published.

    compare.py BURSTC [--check] [TABLE ...]

For each cell: predicted, published, and their ratio in time (above 1: predicted slower). For each column: the layout
that is predicted best, and its regret: how much slower its published figure is than the column's best. Below a table:
how many cells are within 15 %, the regrets' mean and worst, and the cell that is furthest from its published figure. With --check it
fails where a table has fewer such cells, a cell further off or more mean regret than `tables.py` says of it, or ratios of rows that are
further from the published ones.
"""
import argparse
import math
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tables import HIGHER, TABLES

WITHIN = 0.15


@dataclass
class Prediction:
    tokens: int
    step: float       # seconds
    attention: float  # of one layer, forward once and backward once
    first: float      # until a prompt's first token; of a program that trains its forward


def filled(text, words):
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def tokens_of(text):
    number, unit = re.search(r"(?:sequence|lengths) (\d+)([KM])i;", text).groups()
    return int(number) << {"K": 10, "M": 20}[unit]


def predict(burstc, topo, model, layout):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = f"{model}layout {{ data 1; {layout} }}\n"
        (folder / "c.topo").write_text(topo)
        (folder / "m.burst").write_text(text)
        run = subprocess.run([burstc, "c.topo", "m.burst", "--emit=cost"], cwd=folder, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    attention = re.findall(r"^  attention (?:forward|backward), .*? +\d+ +([\d.,]+) ", run.stdout, re.M)
    step = seconds_after(r"^step ", run.stdout)
    return Prediction(tokens_of(text), step, sum(float(ms.replace(",", "")) for ms in attention) / 1e3, first_token(text, run.stdout))


def seconds_after(words, cost):
    """The duration after these words of the form `cost`; None: it does not have them."""
    found = re.search(words + r"([\d.,]+) (ms|s)", cost, re.M)
    return found and float(found[1].replace(",", "")) / (1e3 if found[2] == "ms" else 1)


def first_token(text, cost):
    """What the form says of a prompt; without prompts forward of all layers, which are `layers` in the model."""
    first = seconds_after(r"first token after ", cost)
    if first is not None:
        return first
    layers = int(re.search(r"layers (\d+)", text)[1])
    takes = re.findall(r"^  (?:attention forward, .*?|rest of forward) +\d+ +([\d.,]+) ", cost, re.M)
    return layers * sum(float(ms.replace(",", "")) for ms in takes) / 1e3


def predictions(burstc, table):
    cells = [(row, column) for row in table.rows for column in table.columns]

    def of(cell):
        row, column = cell
        texts = (table.topo, table.models.get(row, table.model), table.rows[row])
        p = predict(burstc, *(filled(text, table.columns[column]) for text in texts))
        return table.figure(replace(p, step=p.step + table.waits.get(row, 0)))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(cells, pool.map(of, cells)))


def longer(table, figure, than):
    """How many times as long."""
    return than / figure if table.better == HIGHER else figure / than


def show(table, predicted):
    print(f"\n{table.name}: {table.source}; {table.unit}: predicted, published, ratio in time")
    width = max(map(len, table.rows))
    print(" " * width, *(f"{name:^22}" for name in table.columns), sep="  ")
    ratios = []
    for row in table.rows:
        line = f"{row:{width}}"
        for column, published in zip(table.columns, table.cells[row]):
            figure = predicted[row, column]
            if published is None:
                line += f"  {figure:8.1f}        -     -"
                continue
            ratios.append(longer(table, figure, published))
            line += f"  {figure:8.1f} {published:8.1f} {ratios[-1]:4.2f}"
        print(line)
    return ratios


def regrets(table, predicted):
    """By column: the row that is predicted best, the published best, and how much longer the first takes."""
    for i, column in enumerate(table.columns):
        rows = [row for row in table.rows if table.cells[row][i] is not None]
        chosen = max(rows, key=lambda row: table.better * predicted[row, column])
        best = max(rows, key=lambda row: table.better * table.cells[row][i])
        yield column, chosen, best, longer(table, table.cells[chosen][i], table.cells[best][i])


def compare(burstc, table):
    predicted = predictions(burstc, table)
    ratios = show(table, predicted)
    all_regrets = list(regrets(table, predicted))
    for column, chosen, best, regret in all_regrets:
        print(f"  {column}: predicted best {chosen}, published best {best}, regret {regret:.3f}")
    within = sum(abs(ratio - 1) <= WITHIN for ratio in ratios)
    mean = math.exp(sum(math.log(x[3]) for x in all_regrets) / len(all_regrets))
    worst = max(x[3] for x in all_regrets)
    print(f"  {within} of {len(ratios)} cells within {100 * WITHIN:.0f} %; "
          f"regret mean {mean:.3f}, worst {worst:.3f}")
    furthest = max(max(ratio, 1 / ratio) for ratio in ratios)
    print(f"  furthest: {furthest:.3f} times as long or as short")
    worse = within < table.within or mean > table.regret + 0.0005 or furthest > table.furthest
    if worse:
        print(f"  worse than {table.within} cells, {table.furthest} and regret {table.regret:.3f}")
    return ratios_hold(table, predicted) and not worse


def ratios_hold(table, predicted):
    """Whether the other rows' ratios to one of them are as published."""
    apart = [predicted[row, column] / predicted[table.beside, column] / (table.cells[row][i] / table.cells[table.beside][i]) - 1
             for i, column in enumerate(table.columns) for row in table.rows if table.beside and row != table.beside]
    if apart:
        print(f"  ratios to {table.beside}: {100 * min(apart):+.0f} to {100 * max(apart):+.0f} % of those published")
    return all(abs(x) <= table.apart for x in apart)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("burstc", type=pathlib.Path)
    parser.add_argument("table", nargs="*", choices=[[], *(t.name for t in TABLES)], metavar="TABLE",
                        help=", ".join(t.name for t in TABLES))
    parser.add_argument("--check", action="store_true", help="fail where a table is predicted worse than it says")
    args = parser.parse_args()
    chosen = [table for table in TABLES if not args.table or table.name in args.table]
    held = [compare(args.burstc.resolve(), table) for table in chosen]
    return 1 if args.check and not all(held) else 0


if __name__ == "__main__":
    sys.exit(main())
