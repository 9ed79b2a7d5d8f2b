"""idle.py BURSTC TOPO BURST: settings that have nothing to act on. Each is a warning that quotes it, and the program is the one without it;
the same setting where it acts, or what the search chose, is no warning.
"""
import pathlib
import re
import subprocess
import sys

burstc, topo, burst = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).read_text().replace("batch 1;", "batch 4;")
ONE_RANK = "each sequence is on one rank; remove it"
RING, ALONE = "data 1; schedule ring; ", "data 4; schedule ring; "
IDLE = [  # layout, setting, what is said, layers
    (RING, "overlap yes", "it requires tensor parallelism; set `tensor 2` or remove it"),
    (RING, "update host", "parameters and moments are in device memory; set `offload optimizer` or remove it"),
    (RING + "offload activations; ", "update device", "parameters and moments are in device memory; set `offload optimizer` or remove it"),
    (RING, "fetch layers", "no activations are offloaded; set `offload activations` or remove it"),
    (RING, "fetch chunks", "no activations are offloaded; set `offload activations` or remove it"),
    (RING + "offload activations{}; ", ", layers 2", "all of the 2 layers except the last offload their activations; remove it"),
    (RING + "offload activations{}; ", ", layers 9", "all of the 2 layers except the last offload their activations; remove it"),
    (RING + "offload optimizer{}; ", ", layers 1", "no activations are offloaded; set `offload activations` or remove it"),
    (RING, "offload activations", "the model has one layer, whose activations are used at once and never offloaded; remove `activations`", 1),
    (RING, "offload activations(x)", "the model has one layer, whose activations are used at once and never offloaded; remove `activations`", 1),
    (RING + "token chunks 2; ", "ffn chunks 2", "`token chunks 2` already splits the feed-forward network; remove it"),
    (RING + "travel keys; ", "token chunks 1, attention", "one chunk holds all tokens; use `token chunks 2, attention` or remove it"),
    (RING + "travel keys; ", "token chunks 1, keys", "one chunk holds all tokens; use `token chunks 2, keys` or remove it"),
    ("data 1; schedule ulysses; ", "travel queries", "schedule 'ulysses' has the same backward for keys and queries; remove it"),
    ("data 1; schedule mesh; context 2 x 2; ", "travel keys", "schedule 'mesh' has the same backward for keys and queries; remove it"),
    *((f"data 4; schedule {name}; ", f"travel {what}", ONE_RANK) for name in ("gather", "ulysses", "ring") for what in ("keys", "queries")),
    (ALONE, "ranges yes", ONE_RANK),
    ("data 4; schedule ulysses; ", "ranges yes", ONE_RANK),
    (ALONE, "partition zigzag", ONE_RANK),
    (ALONE, "partition blocks(32)", ONE_RANK),
    (ALONE, "shares 3", ONE_RANK),
    (ALONE, "placement data", "fewer than two axes have more than one rank; remove it"),
]
ACTS = [RING + setting for setting in (
    "travel queries;", "ranges yes;", "partition zigzag;", "ffn chunks 2;", "shares 3, 3, 1, 1;", "overlap no;", "head chunks 1;",
    "token chunks 1;", "offload none;", "offload activations; fetch layers;", "offload optimizer; update host;", "offload activations, layers 1;",
    "token chunks auto; ffn chunks 2;")] + ["data 2; context 2; schedule ring; placement data, context;", "tensor 2; overlap yes;", "", "data 4;"]


def compiled(layout, layers=2):
    model = burst.replace("layers 2;", f"layers {layers};", 1)
    if layers == 1:
        model = re.sub(r"^attention.*$", "attention { default causal; }", model, flags=re.M)
    pathlib.Path("m.burst").write_text(f"{model}layout {{ {layout} }}\n")
    done = subprocess.run([burstc, topo, "m.burst", "--emit=plan", "-Wno-few-tokens"], capture_output=True, text=True)
    assert done.returncode == 0, (layout, done.stderr)
    return re.findall(r"warning: (.*)", done.stderr), done.stdout


def chosen(plan):
    return re.search(r"layout \{.*\}", plan).group()


def check(layout, setting, why, layers=2):
    inside = "{}" in layout
    said, plan = compiled(layout.replace("{}", setting) if inside else f"{layout}{setting};", layers)
    quoted = setting.lstrip(", ")
    assert said == [f"`{quoted}` has no effect: {why} [-Wunused-setting]"], (layout, setting, said)
    # Left out, but for what the search would then choose itself.
    rest = layout.replace("{}", "") + ("partition contiguous; " if setting.startswith("partition") else "")
    silent, without = compiled(rest, layers)
    assert not silent and chosen(plan) == chosen(without), (setting, chosen(plan), chosen(without), silent)
    said, _ = compiled(chosen(plan)[len("layout {"):-1], layers)
    assert not said, (chosen(plan), said)


def main():
    for case in IDLE:
        check(*case)
    for layout in ACTS:
        said, _ = compiled(layout)
        assert not said, (layout, said)
    print(f"{len(IDLE)} idle settings, {len(ACTS)} layouts without any")


main()
