#!/usr/bin/env python3
"""What burstc predicts beside what was published.

    compare.py BURSTC [--check] [TABLE ...]

For each cell: predicted, published, and their ratio in time (above 1: predicted slower). A cell that is more than 15 % off is a
miss (*). For each column: the layout that is predicted best, and its regret: how much slower its published figure is than the
column's best. Below a table: the misses, the regrets' mean and worst, and the furthest of the other cells. With --check it fails
where a table has other misses than `tables.py` states, a miss with another ratio, a cell further off, more mean regret, or another
order of layouts. Ratios of rows to one of them are judged as cells are.
"""
import argparse
import functools
import math
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tables import HIGHER, TABLES, filled

WITHIN = 0.15  # of the published figure, in time
SAME = 0.02  # of a miss's stated ratio


@dataclass
class Prediction:
    tokens: int
    step: float       # seconds
    attention: float  # of all kinds of layers, each forward once and backward once
    forward: float    # the first part of it
    first: float      # until a prompt's first token; of a program that trains its forward


def tokens_of(text):
    """Of a step."""
    number, unit = re.search(r"(?:sequence|lengths) (\d+)([KM])i;", text).groups()
    batch = re.search(r"batch (\d+);", text)
    return int(batch[1] if batch else 1) * int(number) << {"K": 10, "M": 20}[unit]


@functools.cache
def predict(burstc, topo, model, layout):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = f"{model}layout {{ {layout} }}\n"
        (folder / "c.topo").write_text(topo)
        (folder / "m.burst").write_text(text)
        run = subprocess.run([burstc, "c.topo", "m.burst", "--emit=cost"], cwd=folder, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    forward, backward = (attention_of(direction, run.stdout) for direction in ("forward", "backward"))
    return Prediction(tokens_of(text), seconds_after(r"^step ", run.stdout), forward + backward, forward, first_token(text, run.stdout))


def attention_of(direction, cost):
    each = re.findall(rf"^  attention {direction}, .*? +\d+ +([\d.,]+) ", cost, re.M)
    return sum(float(ms.replace(",", "")) for ms in each) / 1e3


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
    cells = [(row, column) for row in table.rows for i, column in enumerate(table.columns) if table.cells[row][i] is not None]

    def of(cell):
        row, column = cell
        layout = table.rows[row] if table.rows[row].startswith("data") else "data 1; " + table.rows[row]
        texts = (table.topos.get(row, table.topo), table.models.get(row, table.model), layout)
        p = predict(burstc, *(filled(text, table.columns[column]) for text in texts))
        return table.figures.get(column, table.figure)(replace(p, step=p.step + table.waits.get(row, 0)))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(cells, pool.map(of, cells)))


def longer(table, figure, than):
    """How many times as long."""
    return than / figure if table.better == HIGHER else figure / than


def show(table, predicted):
    """Prints the table. Returns the ratio of each published cell."""
    print(f"\n{table.name}: {table.source}; {table.unit}: predicted, published, ratio in time")
    width = max(map(len, table.rows))
    print(" " * width, *(f"{name:^23}" for name in table.columns), sep="  ")
    ratios = {}
    for row in table.rows:
        line = f"{row:{width}}"
        for column, published in zip(table.columns, table.cells[row]):
            if published is None:
                line += f"  {'-':>23}"
                continue
            figure = predicted[row, column]
            ratios[row, column] = longer(table, figure, published)
            line += f"  {figure:8.1f} {published:8.1f} {ratios[row, column]:4.2f}{'*' if missed(ratios[row, column]) else ' '}"
        print(line)
    return ratios


def missed(ratio):
    return abs(ratio - 1) > WITHIN


def misses_hold(ratios, stated, of=""):
    """Whether the misses are those that are stated, with their ratios."""
    found = {cell: ratio for cell, ratio in ratios.items() if missed(ratio)}
    changed = [cell for cell in {**found, **stated}
               if (cell in found) != (cell in stated) or abs(found[cell] / stated[cell] - 1) > SAME]
    for row, column in changed:
        print(f"  {row}, {column}{of}: {ratios[row, column]:.3f}; stated is {stated.get((row, column), 'no miss')}")
    return not changed


def shares_of(table, ratios):
    """The ratios of rows to the baseline row, over the published ratios, in time."""
    return {(row, column): ratio / ratios[table.baseline, column] for (row, column), ratio in ratios.items()
            if table.baseline and row != table.baseline}


def shares_hold(table, ratios):
    shares = shares_of(table, ratios)
    if shares:
        print(f"  ratios to {table.baseline}: {min(shares.values()):.2f} to {max(shares.values()):.2f} of those published, in time")
    return misses_hold(shares, table.missed_shares, f" to {table.baseline}")


def order_holds(table, predicted):
    """Whether the layouts are ordered as published, in each column."""
    held = True
    for i, column in enumerate(table.columns if table.ordered else []):
        rows = [row for row in table.rows if row not in table.topos]
        by_published = sorted(rows, key=lambda row: table.cells[row][i])
        by_predicted = sorted(rows, key=lambda row: predicted[row, column])
        if by_published != by_predicted:
            print(f"  {column}: published order {by_published}, predicted {by_predicted}")
            held = False
    return held


def regrets(table, predicted):
    """By column: the row that is predicted best, the published best, and how much longer the first takes."""
    for i, column in enumerate(table.columns):
        rows = [row for row in table.rows if table.cells[row][i] is not None and row not in table.topos]
        chosen = max(rows, key=lambda row: table.better * predicted[row, column])
        best = max(rows, key=lambda row: table.better * table.cells[row][i])
        yield column, chosen, best, longer(table, table.cells[chosen][i], table.cells[best][i])


def compare(burstc, table):
    predicted = predictions(burstc, table)
    ratios = show(table, predicted)
    all_regrets = list(regrets(table, predicted))
    for column, chosen, best, regret in all_regrets:
        print(f"  {column}: predicted best {chosen}, published best {best}, regret {regret:.3f}")
    mean = math.exp(sum(math.log(x[3]) for x in all_regrets) / len(all_regrets))
    worst = max(x[3] for x in all_regrets)
    near = [max(ratio, 1 / ratio) for ratio in ratios.values() if not missed(ratio)]
    print(f"  {len(ratios) - len(near)} of {len(ratios)} cells missed by more than {100 * WITHIN:.0f} %, the others at most "
          f"{max(near):.3f} times as long or as short; regret mean {mean:.3f}, worst {worst:.3f}")
    worse = mean > table.regret + 0.0005 or max(near) > table.furthest
    if worse:
        print(f"  worse than {table.furthest} and regret {table.regret:.3f}")
    return all([misses_hold(ratios, table.misses), shares_hold(table, ratios), order_holds(table, predicted), not worse])


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
