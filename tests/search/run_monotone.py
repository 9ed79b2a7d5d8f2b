#!/usr/bin/env python3
"""Faster links or cards, or more memory, never make the chosen step slower.

    run_monotone.py BURSTC [--pairs N] [--seed S]

Each pair is a drawn problem and the same with a faster link, faster cards, more memory or all three; the second step takes no more than
0.1 % longer than the first, within which the search prefers what is simpler.
"""
import sys

from problems import ask, count_faults, replace

TIE = 1.001


def faster(problem, source):
    names, by = ["gbps", "link", "memory"], 1 + 3 * source.random()
    changed = source.choice([*([name] for name in names), names])
    return replace(problem, **{name: getattr(problem, name) * by for name in changed})


def check(burstc, problem, source):
    """Of one pair: what is wrong, or None."""
    better = faster(problem, source)
    before, after = ask(burstc, problem), ask(burstc, better)
    if before and (after is None or after.seconds > before.seconds * TIE):
        return f"{problem}\n  {before}\n  {better}\n  {after}"
    return None


if __name__ == "__main__":
    sys.exit(count_faults(__doc__, "pairs", 500, check, "where the faster cluster takes longer"))
