"""A training step of Llama-3-8B shapes (examples/llama8b_128k.burst) on packed documents: partitions of a sequence and those made for
each batch, beside PyTorch.

BURST_PACKED_SETS: of whose lengths documents are drawn ("D A"; part_documents.py), BURST_PACKED_DRAWS sequences of BURST_PACKED_TOKENS
tokens of each (4 of 131072; draws 0, 1 ...), which every program and every peer trains on. What is reported is the mean over sequences of
a step with each, after as many to warm up. Predicted: the mean over batches drawn from these very lengths. Peers: BURST_PACKED_PEERS
("flex varlen"; benchmarks/documents_step_torch.py); while the first runs, programs are compiled. BURST_PACKED_WAYS: which of WAYS,
with BURST_PACKED_RECOMPUTE ("auto"). BURST_STEP_CLUSTER: as part_step.py has it.
"""
import concurrent.futures
import json
import os
import re
import sys
import typing

import machine
import part_documents
import part_scale
import part_step

SEPARATOR, VOCABULARY = 1, 128256
WAYS = {"zigzag": "schedule ring; partition zigzag; ranges yes;", "balanced": "schedule ring; partition balanced(1Ki); ranges yes;", "auto": ""}
PEERS, PEER_SECONDS = ("flex", "varlen"), 150


class Case(typing.NamedTuple):
    set: str
    way: str


class Batches:
    """The sequences of a set, as files."""

    def __init__(self, m, name, count, tokens):
        self.tokens = tokens
        self.sequences = [part_documents.draw(name, tokens, seed) for seed in range(count)]
        self.data, self.table, self.peers = (m.work / f"packed_{name}.{suffix}" for suffix in ("tok", "txt", "json"))
        every = sum(self.sequences, [])
        part_documents.write_tokens(self.data, every, range(SEPARATOR + 1, VOCABULARY), 4)
        self.table.write_text("".join(f"{length}\n" for length in every))
        self.peers.write_text(json.dumps(self.sequences))
        longest = [max(lengths) for lengths in self.sequences]
        m.add("packed", f"set {name}", f"{count} sequences of {tokens} tokens; documents {' '.join(str(len(s)) for s in self.sequences)}; "
              f"longest {' '.join(map(str, longest))}")


def step_text(batches, way, rule):
    text = (machine.ROOT / "examples/llama8b_128k.burst").read_text()
    for old, new in [(r"attention { default causal; }", f'table doc per token lengths "{batches.table}";\nattention {{ default document; }}'),
                     (r"sequence 128Ki;", f"sequence {batches.tokens};"), (r"layout {[^}]*}", f"layout {{ data 1; {WAYS[way]} recompute {rule}; }}"),
                     (r"train { steps 8;", f'train {{ steps 8; data "{batches.data}"; separator {SEPARATOR};')]:
        text, count = re.subn(old, new, text)
        if count != 1:
            raise machine.Failed(f"{old} stands {count} times in the example")
    return text


def build(m, case, batches, rule):
    """The program's source and itself, the layout, and the predicted seconds."""
    topo, text, name = part_step.cluster(m), step_text(batches, case.way, rule), f"packed_{case.set}_{case.way}"
    source = m.emit(name, topo, text)
    cost = m.cost(f"{name}_cost", topo, text)
    layout = re.search(r"layout { (.*) }", cost)[1]
    predicted = float(re.search(r"drawn batches: mean ([\d.]+) ms", cost)[1]) / 1e3
    return source, m.link(source), layout, predicted


def ours(m, case, count, source, program, layout, predicted):
    rows, seen, text = part_step.trained(m, program, 2 * count)
    times = [row["seconds"] for row in rows[count:]]
    seconds = sum(times) / len(times)
    tokens = rows[0]["tokens_per_second"] * rows[0]["seconds"]
    title = f"set {case.set}, {case.way}"
    m.add("packed", title, f"{seconds:.3f} s a step ({min(times):.3f} to {max(times):.3f}), {tokens / seconds:.0f} tokens/s; "
          f"predicted {predicted:.3f} s ({100 * (predicted / seconds - 1):+.1f} %); {layout}")
    part_step.add_links(m, "packed", title, text)
    part_step.add_memory(m, "packed", title, rows[-1], seen, source)


def peer(m, way, paths):
    words = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={m.gpus}", machine.ROOT / "benchmarks/documents_step_torch.py",
             way, *paths]
    code, text = m.run(words, f"packed_{way}", PEER_SECONDS, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, check=False)
    lines = [line[5:] for line in text.splitlines() if line.startswith("peer ")]
    for line in lines:
        m.add("packed", *line.split(": ", 1))
    if code != 0:  # none is owed: a release of PyTorch may lack it
        reasons = [line for line in text.splitlines() if "Error" in line and "ChildFailed" not in line]
        m.add("packed", way, f"ended with {code}: {reasons[-1] if reasons else machine.tail(text, 1)}"[:300])


def run(m):
    count, tokens = (int(os.environ.get(f"BURST_PACKED_{name}", default)) for name, default in (("DRAWS", "4"), ("TOKENS", "131072")))
    batches = {name: Batches(m, name, count, tokens) for name in part_scale.chosen("BURST_PACKED_SETS", part_documents.SETS, "D A")}
    cases = [Case(name, way) for name in batches for way in part_scale.chosen("BURST_PACKED_WAYS", WAYS, "zigzag balanced auto")]
    peers, paths = part_scale.chosen("BURST_PACKED_PEERS", PEERS, "flex varlen"), [each.peers for each in batches.values()]
    rule = os.environ.get("BURST_PACKED_RECOMPUTE", "auto")
    with concurrent.futures.ThreadPoolExecutor(m.jobs) as pool:
        built = {case: pool.submit(build, m, case, batches[case.set], rule) for case in cases}
        for way in peers[:1]:
            peer(m, way, paths)
        for case in cases:
            try:
                ours(m, case, count, *built[case].result())
            except machine.Failed as error:
                m.failed("packed", f"set {case.set}, {case.way}", error)
    for way in peers[1:]:
        peer(m, way, paths)
