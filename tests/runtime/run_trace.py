#!/usr/bin/env python3
"""--trace of emitted programs, and burstc --emit=trace: the file, the table, the progress line and the metrics.

    run_trace.py --toolchain TOOLCHAIN.json        host programs
    run_trace.py --toolchain TOOLCHAIN.json --cuda the same on CUDA devices; 77 where there are none
    run_trace.py --check FILE                      the rules of any trace file
"""
import collections
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

COMPUTE, STEPS, ROUNDING = 0, 99, 0.003  # rows; microseconds: times and durations are written to 0.001
LAYERS, RANKS, PEAK = 2, 4, 50e9
MODEL = """import "masks";
model small {{ layers 2; hidden 128; heads 4; kv_heads 2; head_dim 64; ffn swiglu 256; vocab 256; }}
attention {{ default causal; }}
sequence 1Ki;
{layout}
train {{ steps 4; batch 1; }}
"""
GPUS = "cluster gpus {{ nodes 1 {{ gpus {ranks} of h200; }} link nvlink {{ bandwidth 391 GB/s; latency 5 us; }} }}\n"


def near(a, b, tolerance):
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


# ---- the rules of a file ----

def read(path):
    """Spans by row (process, thread), and the names of processes and rows. Every span ends, and no two of a row overlap."""
    trace = json.loads(pathlib.Path(path).read_text())
    rows, names = collections.defaultdict(list), {}
    for event in trace["traceEvents"]:
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                names[place] = event["args"]["name"]
            continue
        require(event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0 and event["name"], f"not a span: {event}")
        rows[place].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for place, spans in rows.items():
        require(place in names and place[0] in names, f"row {place} has no name")
        require_apart(spans, f"{names[place]} of {names[place[0]]}")
    require(rows, "no span in the file")
    require(trace["otherData"]["left_out"] == 0, "spans were left out")
    return trace["otherData"], rows, names


def require_apart(spans, what):
    spans.sort()
    for before, after in zip(spans, spans[1:]):
        require(before[1] <= after[0] + ROUNDING, f"{what}: {before} and {after} overlap")


def require_whole(spans, name, what):
    """Operations of one part that follow each other are one span."""
    mine = [span for span in sorted(spans) if span[2] == name]
    for before, after in zip(mine, mine[1:]):
        require(before[1] < after[0] - ROUNDING, f"{what}: {before} goes on as {after}")


def seconds(spans, pattern=""):
    return sum(end - begin for begin, end, name in spans if re.match(pattern, name)) * 1e-6


def check_predicted(other, rows, names, process):
    """The layout's computing and waiting adds up to the step that the compiler predicts, and ends with it."""
    require("predicted" in names[process], f"process {process} is not the prediction")
    spans = rows[process, COMPUTE]
    step = other["predicted_seconds"]
    require(near(spans[-1][1] * 1e-6, step, 0.01), f"predicted rows end at {spans[-1][1]} us, the step at {step} s")
    require(seconds(spans, "attend ") > 0 and seconds(spans, "grad ") > 0, "no attention in the prediction")


def pairs(schedule_spans, verb):
    return collections.Counter(name for _, _, name in schedule_spans if name.startswith(verb + " "))


def check_measured(rows, names, ranks, steps, whole_pairs=True):
    """All ranks are there. Under a causal mask and zigzag every pair of chunks is live, and computed once a layer and step."""
    for rank in range(ranks):
        require(names.get(rank) == f"rank {rank}", f"rank {rank} is missing")
        spans = rows[rank, COMPUTE]
        for part in ("attend ", "grad ", "projections", "feed-forward", "norm", "head and loss", "embedding", "optimizer"):
            require(seconds(spans, part) > 0, f"rank {rank} has no time for {part}")
        require_whole(spans, "feed-forward", f"rank {rank}")
    for verb in ("attend", "grad"):
        found = sum((pairs(rows[rank, COMPUTE], verb) for rank in range(ranks)), collections.Counter())
        expected = {f"{verb} Q[{q}] KV[{kv}]": LAYERS * steps for q in range(ranks) for kv in range(ranks)}
        require(not whole_pairs or found == expected, f"{verb}: {dict(found)} and expected {expected}")
        require(set(found) == set(expected), f"{verb}: {sorted(found)}")


# ---- the table and the progress line ----

def check_table(text):
    lines = [line for line in text.splitlines() if line.startswith("  ") and line.rstrip().endswith("%")]
    share = {line[2:30].strip(): float(line.split()[-2]) for line in lines}
    mean = {line[2:30].strip(): float(line[30:].split()[1]) for line in lines}
    require("step" in share and share["step"] == 100, f"no step in the table:\n{text}")
    computing = lines[:[line[2:30].strip() for line in lines].index("step")]
    total = sum(float(line[30:].split()[1]) for line in computing)
    require(near(total, mean["step"], 0.01), f"the parts add up to {total} ms, the step has {mean['step']}:\n{text}")
    for line in lines:
        at_mean, at_most = map(float, line[30:].split()[1:3])
        require(at_most >= at_mean - 1e-3, f"the rank with most has less than the mean:\n{line}")
    require(mean["attention forward"] > 0 and mean["attention backward"] > 0, f"no attention in the table:\n{text}")


def field(source, name):
    return float(re.search(rf"\b{name} = ([0-9.e+-]+)", source).group(1))


def check_metrics(path, source, ranks, peak):
    for line in pathlib.Path(path).read_text().splitlines():
        m = json.loads(line)
        expected = field(source, "flops") / (m["seconds"] * ranks * peak)
        require(near(m["mfu"], expected, 1e-3), f"mfu {m['mfu']}, and {expected} expected")
        require(0 < m["memory_bytes"], "no memory in the metrics")
    return m


# ---- programs ----

def run_program(program, *options, check=True):
    return run([program, *options], timeout=120, env=emitted.quiet_environment(), check=check)


def check_program(folder, program, source, ranks, peak):
    done = run_program(program, "--steps", 3, "--trace", folder / "t.json", "--metrics", folder / "m")
    other, rows, names = read(folder / "t.json")
    check_measured(rows, names, ranks, steps=1)
    check_predicted(other, rows, names, ranks)
    require([name for _, _, name in rows[0, STEPS]] == ["step 2"], "the second step is traced")
    check_table(done.stdout)
    require(f"% MFU" in done.stdout and "(predicted" in done.stdout, done.stdout)
    m = check_metrics(folder / "m", source.read_text(), ranks, peak)
    check_table(run_program(program, "--steps", 4, "--trace", folder / "two.json", "--trace-steps", 2).stdout)
    other, rows, names = read(folder / "two.json")
    check_measured(rows, names, ranks, steps=2)
    require([name for _, _, name in rows[0, STEPS]] == ["step 2", "step 3"], "two steps are traced")
    quiet = run_program(program, "--steps", 1, "--trace", folder / "one.json", "--quiet")
    require([name for _, _, name in read(folder / "one.json")[1][0, STEPS]] == ["step 1"], "an only step is traced")
    require(quiet.stdout == "", "--quiet prints")
    failed = run_program(program, "--trace", folder / "nowhere" / "t.json", check=False)
    require(failed.returncode == 1 and "cannot write" in failed.stderr and "nowhere" in failed.stderr, failed.stderr)
    require(not list(folder.glob("*.part")), "an unfinished file is left")
    return m


def check_heads(path):
    _, rows, _ = read(path)
    spans = [span for (process, lane), row in rows.items() if process == 1 and lane != STEPS for span in row]
    for part in ("attend ", "grad ", "exchange"):
        require(seconds(spans, part) > 0, f"ulysses has no time for {part}")


def host(tools, folder):
    layout = emitted.layout(1, RANKS, "ring", "keys", "zigzag", "none")
    source = tools.emit(folder, "ring", emitted.topology(1, RANKS), MODEL.format(layout=layout))
    m = check_program(folder, tools.link(source), source, RANKS, PEAK)
    require(m["memory_bytes"] <= m["predicted_memory_bytes"], f"memory: {m}")
    _, rows, _ = read(folder / "t.json")
    for rank in range(RANKS):  # a rank of the host is one process: it waits or computes
        require_apart([s for (process, lane), row in rows.items() if process == rank and lane != STEPS for s in row], f"rank {rank}")
    heads = emitted.layout(1, 2, "ulysses", "keys", "zigzag", "none")
    program = tools.link(tools.emit(folder, "heads", emitted.topology(1, 2), MODEL.format(layout=heads)))
    run_program(program, "--steps", 2, "--trace", folder / "heads.json")
    check_heads(folder / "heads.json")


def forms(tools, folder):
    """The predicted step alone, for each schedule and recomputation."""
    for schedule, travel, recompute in (("ring", "keys", "none"), ("burst", "queries", "full"), ("ring", "queries", "full"),
                                         ("ring", "keys", "selective")):
        layout = emitted.layout(1, 8, schedule, travel, "zigzag", recompute)
        (folder / "p.topo").write_text(emitted.topology(2, 4))
        (folder / "p.burst").write_text(MODEL.format(layout=layout))
        run([tools.burstc, folder / "p.topo", folder / "p.burst", "--emit=trace", "-o", folder / "p.json"], timeout=60)
        other, rows, names = read(folder / "p.json")
        check_predicted(other, rows, names, 0)
        grads = pairs(rows[0, COMPUTE], "grad")
        require(sum(grads.values()) == 8 * LAYERS, f"{schedule}: {grads}")
        attends = 8 * LAYERS * (2 if recompute == "full" else 1)
        require(sum(pairs(rows[0, COMPUTE], "attend").values()) == attends, f"{schedule}, {recompute}: pairs of forward")


def cuda(tools, folder):
    if not shutil.which("nvidia-smi") or not shutil.which("nvcc"):
        return 77
    listed = run(["nvidia-smi", "--list-gpus"], 60, check=False).stdout
    ranks = min(listed.count("GPU "), RANKS)
    if ranks == 0:
        return 77
    layout = emitted.layout(1, ranks, "ring", "keys", "zigzag", "none")
    (folder / "g.topo").write_text(GPUS.format(ranks=ranks))
    (folder / "g.burst").write_text(MODEL.format(layout=layout))
    run([tools.burstc, folder / "g.topo", folder / "g.burst", "-o", folder / "g"], timeout=600)
    source = folder / "g.cu"
    check_program(folder, folder / "g", source, ranks, field(source.read_text(), "peak_flops"))
    print(run_program(folder / "g", "--steps", 3, "--trace", folder / "t.json").stdout)
    if ranks in (2, 4):
        heads = emitted.layout(1, ranks, "ulysses", "keys", "zigzag", "none")
        (folder / "h.burst").write_text(MODEL.format(layout=heads))
        run([tools.burstc, folder / "g.topo", folder / "h.burst", "-o", folder / "h"], timeout=600)
        run_program(folder / "h", "--steps", 2, "--trace", folder / "heads.json")
        check_heads(folder / "heads.json")
    return 0


def main():
    parser = runner.options(__doc__)
    parser.add_argument("--toolchain")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--check")
    o = parser.parse_args()
    if o.check:
        _, rows, names = read(o.check)
        processes = ", ".join(name for place, name in names.items() if isinstance(place, int))
        print(f"{o.check}: {sum(map(len, rows.values()))} spans in {len(rows)} rows of {processes}")
        return 0
    tools = emitted.Toolchain(o.toolchain)
    with runner.folder(o.work) as folder:
        return cuda(tools, folder) if o.cuda else runner.run_parts({"host": lambda: host(tools, folder), "forms": lambda: forms(tools, folder)})


runner.end(main)
