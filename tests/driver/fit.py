#!/usr/bin/env python3
"""fit.py BURSTC: rows of `burstc fit` against burstc itself: with its layout its sequence compiles, with the figures of the row, and
the next longer one is refused for its memory. The line below the rows likewise: the text as written compiles with its length, and
with its layout, but not with the next longer one. Of each table four rows, other ones each day; BURST_TEST_ALL=1: all of them."""
import datetime
import functools
import os
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402

burstc = functools.partial(emitted.burstc, sys.argv[1], ".")

MODEL = """import "masks";
model m {{ layers {layers}; hidden {hidden}; heads 4; kv_heads 2; head_dim 64; ffn swiglu 512; vocab 512; }}
attention {{ default causal; layers 1: window_sink(256, 4); }}
sequence {tokens};
layout {{ {layout} }}
train {{ batch {batch}; }}
"""
PLAIN = {"layers": 6, "hidden": 256, "tokens": "2Ki", "batch": 2, "nodes": 1, "gpus": 4, "device": "small", "memory": "256 MiB"}
CASES = [
    dict(layout="data 1; schedule ring; partition zigzag;"), dict(layout="data 2; schedule ring; recompute none;"),
    dict(layout="data 1; schedule ulysses; weights auto;", memory="96 MiB"), dict(layout="", gpus=3, batch=1),
    dict(layout="data 1; recompute save(o, lse, gate_up(3)); partition blocks(1Ki);", nodes=2),
    dict(layout="data 1; schedule burst;", device="h200", layers=5, hidden=4096), dict(layout="ffn chunks 2;", gpus=1),
    dict(layout="data 1; schedule ring;", tokens="4Mi"), # as written it does not fit
]


def tokens_of(text):
    return int(text[:-2]) * {"Ki": 2**10, "Mi": 2**20}[text[-2:]]


def next_longer(tokens, step):
    """Eight bits count."""
    apart = 1
    while 256 * apart <= tokens // step:
        apart *= 2
    return tokens + apart * step


def write(case, tokens, layout):
    pathlib.Path("at.burst").write_text(MODEL.format(**{**PLAIN, **case, "tokens": tokens, "layout": layout}))


def check_row(case, kept, names, line, step, world, peak):
    *values, longest, of_rank, memory, unit, evaluation, its_unit, seconds, _, rate, mfu, _, largest = re.split(r" +", line, maxsplit=len(names) + 11)
    none = {"ffn chunks": "1", "offload": "none"}
    settings = [f"{n} {none[n] if v == '-' else v};" for n, v in zip(names, values)] + ["offload none;"] * ("offload" not in names and "offload" not in kept)
    layout, tokens = kept + " ".join(settings), tokens_of(longest)
    write(case, tokens, layout)
    cost, alive = burstc("c.topo", "at.burst", "--emit=cost"), burstc("c.topo", "at.burst", "--emit=memory")
    seconds, rate, of_rank = (text.replace(",", "") for text in (seconds, rate, of_rank))
    took = runner.milliseconds(re.search(r"^step (\S+ ms):", cost, re.M)[1]) / 1e3
    flops = float(re.search(r"^(\S+) FLOP", cost, re.M).group(1))
    assert abs(took - float(seconds)) < 6e-4, (line, took)
    assert abs(float(rate) / (tokens * {**PLAIN, **case}["batch"] / took) - 1) < 1e-3, line
    assert abs(float(mfu) - 100 * flops / took / world / peak) < 0.06 + 1e-3 * float(mfu), line
    assert re.search(r"a rank needs (\S+ \S+),", alive).group(1) == f"{memory} {unit}", (line, alive)
    assert re.search(r"^to evaluate alone .* a rank needs (\S+ \S+)$", alive, re.M).group(1) == f"{evaluation} {its_unit}", (line, alive)
    top = re.search(r"at the peak.*\n +(\S+ \S+)  (\w+)", alive).groups()
    assert largest.startswith(top[1]) and largest.endswith(top[0]), (line, top)
    owned = re.findall(r"^rank \d+ tokens (\d+)", burstc("c.topo", "at.burst", "--emit=partition"), re.M)
    assert int(of_rank) == max(map(int, owned)), (line, owned)
    write(case, next_longer(tokens, step), layout)
    refused = burstc("c.topo", "at.burst", "--emit=cost", status=1)
    assert "proof 6" in refused, refused


def check_as_written(case, line, step):
    at_least, longest, layout = re.fullmatch(r"as written: (at least )?(\S+), layout \{ (.*) \}", line).groups()
    for text in (case["layout"], layout):
        write(case, tokens_of(longest), text)
        burstc("c.topo", "at.burst", "--emit=memory")
    write(case, next_longer(tokens_of(longest), step), case["layout"])
    if not at_least:
        burstc("c.topo", "at.burst", "--emit=memory", status=1)


def drawn(lines):
    """Four of them, in order."""
    if os.environ.get("BURST_TEST_ALL") == "1":
        return lines
    source = random.Random(datetime.date.today().toordinal())
    return [lines[i] for i in sorted(source.sample(range(len(lines)), min(4, len(lines))))]


def check(case):
    pathlib.Path("c.topo").write_text(emitted.few(**{k: v for k, v in {**PLAIN, **case}.items() if k in ("nodes", "gpus", "device", "memory")}))
    pathlib.Path("m.burst").write_text(MODEL.format(**{**PLAIN, **case}))
    lines = burstc("fit", "c.topo", "m.burst").splitlines()
    assert lines[0] == "burst-fit 4"
    on_host = lines[2].startswith("each process takes")
    assert on_host == ("device" not in case), lines[2]
    lines = lines[:2] + lines[2 + on_host:]
    world, step = re.search(r": (\d+) ranks?, .* multiples of (\S+) tokens", lines[1]).groups()
    kept = re.fullmatch(r"layout \{ (.*)\}, with", lines[2]).group(1)
    names = [n for n in ("ffn chunks", "recompute", "offload", "weights") if n in lines[3]]
    peak = 989e12 if case.get("device") == "h200" else 50e9
    longest = [tokens_of(re.search(r" (\d+[KM]i) ", line)[1]) for line in lines[4:-1]]
    assert len(longest) >= 3 and longest == sorted(longest) or "weights" in names or len(set(longest)) > 2, longest
    check_as_written(case, lines[-1], tokens_of(step))
    for line in drawn(lines[4:-1]):
        check_row(case, kept, names, line, tokens_of(step), int(world), peak)


sys.exit(runner.run_parts({str(case): lambda case=case: check(case) for case in CASES}) > 0)
