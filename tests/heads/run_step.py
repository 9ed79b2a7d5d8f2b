"""The step of emitted CUDA programs without a GPU: the text's own functions, on streams of this process (step.cc).

    python3 run_step.py --burstc BURSTC --by-layer BURSTC --cxx CXX --cc CC --root ROOT --work FOLDER

A third of the programs, others each day; --all: all of them.
--by-layer: a burstc whose programs have places by layer, which those of models so small do not have else.
"""
import argparse
import re
import typing

import run_heads
import runner
from run_heads import cut, function, header, run, whole

SINKS = "sinks learned;"  # of attention; the others are of the model
MLA = "latent 32; query_latent 24; head_dim 48; value_dim 32; rotary 16; norm rmsnorm 1e-5;"
PARTS = ["", "qkv_bias yes;", "qk_norm yes;", SINKS]  # points take turns
MORE = ["", "offload activations;", "token chunks 3;", "token chunks 2; offload activations;"]
SEQUENCES = 2


class Point(typing.NamedTuple):
    ranks: int
    recompute: str
    tied: str
    part: str
    more: str = ""  # of the layout
    tensor: int = 1
    rings: int = 1  # ranks of a ring; the others share the heads
    by_layer: bool = False  # places

    def name(self):
        return f"{'by_layer' if self.by_layer else 'step'}_{self.ranks}_{self.recompute}_{self.tied}_{self.part[:4]}{'all' * (self.part == WHOLE)}{self.more[:7]}{'keys' if 'keys;' in self.more[:24] else ''}{self.tensor}{self.rings if self.rings > 1 else ''}"


POINTS = [(ranks, recompute, tied) for ranks in (1, 2) for recompute in ("none", "selective", "full") for tied in ("no", "yes")]
POINTS = [Point(*point, PARTS[(i + i // 4) % len(PARTS)], MORE[(i + i // 2) % 4]) for i, point in enumerate(POINTS)]
POINTS += [Point(2, "none", "no", "qkv_bias yes;", "", 2), Point(4, "selective", "yes", "qk_norm yes;", "", 2),
           Point(4, "full", "no", SINKS, "token chunks 3;", 2), Point(4, "none", "no", "", "", 4)]
WHOLE = "qk_norm all;"  # of which each tensor rank has a part
POINTS += [Point(2, "none", "no", WHOLE, "", 2), Point(4, "selective", "yes", WHOLE, "", 2), Point(4, "full", "no", WHOLE, "token chunks 3;", 2),
           Point(4, "save(q_raw(1), rstd_k)", "no", WHOLE, "offload activations;", 4), Point(2, "selective", "no", WHOLE, "", 1)]
POINTS += [Point(ranks, "none", tied, "", "gradients bf16;") for ranks in (1, 2) for tied in ("no", "yes")]

QUERIES = "token chunks 3, attention;"
POINTS += [Point(1, "full", "no", "", QUERIES), Point(2, "none", "no", "qk_norm yes;", QUERIES), Point(3, "full", "no", "", QUERIES),
           Point(2, "selective", "yes", "", QUERIES + " offload activations;"), Point(4, "none", "no", "", QUERIES, 1, 2), Point(4, "full", "yes", SINKS, QUERIES, 1, 2),
           Point(2, "none", "no", "", QUERIES + " travel keys;", 1, 2), Point(3, "full", "no", "", QUERIES + " travel keys;", 1, 3)]

KEYS = "token chunks 3, keys;"
POINTS += [Point(1, "full", "no", "", KEYS), Point(2, "none", "no", "qk_norm yes;", KEYS + " offload activations;"), Point(3, "selective", "yes", "", KEYS),
           Point(4, "full", "yes", SINKS, KEYS, 1, 2)]

HEADS = "head chunks 2;"  # of three key heads: two and one, whose readers two ranks share
POINTS += [Point(1, "full", "no", "qk_norm yes;", HEADS), Point(2, "selective", "no", SINKS, HEADS + " offload activations;"), Point(2, "none", "no", "", HEADS),
           Point(2, "full", "no", "qkv_bias yes;", HEADS + " token chunks 3;", 2), Point(4, "full", "no", "", HEADS, 1, 2), Point(4, "save(x_mid)", "no", "qkv_bias yes;", HEADS, 1, 2),
           Point(3, "none", "yes", "", HEADS, 1, 3)]

STAGED = "offload activations;"
POINTS += [Point(*point, by_layer=True) for point in (
    (1, "none", "yes", "qkv_bias yes;", STAGED), (2, "selective", "no", "qk_norm yes;", "token chunks 2; " + STAGED), (3, "none", "no", "", STAGED, 1, 3),
    (3, "save(o(1), lse(1))", "no", "", "travel queries; " + STAGED, 1, 3), (4, "full", "yes", SINKS, STAGED, 1, 2), (4, "selective", "no", "", "", 2),
    (2, "selective", "yes", "", QUERIES + STAGED), (3, "full", "no", "", QUERIES + "travel keys;", 1, 3), (2, "none", "no", "qk_norm yes;", KEYS + STAGED))]


GROUPS = "full(2)"  # of three layers: the first two
POINTS += [Point(1, GROUPS, "no", "", ""), Point(2, GROUPS, "yes", "qk_norm yes;", STAGED), Point(3, GROUPS, "no", "", QUERIES + STAGED),
           Point(4, GROUPS, "no", SINKS, "token chunks 3;", 2), Point(2, GROUPS, "yes", "", KEYS + STAGED), Point(2, GROUPS, "no", "", STAGED, by_layer=True)]

LATENTS = "travel latents;"
POINTS += [Point(2, "none", "no", MLA, LATENTS, 1, 2), Point(3, "full", "yes", MLA, LATENTS, 1, 3), Point(4, "selective", "no", MLA, LATENTS + STAGED, 1, 4),
           Point(4, "full", "no", MLA, LATENTS, 2, 2), Point(3, "none", "no", MLA, LATENTS + "token chunks 3;", 1, 3),
           Point(2, "none", "no", MLA, "travel keys;", 1, 2)]


def schedule(ranks, more, rings):
    if rings == 1:
        return "schedule ulysses"
    return f"context {rings}; heads {ranks // rings}; schedule {'usp' if rings < ranks else 'ring' if 'travel queries' in more else 'bidirectional'}"


def model(ranks, recompute, tied, part, more, tensor, rings, by_layer):
    heads = 6 * tensor if HEADS in more else 2 * tensor * (2 if ranks > 2 * tensor else 1)
    return f"""import "masks";
model test {{ layers 3; hidden 64; heads {heads}; kv_heads {heads // (1 if part == MLA else 2)}; {'' if part == MLA else 'head_dim 64; '}ffn swiglu 64; vocab 24; tied {tied}; {'' if part == SINKS else part} }}
attention {{ default causal; {part if part == SINKS else ''} }}
sequence {10 if tensor == 1 else 11};
layout {{ data 1; tensor {tensor}; {f'context {rings}; schedule ring' if part == MLA else schedule(ranks, more, rings)}; partition zigzag; recompute {recompute}; {more} }}
train {{ batch {SEQUENCES}; }}
"""


def program(text, root, tied, part):
    """What step.cc includes: that of ranks.cc, and the step around its attention."""
    base = run_heads.program(text, root)
    text = whole(text, root)
    begin = base.index("static int plan_take(")
    layers = [cut(text, r"^static const BurstTensor plan_embedding.*?^static const BurstUnit plan_units.*?^\};$", "units"),
              cut(text, r"^static const int plan_layer_mask\[.*?^\};$", "masks of layers"), header(root, "burst_counts.h"), cut(header(root, "burst_steps.h"), r"^#ifndef PLAN_GROUP_LAYERS.*?(?=^/\* ---- one sequence)", "units and places"),
              function(text, "plan_begin"), *[f"static int {name}\n{{\n    return BURST_OK;\n}}\n" for name in
                ("plan_end(BurstCtx *, PlanState *, double *)", "plan_live(BurstCtx *, PlanState *, const BurstTables *)")]]
    for helper in ("plan_act", "plan_floats", "plan_bytes"):
        base = base.replace(function(text, helper), "")
    places = re.findall(r"^static const int64_t plan_(?:at|alone)_\w+\[\] = \{.*?\};$", text, re.M | re.S)
    blocks = [function(text, name) for name in re.findall(r"^static int (plan_step_\w+)\([^;\n]*\)\n\{", text, re.M)]
    begin = base.index(cut(text, r"^enum \{ PLAN_PARTS.*?^\} PlanState;$", "state")[:40])
    arena = re.search(r"p\.arena_bytes = (\d+);", text)[1]
    head = "extern const BurstPlan burst_plan;\nstatic const BurstRope plan_rope = PLAN_ROPE;\n" + f"#define PLAN_HOST_BYTES {arena}\n#define PLAN_TIED {'true' if tied == 'yes' else 'false'}\n" + f"#define PLAN_QKV_BIAS {'true' if 'qkv_bias' in part else 'false'}\n#define PLAN_QK_NORM {'true' if 'qk_norm' in part else 'false'}\n#define PLAN_QK_NORM_ALL {'true' if 'qk_norm all' in part else 'false'}\n#define PLAN_SINKS {'true' if part == SINKS else 'false'}\n#define PLAN_GRADIENTS_BF16 {'true' if 'grad_bf16' in text else 'false'}\n" + "\n".join(places) + "\n"
    split = base.index('#include "kernels.h"')
    take = base.index("static int plan_take(")
    scratch = function(text, "plan_scratch") if "plan_scratch(" in text else ""
    return (base[:begin] + head + base[begin:split] + "\n".join(layers) + base[split:take] + scratch + base[take:] + "\n".join(blocks) +
            function(text, "plan_sequence") + function(text, "plan_take_sequence") + function(text, "plan_sequence_step"))


def check(args, p):
    args = argparse.Namespace(**{**vars(args), "burstc": args.by_layer if p.by_layer else args.burstc})
    folder, text = run_heads.emit(args, p.name(), run_heads.topology(p.ranks), model(*p))
    runner.require(("plan_scratch(s, layer);" in text) == p.by_layer, f"{p}: places are not what is tested")
    step = run_heads.build(args, folder, program(text, args.root, p.tied, p.part), "step", f"-I{args.root}/tests/reference")
    said = run([step])
    if "offload" in p.more or p.ranks > 1 and p.recompute.startswith("full"):
        said += f"without waits: {run([step, '--without-waits'])}"
    print(f"{p.ranks} ranks, recompute {p.recompute}, tied {p.tied}, {p.part or 'as a Llama'}, {p.more or 'whole'}, tensor {p.tensor}{', by layer' if p.by_layer else ''}: {said.strip()}", flush=True)


def main():
    args = run_heads.start(__doc__, "--by-layer", "--cc")
    sources = sorted((args.root / "tests/reference").glob("[!to]*64.c"))
    args.objects = [args.work / f"{source.stem}.o" for source in sources]
    for source, made in zip(sources, args.objects):
        run([args.cc, "-std=c17", "-O2", *args.flags, "-c", source, "-o", made])
    return runner.check_all(lambda p: check(args, p), runner.of_the_day(runner.chosen(POINTS, args.only), args.all, 3), 1)[1] > 0


if __name__ == "__main__":
    runner.end(main)
