#!/usr/bin/env python3
"""memory.py BURSTC: the figures of --emit=memory against those of --emit=plan, --emit=step, and of burstc itself, run with
each other choice that it names."""
import functools
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402

burstc = functools.partial(emitted.burstc, sys.argv[1])

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = r"(\d+(?:\.\d+)? (?:bytes|[KMGT]iB))"

MODEL = """import "masks";
model m {{ layers {layers}; hidden 256; heads 4; kv_heads 2; head_dim 64; ffn swiglu 512; vocab 512; }}
attention {{ default causal; layers 1: window_sink(256, 4); }}
sequence {tokens};
layout {{ {layout} }}
"""
CASES = [
    dict(layout="data 1; schedule ring; recompute none;"), dict(layout="schedule ring; recompute none; data 2;", layers=12),
    dict(layout="data 1; schedule ulysses;", device="h200"), dict(layout="data 1; recompute save(o, lse, gate_up(2));", device="h200"),
    dict(layout="data 1; schedule ring; travel keys; ffn chunks 2;", memory="64 MiB", tokens="4Ki", layers=12),
    dict(layout="data 1; schedule burst; weights auto;", nodes=2), dict(layout="data 1; schedule ring; head chunks 2; recompute full;"),
    dict(layout="data 1; schedule ring; travel keys; token chunks 3;", tokens="4Ki"),
    dict(layout="data 1; schedule ring; travel keys; token chunks 3, attention;", tokens="4Ki"),
    dict(layout="data 1; schedule ulysses; token chunks 3, attention;", tokens="4Ki"),
    dict(layout="data 1; schedule ulysses; token chunks 4, attention;", tokens="4Ki", device="h200"),
    dict(layout="data 1; schedule ring; recompute full; offload activations, optimizer; update device;", device="h200"),
    dict(layout="data 1; schedule ring; recompute full; offload optimizer; update host;"),
    dict(layout="data 1; schedule ring; travel keys; recompute full; offload activations; token chunks 3, attention; fetch chunks;", tokens="4Ki"),
    dict(layout="data 1; schedule ring; recompute full; loss tile 64;", device="h200"),
]


def size(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def near(text, size_or_bytes):
    """Within what two digits leave out."""
    want = size_or_bytes if not isinstance(size_or_bytes, str) else size(size_or_bytes)
    assert abs(size(text) - want) <= 0.0051 * UNITS[text.split()[1]] + 1, (text, want)


def lines_between(text, begin, end):
    return re.search(rf"^ *{begin}[^\n]*\n(.*?)(?=^ *{end})", text, re.M | re.S).group(1).splitlines()


def check_spaces(text, plan, step):
    taken = int(re.search(r"^memory of a rank: (\d+) bytes$", plan, re.M).group(1))
    head, arena, peak = re.search(rf"^device: a rank needs {SIZE}.*\n +{SIZE}  arena .* peak at {SIZE}$", text, re.M).groups()
    beside = re.search(rf"^ +{SIZE}  CUDA's context", text, re.M)
    outside = size(beside.group(1)) if beside else 0
    assert abs(size(head) - outside - taken) <= 0.011 * UNITS[head.split()[1]], (head, outside, taken)
    near(arena, int(re.search(r"^  arena .* (\d+)$", plan, re.M).group(1)))
    alive = [re.match(rf" +{SIZE}  (\w+)", line).groups() for line in lines_between(text, "at the peak", "(?:host:|with one|to evaluate alone)")]
    assert [size(b) for b, _ in alive] == sorted((size(b) for b, _ in alive), reverse=True)
    assert [name for _, name in alive] == [line.split()[0] for line in lines_between(step, "packed into", "proof 7")]
    total = sum(size(b) for b, _ in alive)
    assert abs(total - size(peak)) <= 0.006 * sum(UNITS[b.split()[1]] for b, _ in alive), (total, peak)
    sections = [re.findall(SIZE, line) for line in lines_between(text, "live bytes where largest", "at the peak")]
    assert max(size(s[0]) for s in sections) == size(peak)
    for whole, *parts in sections:
        assert abs(size(whole) - sum(map(size, parts))) <= 0.006 * sum(UNITS[p.split()[1]] for p in [whole, *parts]), (whole, parts)


def check_host(text, program):
    """What the program says of the host's memory as it begins: its arena and what is offloaded beside it."""
    said = sum(int(b) for b in re.findall(r"^    p\.(?:arena|offloaded)_bytes = (\d+);$", program, re.M))
    near(re.search(rf"^host: a rank needs {SIZE}", text, re.M).group(1), said)


def with_choice(layout, choice):
    choice = {"no ffn chunks": "ffn chunks 1", "no head chunks": "head chunks 1", "no token chunks": "token chunks 1", "no offload": "offload none", "no loss tile": "loss fused"}.get(choice, choice)
    name = choice.split(" chunks ")[0] + " chunks" if " chunks " in choice else choice.split()[0]
    name = ("ffn chunks", name) if name == "token chunks" else (name,)  # they cut the feed-forward network too
    kept = [s for s in layout.strip("layout{} ").split(";") if s.strip() and not s.strip().startswith((*name, "ranges"))]  # ranges: decided anew
    kept += [] if "offload" in layout + choice else ["offload none"]
    if "offload" in choice:  # where it updates goes with the optimizer, and is the host where the row does not say
        kept = [s for s in kept if "update" not in s or "optimizer" in choice]
        kept = [s for s in kept if "fetch" not in s or "activations" in choice]
        kept += ["update host"] if "optimizer" in choice and "update" not in layout else []
    return "layout {" + ";".join(kept) + f"; {choice}; }}"


def cost_of(folder):
    cost = burstc(folder, "c.topo", "other.burst", "--emit=cost")
    memory = re.search(r"memory ([\d.]+) (\w+) a rank", cost).groups()
    return runner.milliseconds(re.search(r"^step (\S+ ms):", cost, re.M)[1]), float(memory[0]) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB"].index(memory[1])


def check_others(folder, text, model):
    rows = text[text.index("with one setting"):].splitlines()
    layout = text.splitlines()[1]
    assert len(rows) > 3
    for row in rows[1:]:
        if not re.search(r"\d m?s ", row):  # it cannot be
            other = with_choice(layout, re.split("  +", row.strip())[0])
            (folder / "other.burst").write_text(model.replace(re.search(r"layout \{.*\}", model).group(0), other))
            burstc(folder, "c.topo", "other.burst", "--emit=cost", status=1)
            continue
        what, needs, step = re.match(rf"  (.*?) +{SIZE} +(?:[-+]{SIZE[1:-1]} +)?(\S+ m?s) ", row).groups()
        other = layout if what == "as chosen" else with_choice(layout, what)
        (folder / "other.burst").write_text(model.replace(re.search(r"layout \{.*\}", model).group(0), other))
        if row.endswith("does not fit"):
            said = re.search(rf"proof 6 .*: a rank needs {SIZE}[ ,]", burstc(folder, "c.topo", "other.burst", "--emit=cost", status=1)).group(1)
            assert said == needs, (row, said)
        else:
            got, memory = cost_of(folder)
            assert abs(got - runner.milliseconds(step)) < (6e-4 if got < 1e3 else 0.6) and abs(memory - size(needs)) <= 0.006 * (UNITS[needs.split()[1]] + 1e3 ** len(str(int(memory)))), (row, got, memory)


def check(case):
    folder = pathlib.Path(".")
    (folder / "c.topo").write_text(emitted.few(**{k: v for k, v in case.items() if k in ("nodes", "device", "memory")}))
    model = MODEL.format(**{"tokens": "2Ki", "layers": 4, **case})
    (folder / "m.burst").write_text(model)
    text, plan, step = (burstc(folder, "c.topo", "m.burst", f"--emit={form}") for form in ("memory", "plan", "step"))
    assert text == burstc(folder, "c.topo", "m.burst", "--emit=memory")
    check_spaces(text, plan, step)
    if "device" in case:
        check_host(text, burstc(folder, "c.topo", "m.burst", "--emit=cuda"))
    check_others(folder, text, model)


sys.exit(runner.run_parts({str(case): lambda case=case: check(case) for case in CASES}) > 0)
