"""The step of emitted CUDA programs without a GPU: the text's own functions, on streams of this process (step.cc).

    python3 run_step.py --burstc BURSTC --cxx CXX --cc CC --root ROOT --work FOLDER
"""
import argparse
import pathlib
import re
import sys

import run_heads
from run_heads import HERE, cut, function, header, run, whole

SINKS = "sinks learned;"  # of attention; the others are of the model
PARTS = ["", "qkv_bias yes;", "qk_norm yes;", SINKS]  # points take turns
POINTS = [(ranks, recompute, tied) for ranks in (1, 2) for recompute in ("none", "selective", "full") for tied in ("no", "yes")]
MORE = ["", "offload activations;", "token chunks 3;", "token chunks 2; offload activations;"]
POINTS = [(*point, PARTS[(i + i // 4) % len(PARTS)], MORE[(i + i // 2) % 4], 1) for i, point in enumerate(POINTS)]
POINTS += [(2, "none", "no", "qkv_bias yes;", "", 2), (4, "selective", "yes", "qk_norm yes;", "", 2), (4, "full", "no", SINKS, "token chunks 3;", 2), (4, "none", "no", "", "", 4)]
SEQUENCES = 2


def model(ranks, recompute, tied, part, more, tensor):
    heads = 2 * tensor if tensor > 1 else 2
    return f"""import "masks";
model test {{ layers 3; hidden 64; heads {heads}; kv_heads {heads // 2}; head_dim 64; ffn swiglu 64; vocab 24; tied {tied}; {'' if part == SINKS else part} }}
attention {{ default causal; {part if part == SINKS else ''} }}
sequence {10 if tensor == 1 else 11};
layout {{ data 1; tensor {tensor}; schedule ulysses; partition zigzag; recompute {recompute}; {more} }}
train {{ batch {SEQUENCES}; }}
"""


def program(text, root, tied, part):
    """What step.cc includes: that of ranks.cc, and the step around its attention."""
    base = run_heads.program(text, root)
    text = whole(text, root)
    begin = base.index("static int plan_take(")
    layers = [cut(text, r"^static const BurstTensor plan_embedding.*?^static const BurstUnit plan_units.*?^\};$", "units"),
              cut(text, r"^static const int plan_layer_mask\[.*?^\};$", "masks of layers"), cut(header(root, "burst_steps.h"), r"^enum \{ PLAN_EMBED.*?(?=^/\* ---- one sequence)", "units and places"),
              function(text, "plan_begin"), *[f"static int {name}\n{{\n    return BURST_OK;\n}}\n" for name in
                ("plan_end(BurstCtx *, PlanState *, double *)", "plan_live(BurstCtx *, PlanState *, const BurstTables *)")]]
    for helper in ("plan_act", "plan_floats", "plan_bytes"):
        base = base.replace(function(text, helper), "")
    places = re.findall(r"^static const int64_t plan_at_\w+\[\] = \{.*?\};$", text, re.M | re.S)
    blocks = [function(text, name) for name in re.findall(r"^static int (plan_step_\w+)\([^;\n]*\)\n\{", text, re.M)]
    begin = base.index(cut(text, r"^enum \{ PLAN_PARTS.*?^\} PlanState;$", "state")[:40])
    arena = re.search(r"p\.arena_bytes = (\d+);", text)[1]
    head = "extern const BurstPlan burst_plan;\n" + f"#define PLAN_HOST_BYTES {arena}\n#define PLAN_TIED {'true' if tied == 'yes' else 'false'}\n" + f"#define PLAN_QKV_BIAS {'true' if 'qkv_bias' in part else 'false'}\n#define PLAN_QK_NORM {'true' if 'qk_norm' in part else 'false'}\n#define PLAN_SINKS {'true' if part == SINKS else 'false'}\n" + "\n".join(places) + "\n"
    split = base.index('#include "kernels.h"')
    return (base[:begin] + head + base[begin:split] + "\n".join(layers) + base[split:] + "\n".join(blocks) +
            function(text, "plan_sequence") + function(text, "plan_sequence_step"))


def check(args, ranks, recompute, tied, part, more, tensor):
    folder = args.work / f"step_{ranks}_{recompute}_{tied}_{part[:4]}{more[:7]}{tensor}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.topo").write_text(run_heads.topology(ranks))
    (folder / "a.burst").write_text(model(ranks, recompute, tied, part, more, tensor))
    code, text = run([args.burstc, folder / "a.topo", folder / "a.burst", "-o", folder / "a.cu"])
    if code:
        return text
    (folder / "program.inc").write_text(program((folder / "a.cu").read_text(), args.root, tied, part))
    code, text = run_heads.build(args, [f"-I{folder}", f"-I{args.root}/tests/reference", HERE / "step.cc", args.work / "step_streams.o",
                                        *args.objects, "-o", folder / "step"])
    if code:
        return text
    code, text = run([folder / "step"])
    if not code and ("offload" in more or ranks > 1 and recompute == "full"):
        code, without = run([folder / "step", "--without-waits"])
        text += f"without waits: {without}"
    print(f"{ranks} ranks, recompute {recompute}, tied {tied}, {part or 'as a Llama'}, {more or 'whole'}, tensor {tensor} {text.strip()}", flush=True)
    return (text or f"it ended with {code}") if code else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--burstc", "--cxx", "--cc"):
        parser.add_argument(name, required=True)
    parser.add_argument("--root", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--flags", nargs="*", default=[], help="for the compilers, beside their usual ones")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.objects = [args.work / "model64.o", args.work / "attention64.o"]
    code, text = run_heads.build(args, ["-c", HERE / "streams.cc", "-o", args.work / "step_streams.o"])
    for name in ("model64", "attention64"):
        done, said = run([args.cc, "-std=c17", "-O2", *args.flags, "-c", args.root / f"tests/reference/{name}.c", "-o", args.work / f"{name}.o"])
        code, text = code or done, text + said
    if code:
        sys.exit(text)
    failures = [text for text in (check(args, *point) for point in POINTS) if text]
    for text in failures:
        print(f"FAILED: {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
