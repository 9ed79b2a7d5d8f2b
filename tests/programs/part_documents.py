"""Attention over packed documents on N GPUs: partitions of a sequence and partitions made for each batch, beside PyTorch.

64 query heads, 8 key heads of 128. Lengths of documents are drawn from two published tables (A: WLB-LLM's, D: MagiAttention's;
tests/runtime/test_balance.c). The peer is benchmarks/documents_torch.py on the same lengths: Ulysses with FlexAttention, FlexAttention's
context parallelism. Plans know the lengths; predicted is the mean of both directions over batches drawn from them.

BURST_DOCUMENT_SETS: of which ("A D"). BURST_DOCUMENT_DRAWS: batches of each (1). BURST_DOCUMENT_TOKENS: of a GPU ("16K 32K").
BURST_DOCUMENT_WAYS: some of WAYS ("gather auto"). BURST_DOCUMENT_MASKS: stock masks instead of document, separated by semicolons
("window(4Ki); document_sink(1Ki, 128)"), without PyTorch.
"""
import json
import math
import os
import random
import re
import struct
import typing

import machine
import part_scale

HEADS, KV_HEADS, HEAD_DIM = 64, 8, 128
SETS = {"A": ([0, .5, .9, .99, .999, 1], [400, 3227, 5784, 26070, 119836, 124913]),
        "D": ([0, .186, .468, .714, .871, .944, .9745, .9874, .9959, .9973, .999, 1],
              [32, 200, 500, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 196608])}
TOKENS = {"8K": 8192, "16K": 16384, "32K": 32768, "64K": 65536}
WAYS = [("near", "zigzag"), ("near", "balanced(1Ki)"), ("gather", "balanced(1Ki)"), ("ring", "zigzag"), ("ring", "balanced(1Ki)"),
        ("ulysses", "contiguous"), ("auto", "auto")]
# of masks that do not read documents, whose work is the same in every batch
SAME_WAYS = [("near", "zigzag"), ("gather", "zigzag"), ("ring", "zigzag"), ("ulysses", "contiguous"), ("auto", "auto")]


def draw(name, tokens, seed):
    """Lengths that fill a sequence; the last is cut."""
    shares, lengths = SETS[name]
    rng, out = random.Random(f"{name} {seed}"), []
    while sum(out) < tokens:
        u = rng.random()
        k = max(i for i in range(len(shares) - 1) if shares[i] <= u)
        part = (u - shares[k]) / (shares[k + 1] - shares[k])
        length = int(lengths[k] * math.exp(part * math.log(lengths[k + 1] / lengths[k])))
        out.append(min(max(1, length), tokens - sum(out)))
    return out


def write_tokens(path, lengths, ids=(0,), width=2):
    """A token file: 1 ends a document, other tokens are drawn of ids. One token more, for the last label."""
    rng, tokens = random.Random(1), []
    for length in lengths:
        tokens += [*rng.choices(ids, k=length - 1), 1]
    values = struct.pack(f"<{len(tokens) + 1}{'H' if width == 2 else 'I'}", *tokens, 0)
    path.write_bytes(b"BURSTTOK" + struct.pack("<IIQ", 1, width, len(tokens) + 1) + values)


def model_text(ranks, tokens, schedule, partition, batch, mask="document"):
    """batch: a path without suffix, of its token file and its table of lengths."""
    ranges = "" if schedule == "ulysses" else " ranges yes;"
    layout = machine.layout(ranks, schedule, "keys", partition).replace(" }", f"{ranges} }}")
    if schedule == "auto":
        layout = "layout { data 1; recompute none; }\n"
    return (f'import "masks";\ntable doc per token lengths "{batch}.txt";\nmodel time {{ layers 1; hidden 64; heads {HEADS}; kv_heads {KV_HEADS}; head_dim {HEAD_DIM}; '
            f"ffn swiglu 64; vocab 64; tied yes; }}\nattention {{ default {mask}; }}\nsequence {tokens};\n"
            + layout + f'train {{ batch 1; data "{batch}.tok"; separator 1; }}\n')


class Case(typing.NamedTuple):
    set: str
    tokens_name: str
    seed: int
    schedule: str
    partition: str
    mask: str

    def batch(self):
        return f"{self.set}_{self.tokens_name}_{self.seed}"

    def name(self):
        mask = re.sub(r"\W+", "_", self.mask)
        return f"{mask}_{self.batch()}_{self.schedule}_{self.partition.split('(')[0]}"


def build(m, case):
    tokens, topo = TOKENS[case.tokens_name] * m.gpus, machine.gpu_topology(1, m.gpus)
    text = model_text(m.gpus, tokens, case.schedule, case.partition, m.work / case.batch(), case.mask)
    source, cost = m.emit(case.name(), topo, text), m.cost(f"{case.name()}_cost", topo, text)
    program = m.work / case.name()
    m.run([*m.nvcc_command(), f'-DPLAN_SOURCE="{source}"', part_scale.TIMER, "-o", program, *m.libraries(True)], f"{program.name}.build", 400)
    predicted = re.search(r"drawn batches: mean ([\d.]+) ms", cost) or re.search(r"^step ([\d.]+) ms", cost, re.M)
    return program, re.search(r"layout { (.*) }", cost)[1], float(predicted[1])


def amount(text):
    return int(text.removesuffix("Ki")) * (1024 if text.endswith("Ki") else 1)


def pairs(m, case, lengths):
    """Pairs of a query and a key that the mask keeps."""
    if case.mask == "document":
        return sum(n * (n + 1) // 2 for n in lengths)
    if case.mask.startswith("document_sink"):
        window, sinks = map(amount, re.findall(r"\d+(?:Ki)?", case.mask))
        return sum(min(at, window) + min(sinks, max(0, at - window)) for n in lengths for at in range(1, n + 1))
    topo, text = machine.gpu_topology(1, m.gpus), model_text(m.gpus, TOKENS[case.tokens_name] * m.gpus, case.schedule, case.partition,
                                                             m.work / case.batch(), case.mask)
    return int(re.search(r"^pairs (\d+)", m.emit(f"{case.name()}_mask", topo, text, "mask", ["--emit=mask"]).read_text(), re.M)[1])


def measure(m, case, built, title, flops):
    program, layout, predicted = built
    env = {"CUDA_VISIBLE_DEVICES": "0"} if m.gpus == 1 else {}
    times = part_scale.measure(m, program, case.name(), env)
    f, b = times["forward"], times["backward"]
    m.add("documents", title, f"forward {1e3 * f:.2f} ms ({flops / f / m.gpus / 1e12:.0f} TFLOP/s per GPU), backward {1e3 * b:.2f} ms "
          f"({2.5 * flops / b / m.gpus / 1e12:.0f}); without transfers {1e3 * times['forward_silent']:.2f}, {1e3 * times['backward_silent']:.2f}; "
          f"predicted of drawn batches {predicted:.2f} ms; {layout}")


def run(m):
    named = os.environ.get("BURST_DOCUMENT_WAYS", "near gather ring ulysses auto").split()
    def ways(mask):
        listed = WAYS if mask.startswith("document") else SAME_WAYS
        return [way for way in listed if way[0] in named] if m.gpus > 1 else [("ring", "contiguous")]
    batches = [(s, n, i) for s in part_scale.chosen("BURST_DOCUMENT_SETS", SETS, "A D") for n in os.environ.get("BURST_DOCUMENT_TOKENS", "16K 32K").split()
               for i in range(int(os.environ.get("BURST_DOCUMENT_DRAWS", "1")))]
    lengths = {batch: draw(batch[0], TOKENS[batch[1]] * m.gpus, batch[2]) for batch in batches}
    for batch in batches:
        stem = "_".join(map(str, batch))
        write_tokens(m.work / f"{stem}.tok", lengths[batch])
        (m.work / f"{stem}.txt").write_text("".join(f"{length}\n" for length in lengths[batch]))
    masks = [mask.strip() for mask in os.environ.get("BURST_DOCUMENT_MASKS", "document").split(";")]
    cases = [Case(*batch, *way, mask) for batch in batches for mask in masks for way in ways(mask)]
    programs = dict(m.all(lambda case: build(m, case), cases))
    for batch in batches:
        listed = lengths[batch]
        title = f"set {batch[0]}, {batch[1]} a GPU, {len(listed)} documents, longest {max(listed)}"
        for case in [case for case in cases if case[:3] == batch]:
            flops = 4 * pairs(m, case, listed) * HEADS * HEAD_DIM
            way = f"{title}: {f'{case.mask}, ' if case.mask != 'document' else ''}{case.schedule}, {case.partition}"
            try:
                if isinstance(programs[case], machine.Failed):
                    raise programs[case]
                measure(m, case, programs[case], way, flops)
            except machine.Failed as reason:
                m.failed("documents", way, reason)
        if masks != ["document"]:
            continue
        path = m.work / f"{case.batch()}.json"
        path.write_text(json.dumps(listed))
        peer = ["torchrun", f"--nproc-per-node={m.gpus}", machine.ROOT / "benchmarks/documents_torch.py", path]
        for line in m.run(peer, f"documents_torch_{case.batch()}", 300)[1].splitlines():
            if line.startswith("peer "):
                m.add("documents", f"{title}: {line[5:].split(':')[0]}", line.split(":", 1)[1].strip())
