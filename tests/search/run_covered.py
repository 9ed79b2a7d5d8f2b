#!/usr/bin/env python3
"""An open layout is never slower than a fixed one that it covers.

    run_covered.py BURSTC [--problems N] [--seed S]

Of each drawn problem every stock schedule that an open layout tries, with all sizes of its coordinates, travels and
partitions, is given as a fixed layout and compiled by itself; what `schedule auto` chooses takes no more than 0.1 % longer
than the fastest. Before these come the layouts that were faster once.
"""
import itertools
import sys

from problems import DEVICES, Problem, ask, count_faults

TIE = 1.001
RINGS = ["ring", "biring", "doubling", "gather", "near", "bidirectional", "halo"]
LEVELS = {"double_ring": 2, "mesh": 2, "stride": 2, "three_level": 3}
PARTITIONS = ["contiguous", "zigzag", "striped"]
TRAVELS = ["", "travel keys; ", "travel queries; "]


def factors(ranks, parts, least=1):
    if parts == 1:
        return [[ranks]] if ranks >= least else []
    return [[n, *rest] for n in range(least, ranks + 1) if ranks % n == 0 for rest in factors(ranks // n, parts - 1, least)]


def shapes(problem):
    ranks = problem.nodes * problem.gpus
    yield from (f"schedule {name}; context {ranks}; " for name in RINGS)
    yield f"schedule ulysses; heads {ranks}; "
    if problem.nodes > 1:
        yield f"schedule burst; context {problem.nodes} x {problem.gpus}; "
    yield from (f"schedule usp; context {r}; heads {h}; " for r, h in factors(ranks, 2, 2))
    for name, levels in LEVELS.items():
        for sizes in factors(ranks, levels, 2):
            yield f"schedule {name}; context {' x '.join(map(str, sizes))}; "


def fixed_layouts(problem):
    for shape, travel, partition in itertools.product(shapes(problem), TRAVELS, PARTITIONS):
        yield f"{shape}{travel}partition {partition};"


def slower(burstc, problem, layouts):
    """Of one problem and fixed layouts: what is wrong, or None."""
    chosen = ask(burstc, problem)
    if chosen is None:
        return None
    for layout in layouts:
        fixed = ask(burstc, problem, layout)
        if fixed and chosen.seconds > fixed.seconds * TIE:
            return (f"{problem}\n  auto:  {chosen.seconds * 1e3:.3f} ms {chosen.layout}\n"
                    f"  fixed: {fixed.seconds * 1e3:.3f} ms {fixed.layout}")
    return None


def check(burstc, problem, _):
    return slower(burstc, problem, fixed_layouts(problem))


# Where a fixed layout was faster once, with the reason.
KNOWN = [
    # of the feed-forward network in chunks, with less in the host's memory, on another schedule than what came out first
    (Problem(nodes=1, gpus=2, nics=1, device=DEVICES[1], gbps=25, link=200, memory=24, mask="window(4Ki)", tokens=256, heads=32,
             kv_heads=8), "schedule ring; context 2; travel keys; partition contiguous;"),
    # pieces of keys from striped chunks
    (Problem(nodes=3, gpus=2, nics=2, device=DEVICES[0], gbps=100, link=50, memory=12, mask="prefix_lm(2Ki)", tokens=64, heads=16,
             kv_heads=4), "schedule bidirectional; context 6; travel keys; partition striped;"),
    # the same of more ranks
    (Problem(nodes=3, gpus=8, nics=2, device=DEVICES[1], gbps=100, link=50, memory=12, mask="prefix_lm(2Ki)", tokens=256, heads=8,
             kv_heads=2), "schedule bidirectional; context 24; travel keys; partition striped;"),
    # attention that takes longer and sends more in all, but less over the busiest NIC, beside gathers and reductions
    (Problem(nodes=3, gpus=8, nics=1, device=DEVICES[1], gbps=200, link=450, memory=12, mask="window(4Ki)", tokens=16, heads=16,
             kv_heads=16), "schedule double_ring; context 3 x 8; travel queries; partition contiguous;"),
]


def check_known(burstc):
    return [slower(burstc, problem, [layout]) for problem, layout in KNOWN]


if __name__ == "__main__":
    sys.exit(count_faults(__doc__, "problems", 200, check, "where a fixed layout is faster than what auto chose", check_known))
