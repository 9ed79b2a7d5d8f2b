"""Attention of emitted programs against float64, beside cuDNN's bf16 attention on the same inputs.

One program holds all masks. The float64 answers and the peer's errors are made here, on the GPU; they go into the file that
tests/numerics/harness.c reads (expected.h), with the peer's error as the scale of each answer: what the harness prints are
ratios of errors. Where cuDNN has no kernel for a mask, or gives no finite numbers, the peer is the dense formulas in torch,
with P, dS and the results rounded to bf16.
"""
import collections
import concurrent.futures
import os
import re
import struct
import sys
import typing

import machine

sys.path.append(str(machine.ROOT / "tests/reference"))  # attention_torch, imported where torch is

LIMIT = 1.25      # of the peer's error
LSE_LIMIT = 1e-5  # relative, of lse; divided by LIMIT it is the harness's unit
OUTPUTS = ("o", "lse", "dq", "dk", "dv")
HEADS, VOCAB = 8, 64
ODD = "(q * q + 3 * k) mod 13 != 4 and abs(q - k) < 333 or hash(q / 16, k / 16) mod 5 == 0"
MASKS = ["full", "causal", "window(100)", "window_sink(96, 20)", "dilated(20, 5)", "prefix_lm(130)", "document", "odd"]
DOCUMENT_TABLES = 2
GIVE_UP = 4  # programs that end without a result, of one transport: minutes are few where all hang
AT_ONCE = 3  # programs of several ranks: their start takes longer than their work
LENGTH = {(8, 64): 1031, (2, 64): 997, (1, 64): 1111, (8, 128): 997, (2, 128): 1111, (1, 128): 1031}
LONG = 3001


class Point(typing.NamedTuple):
    schedule: str
    travel: str
    partition: str
    nodes: int
    lanes: int
    kv_heads: int
    head_dim: int
    long: bool = False
    data: int = 1  # groups with the same sequence
    sizes: str = ""  # of the schedule's coordinates, as a layout gives them

    def length(self):
        return LONG if self.long else LENGTH[self.kv_heads, self.head_dim]

    def ranks(self):
        return self.nodes * self.lanes

    def shape(self):
        return HEADS, self.kv_heads, self.head_dim, self.length()

    def name(self):
        text = (f"{self.schedule}_{self.travel}_{self.partition}_{self.nodes}x{self.lanes}_h{HEADS}_{self.kv_heads}"
                f"_d{self.head_dim}_n{self.length()}" + (f"_data{self.data}" if self.data > 1 else "") +
                ("_ranges" if "ranges" in self.sizes else ""))
        return re.sub(r"\W", "", text)


# A covering choice: every value of a column meets every world size it can, both head_dims and every ratio of heads.
POINTS = [Point(*words) for words in [
    ("ring", "keys", "zigzag", 1, 1, 8, 64), ("ring", "keys", "zigzag", 1, 1, 2, 64), ("ring", "keys", "zigzag", 1, 1, 1, 64),
    ("ring", "keys", "zigzag", 1, 1, 8, 128), ("ring", "keys", "zigzag", 1, 1, 2, 128),
    ("ring", "keys", "zigzag", 1, 1, 1, 128),
    ("ring", "keys", "striped", 1, 2, 8, 64), ("ring", "queries", "zigzag", 1, 2, 2, 128),
    ("ring", "keys", "blocks(64)", 1, 2, 1, 128), ("ring", "queries", "contiguous", 1, 2, 1, 64),
    ("burst", "queries", "contiguous", 2, 1, 2, 64), ("ulysses", "keys", "zigzag", 1, 2, 2, 64),
    ("ulysses", "keys", "striped", 1, 2, 1, 128),
    ("ring", "keys", "zigzag", 1, 4, 8, 128), ("ring", "keys", "striped", 1, 4, 2, 64),
    ("ring", "keys", "contiguous", 1, 4, 1, 128), ("ring", "queries", "blocks(64)", 1, 4, 8, 64),
    ("ring", "queries", "zigzag", 1, 4, 1, 64), ("ring", "queries", "striped", 1, 4, 2, 128),
    ("ring", "keys", "zigzag", 1, 4, 2, 128, True),
    ("burst", "keys", "zigzag", 2, 2, 2, 128), ("burst", "queries", "striped", 2, 2, 8, 128),
    ("burst", "keys", "blocks(64)", 2, 2, 1, 64), ("burst", "queries", "zigzag", 2, 2, 8, 64),
    ("ulysses", "keys", "contiguous", 1, 4, 8, 64), ("ulysses", "keys", "zigzag", 1, 4, 2, 128),
    ("ulysses", "keys", "blocks(64)", 1, 4, 8, 128), ("ulysses", "keys", "striped", 1, 4, 1, 64),
    ("ulysses", "keys", "zigzag", 1, 3, 2, 64), ("ulysses", "keys", "contiguous", 1, 4, 8, 128, False, 2),
    ("usp", "keys", "zigzag", 1, 4, 8, 64, False, 1, "context 2; heads 2;"),
    ("usp", "queries", "contiguous", 1, 4, 2, 128, False, 1, "context 2; heads 2;"),
    ("near", "keys", "contiguous", 1, 2, 2, 128, False, 1, "context 2; ranges yes;"),
    ("near", "keys", "contiguous", 1, 4, 8, 64, False, 1, "context 4; ranges yes;"),
    ("ring", "keys", "zigzag", 1, 4, 2, 128, False, 1, "context 4; ranges yes;"),
    ("halo", "keys", "contiguous", 1, 2, 2, 64, True, 1, "context 2; ranges yes;"),
    ("burst", "keys", "contiguous", 2, 2, 1, 64, False, 1, "context 2 x 2; ranges yes;"),
    ("ring", "queries", "contiguous", 1, 2, 2, 128, False, 1, "context 2; ranges yes;"),
    ("burst", "queries", "zigzag", 2, 2, 8, 64, False, 1, "context 2 x 2; ranges yes;"),
    ("mesh", "keys", "contiguous", 1, 4, 2, 64, False, 1, "context 2 x 2; ranges yes;"),
    ("mesh", "keys", "striped", 1, 4, 2, 64, False, 1, "context 2 x 2;"), ("mesh", "keys", "zigzag", 1, 4, 8, 128, False, 1, "context 2 x 2;"),
    ("double_ring", "keys", "zigzag", 1, 4, 1, 128, False, 1, "context 2 x 2;"), ("gather", "keys", "zigzag", 1, 4, 2, 128),
    ("biring", "keys", "contiguous", 1, 4, 8, 64), ("biring", "queries", "zigzag", 1, 4, 1, 128), ("near", "keys", "zigzag", 1, 4, 2, 64),
    ("bidirectional", "keys", "zigzag", 1, 4, 2, 128), ("bidirectional", "keys", "striped", 1, 4, 8, 64), ("halo", "keys", "contiguous", 1, 4, 2, 128),
    ("gather", "keys", "contiguous", 1, 2, 1, 64), ("doubling", "keys", "striped", 1, 4, 8, 128),
]]


def model_text(point, masks=None):
    masks = masks or MASKS
    lines = ['import "masks";', f"mask odd = {ODD};",
             f"model test {{ layers {len(masks)}; hidden 64; heads {HEADS}; kv_heads {point.kv_heads}; "
             f"head_dim {point.head_dim}; ffn swiglu 64; vocab {VOCAB}; tied yes; }}",
             f"attention {{ default {masks[0]};", *[f"  layers {i}: {mask};" for i, mask in enumerate(masks) if i > 0], "}",
             f"sequence {point.length()};", f"train {{ batch {point.data}; }}",
             machine.layout(point.ranks() // point.data, point.schedule, point.travel, point.partition, data=point.data, sizes=point.sizes)]
    return "\n".join(lines)


# ---- answers ----

def cudnn(torch, q, k, v, d_o, mask, keep):
    """(o, None, dq, dk, dv) of cuDNN's bf16 attention; raises where it has no kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (x.bfloat16()[None].detach().requires_grad_() for x in (q, k, v))
    bias = None
    if mask not in ("full", "causal"):
        bias = torch.zeros(keep.shape, dtype=torch.bfloat16, device=q.device).masked_fill(~keep, float("-inf"))[None, None]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=mask == "causal",
                                                             enable_gqa=q.shape[1] != k.shape[1])
    dq, dk, dv = torch.autograd.grad(o, (q, k, v), d_o.bfloat16()[None])
    o, dq, dk, dv = (x[0].detach().double() for x in (o, dq, dk, dv))
    if not all(bool(x.isfinite().all()) for x in (o, dq, dk, dv)):
        raise RuntimeError("not finite")
    return o, None, dq, dk, dv


def peer_of(torch, x, mask, keep):
    """The peer's outputs and its name. cuDNN's answers must be the mask's: one that silently ignores it is no peer."""
    import attention_torch
    rounded = attention_torch.dense(*(y.float() for y in x), keep, True)
    try:
        if x[0].device.type != "cuda":
            raise RuntimeError("no GPU")
        found = cudnn(torch, *x, mask, keep)
        near = rounded[0].double()
        if float((found[0] - near).norm() / near.norm()) < 0.05:
            return found, "cuDNN"
    except Exception as problem:  # torch says "no available kernel" by RuntimeError, cuDNN in many ways
        print(f"    cuDNN: {mask}: {str(problem).splitlines()[0][:120]}", flush=True)
    return rounded, "torch"


def documents(torch, n, table, device):
    g = torch.Generator().manual_seed(100 + table)
    cut = torch.zeros(n, dtype=torch.int32)
    cut[torch.randint(1, n, (3 + 40 * table,), generator=g)] = 1
    return torch.cumsum(cut, 0, dtype=torch.int32).to(device)


def relative(x, right):
    finite = right.isfinite()
    right = right.double().masked_fill(~finite, 0)
    return float((x.double().masked_fill(~finite, 0) - right).norm()), float(right.norm())


def scales(right, peer):
    """What the harness divides errors by: the peer's error, so that LIMIT is the bound; for lse a relative error."""
    out = []
    for i, name in enumerate(OUTPUTS):
        if name == "lse":
            out.append(relative(right[i], right[i])[1] * LSE_LIMIT / LIMIT)
        else:
            out.append(relative(peer[i], right[i])[0])
    return out


def write_answers(path, shape, masks=None, device="cuda", seed=1):
    """The file of expected.h for one shape (heads, kv_heads, head_dim, tokens); returns how often which peer was asked."""
    import attention_torch
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    masks = masks or MASKS
    heads, kv_heads, d, n = shape
    g = torch.Generator().manual_seed(seed)
    make = lambda h: torch.randn(h, n, d, generator=g).bfloat16().to(device).double()
    q, d_o, k, v = make(heads), make(heads), make(kv_heads), make(kv_heads)
    tables = [documents(torch, n, t, device) for t in range(DOCUMENT_TABLES)]
    cases = [(m, t) for m, mask in enumerate(masks) for t in range(DOCUMENT_TABLES if mask == "document" else 1)]
    peers = collections.Counter()
    header, case_size = 8 + 8 + 6 * 4 + 4 * 8 + 3 * 8, 2 * 4 + 5 * 8 + 5 * 8
    with open(path, "wb") as f:
        f.seek(header)
        place = []
        for x in (q, d_o, k, v):
            place.append(f.tell())
            f.write(x.float().cpu().numpy().tobytes())
        table_at = f.tell()
        for t in tables:
            f.write(t.cpu().numpy().tobytes())
        f.seek((f.tell() + 7) // 8 * 8)
        case_at = f.tell()
        f.seek(case_at + case_size * len(cases))
        lines = []
        for m, t in cases:
            keep = attention_torch.kept(masks[m], n, tables[t], device)
            right = attention_torch.dense(q, k, v, d_o, keep, False)
            peer, who = peer_of(torch, (q, k, v, d_o), masks[m], keep)
            peers[who, masks[m].split("(")[0]] += 1
            at = []
            for x in right:
                at.append(f.tell())
                f.write(x.double().cpu().numpy().tobytes())
            lines.append(struct.pack("<2i5Q5d", m, t, *at, *scales(right, peer)))
        size = f.tell()
        f.seek(case_at)
        f.write(b"".join(lines))
        f.seek(0)
        f.write(struct.pack("<Qq6i4QQQQ", 0x3436656c6361726f, n, heads, kv_heads, d, len(masks), len(tables), len(cases),
                            *place, table_at, case_at, size))
    return peers


# ---- programs ----

def build(m, point, harness):
    source = m.emit(point.name(), machine.gpu_topology(point.nodes, point.lanes), model_text(point))
    return m.link(source, [harness])


def measure(m, program, answers, name, env, launch=None):
    """(worst ratio of each output, cases, failed cases). launch(command, name, env) starts it another way."""
    command = [program, answers, "--tolerance", str(LIMIT), "--bf16", "--verbose"]
    env = {"BURST_TIMEOUT": "40", **env}
    code, text = launch(command, name, env) if launch else m.run(command, name, 90, env, check=False)
    last = re.search(r"^cases (\d+) failed (\d+) worst (.*)$", text, re.M)
    if not last or (code != 0) != (int(last[2]) != 0):
        raise machine.Failed(f"{name}: ended with {code}\n    {machine.tail(text)}")
    for line in re.findall(r"^FAILED mask (\d+) (.*)$", text, re.M)[:4]:
        print(f"    {name}: {MASKS[int(line[0])]}: {line[1]}", flush=True)
    return [float(word.split("=")[1]) for word in last[3].split()], int(last[1]), int(last[2])


def add_row(m, part, name, found):
    if isinstance(found, machine.Failed):
        m.failed(part, name, found)
        return
    worst, cases, failed = found
    shown = " ".join(f"{o} {w:.2f}" for o, w in zip(OUTPUTS, worst) if o != "lse")
    lse = worst[1] * LSE_LIMIT / LIMIT
    m.add(part, name, f"{shown}, lse {lse:.0e}; {cases} cases",
          f"<= {LIMIT} x the peer's error, lse {LSE_LIMIT:.0e}", failed == 0)


def transports(point):
    return ["nccl", "peer"] if point.ranks() > 1 else [None]


def prepare(m, points):
    """Programs and answers; {point: program}, {shape: file}. The answers are made while the programs are compiled."""
    harness = m.object(machine.ROOT / "tests/numerics/harness.c")
    programs, answers, peers = {}, {}, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        builds = pool.submit(lambda: list(m.all(lambda p: build(m, p, harness), points)))
        for shape in sorted({p.shape() for p in points}):
            answers[shape] = m.work / ("answers_" + "_".join(map(str, shape)))
            peers += write_answers(answers[shape], shape)
    for point, program in builds.result():
        if isinstance(program, machine.Failed):
            m.failed("numerics", point.name(), program)
        else:
            programs[point] = program
    for who in ("cuDNN", "torch"):
        masks = [f"{mask} {count}" for (name, mask), count in sorted(peers.items()) if name == who]
        if masks:
            m.add("numerics", f"compared with {who}", ", ".join(masks))
    return programs, answers


def run(m):
    only = os.environ.get("BURST_NUMERICS", "")
    chosen = [p for p in POINTS if p.ranks() <= m.gpus and re.search(only, p.name())]
    left = sum(p.ranks() > m.gpus for p in POINTS)
    programs, answers = prepare(m, chosen)
    runs = [(point, way) for point in programs for way in transports(point)]

    broken = collections.Counter()

    def one(item):
        point, way = item
        if broken[way] >= GIVE_UP:
            raise machine.Failed(f"not run: {GIVE_UP} programs before it failed to end")
        env = {"BURST_TRANSPORT": way} if way else {"CUDA_VISIBLE_DEVICES": str(chosen.index(point) % m.devices)}
        return measure(m, programs[point], answers[point.shape()], f"{point.name()}.{way or 'one'}", env)

    for several, jobs in ((False, m.devices), (True, 1 if m.share else AT_ONCE)):
        for (point, way), found in m.all(one, [item for item in runs if (item[0].ranks() > 1) == several], jobs):
            broken[way] += isinstance(found, machine.Failed)
            add_row(m, "numerics", f"{point.name()} {way or ''}".strip(), found)
    if left:
        m.add("numerics", f"{left} programs need more GPUs", f"this run has {m.gpus}")
