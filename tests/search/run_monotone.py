#!/usr/bin/env python3
"""Faster links or cards, or more memory, never make the chosen step slower.

    run_monotone.py BURSTC [--pairs N] [--seed S]

Each pair is a drawn problem and the same with a faster link, faster cards, more memory or all three; the second step takes no more than
0.1 % longer than the first, within which the search prefers what is simpler.
"""
import argparse
import pathlib
import random
import sys

from problems import ask, draw, replace

TIE = 1.001


def faster(problem, source):
    names, by = ["gbps", "link", "memory"], 1 + 3 * source.random()
    changed = source.choice([*([name] for name in names), names])
    return replace(problem, **{name: getattr(problem, name) * by for name in changed})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("burstc", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    source, wrong = random.Random(args.seed), 0
    for n in range(args.pairs):
        problem = draw(source)
        better = faster(problem, source)
        before, after = ask(args.burstc.resolve(), problem), ask(args.burstc.resolve(), better)
        if before and (after is None or after.seconds > before.seconds * TIE):
            wrong += 1
            print(f"pair {n}: {problem}\n  {before}\n  {better}\n  {after}", flush=True)
    print(f"{args.pairs} pairs, {wrong} where the faster cluster takes longer")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
