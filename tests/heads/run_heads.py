"""Exchanges of emitted CUDA programs without a GPU: the text's own functions, on streams of this process (ranks.cc).

    python3 run_heads.py --burstc BURSTC --cxx CXX --root ROOT --work FOLDER
"""
import os
import pathlib
import re
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import Failed, require  # noqa: E402


class Point(typing.NamedTuple):
    ranks: int
    heads: int
    kv_heads: int
    sequence: int
    partition: str
    data: int = 1
    head_dim: int = 64
    schedule: str = "ulysses"
    rings: int = 1  # ranks of a ring; the others share the heads
    pairs: int = 1  # of a launch, at most
    pieces: int = 0  # of query heads, whatever the prediction says

    def name(self):
        return re.sub(r"[()]", "", f"{self.data}x{self.ranks}_h{self.heads}_{self.kv_heads}_d{self.head_dim}_n{self.sequence}_{self.partition}"
                      f"_{self.schedule}" + (f"_{self.rings}" if self.rings > 1 else "") + (f"_{self.pieces}pieces" if self.pieces else ""))


HERE = pathlib.Path(__file__).resolve().parent
POINTS = [
    Point(1, 4, 2, 19, "contiguous"),
    Point(4, 8, 2, 37, "zigzag"),      # two ranks read the same key head
    Point(4, 8, 1, 29, "striped"),     # all do
    Point(3, 8, 2, 31, "contiguous"),  # uneven shares: 2, 3 and 3 heads; a key head of two ranks
    Point(3, 8, 8, 31, "blocks(8)"),
    Point(7, 8, 4, 23, "contiguous"),  # a share that is a half of a key head's readers
    Point(8, 8, 4, 9, "zigzag"),       # ranks without a token
    Point(2, 4, 2, 21, "zigzag", data=2),
    Point(2, 8, 2, 27, "zigzag", pieces=2),      # a key head a piece
    Point(4, 16, 2, 37, "striped", pieces=4),    # a share of half a key head's readers
    Point(3, 16, 4, 31, "contiguous", pieces=2, data=2),  # uneven shares, whose pieces begin inside a key head's readers
    Point(8, 32, 4, 9, "zigzag", pieces=4),      # ranks without a token
    Point(2, 2, 1, 17, "contiguous", head_dim=128),
    Point(3, 4, 2, 22, "striped", schedule="turned"),
    Point(4, 8, 2, 37, "zigzag", schedule="usp", rings=2),
    Point(6, 8, 2, 31, "striped", schedule="usp", rings=2),  # uneven shares
    Point(6, 4, 1, 29, "contiguous", schedule="usp", rings=3),  # more than key heads
    Point(8, 8, 4, 9, "zigzag", schedule="usp", rings=4),  # ranks without a token
    Point(6, 4, 4, 26, "blocks(8)", schedule="context_first", rings=3),
    Point(4, 4, 2, 25, "zigzag", schedule="back", rings=2),  # rings forward, heads and rings backward
    Point(3, 4, 2, 25, "striped", schedule="forth"),  # heads forward, a ring backward
    Point(5, 4, 4, 43, "zigzag", schedule="bidirectional", rings=5, pairs=2),  # pieces of keys, from both sides
    Point(3, 2, 1, 11, "contiguous", schedule="bidirectional", rings=3, pairs=6),
    Point(2, 2, 1, 35, "zigzag", schedule="halo", rings=2, pairs=8),  # which come one by one, and all have a slot
    Point(3, 2, 2, 13, "striped", schedule="pieces_gathered", rings=3, pairs=6),  # those at home, then the others
    Point(4, 8, 1, 37, "zigzag", schedule="gather", rings=4, pairs=4),  # few keys: all at once
    Point(3, 8, 1, 31, "contiguous", schedule="near", rings=3, pairs=3),
    Point(4, 16, 1, 43, "zigzag", schedule="bidirectional", rings=4, pairs=8),
    Point(16, 16, 1, 67, "zigzag", schedule="gather", rings=16, pairs=8),  # more than a launch takes: 1, 8, 7
    Point(9, 16, 1, 29, "contiguous", schedule="near", rings=9, pairs=8),  # 1, 8
    Point(11, 16, 1, 23, "striped", schedule="near", rings=11, pairs=8),   # 1, 8, 2
    Point(8, 32, 1, 9, "zigzag", schedule="bidirectional", rings=8, pairs=8),  # ranks without a token; two pieces of each
]
TURNED = """schedule turned over (r of G) {
  forward {
    exchange KV tokens -> heads;
    exchange Q tokens -> heads;
    attend Q with KV;
    exchange O heads -> tokens;
  }
  backward {
    exchange KV tokens -> heads;
    exchange Q tokens -> heads;
    grad Q with KV;
    exchange dKV heads -> tokens;
    exchange dQ heads -> tokens;
  }
}
"""


TEXTS = {"turned": TURNED, "context_first": """schedule context_first over (h of H, r of R) {
  forward {
    exchange Q, KV over h;
    for s in 0 .. R - 1 { if s < R - 1 { pass KV[*, r - s] to (h, r + 1); } attend Q[*, r] with KV[*, r - s]; }
    exchange O over h;
  }
  backward {
    exchange Q, KV over h;
    for s in 0 .. R - 1 {
      if s < R - 1 { pass KV[*, r - s] to (h, r + 1); }
      grad Q[*, r] with KV[*, r - s];
      if s > 0 { pass dKV[*, r - s] to (h, r - s); }
    }
    exchange dQ, dKV over h;
  }
}
""", "back": """schedule back over (r of R, h of H) {
  forward {
    for x in 0 .. R - 1 {
      if x < R - 1 { pass KV[r - x, h] to (r + 1, h); }
      for y in 0 .. H - 1 { if y < H - 1 { pass KV[r - x, h - y] to (r, h + 1); } attend Q[r, h] with KV[r - x, h - y]; }
    }
  }
  backward {
    exchange Q, KV over h;
    for s in 0 .. R - 1 { if s < R - 1 { pass Q[r - s, *] to (r + 1, h); } grad Q[r - s, *] with KV[r, *]; }
    return dQ;
    exchange dQ, dKV over h;
  }
}
""", "forth": """schedule forth over (r of G) {
  forward { exchange Q, KV over r; attend Q with KV; exchange O over r; }
  backward {
    for s in 0 .. G - 1 { if s < G - 1 { pass KV[r - s] to (r + 1); } grad Q[r] with KV[r - s]; if s > 0 { pass dKV[r - s] to (r - s); } }
  }
}
""", "pieces_gathered": """schedule pieces_gathered over (r of G) pieces 3 {
  forward {
    gather KV;
    for s in 0 .. G - 1 { for p in 0 .. 2 { attend Q[r] with KV[r - s].p; } }
  }
  backward {
    gather KV;
    for s in 0 .. G - 1 { for p in 0 .. 2 { grad Q[r] with KV[r - s].p; } }
    return dKV;
  }
}
"""}


ROWS = "plan_row_begin", "plan_row_positions", "plan_row_tokens_of"  # of the ranks that share heads, chunk by chunk
QUERIES = "plan_move_tokens", "plan_take_queries", "plan_put_queries", "plan_queries_tile"
KEYS = ("plan_take_keys", "plan_put_keys", "plan_key_from", "plan_key_begun", "plan_pair_tile", "plan_add_key_copies")
PARTS = "plan_take_tile", "plan_put_tile", "plan_attention_tile", "plan_attention_back_tile"


LATENTS = "plan_attention_latents", "plan_attention_back_latents"


def topology(ranks):
    return f"cluster test {{ nodes 1 {{ gpus {ranks} of h200; nics 1 of ndr; }} }}\n"


def model(p):
    return f"""import "masks";
model test {{ layers 2; hidden 64; heads {p.heads}; kv_heads {p.kv_heads}; head_dim {p.head_dim}; ffn swiglu 64; vocab 32; tied yes; }}
attention {{ default causal; }}
sequence {p.sequence};
layout {{ data {p.data}; context {p.rings}; heads {p.ranks // p.rings}; schedule {p.schedule}; partition {p.partition}; recompute none; }}
train {{ batch {p.data}; }}
"""


def cut(text, pattern, what):
    found = re.search(pattern, text, re.M | re.S)
    if not found:
        raise Failed(f"the emitted text has no {what}")
    return found[0] + "\n"


def struct(text, name):
    return cut(text, rf"^typedef struct {name} \{{.*?\}} {name};$", name)


def function(text, name):
    return cut(text, rf"^static [^\n;{{}}]*\b{name}\([^;{{}}]*\)\n\{{\n.*?^\}}$", name)


def header(root, name):
    """A header of programs without its own includes."""
    text = next((root / "templates").rglob(name)).read_text()
    if '#include "burst_state.h"\n' in text: # members of a struct
        text = text.replace('#include "burst_state.h"\n', header(root, "burst_state.h"))
    return re.sub(r'^#include "burst_.*\n', "", text, flags=re.M)


def whole(text, root):
    """The program with the headers whose functions are taken one by one."""
    return text + "".join(header(root, f"burst_{name}") for name in ("program.h", "state_cuda.cuh", "steps.h", "attention_cuda.cuh", "layer_cuda.cuh", "queries.h"))


def rings(root):
    """Its kernel is in kernels.h."""
    latents = header(root, "burst_latents_cuda.cuh")
    begin, end = latents.index("/* y += x,"), latents.index("static inline int plan_home_latents(")
    text, include = header(root, "burst_rings_cuda.cuh"), "#ifdef PLAN_LATENTS\n"
    require(text.count(include) == 1, "the rings' header includes that of latents elsewhere")
    return text.replace(include, include + latents[:begin] + latents[end:])


def without(parts, definition):
    """Removes it, whatever its comment says."""
    parts.remove(next(part for part in parts if f"{part} ".startswith(f"#define {definition} ")))


def program(text, root):
    """What ranks.cc includes: types, sizes and every function between attention of a layer and the runtime."""
    kernels = (root / "templates/kernels/cuda_attention.cuh").read_text()
    text = whole(text, root)
    parts = re.findall(r"^#define PLAN_(?!KERNEL_).*[^\\\n]$", text, re.M)
    if sum("PLAN_AT_ONCE " in part for part in parts) > 1:
        without(parts, "PLAN_AT_ONCE 0")
    if sum("PLAN_IN_GROUPS " in part for part in parts) > 1:
        without(parts, "PLAN_IN_GROUPS 0")
    if sum("PLAN_GRADS_AT_ONCE " in part for part in parts) > 1:
        without(parts, "PLAN_GRADS_AT_ONCE 0")
    if sum("PLAN_HEAD_PIECES " in part for part in parts) > 1:
        without(parts, "PLAN_HEAD_PIECES 1")
    if sum("PLAN_PIECES " in part for part in parts) > 1:
        without(parts, "PLAN_PIECES 1")
    for other in ("(s->score_scale)", "((float)PLAN_ATTENTION_SCALE)"): # of a library, of a model that says one
        without(parts, "PLAN_SCALE " + other)
    if sum("PLAN_VALUE_DIM " in part for part in parts) > 1:
        without(parts, "PLAN_VALUE_DIM PLAN_HEAD_DIM")
    parts = [part for part in parts if not part.startswith("#define PLAN_GROUP_LAYERS 1 ")]
    if sum("PLAN_KEY_TOKENS " in part for part in parts) > 1:
        without(parts, "PLAN_KEY_TOKENS PLAN_TOKENS")
    parts.append(cut(text, r"^enum \{\n    PLAN_POOL.*?^\};$", "pools"))
    parts.append(cut(text, r"^/\* partition .*?(?=^(#pragma|/\* (The )?mask|typedef|static const BurstMask))", "partition"))
    parts.append(cut(text, r"^static [^\n]*\bplan_chunk_of\(.*?^static [^\n]*\bplan_rank_of\([^\n]*$", "placement"))
    shares, queries, keys = ("#define PLAN_" + name in text for name in ("SHARES", "QUERY_CHUNKS", "KEY_CHUNKS"))
    latents = "#define PLAN_LATENTS" in text
    parts += [header(root, "burst_head_chunks.h"), header(root, "burst_tile.h")]
    if latents:
        parts.append(header(root, "burst_latents.h"))
    parts.append('#define BURST_FORM 90\n#include "burst_kernels.h"\n' + cut(kernels, r"^/\* The most chunks of queries or of keys in one launch.*?^\};$", "chunks of a launch"))
    parts += [struct(kernels, "BurstChosen"), struct(kernels, "BurstTokens"), struct(kernels, "BurstRows"),
              struct(kernels, "BurstTileList"), struct(kernels, "BurstTileLists"),
              cut(kernels, r"^enum \{ BURST_FIRST.*?\};$", "flags"), struct(kernels, "BurstForward"), struct(kernels, "BurstBackward"),
              struct(text, "PlanBuffers"), cut(text, r"^enum \{ PLAN_PARTS.*?^enum \{ PLAN_KEY_PART = PLAN_HEAD_DIM.*?^#endif$", "parts"),
              cut(text, r"^/\* The unit of sizes of parts.*?^\} PlanState;$", "state"), cut(text, r"^#define PLAN_CUDA.*?while \(0\)$", "PLAN_CUDA"),
              header(root, "burst_heads.h") if shares else "", function(text, "plan_part"), "static int plan_chunk_at(int at);\nenum { PLAN_CARRIED = 2 * BURST_TILE };\nstatic inline bool plan_carries_tiles(const PlanState *s);\nstatic inline int plan_launch(BurstCtx *c, PlanState *s);\nextern const BurstMask *const plan_masks[PLAN_MASKS];",
              header(root, "burst_pieces.h"), header(root, "burst_turns.h"), *[function(text, name) for name in ROWS if queries and shares],
              function(text, "plan_key_tokens"), function(text, "plan_chunks"), function(text, "plan_rows"),
              function(text, "plan_act"), function(text, "plan_floats"), function(text, "plan_bytes"),
              '#include "kernels.h"',
              header(root, "burst_shares.h" if shares else "burst_chunks.h"), header(root, "burst_heads_cuda.cuh" if shares else "burst_chunks_cuda.cuh"), header(root, "burst_rings.h"), rings(root),
              function(text, "plan_chunk"), function(text, "plan_trace_forward"), function(text, "plan_trace_backward"), function(text, "plan_forward"),
              function(text, "plan_backward"), function(text, "plan_follow"),
              function(text, "plan_home_keys"),
              function(text, "plan_move_pieces"), function(text, "plan_attention"), function(text, "plan_attention_back"),
              struct(text, "PlanQueries") if queries else "", *[function(text, name) for name in QUERIES if queries],
              *([struct(text, "PlanKeys"), cut(text, r"^static const uint64_t plan_key_pairs.*?^\}; [^\n]*$", "pairs of chunks"),
                 cut(text, r"^static const int64_t plan_key_copies[^\n]*$", "copies of keys")] if keys else []), *[function(text, name) for name in KEYS if keys],
              struct(text, "PlanOthers") if queries else "", *[function(text, name) for name in PARTS if queries],
              *[function(text, name) for name in LATENTS if latents],
              "static int plan_take(BurstCtx *c, PlanState *s)\n{",
              re.search(r"^static int plan_alloc\([^;]*?\)\n\{\n(.*?)^    (?:for \(int unit|if \(!?s->alone)", text, re.M | re.S)[1],
              "    return BURST_OK;\n}\n"]
    return "\n".join(parts)


def run(command, env=None):
    done = runner.run(command, 240, env)
    return done.stdout + done.stderr


def compile_(args, what):
    run([args.cxx, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", *args.flags, f"-I{HERE}",
         f"-I{HERE}/fake", f"-I{args.root}/runtime", f"-I{args.root}/runtime/include", *what])


def emit(args, name, topo, burst, *options):
    """The folder of a program, and its text."""
    folder = args.work / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.topo").write_text(topo)
    (folder / "a.burst").write_text(burst)
    # Unchecked: the check of the text, which the tests of driver/ and golden/ have, reads the toolkit's headers and
    # would take most of the time.
    run([args.burstc, folder / "a.topo", folder / "a.burst", *options, "-o", folder / "a.cu"],
        dict(os.environ, CUDA_PATH="/nowhere"))
    return folder, (folder / "a.cu").read_text()


def build(args, folder, text, main, *more):
    """main.cc with the parts of a program that it includes."""
    (folder / "program.inc").write_text(text)
    compile_(args, [f"-I{folder}", *more, "-include", args.work / "common.h", HERE / f"{main}.cc",
                    args.work / "streams.o", *args.objects, "-o", folder / main])
    return folder / main


def check(args, point):
    options = ["--schedule", args.work / f"{point.schedule}.sched"] if point.schedule in TEXTS else []
    folder, text = emit(args, point.name(), topology(point.ranks * point.data), model(point), *options)
    text = re.sub(r"^#define PLAN_HEAD_PIECES.*\n", "", text, flags=re.M)
    if point.pieces: # rows of both ends are packed, for which the plan without pieces has no memory
        text = re.sub(r"^#define PLAN_PACK_Q (\d+)", r"#define PLAN_PACK_Q (2 * \1)", text, flags=re.M)
        text = re.sub(r"s->buffer.pack_q = .*;", "s->buffer.pack_q = new char[PLAN_PACK_Q];", text)
        text = f"#define PLAN_HEAD_PIECES {point.pieces}\n{text}"
    ranks = build(args, folder, program(text, args.root), "ranks")
    said = run([ranks])
    require(f"up to {point.pairs} pairs a launch" in said, f"not {point.pairs} pairs a launch: {said}")
    if point is args.doubted:
        said += f"without waits: {run([ranks, '--without-waits'])}"
    print(f"{point.name()}: {said.strip()}", flush=True)


def start(description, *required):
    """The options of a driver, and the streams compiled for it."""
    parser = runner.options(description, "--burstc", "--cxx", *required)
    parser.add_argument("--root", required=True, type=pathlib.Path)
    parser.add_argument("--flags", nargs="*", default=[], help="for the compilers, beside their usual ones")
    args = parser.parse_args()
    args.objects = []
    args.work.mkdir(parents=True, exist_ok=True)
    compile_(args, ["-c", HERE / "streams.cc", "-o", args.work / "streams.o"])
    (args.work / "common.h").write_text('#include "context.h"\n')
    # What all programs include, compiled once.
    compile_(args, ["-x", "c++-header", args.work / "common.h", "-o", args.work / "common.h.gch"])
    return args


def main():
    args = start(__doc__)
    chosen = runner.chosen(POINTS, args.only)
    for name, text in TEXTS.items():
        (args.work / f"{name}.sched").write_text(text)
    args.doubted = max(chosen, key=lambda p: p.ranks, default=None)  # whose test is tested
    return runner.check_all(lambda p: check(args, p), chosen)[1] > 0 or not chosen


if __name__ == "__main__":
    runner.end(main)
