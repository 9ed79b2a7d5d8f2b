#!/usr/bin/env python3
"""same_loss.py TOLERANCE A B: two programs' outputs have the same losses, step by step, relative to TOLERANCE."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402


def losses(path):
    with open(path) as f:
        return [(m[1], float(m[2]), float(m[3])) for m in re.finditer(r"step (\d+/\d+)  loss ([\d.]+)  norm ([\d.]+)", f.read())]


def main():
    tolerance, *programs = runner.words(__doc__, "tolerance", "a", "b")
    tolerance, (a, b) = float(tolerance), map(losses, programs)
    if len(a) < 2 or len(a) != len(b) or a[0][1] == a[-1][1]:
        print(f"not the same steps, or nothing is learnt: {a} {b}")
        return 1
    for x, y in zip(a, b):
        if x[0] != y[0] or any(abs(u - v) > tolerance * abs(v) for u, v in zip(x[1:], y[1:])):
            print(f"step {x[0]}: loss {x[1]}, norm {x[2]}; the other has {y[1]}, {y[2]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
