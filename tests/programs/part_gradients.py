"""Loss and gradients of whole steps, two sequences a data group, against the float64 model of tests/reference: ranks that split layers, layers
of which those of each mask have a schedule of their own, and beside them ranks that do neither, whose errors are those of bf16 alone.

Lists of selections are recorded too (lists.c), and given to the model.
tests/training/gradients.c is the main of each program, and bounds every tensor's relative L2. Models with experts run on one rank: their choices
are recorded (choices.cu) and given to the model, which must choose nearly all of them itself.
"""
import os
import re
import sys
import typing

import machine

HEADS, MASKS = 8, ("causal", "document")
LOSS_LIMIT, GRADIENT_LIMIT = 1e-3, 3e-2  # those of gradients.c on GPUs; losses are a mean over tokens, and much nearer


class Point(typing.NamedTuple):
    tensor: int = 1
    context: int = 1
    data: int = 1
    heads: int = 1
    more: str = ""   # of the layout
    part: str = ""   # of the model
    kv_heads: int = 4
    schedule: str = "" # ring, or ulysses with heads, where nothing is said
    travel: str = "keys"
    attention: str = "" # more of it
    masks: tuple = MASKS # of the layers
    scan: str = ""   # recurrent layers of the model
    partition: str = "zigzag"
    documents: str = "" # lengths of the first; random ones where nothing is said
    sequence: int = 509

    def ranks(self):
        return self.tensor * self.context * self.data * self.heads

    def name(self):
        scan = f"_scan_{self.scan}_{self.partition}_{self.documents.replace(',', '_')}" if self.scan else ""
        text = f"t{self.tensor}_c{self.context}_d{self.data}_h{self.heads}_{self.more}_{self.part}_kv{self.kv_heads}_{self.schedule}_{self.attention}{'_'.join(self.masks) if selects(self) else len(self.masks)}{scan}"
        return re.sub(r"\W", "", text.replace("recompute", "").replace("weights", ""))


POINTS = [
    Point(), Point(part="qkv_bias yes;"), Point(context=2), Point(data=2, more="weights zero2;"),
    Point(tensor=2), Point(tensor=2, more="recompute full; ffn chunks 3;", part="qkv_bias yes;"),
    Point(tensor=2, context=2, more="recompute selective;", part="qk_norm yes;"),
    Point(tensor=2, data=2, more="weights zero3; recompute full;"),
    Point(tensor=2, data=2, more="weights zero1 within 2;", part="qkv_bias yes;"),
    Point(tensor=2, heads=2, more="recompute selective;"), Point(tensor=4, more="weights zero2;"),
    Point(tensor=2, more="recompute tail(0.5);"), Point(context=4, more="recompute tail(0.5); shares 1, 2, 1000, 999;"),  # a rank without tokens
    Point(tensor=2, context=2, more="offload activations, optimizer; update host;"),
    Point(kv_heads=1, part="qkv_bias yes;"), Point(tensor=2, kv_heads=1, part="qkv_bias yes;"), Point(tensor=4, kv_heads=2), Point(tensor=4, kv_heads=1, more="recompute selective;", part="qk_norm yes;"),
    Point(context=2, schedule="near for document, ring", travel="keys for document, queries"),
    Point(context=4, more="recompute full;", schedule="near for causal, biring", travel="queries for causal, keys"),
    Point(context=4, more="recompute selective; head chunks 2;", schedule="gather for document, burst"),
    Point(heads=2, more="recompute full; head chunks 3;"), Point(context=2, more="recompute selective; head chunks 3;", part="qk_norm yes;"),  # 2, 1 and 1 key heads
    Point(more="recompute full; offload activations; token chunks 3, attention; fetch chunks;"), Point(more="recompute selective; token chunks 3, attention;"),
    Point(context=2, more="recompute full; offload activations; token chunks 3, attention; fetch chunks;"),
    Point(heads=2, more="recompute selective; offload activations; token chunks 4, attention; fetch chunks;"),
    Point(masks=(*MASKS, "document"), more="recompute save(o(1), lse(1)); offload activations;"),
    Point(masks=(*MASKS, "document"), heads=2, more="recompute save(o(1), lse(1)); offload activations; token chunks 4, attention; fetch chunks;"),
    Point(more="recompute full; token chunks 4, keys;"), Point(context=2, more="recompute selective; offload activations; token chunks 3, keys; fetch chunks;"),
    Point(heads=2, more="recompute full; token chunks 4, keys;"), Point(heads=2, kv_heads=1, more="recompute selective; token chunks 3, keys;"),
    Point(context=2, heads=2, schedule="usp", more="recompute save(o(1), lse(1), k(1)); offload activations; token chunks 3, keys;", attention="sinks learned;"),
    Point(masks=(*MASKS, *MASKS), more="recompute full(3); offload activations;"),
    Point(masks=(*MASKS, *MASKS), heads=2, more="recompute full(2); offload activations, optimizer; update host; token chunks 4, attention;"),
    Point(masks=(*MASKS, *MASKS), context=4, more="recompute full(2); weights zero2;"),
    Point(attention="sinks learned;"), Point(kv_heads=1, attention="sinks learned; softcap 2;"),
    Point(context=2, attention="softcap 2; sinks learned;", more="recompute selective;"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; normalize yes; }"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; }", more="recompute selective; ffn chunks 3;"),
    Point(part="moe { experts 6; top 4; ffn swiglu 40; score sigmoid; normalize yes; eps 1e-3; scale 2.5; }", more="recompute full; ffn chunks 2;"),
    Point(part="qk_norm yes; moe { experts 48; top 8; ffn swiglu 136; normalize yes; }", more="recompute full; offload activations; token chunks 3, attention; fetch chunks;"),
    Point(part="moe { experts 8; top 3; ffn swiglu 72; normalize yes; least 1e-6; shared 80; shared_gate yes; }", more="recompute selective;"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; shared 48; score sigmoid; scale 1.5; }", more="ffn chunks 2;"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; alpha 1.702; offset 1; limit 7; normalize yes; }"),
    Point(part="moe { experts 4; top 1; ffn swiglu 264; }", more="recompute save(o(1), lse(1)); offload optimizer; update host;"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; alpha 1.702; offset 1; limit 7; normalize yes; router_bias yes; bias yes; }"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; normalize yes; router_bias yes; bias yes; shared 48; }", more="recompute selective; ffn chunks 3;"),
    Point(part="moe { experts 16; top 4; ffn swiglu 96; score sigmoid; normalize yes; correction yes; scale 2.5; shared 48; }", more="recompute full; ffn chunks 2;"),
    Point(part="moe { experts 16; top 4; ffn swiglu 96; score sigmoid; normalize yes; correction yes; groups 4; top_groups 2; group_score two; }", more="recompute selective;"),
    Point(part="moe { experts 16; top 2; ffn swiglu 72; groups 4; top_groups 1; group_score max; }", more="offload optimizer; update host;"),
    Point(part="moe { experts 8; top 2; ffn swiglu 96; normalize yes; }", more="experts in 2 groups;"),
    Point(part="moe { experts 8; top 3; ffn swiglu 96; normalize yes; router_bias yes; bias yes; shared 48; }", more="recompute selective; ffn chunks 3; experts in 4 groups;"),
    Point(part="moe { experts 16; top 4; ffn swiglu 136; score sigmoid; normalize yes; correction yes; }", more="recompute full; token chunks 3, attention; offload optimizer; update host; experts in 8 groups;"),
    Point(masks=(*MASKS, *MASKS), part="moe layers 1, 3: { experts 6; top 2; ffn swiglu 72; } ffn swiglu 96;", more="recompute full(3); offload activations; experts in 3 groups;"),
]
# Recurrent layers: Qwen3.5 and Qwen3-Next, whose attention has a gate, and Mamba-2 as in Granite 4; key_dims of all kernels.
SCANS = {"delta": "scan layers 0 .. 2: { heads 4; key_heads 2; key_dim 64; value_dim 64; conv 4; }",
         "delta128": "scan layers 0, 2: { heads 4; key_heads 4; key_dim 128; value_dim 128; conv 3; }",
         "delta256": "scan layers 1, 2: { heads 4; key_heads 1; key_dim 256; value_dim 64; conv 2; }",
         "delta_tensor": "scan layers 0 .. 2: { heads 8; key_heads 4; key_dim 64; value_dim 64; conv 4; }",
         "mamba_tensor": "scan layers 0 .. 2: { heads 16; key_heads 2; key_dim 128; value_dim 64; read none; conv 4 bias; gate silu before norm; skip yes; }",
         "mamba": "scan layers 0 .. 2: { heads 8; key_heads 2; key_dim 128; value_dim 64; read none; conv 4 bias; gate silu before norm; skip yes; step_most 2; }",
         "mamba64": "scan layers 1, 3: { heads 8; key_heads 1; key_dim 64; value_dim 64; read none; conv 4; gate silu before norm; skip yes; }",
         "beside": "scan { heads 8; key_heads 1; key_dim 64; value_dim 64; read none; conv 4 bias; norm none; skip yes; attention yes; }",
         "beside_norm": "scan layers 0 .. 2: { heads 16; key_heads 2; key_dim 128; value_dim 64; read none; conv 4; gate silu before norm; skip yes; attention yes; }",
         "mamba256": "scan layers 0 .. 2: { heads 8; key_heads 8; key_dim 256; value_dim 64; read none; conv 4 bias; gate silu before norm; }"}
SCALES = "attention_out_scale 0.9; scan_out_scale 0.4;"
DOCUMENT = ("document",) * 4
POINTS += [Point(masks=DOCUMENT, scan=scan, documents=documents, **more) for scan, documents, more in (
    ("delta", "", {}), ("delta", "1,2,3,31,64,128", dict(part="attention_gate yes; qk_norm yes;", more="recompute full;")), ("delta128", "509", {}),
    ("delta256", "100,1,300", dict(more="recompute selective;")), ("mamba", "", {}), ("mamba", "1,2,3,31,64,128", dict(more="recompute full(2); offload activations;")),
    ("mamba64", "509", {}), ("mamba256", "300", dict(more="recompute selective;")),
    ("delta", "200,1", dict(more="recompute full; offload activations; token chunks 3, attention; fetch chunks;")),
    ("delta128", "", dict(more="token chunks 4, keys; recompute selective; offload optimizer; update host;")),
    ("mamba", "200", dict(more="recompute selective; ffn chunks 3; head chunks 2;")),
    ("delta", "509", dict(context=2)), ("delta", "127,128", dict(context=2, partition="contiguous", more="recompute full;")),
    ("mamba", "509", dict(context=2, more="recompute selective;")), ("delta128", "1,2,3,31", dict(heads=2, more="recompute full;")),
    ("delta", "300", dict(data=2, more="weights zero2;")), ("delta256", "509", dict(context=2, partition="blocks(100)")),
    ("delta", "509", dict(context=4, more="recompute full(2);")), ("mamba", "509", dict(context=4, partition="contiguous", more="weights zero2;")),
    ("delta128", "127,127,127", dict(context=4, partition="contiguous", more="shares auto; recompute selective;")),
    ("mamba256", "1,2,3,31,400", dict(context=2, heads=2, schedule="usp", more="recompute full; token chunks 2, attention;")),
    ("delta", "64,190", dict(context=2, data=2, part="attention_gate yes;", more="weights zero1 within 2; recompute selective;")),
    ("delta_tensor", "1,2,3,31", dict(tensor=2)), ("mamba_tensor", "509", dict(tensor=2, context=2, more="recompute selective;")),
    ("delta_tensor", "300", dict(tensor=2, context=2, more="recompute full(2); ffn chunks 3;")),
    ("beside", "", dict(part=SCALES)), ("beside", "1,2,3,31,64,128", dict(part=SCALES, more="recompute full;")),
    ("beside_norm", "300", dict(more="recompute selective; ffn chunks 3;")), ("beside", "127,128", dict(context=2, part=SCALES, more="recompute full;")),
    ("beside_norm", "509", dict(tensor=2, part=SCALES)), ("beside", "200,1", dict(heads=2, part=SCALES, more="recompute selective;")),
    ("delta", "255", dict(context=4, more="shares 5, 1, 2, 4; recompute tail(0.5);")))]
SELECTIONS = """
select first = top 2 of k / 32 by dot(first Q, mean K) for each head per 128 queries where causal always q / 128 == k / 128;
select limits = top 1 of k / 64 by dot(first Q, minmax K) for kv_head per 128 queries where causal always q / 128 == k / 128;
select previous = top 3 of k / 48 by dot(previous mean Q, first K) for all heads per 128 queries
  where causal always q - k >= 0 and q - k < 192 or k < 4;
select documents = top 2 of k / 32 by dot(previous mean Q, mean K) for each head per 128 queries where document always q / 128 == k / 128;
select both = top 5 of k / 64 by dot(mean Q, mean K) noncausal for kv_head per 128 queries where true;
select greatest = top 2 of k / 48 by dot(first Q, max K) for each head per 128 queries where document always q / 128 == k / 128;
"""  # of numerics/test_masks.c
INDEXED = """
indexer ix { heads 4; dim 64; norm rmsnorm; train frozen; }
select msa = top 2 of k / 64 by ix(first Q, max K) for kv_head per 128 queries where causal always q / 128 == k / 128;
select indexed = top 3 of k / 32 by ix(previous mean Q, mean K) for all heads per 128 queries
  where causal always q - k >= 0 and q - k < 192 or k < 4;
"""
SEE = """#include "burst_attend.h"
#ifdef __cplusplus
extern "C"
#endif
void see_chosen(const BurstSelection *how, int64_t tiles, int64_t words, const int32_t *lists);
#define PLAN_SEE_CHOSEN see_chosen
#define PLAN_CHECKED 1
"""
POINTS += [
    Point(masks=("first", "limits"), sequence=509), Point(masks=("previous", "documents"), sequence=1000, more="recompute full;"),
    Point(masks=("both", "causal", "first"), sequence=900, kv_heads=8, part="qk_norm yes;"),
    Point(masks=("limits", "first"), sequence=1024, context=2, schedule="gather", more="recompute selective;"),
    Point(masks=("documents", "limits", "causal"), sequence=1024, context=2, more="recompute full(2);"),
    Point(masks=("first", "both"), sequence=1024, context=2, travel="queries"),
    Point(masks=("previous", "previous"), sequence=1536, context=2, schedule="gather"),
    Point(masks=("first", "documents"), sequence=1024, heads=2, more="recompute full;"),
    Point(masks=("limits", "documents"), sequence=1024, heads=4, more="offload activations; recompute save(q, k, o, lse);"),
    Point(masks=("first", "limits"), sequence=1024, context=4, schedule="gather"), Point(masks=("documents", "first"), sequence=1024, context=4),
    Point(masks=("first", "documents"), sequence=2048, context=2, heads=2, schedule="usp"),
    Point(masks=("first", "limits"), sequence=1024, context=2, schedule="gather", more="recompute selective; head chunks 2;"),
    Point(masks=("documents", "greatest"), sequence=1536, more="recompute full; head chunks 3;"),
    Point(masks=("msa", "limits"), sequence=1024, more="recompute selective; head chunks 2;"),
    Point(masks=("first", "limits"), sequence=1024, more="recompute full; token chunks 4, attention;"),
    Point(masks=("msa", "greatest"), sequence=1536, more="recompute selective; token chunks 2, attention;"),
    Point(masks=("first", "limits", "causal"), sequence=1024, context=2, schedule="gather", more="recompute full; token chunks 2, attention;"),
    Point(masks=("limits", "first"), sequence=1024, heads=2, more="recompute selective; offload activations; token chunks 2, attention; fetch chunks;"),
    Point(masks=("first", "limits"), sequence=1024, context=4, schedule="burst"),
    Point(masks=("msa", "indexed", "causal"), sequence=1000), Point(masks=("greatest", "first"), sequence=1536, context=2, schedule="gather"),
    Point(masks=("msa", "greatest"), sequence=768, more="recompute tail(0.4);"), Point(masks=("causal", "msa"), sequence=1024, heads=2, more="recompute full;"),
]
CHOOSE = ("_Z15burst_op_chooseP8BurstGpulPK12BurstExpertsPKfPiPf", "_Z25burst_op_choose_correctedP8BurstGpulPK12BurstExpertsPKfS5_PiPf")


def selections(p):
    """Those that a point's masks are among."""
    indexed = any(f"select {mask} " in INDEXED for mask in p.masks)
    return SELECTIONS + INDEXED if indexed else SELECTIONS


def selects(p):
    return any(f"select {mask} " in selections(p) for mask in p.masks)


def model_text(p):
    schedule = p.schedule or ("ulysses" if p.heads > 1 else "ring")
    layers = " ".join(f"layers {i}: {mask};" for i, mask in enumerate(p.masks) if i)
    dense = ("" if "moe" in p.part else "ffn swiglu 320; ") + (SCANS[p.scan] if p.scan else "")
    return (f'import "masks";\n{selections(p) if selects(p) else ""}model small {{ layers {len(p.masks)}; hidden 256; heads {HEADS}; kv_heads {p.kv_heads}; head_dim 64; '
            f'{dense}vocab 256; {p.part} }}\nattention {{ default {p.masks[0]}; {layers} {p.attention} }}\nsequence {p.sequence};\n'
            f'layout {{ data {p.data}; tensor {p.tensor}; context {p.context}; heads {p.heads}; schedule {schedule}; travel {p.travel}; '
            f'partition {p.partition}; {p.more} }}\ntrain {{ batch {2 * p.data}; }}\n')


def objects(m):
    """gradients.c and what it compares with."""
    numerics, reference = (machine.ROOT / "tests" / name for name in ("numerics", "reference"))
    made = m.run([sys.executable, numerics / "random_masks.py", "--count", 50, "--seed", 1], "random_masks", 60)[1]
    (m.work / "random_masks.h").write_text(made)
    sources = [machine.ROOT / "tests/training/gradients.c", machine.ROOT / "tests/training/whole.c", numerics / "test_masks.c",
               *sorted(reference.glob("[!to]*64.c"))]
    return [m.object(source, f"-I{reference}", f"-I{m.work}") for source in sources]


def recorder(m, source):
    """What links choices.cu into the program."""
    made = m.work / f"choices_{source.stem}.o"
    m.run([*m.nvcc_command(), "-c", machine.ROOT / "tests/programs/choices.cu", "-o", made], made.stem, 60)
    return [made, *(word for one in CHOOSE for word in ("-Xlinker", f"--wrap={one}"))]


def link(m, p, mains):
    source = m.emit(f"gradients_{p.name()}", machine.gpu_topology(1, p.ranks()), model_text(p))
    if selects(p):
        see = m.work / "see.h"
        see.write_text(SEE)
        return m.link(source, [*mains, m.object(machine.ROOT / "tests/programs/lists.c")], ["-include", see])
    if "moe" not in p.part:
        return m.link(source, mains)
    return m.link(source, mains, recorder(m, source))


def measure(m, program, point, name, env):
    documents = ["--documents", point.documents] if point.documents else []
    code, text = m.run([program, *documents, *point.masks], name, 120, env, check=False)
    found = re.search(r"^loss (\S+) worst (\S+) (\S+)", text, re.M)
    if not found:
        raise machine.Failed(f"{name}: ended with {code}\n    {machine.tail(text)}")
    loss, worst = float(found[1]), float(found[2])
    agreed = re.search(r"^choices as the oracle's: (\S+)", text, re.M)
    rounding = re.search(r"^rounding to bf16 alone: (\S+)", text, re.M)  # where a gradient is over the limit; gradients.c judges it by that
    m.add("gradients", name, f"loss {loss:.1e}; worst gradient {worst:.2e} ({found[3]}){f'; {agreed[1]} of the choices' if agreed else ''}"
          f"{f'; rounding alone {rounding[1]}' if rounding else ''}",
          f"<= {LOSS_LIMIT:.0e}, {GRADIENT_LIMIT:.2g}", code == 0 and loss <= LOSS_LIMIT and (worst <= GRADIENT_LIMIT or bool(rounding)))


def run(m):
    chosen = [p for p in POINTS if p.ranks() <= m.gpus and re.search(os.environ.get("BURST_GRADIENTS", ""), p.name())]
    mains = objects(m)
    programs = dict(m.all(lambda p: link(m, p, mains), chosen))
    for point in chosen:
        for way in ("peer", "nccl") if point.ranks() > 1 else (None,):
            name = f"{point.name()} {way or ''}".strip()
            try:
                if isinstance(programs[point], machine.Failed):
                    raise programs[point]
                measure(m, programs[point], point, name, {"BURST_TRANSPORT": way} if way else {})
            except machine.Failed as error:
                m.failed("gradients", name, error)
    if len(chosen) < len(POINTS):
        m.add("gradients", f"{len(POINTS) - len(chosen)} programs need more GPUs, or were not asked for", f"this run has {m.gpus}")
