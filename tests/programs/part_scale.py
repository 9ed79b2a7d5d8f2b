"""Attention alone on N GPUs against the time of one GPU's kernel for the same pairs, divided by N.

BURST_SCALE_HEADS heads (32), head_dim 128. The model has one layer and next to no width, so that memory is attention's. All programs are timed by
time_attention.cu. BURST_SCALE_TOKENS, BURST_SCALE_KV and BURST_SCALE_MASKS choose ("32K 64K", "8 32", "causal window"); so does
BURST_SCALE_WAYS among the ways below, by name. The bound holds for causal. Peers: benchmarks/attention_torch.py and the scripts
for torchrun in BURST_PEER_ATTENTION.
"""
import json
import os
import re
import sys
import typing

import machine

HEADS, HEAD_DIM = int(os.environ.get("BURST_SCALE_HEADS", "32")), 128
TOKENS = {"16K": 16384, "32K": 32768, "64K": 65536, "128K": 131072, "256K": 262144}
WAYS = [("ring", "keys", "zigzag"), ("ring", "queries", "zigzag"), ("ulysses", "keys", "contiguous"), ("biring", "keys", "zigzag"),
        ("gather", "keys", "zigzag"), ("near", "keys", "zigzag"), ("halo", "keys", "zigzag"), ("usp", "keys", "zigzag")]
STANDARD = "ring-keys ring-queries ulysses-keys"
WINDOW = 8192
MASKS = {"causal": "causal", "window": f"window({WINDOW})"} # a window's rows have equal work but for the first: contiguous chunks
TIMER = machine.ROOT / "tests/programs/time_attention.cu"


class Case(typing.NamedTuple):
    schedule: str
    travel: str
    partition: str
    nodes: int
    lanes: int
    kv_heads: int
    tokens: int
    mask: str = "causal"

    def name(self):
        return (f"time_{self.mask}_{self.schedule}_{self.travel}_{self.partition}_{self.nodes}x{self.lanes}_kv{self.kv_heads}"
                f"_n{self.tokens}")

    def title(self, ranks):
        return f"{ranks} GPU{'s' if ranks > 1 else ''}, {self.mask}, {self.tokens // 1024}K, {HEADS}/{self.kv_heads} heads"


def bound(tokens):
    return 1.15 if tokens <= 32768 else 1.05


def pairs(mask, tokens):
    width = min(WINDOW, tokens) if mask == "window" else tokens
    return width * (width + 1) / 2 + (tokens - width) * width


def level(case, ranks):
    """Shares that give all ranks the same pairs of a window: the first one's rows have fewer keys."""
    rest = 2 * case.tokens // WINDOW - 1
    return f"context {ranks}; heads 1; shares {', '.join([str(rest + ranks), *[str(rest)] * (ranks - 1)])};"


def sizes_of(case, ranks):
    if case.schedule == "usp":
        return f"context {ranks // 2}; heads 2;"
    return level(case, ranks) if case.mask == "window" and case.schedule != "ulysses" and ranks > 1 else ""


def model_text(case):
    ranks = case.nodes * case.lanes
    sizes = sizes_of(case, ranks)
    return (f'import "masks";\nmodel time {{ layers 1; hidden 64; heads {HEADS}; kv_heads {case.kv_heads}; '
            f"head_dim {HEAD_DIM}; ffn swiglu 64; vocab 64; tied yes; }}\nattention {{ default {MASKS[case.mask]}; }}\n"
            f"sequence {case.tokens};\n"
            + machine.layout(ranks, case.schedule, case.travel, case.partition, sizes=sizes))


def build(m, case, topo=None):
    source = m.emit(case.name(), topo or machine.gpu_topology(case.nodes, case.lanes), model_text(case))
    program = m.work / case.name()
    m.run([*m.nvcc_command(), f'-DPLAN_SOURCE="{source}"', TIMER, "-o", program, *m.libraries(True)],
          f"{program.name}.build", 400)
    return program


def read_times(text, name):
    line = re.search(r"^\{\"forward\".*\}$", text, re.M)
    if not line:
        raise machine.Failed(f"{name}: no times\n    {machine.tail(text)}")
    return json.loads(line[0])


def measure(m, program, name, env, timeout=200):
    return read_times(m.run([program], name, timeout, env)[1], name)


def rate(case, seconds, factor):
    """TFLOP/s over unmasked pairs."""
    return 4 * factor * pairs(case.mask, case.tokens) * HEADS * HEAD_DIM / seconds / 1e12


def single_times(m, cases):
    """One GPU each, as many at once as there are GPUs."""
    out = {}
    free = list(range(m.gpus))

    def one(case):
        gpu = free.pop()
        try:
            return measure(m, build_of[case], case.name(), {"CUDA_VISIBLE_DEVICES": str(gpu)}, 300)
        finally:
            free.append(gpu)

    build_of = built(m, cases)
    for case, times in m.all(one, sorted(build_of, key=lambda c: -c.tokens), jobs=m.gpus):
        if isinstance(times, machine.Failed):
            m.failed("scale", case.name(), times)
            continue
        out[case.mask, case.kv_heads, case.tokens] = times
        m.add("scale", case.title(1), f"forward {1e3 * times['forward']:.2f} ms ({rate(case, times['forward'], 1):.0f} TFLOP/s), "
              f"backward {1e3 * times['backward']:.2f} ms ({rate(case, times['backward'], 2.5):.0f})")
    return out


def built(m, cases):
    out = {}
    for case, program in m.all(lambda c: build(m, c), cases):
        if isinstance(program, machine.Failed):
            m.failed("scale", case.name(), program)
        else:
            out[case] = program
    return out


def compare(m, case, way, times, one):
    """Prints a way and returns its worse direction over one GPU's time / N, with its name."""
    words, ratios = [], {}
    for direction in ("forward", "backward"):
        ratios[direction] = times[direction] * m.gpus / one[direction]
        cost = times[direction] - times[direction + "_silent"]
        words.append(f"{direction} {1e3 * times[direction]:.2f} ms, {ratios[direction]:.3f} x, "
                     f"transfers cost {1e3 * cost:.2f} ms")
    both = (times["forward"] + times["backward"]) * m.gpus / (one["forward"] + one["backward"])
    name = f"{case.schedule} {case.travel}, {way}"
    m.add("scale", f"{case.title(m.gpus)}, {name}", "; ".join(words) + f"; both {both:.3f} x")
    return max(ratios.values()), f"{name}: forward {ratios['forward']:.3f} x, backward {ratios['backward']:.3f} x"


def judge(m, best):
    """A bound a length: of the way whose worse direction is best."""
    for (mask, kv_heads, tokens), ways in sorted(best.items()):
        ratio, name = min(ways)
        bounded = mask == "causal"
        m.add("scale", f"{m.gpus} GPUs, {mask}, {tokens // 1024}K, {HEADS}/{kv_heads}, the best way", name,
              f"both directions <= {bound(tokens)} x one GPU's / {m.gpus}" if bounded else "",
              ratio <= bound(tokens) if bounded else None)


def chosen(variable, all_names, default):
    words = os.environ.get(variable, default).split()
    for word in words:
        if word not in all_names:
            raise machine.Failed(f"{variable} has '{word}'; it may have {' '.join(all_names)}")
    return words


def torchrun(m, script, name, *words):
    code, text = m.run([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={m.gpus}", script, *words], name, 240,
                       check=False)
    lines = [line.strip() for line in text.splitlines() if "fwd " in line or "forward " in line or "p2p" in line]
    for line in lines:
        m.add("scale", "peer", line)
    if code != 0 or not lines:
        m.add("scale", "peer", f"{script} ended with {code}: {machine.tail(text, 1)}", "", False)


def peers(m, tokens, kv):
    """Ours in PyTorch, in the same run; and one of the user's."""
    torchrun(m, machine.ROOT / "benchmarks/attention_torch.py", "peer_torch", *tokens, "--heads", HEADS, "--kv", *kv)
    for script in os.environ.get("BURST_PEER_ATTENTION", "").split():
        torchrun(m, script, f"peer_{os.path.basename(script)}")


def run(m):
    if m.gpus < 2:
        m.add("scale", "not run", "it needs 2 GPUs or more")
        return
    tokens = [TOKENS[word] for word in chosen("BURST_SCALE_TOKENS", TOKENS, "32K 64K 128K 256K")]
    kv = [int(word) for word in chosen("BURST_SCALE_KV", ("8", "32"), "8")]
    names = [f"{schedule}-{travel}" for schedule, travel, _ in WAYS]
    ways = [WAYS[names.index(word)] for word in chosen("BURST_SCALE_WAYS", names, STANDARD)]
    masks = chosen("BURST_SCALE_MASKS", MASKS, "causal")
    transports = chosen("BURST_SCALE_TRANSPORTS", ("nccl", "peer"), "nccl peer")
    cases = [Case(schedule, travel, partition if mask == "causal" else "contiguous", 1, m.gpus, k, n, mask)
             for mask in masks for schedule, travel, partition in ways for k in kv for n in tokens]
    build_of = built(m, cases)
    ones = single_times(m, [Case("ring", "keys", "zigzag", 1, 1, k, n, mask) for mask in masks for k in kv for n in tokens])
    best = {}
    for case in cases:
        for way in transports:
            if case not in build_of or (case.mask, case.kv_heads, case.tokens) not in ones:
                continue
            try:
                times = measure(m, build_of[case], f"{case.name()}.{way}", {"BURST_TRANSPORT": way})
                found = compare(m, case, way, times, ones[case.mask, case.kv_heads, case.tokens])
                best.setdefault((case.mask, case.kv_heads, case.tokens), []).append(found)
            except machine.Failed as error:
                m.failed("scale", f"{case.name()} {way}", error)
    judge(m, best)
    peers(m, tokens, kv)
