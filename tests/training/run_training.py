"""Training by emitted programs, end to end.

    python3 run_training.py --toolchain toolchain.json --gradients OBJECTS --curve OBJECTS --part PART ...

Parts: gradients  of every weight, on many layouts, against the float64 oracle
       curve      training steps against the same training in float64
       recompute  losses and gradient norms of none, selective, full and tail: the same bits
       memory     losses of what is recomputed, sharded and chunked: those of one rank that saves all; a sample, or with --all all
       hybrid     the same of weights that are sharded inside a group of ranks; a killed rank, and checkpoints that other layouts read
       tensor     the same of layers that ranks split
       schedules  the same of the shipped schedules that the others leave out, 60 steps
       balanced   the same of partitions that are made for each batch, and resuming on other ranks
       layers     the same of layers of which those of each mask have a schedule of their own; with their passes changed it shows
       offload    losses and gradient norms with activations staged to a second arena and without: the same bits
       fetch      the same where they come back by chunks of the tokens
       optimizer  the same with parameters and moments in that arena
       muon       training steps by Muon against the same in float64; where whole matrices lie changes no bit that it need not; resuming
       bf16       gradients kept in bf16: of every weight against float64, and losses beside those of fp32
       groups     losses of experts in any number of groups; resuming in another number, and exports: the same bytes
       equality   losses of 1, 2, 4, 8 and data 2 x context 4 ranks on the same data
       failure    a killed rank and a stopped one end the others; resuming goes on as if nothing had happened
       mpi        under mpirun the losses of the self-started run
"""
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run, scaled_timeout  # noqa: E402

SEQUENCE = 61
NEAR, FAR, NEAR_STEPS, STEPS = 1e-5, 1e-3, 20, 100  # relative, N ranks against one


class Layout(typing.NamedTuple):
    schedule: str
    travel: str
    partition: str
    data: int = 1
    nodes: int = 1
    lanes: int = 1
    recompute: str = "none"
    weights: str = "zero3"
    chunks: int = 1
    shares: str = ""
    placement: str = ""
    tensor: int = 1
    fast: int = 0  # of the nodes, so many with devices twice as fast as the others'
    offload: str = ""
    memory: int = 0  # bytes of a device; 0: more than enough
    mesh: tuple = ()  # sizes of the schedule's coordinates
    head_chunks: int = 1
    token_chunks: int = 1
    queries: str = ""  # what goes through the chunks of the tokens too: "attention", or its "keys" as well
    gradients: str = ""
    overlap: str = ""
    fetch: str = ""
    loss: str = ""
    update: str = "host"  # of an optimizer in the host's memory
    groups: int = 1  # of a layer's experts

    def name(self):
        text = f"{self.schedule}_{self.travel}_{self.partition}_data{self.data}_{self.nodes}x{self.lanes}_{self.recompute}"
        text += f"_{self.weights}_{self.chunks}" if (self.weights, self.chunks) != ("zero3", 1) else ""
        text += f"_shares{self.shares}_{self.fast}" if self.shares else ""
        text += f"_tensor{self.tensor}" if self.tensor > 1 else ""
        text += f"_{self.placement}_{self.offload}"
        text += f"_{self.memory}" if self.memory else ""
        text += "_" + "x".join(map(str, self.mesh)) if self.mesh else ""
        text += f"_heads{self.head_chunks}" if self.head_chunks > 1 else ""
        text += f"_tokens{self.token_chunks}{self.queries[:1]}" if self.token_chunks > 1 else ""
        text += f"_overlap{self.overlap}" if self.overlap else ""
        text += f"_fetch{self.fetch}" if self.fetch else ""
        text += "_device" if self.update == "device" else ""
        text += f"_groups{self.groups}" if self.groups > 1 else ""
        text += self.gradients + self.loss
        return re.sub(r"[(), ]+", "", text)

    def topology(self):
        text = emitted.topology(self.nodes - self.fast, self.lanes)
        text = text.replace("memory 4 GB", f"memory {self.memory} B") if self.memory else text
        if not self.fast:
            return text
        text = text.replace("  link", f"  nodes {self.fast} {{ gpus {self.lanes} of fast; nics 1 of lan; }}\n  link")
        return text + "device fast { arch cpu; memory 4 GB; hbm 40 GB/s; matmul fp32 100 GFLOP/s; }\n"

    def text(self):
        ranks = self.nodes * self.lanes // self.data // self.tensor
        text = emitted.layout(self.data, ranks, self.schedule, self.travel, self.partition, self.recompute, self.mesh)
        text = text.replace("tensor 1", f"tensor {self.tensor}")
        more = f" weights {self.weights}; ffn chunks {self.chunks};"
        more = more if (self.weights, self.chunks) != ("zero3", 1) else ""
        more += f" shares {self.shares};" if self.shares else ""
        more += f" placement {self.placement};" if self.placement else ""
        more += f" offload {self.offload};" if self.offload else ""
        more += f" update {self.update};" if "optimizer" in self.offload else ""
        more += f" head chunks {self.head_chunks};" if self.head_chunks > 1 else ""
        more += f" token chunks {self.token_chunks}{', ' + self.queries if self.queries else ''};" if self.token_chunks > 1 else ""
        more += f" gradients {self.gradients};" if self.gradients else ""
        more += f" overlap {self.overlap};" if self.overlap else ""
        more += f" fetch {self.fetch};" if self.fetch else ""
        more += f" loss {self.loss};" if self.loss else ""
        more += f" experts in {self.groups} groups;" if self.groups > 1 else ""
        return text.replace(" }", more + " }")


class Shape(typing.NamedTuple):
    heads: int = 8
    kv_heads: int = 2
    vocab: int = 37
    tied: str = "no"
    masks: tuple = ("causal", "window(17)")
    softcap: float = 0
    part: str = ""
    sinks: bool = False
    sequence: int = SEQUENCE
    ffn: int = 40
    positions: str = ""
    experts: str = ""
    documents: str = ""  # lengths of the first ones, of gradients.c


ALTERNATING = ("causal", "window(17)", "causal", "window(17)")
EXPERTS = "moe { experts 5; top 2; ffn swiglu 24; normalize yes; }"
SIGMOIDS = "moe { experts 9; top 3; ffn swiglu 16; score sigmoid; normalize yes; eps 1e-20; scale 2.5; }"
SHARED = EXPERTS.replace("normalize", "shared 20; normalize")
GATED = SHARED.replace("shared 20;", "shared 20; shared_gate yes;")
GROUPS = "moe { experts 12; top 3; ffn swiglu 16; score sigmoid; normalize yes; eps 1e-20; scale 2.5; groups 4; top_groups 2; group_score two; correction yes; shared 16; }"
BIASES = "moe { experts 8; top 2; ffn swiglu 24; normalize yes; router_bias yes; bias yes; alpha 1.702; offset 1; limit 0.5; }"
MANY = "moe { experts 8; top 3; ffn swiglu 16; groups 4; top_groups 2; correction yes; least 0.4; normalize yes; bias yes; shared 16; shared_gate yes; }"
MIXED = EXPERTS + " ffn layers 0 .. 1: swiglu 40;"  # dense layers first, as in DeepSeek
EVERY_OTHER = SIGMOIDS.replace("moe", "moe layers 1, 3:") + " ffn swiglu 32;"
SCANS = "scan layers 0 .. 2: { heads 4; key_heads 2; key_dim 16; value_dim 12; conv 4; } ffn swiglu 40;"
GATED_ATTENTION = "attention_gate yes;"
MAMBA = ("scan layers 0 .. 2: { heads 4; key_heads 2; key_dim 16; value_dim 12; read none; conv 4 bias; gate silu before norm; skip yes; step_most 2; } "
         "ffn swiglu 40;")
BESIDE = ("scan { heads 4; key_heads 2; key_dim 16; value_dim 12; read none; conv 4 bias; norm none; skip yes; attention yes; } "
          "attention_out_scale 0.9; scan_out_scale 0.4; ffn swiglu 40;")  # Falcon-H1
BESIDE_NORM = MAMBA.replace("skip yes;", "skip yes; attention yes;") + " scan_out_scale 1.5;"
DOCUMENT = ("document",) * 4
BIAS, NORM, WHOLE, ROTATED = "qkv_bias yes;", "qk_norm yes;", "qk_norm all;", "qk_norm rotated;"  # Qwen2, Qwen3, OLMo 2, Hunyuan
ONE = Layout("ring", "keys", "contiguous")
WORLDS = [ONE, Layout("ring", "keys", "zigzag", lanes=2), Layout("ring", "queries", "striped", lanes=4),
          Layout("burst", "queries", "zigzag", nodes=2, lanes=4), Layout("burst", "keys", "zigzag", 2, 2, 4),
          Layout("burst", "keys", "zigzag", nodes=2, lanes=2, shares="auto", fast=1),
          Layout("burst", "queries", "zigzag", 2, 2, 4, placement="lane, data, node")]
GRADIENTS = [
    (ONE, Shape()),
    (Layout("ring", "keys", "zigzag", lanes=2, chunks=3), Shape(experts=EXPERTS.replace("yes", "no"))),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, recompute="selective"), Shape(kv_heads=4, experts=SIGMOIDS)),
    (Layout("ring", "keys", "zigzag", lanes=2, chunks=3), Shape(experts=SHARED)),
    (Layout("ring", "keys", "zigzag", 2, 2, 4, "selective", "zero2", tensor=2), Shape(kv_heads=4, experts=GATED)),
    (ONE._replace(token_chunks=3, recompute="tail(0.5)"), Shape(experts=GATED)),
    (Layout("ring", "keys", "zigzag", lanes=2, chunks=3), Shape(experts=GROUPS)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, recompute="selective"), Shape(kv_heads=4, experts=GROUPS)),
    (Layout("ulysses", "keys", "contiguous", lanes=4, recompute="full"), Shape(kv_heads=4, experts=BIASES)),
    (Layout("ring", "keys", "striped", lanes=2, token_chunks=2, queries="attention", recompute="selective"), Shape(experts=BIASES)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, recompute="selective"), Shape(kv_heads=4, experts=MANY)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, queries="attention", recompute="selective"), Shape(kv_heads=4, experts=MANY)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, queries="keys", recompute="full", groups=3), Shape(kv_heads=4, experts=SIGMOIDS)),
    (Layout("ring", "keys", "zigzag", lanes=2, chunks=3), Shape(masks=ALTERNATING, experts=MIXED)),
    *((layout, Shape(kv_heads=4, experts=experts)) for layout, experts in (
        (ONE._replace(groups=5), EXPERTS), (Layout("ring", "keys", "zigzag", lanes=2, chunks=3, groups=3), SIGMOIDS),
        (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, recompute="selective", groups=3), SIGMOIDS),
        (Layout("ring", "keys", "zigzag", 2, 2, 4, "selective", "zero2", tensor=2, groups=5), GATED),
        (Layout("ring", "keys", "zigzag", lanes=2, chunks=3, groups=6), GROUPS), (Layout("ulysses", "keys", "contiguous", lanes=4, recompute="full", groups=4), BIASES),
        (Layout("ring", "keys", "striped", lanes=2, token_chunks=2, queries="attention", recompute="selective", groups=2), BIASES),
        (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, queries="keys", recompute="selective", groups=4), BIASES),
        (Layout("ring", "keys", "contiguous", lanes=4, tensor=4, chunks=2, recompute="full", offload="activations, optimizer", groups=8), MANY))),
    *((layout, Shape(masks=ALTERNATING, tied="yes", experts=experts)) for layout, experts in (
        (Layout("ring", "keys", "zigzag", lanes=2, recompute="full(3)", offload="activations", groups=5), MIXED),
        (Layout("ring", "keys", "zigzag", lanes=2, token_chunks=3, queries="keys", recompute="full(2)", groups=9), EVERY_OTHER),
        (Layout("burst", "keys", "zigzag", 2, 2, 2, weights="zero1", groups=3), EVERY_OTHER), (Layout("ring", "keys", "zigzag", lanes=2, weights="zero2", groups=3), EVERY_OTHER),
        (Layout("ring", "keys", "zigzag", lanes=2, offload="activations, optimizer", update="device", groups=5), MIXED))),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, recompute="selective"), Shape(kv_heads=4, masks=ALTERNATING, experts=EVERY_OTHER)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="full(3)", offload="activations"), Shape(masks=ALTERNATING, experts=MIXED)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, offload="activations"),
     Shape(kv_heads=4, masks=ALTERNATING, experts=GATED + " ffn layers 0, 2: swiglu 40;")),
    (Layout("ring", "keys", "zigzag", lanes=2, offload="activations(gate_up, expert_gate_up)"), Shape(masks=ALTERNATING, experts=EVERY_OTHER)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="save(x_mid, gate_up(2), logits(2))"), Shape(masks=ALTERNATING, experts=EVERY_OTHER)),
    (Layout("ring", "keys", "zigzag", lanes=2, token_chunks=3, queries="keys", recompute="full(2)"), Shape(masks=ALTERNATING, experts=EVERY_OTHER)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=4, overlap="yes", weights="zero2"),
     Shape(kv_heads=4, part="qk_norm all;", masks=ALTERNATING, experts=MIXED)),
    (Layout("burst", "keys", "zigzag", 2, 2, 2, weights="zero1"), Shape(tied="yes", masks=ALTERNATING, experts=EVERY_OTHER)),
    (ONE, Shape(masks=DOCUMENT, experts=SCANS)),
    (ONE._replace(recompute="full(2)"), Shape(masks=DOCUMENT, part="qk_norm yes;", sinks=True, experts=SCANS)),
    (ONE._replace(token_chunks=3, queries="keys", offload="activations"), Shape(masks=DOCUMENT, experts=SCANS)),
    (ONE._replace(head_chunks=2, recompute="selective"), Shape(masks=DOCUMENT, experts=SCANS.replace("0 .. 2", "1, 3"))),
    (ONE._replace(token_chunks=3, recompute="save(scan_o, rstd_scan, o, lse)"), Shape(masks=DOCUMENT, experts=MAMBA)),
    (Layout("ring", "keys", "contiguous", 2, 1, 2, weights="zero1", chunks=3), Shape(masks=DOCUMENT, tied="yes", experts=SCANS)),
    (Layout("ring", "keys", "contiguous", 2, 1, 2, "selective", token_chunks=3),
     Shape(masks=DOCUMENT, experts=SCANS.replace("conv 4", "conv 3").replace("ffn swiglu 40;", MIXED))),
    *((layout, Shape(masks=DOCUMENT, experts=SCANS, documents=documents)) for documents, layout in (
        ("1,2,3,31", ONE), ("1,2,3,31", Layout("ring", "keys", "contiguous", lanes=2)),
        ("1,2,3,31", Layout("ring", "keys", "zigzag", lanes=4, recompute="full(2)")),
        ("3,1,2,31,1,1,1", Layout("ulysses", "keys", "contiguous", lanes=4, recompute="selective", offload="activations")),
        ("15,15", Layout("ring", "keys", "contiguous", lanes=4, recompute="ffn")),  # 15, 15, 15 and 16 tokens: borders of ranks
        ("7,1,7,16,14", Layout("ring", "keys", "zigzag", lanes=4, token_chunks=2, queries="attention")),  # 7, 8, 8, 7, 8, 8, 7, 8
        ("61", Layout("ring", "keys", "zigzag", lanes=4)), ("61", Layout("ring", "keys", "blocks(24)", lanes=4, recompute="full")),
        ("2,57,1", Layout("ring", "keys", "zigzag", 2, 2, 2, weights="zero1", chunks=3)), ("", Layout("ring", "queries", "blocks(24)", lanes=4)),
        ("", Layout("usp", "keys", "zigzag", lanes=4, mesh=(2, 2), recompute="save(scan_in, o, lse)")),
        ("", Layout("ring", "keys", "contiguous", lanes=3, shares="5, 1, 2", recompute="selective")),
        ("5,3,40", Layout("ring", "keys", "zigzag", lanes=2, head_chunks=2, recompute="full")))),
    *((layout, Shape(masks=DOCUMENT, experts=MAMBA, documents=documents)) for documents, layout in (
        ("1,2,3,31", ONE), ("1,2,3,31", Layout("ring", "keys", "zigzag", lanes=4, recompute="full(2)")),
        ("15,15", Layout("ring", "keys", "contiguous", lanes=4, recompute="selective")), ("61", Layout("ulysses", "keys", "zigzag", lanes=2)),
        ("", Layout("ring", "keys", "blocks(24)", 2, 2, 4, weights="zero1", chunks=3)))),
    *((layout._replace(tensor=2), Shape(kv_heads=4, masks=DOCUMENT, experts=scans, documents=documents)) for scans, documents, layout in (
        (SCANS, "1,2,3,31", Layout("ring", "keys", "contiguous", lanes=2)), (SCANS, "61", Layout("ring", "keys", "zigzag", lanes=4, recompute="full(2)")),
        (SCANS, "15,15", Layout("ring", "keys", "contiguous", 2, 1, 4, weights="zero1", chunks=3)),
        (MAMBA, "", Layout("ring", "keys", "zigzag", lanes=4, token_chunks=3, recompute="selective")),
        (MAMBA, "61", Layout("ring", "keys", "contiguous", lanes=2, recompute="full", offload="activations")))),
    (Layout("ring", "keys", "zigzag", lanes=4, weights="zero2"),
     Shape(masks=("causal", "window(17)") * 2, experts=SCANS.replace("conv 4", "conv 3").replace("ffn swiglu 40;", MIXED), documents="1,2,3,31")),
    (ONE, Shape(part=ROTATED)), (ONE._replace(head_chunks=2, recompute="full"), Shape(part=ROTATED, tied="yes")),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, recompute="selective"), Shape(kv_heads=4, part=ROTATED, masks=ALTERNATING)),
    (Layout("ulysses", "keys", "striped", lanes=2, recompute="full(2)", offload="activations"), Shape(kv_heads=4, part=ROTATED, sinks=True, masks=ALTERNATING)),
    (Layout("ring", "keys", "zigzag", lanes=2, token_chunks=3, queries="attention", recompute="ffn"), Shape(part=ROTATED + BIAS)),
    (Layout("ring", "keys", "zigzag", lanes=2, token_chunks=2, queries="keys", recompute="selective"), Shape(part=ROTATED)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="save(q_raw, k_raw, o, lse)"), Shape(part=ROTATED, experts=MANY)),
    (ONE, Shape(part=GATED_ATTENTION)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="full(2)"), Shape(kv_heads=4, part=GATED_ATTENTION, masks=("document", "causal", "full"))),
    (Layout("ulysses", "keys", "striped", 2, 2, 4, "selective", "zero2", head_chunks=2), Shape(kv_heads=4, part=GATED_ATTENTION, sinks=True)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="save(attn_gate, o, lse)", token_chunks=3, queries="attention", offload="activations"),
     Shape(part=GATED_ATTENTION + " qk_norm yes;")),
    (Layout("ring", "keys", "contiguous", lanes=2, token_chunks=3, queries="keys", recompute="ffn"), Shape(part=GATED_ATTENTION, tied="yes")),
    (Layout("burst", "queries", "zigzag", nodes=2, lanes=2, recompute="tail(0.5)"), Shape(part=GATED_ATTENTION, masks=("document", "causal"))),
    (Layout("ring", "keys", "zigzag", lanes=4, recompute="full"), Shape(part=GATED_ATTENTION, masks=DOCUMENT, experts=SCANS)),
    (ONE._replace(recompute="full"), Shape(kv_heads=8, tied="yes", masks=("document", "full"))),
    (Layout("ring", "keys", "zigzag", lanes=2), Shape(masks=("document", "causal"))),
    (Layout("ring", "queries", "striped", lanes=3, recompute="full"), Shape(tied="yes")),
    (Layout("ring", "keys", "blocks(8)", lanes=4, recompute="full"), Shape(masks=("window_sink(13, 4)", "document"))),
    (Layout("ring", "queries", "contiguous", lanes=7), Shape(heads=6, kv_heads=3)),
    (Layout("burst", "keys", "zigzag", nodes=2, lanes=2), Shape(kv_heads=1, masks=("full", "document"))),
    (Layout("burst", "queries", "zigzag", nodes=2, lanes=4, recompute="full"), Shape(kv_heads=8)),
    (Layout("burst", "keys", "striped", nodes=3, lanes=2), Shape(tied="yes", masks=("window(17)", "document"))),
    (Layout("ulysses", "keys", "contiguous", lanes=4, recompute="full"), Shape()),
    (Layout("ulysses", "keys", "zigzag", nodes=2, lanes=4), Shape(masks=("document", "window(17)"))),
    (Layout("ulysses", "keys", "striped", lanes=3), Shape(heads=6, kv_heads=2, tied="yes")),
    (Layout("ring", "keys", "zigzag", 2, 2, 4, "full"), Shape(masks=("document", "causal"))),
    (Layout("burst", "queries", "striped", 2, 2, 4), Shape(tied="yes")),
    (ONE._replace(recompute="selective"), Shape(heads=6, kv_heads=2, masks=("causal", "document", "full"))),
    (Layout("ring", "queries", "zigzag", lanes=3, recompute="selective"), Shape(tied="yes", masks=("document", "causal"))),
    (Layout("burst", "keys", "striped", nodes=2, lanes=2, recompute="selective"), Shape(kv_heads=8)),
    (Layout("ulysses", "keys", "contiguous", lanes=4, recompute="selective"), Shape(masks=("window(17)", "document", "full"))),
    (Layout("ulysses", "keys", "contiguous", 2, 2, 4), Shape(kv_heads=4)),
    (Layout("ring", "keys", "zigzag", 2, 2, 2, "save(o, lse, gate_up(1))", "zero2", 3), Shape(masks=("causal", "document"))),
    (Layout("burst", "queries", "zigzag", nodes=2, lanes=2, recompute="full", weights="zero1", chunks=4), Shape(tied="yes")),
    (Layout("ring", "keys", "contiguous", lanes=3, shares="5, 1, 2"), Shape(masks=("document", "causal"))),
    (Layout("ring", "queries", "striped", lanes=4, shares="3, 3, 1, 1", chunks=3), Shape(kv_heads=8)),
    (Layout("burst", "keys", "blocks(20)", nodes=2, lanes=2, shares="core 1, fast 3", fast=1), Shape(tied="yes")),
    (Layout("burst", "queries", "zigzag", nodes=2, lanes=2, shares="auto", fast=1, recompute="selective"), Shape(masks=("window(17)", "full"))),
    (Layout("ulysses", "keys", "contiguous", lanes=3, shares="1, 4, 2"), Shape(heads=6, kv_heads=3)),
    (Layout("ring", "keys", "zigzag", 2, 2, 2, placement="data, context"), Shape(masks=("document", "causal"))),
    (Layout("burst", "keys", "striped", nodes=2, lanes=3, placement="node, lane"), Shape(tied="yes")),
    (Layout("ulysses", "keys", "contiguous", 2, 2, 4, placement="data"), Shape(kv_heads=4)),
    (Layout("ring", "keys", "zigzag", 2, 2, 2, shares="1, 20"), Shape(masks=("document", "causal"))),
    (Layout("ring", "queries", "zigzag", lanes=3, recompute="selective"), Shape(softcap=0.5)),
    (Layout("ulysses", "keys", "zigzag", lanes=2, recompute="full"), Shape(masks=("document", "causal"), softcap=2)),
    (ONE, Shape(part=BIAS)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="full", weights="zero2"), Shape(part=BIAS, tied="yes")),
    (Layout("burst", "queries", "striped", 2, 2, recompute="selective", weights="zero1", chunks=3), Shape(part=BIAS, kv_heads=8)),
    (Layout("ulysses", "keys", "contiguous", lanes=4), Shape(part=BIAS)),
    (ONE._replace(recompute="full"), Shape(part=NORM)),
    (Layout("ring", "queries", "zigzag", lanes=2), Shape(part=NORM, tied="yes")),
    (Layout("burst", "keys", "striped", 2, 2, recompute="save(q_raw, k, rstd_k(1))", weights="zero2", chunks=3), Shape(part=NORM)),
    (Layout("ulysses", "keys", "zigzag", lanes=4, recompute="selective", weights="zero1"), Shape(part=NORM, kv_heads=8)),
    (ONE, Shape(kv_heads=8, sinks=True)),
    (Layout("ring", "keys", "zigzag", lanes=4, recompute="full", weights="zero2"), Shape(masks=("document", "causal"), sinks=True)),
    (Layout("burst", "queries", "striped", 2, 2, 4, "selective", "zero1", 3), Shape(heads=6, kv_heads=3, sinks=True, softcap=1)),
    (Layout("ulysses", "keys", "contiguous", lanes=3, recompute="selective"), Shape(heads=6, tied="yes", sinks=True)),
    (Layout("burst", "keys", "zigzag", 2, 2, 4, weights="zero3 within node"), Shape(masks=("document", "causal"))),
    (Layout("ring", "keys", "striped", nodes=3, lanes=2, weights="zero2 within 2"), Shape(tied="yes")),
    (Layout("ring", "queries", "zigzag", nodes=2, lanes=2, weights="zero1 within 1"), Shape(tied="yes")),
    (Layout("ring", "keys", "zigzag", 2, 2, 2, "selective", "zero3_no_sync", 3), Shape(tied="yes", masks=("document", "causal"))),
    (Layout("ring", "keys", "zigzag", lanes=4, recompute="tail(0.5)"), Shape(masks=("document", "causal", "window(17)"))),
    (Layout("burst", "queries", "striped", 2, 2, recompute="tail(0.9)", weights="zero1", chunks=3), Shape(part=NORM, sinks=True)),
    (Layout("ring", "keys", "contiguous", lanes=4, recompute="tail(0.5)", shares="1, 2, 1000, 999"), Shape(masks=("document", "causal"))),
    (Layout("burst", "queries", "blocks(1)", lanes=4, recompute="tail(0.3)"), Shape(sequence=6)),
    (Layout("ring", "keys", "contiguous", lanes=4, chunks=2), Shape(sequence=4)),  # a token a rank
    (Layout("ring", "keys", "zigzag", lanes=4, token_chunks=3), Shape(sequence=4)),
    (Layout("ring", "keys", "striped", lanes=4, token_chunks=2, queries="attention"), Shape(sequence=4)),
    (ONE, Shape(masks=("document", "causal"), positions="position")),
    (Layout("ring", "keys", "striped", lanes=3, recompute="full"), Shape(positions="position")),
    (Layout("burst", "queries", "zigzag", nodes=2, lanes=2, recompute="tail(0.5)"), Shape(part=NORM, masks=("document", "full"), positions="position")),
    (Layout("ring", "keys", "contiguous", 2, 2, 4, tensor=2), Shape(masks=("document", "causal"), positions="position")),
    (Layout("ring", "keys", "zigzag", lanes=4, token_chunks=3), Shape(masks=("document", "causal"), positions="position")),
    (Layout("ulysses", "keys", "striped", lanes=4, token_chunks=2, queries="attention"), Shape(kv_heads=4, positions="position")),
    (Layout("ring", "keys", "zigzag", lanes=2, loss="tile 16"), Shape()),
    (Layout("ring", "keys", "contiguous", lanes=2, tensor=2), Shape()),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="full"), Shape(masks=("document", "causal"), tied="yes")),
    (Layout("ring", "queries", "striped", 2, 2, 4, "selective", "zero2", 3, tensor=2), Shape(part=BIAS)),
    (Layout("burst", "queries", "zigzag", nodes=2, lanes=4, tensor=2, weights="zero1"), Shape(part=NORM)),
    (Layout("ulysses", "keys", "contiguous", lanes=4, tensor=2), Shape(kv_heads=4, masks=("window(17)", "document"))),
    (Layout("ring", "keys", "contiguous", lanes=4, tensor=4, recompute="save(o, lse, gate_up(1))"), Shape(kv_heads=4, sinks=True)),
    (Layout("ring", "keys", "contiguous", 2, 2, 3, tensor=3, weights="zero3 within node"), Shape(heads=6, kv_heads=3, part=NORM, sinks=True, ffn=42)),
    (Layout("burst", "keys", "striped", 2, 2, 4, tensor=2, weights="zero2 within node", placement="node, data"), Shape(masks=("full", "document"))),
    (Layout("ring", "keys", "contiguous", lanes=6, tensor=2, shares="5, 1, 2", chunks=3), Shape(tied="yes", masks=("document", "causal"))),
    (Layout("ring", "keys", "contiguous", lanes=4, tensor=4), Shape(part=BIAS)),
    (Layout("ring", "keys", "zigzag", 2, 2, 4, "full", "zero2", tensor=4), Shape(part=NORM, sinks=True, masks=("document", "causal"))),
    (Layout("ulysses", "keys", "contiguous", nodes=2, lanes=4, tensor=4, weights="zero1 within 4", chunks=3, recompute="selective"), Shape(kv_heads=1)),
    (Layout("ring", "keys", "contiguous", lanes=4, tensor=2, recompute="tail(0.5)"), Shape(masks=("document", "causal"))),
    (Layout("burst", "keys", "zigzag", 2, 2, 4, "tail(0.9)", "zero2", tensor=4), Shape(part=NORM, sinks=True)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, chunks=3, offload="activations, optimizer", update="device"), Shape(part=NORM, masks=("document", "causal", "full"))),
    (Layout("ring", "queries", "striped", 2, 2, 4, "selective", "zero1", 3, tensor=4, offload="activations(o, lse, x)"), Shape(sinks=True)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="full", head_chunks=2), Shape(kv_heads=4, part=BIAS, masks=("document", "causal"))),
    (Layout("ulysses", "keys", "contiguous", 2, 2, 4, "selective", "zero2", 3, tensor=2, offload="activations", head_chunks=2), Shape(kv_heads=4, sinks=True)),
    (Layout("burst", "queries", "striped", nodes=2, lanes=4, tensor=2, recompute="full", weights="zero1", token_chunks=3, head_chunks=2),
     Shape(kv_heads=4, part=NORM)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="selective"), Shape(part=WHOLE)),
    (Layout("ring", "keys", "contiguous", lanes=2, tensor=2), Shape(part=WHOLE, masks=("document", "causal"))),
    (Layout("ring", "queries", "striped", 2, 2, 4, "selective", "zero2", 3, tensor=2, overlap="no"), Shape(part=WHOLE, sinks=True)),
    (Layout("ulysses", "keys", "zigzag", lanes=4, tensor=2, recompute="full"), Shape(kv_heads=4, part=WHOLE, tied="yes", masks=("window(17)", "document"))),
    (Layout("ring", "keys", "zigzag", 2, 2, 4, "tail(0.5)", "zero1", tensor=4), Shape(kv_heads=2, part=WHOLE)),  # twice the key heads
    (Layout("ring", "keys", "contiguous", 2, 2, 3, "save(q_raw(1), rstd_k, q, k)", tensor=3), Shape(heads=6, kv_heads=1, part=WHOLE, ffn=42)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="selective", token_chunks=3, offload="activations"), Shape(part=WHOLE, masks=("full", "document"))),
    (Layout("ring", "keys", "contiguous", lanes=6, tensor=2, shares="5, 1, 2", chunks=3), Shape(part=WHOLE, masks=("document", "causal"))),
    (Layout("ring", "keys", "zigzag", lanes=2, chunks=3, offload="activations"), Shape(part=NORM, masks=("document", "causal", "full"))),
    (Layout("burst", "queries", "striped", 2, 2, recompute="selective", weights="zero1", offload="activations(o, lse)"),
     Shape(sinks=True, masks=("causal", "window(17)", "causal", "full"))),
    (ONE._replace(head_chunks=2), Shape(masks=("document", "causal"))),
    (ONE._replace(head_chunks=4, recompute="full"), Shape(kv_heads=4, part=NORM, sinks=True)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="selective", weights="zero2", chunks=3, head_chunks=2), Shape(part=BIAS, tied="yes")),
    (Layout("burst", "queries", "striped", 2, 2, recompute="full", weights="zero1", head_chunks=4), Shape(kv_heads=8, sinks=True)),
    (Layout("ulysses", "keys", "contiguous", lanes=4, recompute="full", head_chunks=2), Shape(kv_heads=2, masks=("window(17)", "document"))),
    (Layout("ring", "keys", "striped", lanes=3, shares="5, 1, 2", offload="activations(o, lse)", recompute="selective", head_chunks=3),
     Shape(heads=6, kv_heads=3, masks=("causal", "document", "full"))),
    (Layout("burst", "keys", "zigzag", nodes=2, lanes=2, recompute="save(x_mid, q_raw, v(1))", head_chunks=2), Shape(part=NORM)),
    (ONE._replace(head_chunks=3, recompute="full"), Shape(heads=16, kv_heads=8, part=NORM, sinks=True)),  # 3, 3 and 2 key heads
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="selective", weights="zero2", chunks=3, head_chunks=3), Shape(heads=10, kv_heads=5, part=BIAS, tied="yes")),
    (Layout("burst", "queries", "striped", 2, 2, recompute="full", weights="zero1", head_chunks=5), Shape(kv_heads=8, sinks=True)),
    (Layout("ulysses", "keys", "contiguous", lanes=4, recompute="full", head_chunks=3), Shape(heads=16, kv_heads=8, masks=("window(17)", "document"))),
    (Layout("ulysses", "keys", "zigzag", lanes=2, recompute="selective", head_chunks=2), Shape(heads=12, kv_heads=3, sinks=True)),  # ranks share a key head of the last chunk alone
    (Layout("usp", "queries", "striped", lanes=4, mesh=(2, 2), offload="activations", recompute="selective", head_chunks=2), Shape(heads=9, kv_heads=3, part=NORM)),
    (Layout("ring", "keys", "striped", lanes=3, shares="5, 1, 2", offload="activations(o, lse)", recompute="selective", head_chunks=2),
     Shape(heads=6, kv_heads=3, masks=("causal", "document", "full"))),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="full", weights="zero2", head_chunks=2), Shape(heads=12, kv_heads=6, part=BIAS, sinks=True)),
    (Layout("bidirectional", "keys", "zigzag", lanes=4, head_chunks=2), Shape(heads=6, kv_heads=3, part=NORM)),
    (Layout("near for window(17), ring", "keys for window(17), queries", "contiguous", lanes=4), Shape(masks=ALTERNATING)),
    (Layout("burst for causal, near for document, biring", "queries for window(17), keys", "zigzag", 2, 2, recompute="full", weights="zero1", chunks=3),
     Shape(masks=("causal", "document", "window(17)", "document"), sinks=True)),
    (Layout("ring", "queries for causal, keys for window(17)", "striped", lanes=3, recompute="tail(0.5)"), Shape(masks=ALTERNATING, part=NORM)),
    (Layout("gather for causal, near", "keys", "contiguous", 2, 2, 2, "selective", head_chunks=2, placement="data"), Shape(masks=ALTERNATING)),
    (ONE._replace(token_chunks=3), Shape(masks=("document", "causal"))),
    (ONE._replace(token_chunks=8, recompute="selective", offload="activations"), Shape(part=NORM, tied="yes", sinks=True)),
    (Layout("ring", "keys", "striped", lanes=3, shares="9, 1, 2", recompute="full", token_chunks=5), Shape(part=BIAS, masks=("document", "window(17)"))),
    (Layout("ring", "queries", "contiguous", lanes=4, recompute="tail(0.5)", weights="zero1", token_chunks=2), Shape()),
    (Layout("burst", "queries", "zigzag", 2, 2, 2, recompute="save(o, lse, x_mid(1), gate_up(1))", token_chunks=3, head_chunks=2), Shape(part=NORM)),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="selective", token_chunks=3), Shape(part=BIAS, masks=("full", "document"))),
    (ONE._replace(token_chunks=3, queries="attention", recompute="full"), Shape(part=BIAS, masks=("document", "causal"), sinks=True)),
    (ONE._replace(token_chunks=8, queries="attention", offload="activations"), Shape(part=NORM, tied="yes")),
    (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="full", token_chunks=3, queries="attention"), Shape(part=BIAS, masks=("document", "causal"), sinks=True)),
    (Layout("ulysses", "keys", "striped", 2, 2, 4, "selective", "zero2", tensor=2, token_chunks=2, queries="attention", offload="activations", fetch="chunks"),
     Shape(kv_heads=4, part=WHOLE, masks=("full", "document"))),
    (Layout("ring", "keys", "contiguous", lanes=4, tensor=2, recompute="save(o, lse, x_mid(1))", token_chunks=3, queries="keys", offload="optimizer", update="device"),
     Shape(kv_heads=4, part=NORM, tied="yes", masks=("document", "causal", "window(17)"))),
    (ONE._replace(token_chunks=3, queries="keys", recompute="full"), Shape(part=BIAS, masks=("document", "causal"), sinks=True)),
    (Layout("ring", "keys", "striped", lanes=3, shares="9, 1, 2", recompute="selective", token_chunks=5, queries="keys", offload="activations", fetch="chunks"),
     Shape(part=NORM, masks=("document", "window(17)"), softcap=5)),
    (Layout("ring", "keys", "zigzag", lanes=2, recompute="save(q, k, x_mid(1))", token_chunks=3, queries="keys"), Shape(masks=("document", "causal", "full"))),
    (Layout("ulysses", "keys", "zigzag", 2, 2, 4, recompute="none", token_chunks=2, queries="keys", offload="optimizer", update="device"), Shape(kv_heads=1, tied="yes")),
    (Layout("usp", "keys", "zigzag", nodes=2, lanes=4, mesh=(4, 2), recompute="save(x_mid, k(1), lse)", weights="zero1", token_chunks=3, queries="keys"),
     Shape(masks=("document", "causal", "full"), part=NORM, sinks=True)),
    (Layout("ring", "keys", "striped", lanes=3, shares="9, 1, 2", recompute="selective", token_chunks=5, queries="attention"),
     Shape(part=NORM, masks=("document", "window(17)"), softcap=5)),
    (Layout("near", "keys", "contiguous", 2, 4, 2, recompute="save(q, o, lse, x_mid(1))", token_chunks=2, queries="attention", offload="optimizer", update="device"), Shape(sinks=True)),
    (Layout("ring", "keys", "striped", lanes=3, shares="9, 1, 2", recompute="selective", token_chunks=5, queries="attention", offload="activations", fetch="chunks"),
     Shape(part=NORM, masks=("document", "window(17)"), tied="yes")),
    *((layout, Shape(kv_heads=4, masks=DOCUMENT, experts=scans, documents=documents)) for scans, documents, layout in (
        (BESIDE, "1,2,3,31", ONE), (BESIDE, "61", Layout("ring", "keys", "zigzag", lanes=4, recompute="full(2)")),
        (BESIDE_NORM, "15,15", Layout("ring", "keys", "contiguous", lanes=2, recompute="selective", token_chunks=3)),
        (BESIDE_NORM, "", Layout("ulysses", "keys", "zigzag", lanes=2, recompute="full")),
        (BESIDE, "2,57,1", Layout("ring", "keys", "zigzag", lanes=4, tensor=2, offload="activations")))),
]
HYBRID = [Layout("ring", "keys", "zigzag", nodes=2, weights="zero3 within node"),
          Layout("ring", "keys", "zigzag", nodes=2, lanes=2, weights="zero3 within node"),
          Layout("ring", "queries", "striped", 2, 2, 2, weights="zero2 within node", recompute="full"),
          Layout("burst", "keys", "zigzag", nodes=2, lanes=4, weights="zero1 within 2", chunks=3),
          Layout("ulysses", "keys", "contiguous", 2, 4, 2, weights="zero3 within 4"),
          Layout("ring", "keys", "zigzag", nodes=2, lanes=2, weights="zero3_no_sync within node"),
          Layout("ring", "keys", "zigzag", 2, 4, 2, weights="zero2 within 1")]
HEADS = [ONE._replace(head_chunks=2), Layout("ring", "keys", "zigzag", lanes=2, recompute="full", head_chunks=2),
         Layout("ulysses", "keys", "contiguous", lanes=4, recompute="selective", head_chunks=2),
         Layout("burst", "queries", "striped", nodes=2, lanes=2, recompute="full", chunks=3, offload="activations", head_chunks=2)]
UNEVEN = [ONE._replace(head_chunks=3, recompute="full"), Layout("ring", "keys", "zigzag", lanes=2, recompute="selective", head_chunks=2),
          Layout("ulysses", "keys", "contiguous", lanes=4, recompute="full", offload="activations", head_chunks=2),
          Layout("usp", "keys", "zigzag", lanes=4, mesh=(2, 2), recompute="save(o, lse, x_mid(1))", token_chunks=3, head_chunks=3)]
CHUNKED = [ONE, Layout("ring", "keys", "zigzag", lanes=2), Layout("ring", "queries", "striped", lanes=4), Layout("ring", "keys", "zigzag", lanes=8),
           Layout("ulysses", "keys", "contiguous", lanes=2), Layout("ulysses", "keys", "zigzag", lanes=4), Layout("ulysses", "keys", "striped", lanes=8),
           Layout("usp", "keys", "zigzag", lanes=4, mesh=(2, 2)), Layout("usp", "queries", "contiguous", lanes=8, mesh=(2, 4))]
ROUNDED = [(ONE, "no"), (ONE._replace(recompute="full", chunks=3), "yes"), (Layout("ring", "keys", "zigzag", lanes=2), "no"),
           (Layout("ring", "queries", "striped", lanes=4, weights="zero2", recompute="selective"), "yes"),
           (Layout("burst", "keys", "zigzag", 2, 2, 4, weights="zero1"), "yes"), (Layout("ring", "keys", "zigzag", 2, 2, 2, weights="zero3_no_sync"), "no"),
           (Layout("ring", "keys", "zigzag", lanes=4, tensor=2), "yes"), (Layout("ring", "queries", "contiguous", 2, 2, 4, "full", "zero2", tensor=4), "no"),
           (Layout("ring", "keys", "zigzag", nodes=2, lanes=2, weights="zero3 within node"), "yes"),
           (Layout("ulysses", "keys", "striped", lanes=4, weights="zero1 within 1"), "no"), (ONE._replace(offload="optimizer"), "yes"),
           (Layout("burst", "keys", "zigzag", nodes=2, lanes=4, tensor=2, weights="zero2 within node", offload="activations, optimizer", update="device"), "no")]
ROUNDED_LOSS = 1e-3  # relative, bf16 gradients against fp32's in the first steps
TENSOR = [Layout("ring", "keys", "contiguous", lanes=2, tensor=2),
          Layout("ring", "keys", "zigzag", 2, 2, 4, "full", tensor=2),
          Layout("burst", "queries", "zigzag", nodes=2, lanes=4, weights="zero1", chunks=3, tensor=2),
          Layout("ulysses", "keys", "contiguous", lanes=4, weights="zero2 within 2", recompute="selective", tensor=2),
          Layout("ring", "keys", "zigzag", 2, 2, 4, weights="zero2", tensor=4)]  # twice the key heads
KINDS = Shape(vocab=256, masks=("causal", "document", "causal"), experts=EXPERTS + " ffn layers 1: swiglu 40;")
EIGHT_BIASED = "moe { experts 8; top 2; ffn swiglu 24; normalize yes; router_bias yes; bias yes; alpha 1.702; offset 1; limit 7; } ffn layers 1: swiglu 40;"
MUON = [ONE, *(Layout("ring", "keys", "zigzag", lanes=2, weights=w) for w in ("zero1", "zero2", "zero3", "zero3_no_sync")),
        Layout("ring", "keys", "zigzag", lanes=2, weights="zero1 within 1"), Layout("ring", "queries", "striped", lanes=3, recompute="full"),
        Layout("burst", "keys", "zigzag", 2, 2, 2), Layout("ring", "keys", "zigzag", 2, 2, 2, weights="zero3 within node"),
        Layout("ulysses", "keys", "contiguous", lanes=4, weights="zero2", offload="activations"),
        Layout("ring", "keys", "contiguous", lanes=2, tensor=2), Layout("ring", "keys", "zigzag", lanes=4, weights="zero1", tensor=2),
        Layout("ring", "keys", "zigzag", 2, 2, 4, weights="zero2", tensor=4), Layout("ring", "keys", "zigzag", nodes=2, lanes=2, weights="zero3 within 2", tensor=2)]
MUON_SHAPES = [(MUON[0], Shape(vocab=256, kv_heads=8, ffn=17, part=BIAS, masks=("causal", "document", "full"))),
               (MUON[10], Shape(vocab=256, heads=2, kv_heads=2, ffn=18, tied="yes", part=NORM, masks=("causal",))),
               (MUON[6], Shape(vocab=256, heads=6, kv_heads=1, ffn=7, tied="yes", masks=("window(17)", "document", "causal", "full"))),
               (MUON[4], KINDS),
               *((layout._replace(groups=groups), KINDS._replace(kv_heads=4, experts=experts)) for layout, groups, experts in (
                   (MUON[3], 5, KINDS.experts), (MUON[13], 4, EIGHT_BIASED), (MUON[10], 2, EIGHT_BIASED), (MUON[5], 8, EIGHT_BIASED)))]
SCHEDULED = [Layout("usp", "keys", "zigzag", lanes=4, mesh=(2, 2)), Layout("usp", "queries", "striped", nodes=2, lanes=2, mesh=(2, 2)),
             Layout("double_ring", "keys", "zigzag", lanes=4, mesh=(2, 2)), Layout("double_ring", "queries", "contiguous", lanes=4, mesh=(2, 2)),
             Layout("gather", "keys", "zigzag", lanes=4), Layout("near", "keys", "contiguous", lanes=4), Layout("near", "queries", "zigzag", lanes=4),
             Layout("biring", "keys", "striped", lanes=4), Layout("biring", "queries", "zigzag", lanes=4),
             Layout("bidirectional", "keys", "zigzag", lanes=4), Layout("halo", "keys", "contiguous", lanes=4),
             Layout("doubling", "keys", "zigzag", lanes=4), Layout("mesh", "keys", "zigzag", lanes=4, mesh=(2, 2)),
             Layout("stride", "queries", "zigzag", lanes=4, mesh=(2, 2)), Layout("three_level", "keys", "striped", lanes=8, mesh=(2, 2, 2)),
             Layout("ring", "keys", "zigzag", lanes=4, tensor=2)]
DOCUMENTS = Shape(vocab=256, masks=("document", "window(17)", "causal"), sequence=512)
BALANCED = [Layout("ring", "keys", "balanced(64)", lanes=2), Layout("ring", "queries", "balanced(64)", lanes=4),
            Layout("near", "keys", "balanced(128)", lanes=4), Layout("gather", "keys", "balanced(64)", lanes=8),
            Layout("burst", "keys", "balanced(64)", nodes=2, lanes=4, recompute="selective"),
            Layout("usp", "keys", "balanced(64)", lanes=4, mesh=(2, 2)), Layout("halo", "keys", "balanced(64)", lanes=4),
            Layout("ring", "keys", "balanced(64)", 2, 2, 2), Layout("ring", "keys", "balanced(64)", lanes=4, tensor=2),
            Layout("ring", "keys", "balanced(64)", lanes=2, token_chunks=4, queries="keys", offload="activations")]
RECURRENT = DOCUMENTS._replace(masks=DOCUMENT, experts=SCANS) # runs of tiles of each batch are its pieces
# groups of several sequences each, which they share out by work
SHARED = [Layout("ring", "keys", "balanced(64)", 2, 2, 2), Layout("ring", "keys", "zigzag", 4, 2, 4),
          Layout("ring", "keys", "contiguous", 2, 1, 2)]
LAYERED = [Layout("near for window(17), ring", "keys for window(17), queries", "contiguous", lanes=2),
           Layout("near for window(17), ring", "queries for window(17), keys", "contiguous", lanes=4),
           Layout("near for window(17), burst", "keys", "zigzag", nodes=2, lanes=2, recompute="full", offload="activations")]
CURVES = [ONE, Layout("ring", "queries", "zigzag", lanes=3, recompute="full"), TENSOR[1], Layout("burst", "keys", "striped", 2, 2, 4)]
RECOMPUTED = [ONE, Layout("ring", "keys", "striped", lanes=3), Layout("burst", "queries", "zigzag", nodes=2, lanes=2),
              Layout("ulysses", "keys", "contiguous", lanes=4)]
LAYERED_TEXT = Shape(vocab=256, masks=ALTERNATING)
DEEP = Shape(vocab=256, masks=("causal", "document", "window(17)", "causal"))
OFFLOADED = [ONE, Layout("ring", "keys", "striped", lanes=2), Layout("ulysses", "keys", "contiguous", lanes=4),
             Layout("burst", "queries", "zigzag", nodes=2, lanes=4, chunks=2)]
FETCHED = [ONE._replace(token_chunks=3, queries="attention"), Layout("ring", "keys", "striped", lanes=2, token_chunks=5, queries="attention"),
           Layout("ulysses", "keys", "contiguous", nodes=2, lanes=2, token_chunks=2, queries="attention"), Layout("near", "keys", "contiguous", nodes=2, lanes=4, token_chunks=4, queries="attention")]
UPDATED = [Layout("ring", "keys", "zigzag", data=2, lanes=2, weights="zero1"), Layout("ring", "queries", "striped", lanes=2, weights="zero2", recompute="full"),
           Layout("burst", "keys", "zigzag", 2, 2, 2, weights="zero3 within node"), Layout("ring", "keys", "zigzag", lanes=2, weights="zero2 within 1"),
           Layout("ring", "keys", "zigzag", lanes=4, tensor=2, weights="zero1 within 2", gradients="bf16")]
SAVED = ["none", "ffn", "selective", "full", "save(o, lse, gate_up(1))", "tail(0.5)", "auto"]
AGAIN = ["selective", "full"]
TAILED = [ONE, Layout("ring", "keys", "zigzag", lanes=2), Layout("ring", "queries", "contiguous", lanes=4),
          Layout("ring", "keys", "striped", lanes=3, shares="9, 1, 2"), Layout("burst", "queries", "zigzag", nodes=2, lanes=2),
          Layout("ring", "keys", "blocks(8)", nodes=2, lanes=2, data=2)]
TAILS = ["tail(0.25)", "tail(0.5)", "tail(0.9)"]
TILES = [16, 48, 1000]
SHARDED = ["zero3", "zero2", "zero1", "zero3_no_sync", "zero3 within node"]
CHUNKS = [1, 3]
TOKEN_CHUNKS = [1, 2, 3, 8]
UPPER = "save(o(1), lse(1))"  # of four layers those from the second on
COPIED = {"selective": {"x": 3, "o": 3, "lse": 3}, "full": {"x": 3}, "full(2)": {"x": 1}, UPPER: {"x": 3, "o": 2, "lse": 2}}  # layers of which a sequence stages it
KEYED_MASKS = {"causal": lambda q, k: k <= q, "window(17)": lambda q, k: q - 17 < k <= q, "full": lambda q, k: True, "block_local(20)": lambda q, k: q // 20 == k // 20}
COPIED_KEYS = {"none": (1, 1), "selective": (1, 2), "full": (2, 2)}  # how often a layer attends forward, and makes its keys
QUERIED = [ONE, Layout("ring", "keys", "zigzag", lanes=2), Layout("near", "keys", "contiguous", lanes=4), Layout("ring", "keys", "striped", lanes=8),
           Layout("ulysses", "keys", "contiguous", lanes=2), Layout("ulysses", "keys", "zigzag", lanes=4), Layout("ulysses", "keys", "striped", lanes=8),
           Layout("usp", "keys", "zigzag", lanes=4, mesh=(2, 2)), Layout("usp", "keys", "contiguous", lanes=8, mesh=(2, 4)),
           Layout("usp", "keys", "striped", nodes=2, lanes=4, mesh=(4, 2)), Layout("bidirectional", "keys", "zigzag", lanes=4),
           Layout("halo", "keys", "contiguous", lanes=4), Layout("biring", "keys", "striped", lanes=4)]
EMPTY = [Layout("ring", "keys", "contiguous", lanes=8, weights=w, shares="1, 200, 200, 500, 500, 1, 500, 500", token_chunks=2, queries=q)
         for w, q in (("zero1", ""), ("zero3", ""), ("zero3", "keys"))]  # ranks without a token, of which there is no chunk
GROUPED = [ONE._replace(token_chunks=3, queries="keys", offload="activations", recompute="full(3)"),
           Layout("ulysses", "keys", "zigzag", lanes=4, token_chunks=5, queries="attention", weights="zero2", recompute="full(2)"),
           Layout("ring", "keys", "zigzag", lanes=4, tensor=2, weights="zero1", offload="activations, optimizer", recompute="full(2)")]
KEYED = [w for w in QUERIED if w.schedule not in ("bidirectional", "halo")]  # these have pieces of keys
SAMPLE = 11
EIGHT = "moe { experts 8; top 2; ffn swiglu 24; normalize yes; }"
GROUPED_PARTS = [("", EIGHT.replace("normalize", "shared 16; normalize")), ("norms both;", EIGHT.replace("normalize", "bias yes; balance 0.01; normalize")),
                 ("norms after; residual_scale 0.5;", EIGHT.replace("normalize", "correction 0.01; normalize"))]
GROUPED_EXPERTS = [ONE._replace(groups=2), ONE._replace(groups=4, chunks=3, recompute="selective"), Layout("ring", "keys", "zigzag", lanes=2, groups=8),
                   Layout("ring", "keys", "zigzag", lanes=4, token_chunks=3, recompute="full", groups=2),
                   Layout("burst", "keys", "zigzag", 2, 2, 2, weights="zero2", groups=4), Layout("ring", "keys", "zigzag", 2, 2, 2, weights="zero1 within 2", groups=2),
                   Layout("ring", "keys", "zigzag", lanes=2, offload="activations, optimizer", groups=4),
                   Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, queries="attention", recompute="selective", groups=8)]
PARALLEL = ("parallel yes;", EIGHT.replace("normalize", "bias yes; shared 16; normalize"))  # one gradient of what both parts read
WORDS = Shape(vocab=(8 << 20) // 200)  # 200 tokens of the loss at once
TEXT = Shape(vocab=256, masks=("causal", "document"))  # bytes; a full stop ends a document
MASKS = Shape(vocab=256, kv_heads=8, masks=("causal", "window(17)", "document", "bigbird(8, 1, 2, 4)"))
TAIL_STEPS, TAIL_TEXT = 10, Shape(vocab=256, masks=("causal", "document", "window(150)"), sequence=533)  # several tiles a rank
SCARCE_TEXT = Shape(vocab=256, masks=("causal", "document", "window(150)"), sequence=1601)  # activations beside a megabyte, the least device
TRAIN = """train {{ data "{data}"; separator 46; steps {steps}; batch {batch}; seed 3;
  optimizer adamw {{ lr 5e-3; betas 0.9 0.95; decay 0.1; clip 0.7; warmup 8; cosine to 5e-4; }} }}
"""


def model_text(layout, shape, train=""):
    lines = ['import "masks";',
             f"model test {{ layers {len(shape.masks)}; hidden 24; heads {shape.heads}; kv_heads {shape.kv_heads}; "
             f"head_dim 8; {shape.experts or f'ffn swiglu {shape.ffn};'} norm rmsnorm 1e-5; rope 10000; vocab {shape.vocab}; tied {shape.tied}; {shape.part} }}",
             f"attention {{ default {shape.masks[0]};", *([f"  softcap {shape.softcap};"] if shape.softcap else []),
             *(["  sinks learned;"] if shape.sinks else []),
             *([f"  positions {shape.positions};"] if shape.positions else [])]
    lines += [f"  layers {i}: {mask};" for i, mask in enumerate(shape.masks) if i > 0]
    lines += ["}", f"sequence {shape.sequence};", layout.text()]
    return "\n".join(lines) + train


def write_text(path, words=9000):
    """Sentences of a small vocabulary, which a small model can learn something of."""
    rng = random.Random(5)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    known = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(120)]
    text = " ".join(rng.choice(known[: rng.randint(5, 120)]) + rng.choice(["", "", "", "", "."]) for _ in range(words))
    path.write_text(text)


class Training:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.tools = emitted.Toolchain(args.toolchain)
        self.environment = emitted.quiet_environment()
        self.data = self.folder / "text.txt"
        write_text(self.data)
        self.built = {}

    def build(self, name, layout, shape, train="", objects=()):
        return self.tools.link(self.tools.emit(self.folder, name, layout.topology(), model_text(layout, shape, train)), objects)

    def source(self, layout, steps, shape, batch=2):
        train = TRAIN.format(data=self.data, steps=steps, batch=batch)
        name = f"train{steps}_{batch}_{layout.name()}" + (f"_{shape.sequence}_{len(shape.masks)}" if shape else "")
        return self.tools.emit(self.folder, name, layout.topology(), model_text(layout, shape or TEXT, train))

    def program(self, layout, steps=STEPS, shape=None, batch=2):
        """The whole program of a layout, for training on the text."""
        key = layout, steps, shape, batch
        if key not in self.built:
            self.built[key] = self.tools.link(self.source(*key))
        return self.built[key]

    def read_metrics(self, path):
        lines = path.read_text().splitlines() if path.exists() else []
        return {row["step"]: row for row in map(json.loads, lines)}

    def train(self, program, *options, launcher=()):
        """Runs to the end; {step: metrics}."""
        metrics = program.with_suffix(".jsonl")
        metrics.unlink(missing_ok=True)
        environment = dict(self.environment, ASAN_OPTIONS="detect_leaks=0") if launcher else self.environment  # MPI leaks
        run([*launcher, program, "--quiet", "--metrics", metrics, *options], 120, environment)
        return self.read_metrics(metrics)

    # ---- parts ----

    def today(self, cases):
        """A third of the cases, another each day: what takes long is compiling their programs."""
        return runner.of_the_day(list(cases), self.args.all, 3)

    def gradients(self):
        worst_loss, worst, cases = 0.0, 0.0, self.today(enumerate(GRADIENTS))
        for number, (layout, shape) in cases:
            turns = f"train {{ batch {2 * layout.data}; }}\n"  # TURNS of gradients.c
            program = self.build(f"gradients{number}_{layout.name()}", layout, shape, turns, objects=self.args.gradients)
            documents = ["--documents", shape.documents] * bool(shape.documents)
            done = run([program, *documents, *shape.masks], 60, self.environment, check=False)
            match = re.match(r"loss (\S+) worst (\S+) (\S+)", done.stdout)
            require(match and done.returncode == 0, f"{layout} {shape}\n{done.stdout}{done.stderr}")
            print(f"{layout.name()}: loss {match[1]}, worst gradient {match[2]} ({match[3]})")
            worst_loss, worst = max(worst_loss, float(match[1])), max(worst, float(match[2]))
            if number == cases[0][0]:
                spoiled = run([program, "--spoil", *shape.masks], 60, self.environment, check=False)
                require(spoiled.returncode == 1, f"a wrong label goes unnoticed\n{spoiled.stdout}{spoiled.stderr}")
        print(f"{len(cases)} layouts: worst relative error of a loss {worst_loss:.2e}, of a weight's gradient {worst:.2e}")

    def curve(self):
        for layout in CURVES:
            train = TRAIN.format(data=self.data, steps=NEAR_STEPS, batch=2)
            program = self.build(f"curve_{layout.name()}", layout, TEXT, train, self.args.curve)
            done = run([program, NEAR_STEPS, self.data, *TEXT.masks], 120, self.environment, check=False)
            require(done.returncode == 0, f"{layout}\n{done.stdout}{done.stderr}")
            print(f"{layout.name()}: {done.stdout.strip()}")

    def recompute(self):
        """What is computed again is computed from the same numbers in the same order."""
        for layout, again, steps, shape in self.today([(layout, AGAIN, NEAR_STEPS, None) for layout in RECOMPUTED] +
                                                      [(layout, TAILS, TAIL_STEPS, TAIL_TEXT) for layout in TAILED]):
            runs = [self.train(self.program(layout._replace(recompute=r), steps, shape)) for r in ("none", *again)]
            rows = [[(run[s]["loss"], run[s]["norm"]) for s in sorted(run)] for run in runs]
            require(len(rows[0]) == steps and len(set(rows[0])) == steps, f"{layout}: {len(rows[0])} lines of metrics")
            require(all(row == rows[0] for row in rows), f"{layout}: losses or norms depend on recomputation\n{rows}")
            print(f"{layout.name()}: {steps} losses and norms are the same bits with {', '.join(again)}")

    def needs(self, layout, shape=SCARCE_TEXT):
        """Bytes that a rank needs, as the compiler counts them."""
        source = self.tools.emit(self.folder, f"needs_{layout.name()}", layout.topology(), model_text(layout, shape, "train { batch 2; }\n"))
        texts = [source.with_suffix(suffix) for suffix in (".topo", ".burst")]
        text = run([self.tools.burstc, *texts, "--emit=memory"], 60).stdout
        number, unit = re.search(r"a rank needs ([0-9.]+) (\w+)", text).groups()
        return float(number) * {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]

    def scarce(self, layout):
        """On devices that hold more than what `full` saves, and less than what `none` does."""
        most, least = (self.needs(layout._replace(recompute=r)) for r in ("none", "full"))
        return layout._replace(memory=int((most + least) / 2))

    def memory(self):
        """A batch of two sequences: on two groups one each, else both one after the other. A sample has every rule and sharding."""
        worlds = [ONE, *(w._replace(data=1) for w in WORLDS[1:4]), WORLDS[4]]
        layouts = [w._replace(recompute=r, weights=s, chunks=c) for w in worlds for r in SAVED for s in SHARDED for c in CHUNKS]
        if not self.args.all:
            layouts = [worlds[2 * i // 5 % 5]._replace(recompute=SAVED[i % 7], weights=SHARDED[i % 5], chunks=CHUNKS[i % 2]) for i in range(SAMPLE)]
        one = {shape: self.train(self.program(ONE, NEAR_STEPS, shape)) for shape in (None, SCARCE_TEXT)}
        for layout in layouts:
            shape = SCARCE_TEXT if layout.recompute == "auto" else None
            program = self.program(self.scarce(layout._replace(offload="none")) if shape else layout, NEAR_STEPS, shape)
            require(not shape or "recompute none;" not in program.with_suffix(".c").read_text(), f"{layout}: all is saved")
            is_, right = self.train(program), one[shape]
            apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in right)
            print(f"{layout.name()}: losses differ by {apart:.2e} in {len(is_)} steps", flush=True)
            require(len(is_) == NEAR_STEPS and apart <= NEAR, f"{layout}: losses part from those of one rank that saves all")

    def tiles(self):
        """Of the loss: losses of each size, and the first that fits a device that has too little for those that suit the vocabulary."""
        self.agree([ONE._replace(loss=f"tile {n}") for n in TILES] + [Layout("ring", "keys", "zigzag", lanes=2, loss="tile 16")])
        needs = [self.needs(ONE._replace(loss=f"tile {n}"), WORDS) for n in (200, 100, 50)]
        require(abs(needs[0] - needs[1] - 100 * WORDS.vocab * 4) < 1e5, f"a rank needs {needs} bytes")
        found = ONE._replace(loss="tile auto", offload="none", memory=int(needs[1] + 1e5))
        text = self.tools.emit(self.folder, "tile", found.topology(), model_text(found, WORDS)).read_text()
        require("loss tile 100;" in text, "auto does not take the first tile that fits")

    def agree(self, layouts, steps=NEAR_STEPS, norms=NEAR, shape=None, batch=2):
        right = self.train(self.program(ONE, steps, shape, batch))
        for layout in layouts:
            is_ = self.train(self.program(layout, steps, shape, batch))
            apart = {key: max(abs(is_[s][key] / right[s][key] - 1) for s in right) for key in ("loss", "norm")}
            print(f"{layout.name()}: losses differ by {apart['loss']:.2e}, norms by {apart['norm']:.2e} in {len(is_)} steps", flush=True)
            require(len(is_) == steps and apart["loss"] <= NEAR and apart["norm"] <= norms, f"{layout}: parts from one rank")

    def cut(self, layout, folder, others):
        """A killed rank; the same layout goes on with the same losses, others go on with its checkpoints."""
        steps = 45
        right = self.train(self.program(layout, 2000), "--steps", str(steps))
        code, text, _ = self.strike(self.program(layout, 2000), 1, signal.SIGKILL, 25, "--checkpoint", folder, "--every", "10")
        require(code == 1, f"a lost rank ends the program with {code}\n{text}")
        self.resumed(layout, folder, right, steps, 0)
        for other in others:
            self.resumed(other, folder, right, steps, NEAR)

    def hybrid(self):
        self.agree(HYBRID)
        self.cut(HYBRID[1], self.folder / "hybrid", (ONE, HYBRID[1]._replace(weights="zero3"), HYBRID[3]))

    def heads(self):
        self.agree(HEADS)
        self.agree(UNEVEN, shape=TEXT._replace(heads=20, kv_heads=5))

    def tokens(self):
        """Chunks of the tokens, with every rule that changes what there is beside them; a sample has each of their numbers."""
        layouts = [w._replace(token_chunks=c, offload=o, recompute=r) for w in CHUNKED for c in TOKEN_CHUNKS
                   for o in ("none", "activations") for r in ("none", *AGAIN)]
        layouts += [w._replace(token_chunks=c, queries="attention", offload=o, recompute=r) for w in QUERIED for c in TOKEN_CHUNKS
                    for o in ("none", "activations") for r in ("none", "full", "selective")]
        layouts += [w._replace(token_chunks=c, queries="keys", offload=o, recompute=r) for w in KEYED for c in TOKEN_CHUNKS[1:]
                    for o in ("none", "activations") for r in ("none", "full", "selective")]
        layouts += [w._replace(token_chunks=c, queries=q, offload="activations", recompute=UPPER) for w in QUERIED[:4] for c in (1, 3) for q in ("", "attention", "keys")]
        if not self.args.all:
            layouts = layouts[5 :: 31]
        self.agree(self.today(layouts) + EMPTY + GROUPED, shape=MASKS)
        for world in (ONE, QUERIED[2]):
            for rule in COPIED:
                for queries in ("", "attention"):
                    self.copied(world._replace(token_chunks=3, queries=queries, offload="activations", recompute=rule), COPIED[rule])
        for rule in COPIED_KEYS:
            self.copied_keys(ONE._replace(token_chunks=3, queries="keys", recompute=rule), *COPIED_KEYS[rule])

    def other_bytes(self, layout, shape, planned):
        """What a program that plans one byte a token of a copy says of those that it made, before it ends."""
        source = self.source(layout, NEAR_STEPS, shape)
        wrong = source.with_name("copied_" + source.name)
        wrong.write_text(re.sub(planned, r"\g<1>1", source.read_text()))
        done = run([self.tools.link(wrong), "--quiet", "--steps", "8"], 60, self.environment, check=False)
        said = re.search(r"a sequence staged (\d+) bytes and fetched (\d+); the plan has", done.stderr)
        require(said and done.returncode == 1, f"{layout}: other bytes than the plan's go unnoticed\n{done.stderr}")
        print(f"{layout.name()}: {said[1]} bytes staged, {said[2]} fetched", flush=True)
        return said

    def copied(self, layout, layers):
        """A sequence stages and fetches what layers save, in fp32, but the last layer's; a program that plans more of it ends."""
        width = {"x": 24, "o": 8 * MASKS.heads, "lse": MASKS.heads}
        said = self.other_bytes(layout, MASKS, r"(#define PLAN_STAGED INT64_C\()\d+")
        ranks = layout.nodes * layout.lanes
        right = {tokens * 4 * sum(width[w] * n for w, n in layers.items()) for tokens in (SEQUENCE // ranks, -(-SEQUENCE // ranks))}
        require(said[1] == said[2] and int(said[1]) in right, f"{layout}: {said[0]}, not {right}")

    def copied_keys(self, layout, forwards, makes):
        """Of keys, values and sums of their gradients for each pair of chunks that the mask leaves, by brute force; what makes keys stages them, and
        what reads the sums fetches them once more. `forwards`, `makes`: how often a layer attends forward, and makes its keys."""
        shape = MASKS._replace(masks=tuple(KEYED_MASKS))
        said = self.other_bytes(layout, shape, r"(plan_key_copies\[PLAN_MASKS\]\[3\] = \{\{)\d+")
        cuts = [SEQUENCE * i // layout.token_chunks for i in range(layout.token_chunks + 1)]
        chunk = [range(*cuts[i : i + 2]) for i in range(layout.token_chunks)]
        token, staged, fetched = 4 * 2 * 8 * shape.kv_heads, 0, 0  # bytes of keys and values
        for mask in KEYED_MASKS.values():
            begun = set()
            for q in range(len(chunk)):
                for k in (k for k in range(len(chunk)) if q == k or any(mask(i, j) for i in chunk[q] for j in chunk[k])):
                    rows = token * len(chunk[k])
                    fetched += rows * (forwards + 1 + (k in begun))
                    staged += rows
                    begun.add(k)
            staged, fetched = staged + makes * token * SEQUENCE, fetched + token * SEQUENCE
        require((int(said[1]), int(said[2])) == (staged, fetched), f"{layout}: {said[0]}, not {staged} and {fetched}")

    def overlapped(self, layout):
        """What is done in another order is done with the same numbers."""
        runs = [self.train(self.program(layout._replace(overlap=o), NEAR_STEPS)) for o in ("yes", "no")]
        rows = [[(run[s]["loss"], run[s]["norm"]) for s in sorted(run)] for run in runs]
        require(len(rows[0]) == NEAR_STEPS and rows[0] == rows[1], f"{layout}: losses or norms depend on overlap\n{rows}")
        print(f"{layout.name()}: {NEAR_STEPS} losses and norms are the same bits with and without overlap", flush=True)

    def tensor(self):
        self.agree(TENSOR)
        for layout in (TENSOR[1], TENSOR[3]):
            self.overlapped(layout)
        self.cut(TENSOR[1], self.folder / "tensor", (ONE, TENSOR[0], TENSOR[3]))
        self.cut(WORLDS[1], self.folder / "whole", (TENSOR[2],))
        self.cut(TENSOR[4], self.folder / "copies", (TENSOR[0], WORLDS[1]))

    def schedules(self):
        self.agree(SCHEDULED, 60, 1e-4)

    def balanced(self):
        """Each batch has its own partition, groups share sequences by work, and a resumed run on other ranks has the same batches."""
        self.agree(BALANCED, norms=1e-4, shape=DOCUMENTS)
        self.agree(SHARED, norms=1e-4, shape=DOCUMENTS, batch=8)
        self.agree([BALANCED[0], BALANCED[4], BALANCED[5], BALANCED[7], BALANCED[8]], norms=1e-4, shape=RECURRENT)
        self.agree(SHARED[:1], norms=1e-4, shape=RECURRENT._replace(experts=MAMBA), batch=8)
        right = self.train(self.program(ONE, NEAR_STEPS, DOCUMENTS))
        folder = str(self.folder / "balanced")
        self.train(self.program(BALANCED[1], NEAR_STEPS, DOCUMENTS), "--steps", "10", "--checkpoint", folder, "--every", "10")
        is_ = self.train(self.program(BALANCED[4], NEAR_STEPS, DOCUMENTS), "--checkpoint", folder, "--resume")
        apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in is_)
        require(sorted(is_) == list(range(11, NEAR_STEPS + 1)) and apart <= NEAR, f"resumed on 8 ranks: {sorted(is_)}, {apart:.2e}")

    def layers(self):
        """Layers of each mask by a schedule of their own: the losses of one rank; with each other's passes they are not."""
        right = self.train(self.program(ONE, NEAR_STEPS, LAYERED_TEXT))
        for layout in LAYERED:
            program = self.program(layout, NEAR_STEPS, LAYERED_TEXT)
            is_ = self.train(program)
            apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in right)
            print(f"{layout.name()}: {len(is_)} losses differ from one rank's by at most {apart:.2e}", flush=True)
            require(len(is_) == NEAR_STEPS and apart <= NEAR, f"{layout}: losses differ by {apart:.2e}")
            self.exchanged(program, layout, right)

    def exchanged(self, program, layout, right):
        """The passes of two masks are exchanged, what they leave of them is not: an error, or other losses."""
        source = program.with_suffix(".c")
        text = source.read_text()
        rows = re.findall(r"^    \{(\{plan_forward_as_\w+, plan_backward_as_\w+\}),$", text, re.M)
        require(len(rows) == 2 and rows[0] != rows[1], f"{layout}: {rows}")
        wrong = source.with_name("exchanged_" + source.name)
        wrong.write_text(re.sub("|".join(map(re.escape, rows)), lambda row: rows[row[0] == rows[0]], text))
        other = self.tools.link(wrong)
        metrics = other.with_suffix(".jsonl")
        done = run([other, "--quiet", "--timeout", "3", "--steps", "2", "--metrics", metrics], 60, self.environment, check=False)
        is_ = self.read_metrics(metrics)
        require(done.returncode != 0 or any(abs(is_[s]["loss"] / right[s]["loss"] - 1) > NEAR for s in is_), f"{layout}: exchanged passes go unnoticed")

    def offload(self):
        """What is staged comes back as it was: with each rule of recomputation, all that layers save, or some of it."""
        rules = (("none", "activations(q, k, o, gate_up)"), ("selective", "activations(o, lse)"), ("full", "activations(x)"),
                 ("full(2)", "activations(x)"), ("full(3)", "activations, layers 2"))
        for layout, (rule, some) in self.today(itertools.product(OFFLOADED, rules)):
            plain = layout._replace(recompute=rule)
            runs = [self.train(self.program(plain._replace(offload=o), NEAR_STEPS, DEEP)) for o in ("none", "activations", some)]
            rows = [[(run[s]["loss"], run[s]["norm"]) for s in sorted(run)] for run in runs]
            require(len(set(rows[0])) == NEAR_STEPS, f"{plain}: {len(rows[0])} lines of metrics")
            require(rows[1] == rows[0] and rows[2] == rows[0], f"{plain}: losses or norms depend on what is staged\n{rows}")
            print(f"{plain.name()}: {NEAR_STEPS} losses and norms are the same bits with {some}, and with all", flush=True)

    def fetch(self):
        """A chunk at a time comes back what a layer at a time did; the program itself compares the bytes of both with the plan's."""
        rules = (("full", "activations, optimizer"), ("selective", "activations"), ("none", "activations(x, q, gate_up)"))
        for layout, (rule, some) in self.today(itertools.product(FETCHED, rules)):
            plain = layout._replace(recompute=rule)
            shape = DEEP._replace(tied="yes" if rule == "selective" else "no")
            runs = [self.train(self.program(plain._replace(offload=o, fetch=f), NEAR_STEPS, shape)) for o, f in (("none", ""), (some, "chunks"))]
            rows = [[(run[s]["loss"], run[s]["norm"]) for s in sorted(run)] for run in runs]
            require(len(set(rows[0])) == NEAR_STEPS and rows[1] == rows[0], f"{plain}: losses or norms depend on what is fetched\n{rows}")
            print(f"{plain.name()}: {NEAR_STEPS} losses and norms are the same bits with {some} by chunks", flush=True)

    def optimizer(self):
        """Kept in the host's memory, updated there or on the device: the same losses and norms, of one sequence a step and of several, tied and untied."""
        for layout, tied in [(ONE, "no"), (ONE._replace(recompute="full"), "yes")] + list(zip(UPDATED, ("yes", "no", "yes", "no", "yes"))):
            shape = DEEP._replace(tied=tied)
            where = (("none", "host"), ("optimizer", "host"), ("activations, optimizer", "device"))
            runs = [self.train(self.program(layout._replace(offload=o, update=u), NEAR_STEPS, shape)) for o, u in where]
            rows = [[(run[s]["loss"], run[s]["norm"]) for s in sorted(run)] for run in runs]
            require(len(set(rows[0])) == NEAR_STEPS, f"{layout}: {len(rows[0])} lines of metrics")
            require(rows[1] == rows[0] and rows[2] == rows[0], f"{layout}: losses or norms depend on where the optimizer is\n{rows}")
            print(f"{layout.name()}, tied {tied}: {NEAR_STEPS} losses and norms are the same bits", flush=True)

    def equality(self):
        right = self.train(self.program(ONE))
        require(len(right) == STEPS, f"{len(right)} lines of metrics instead of {STEPS}")
        first, last = right[1]["loss"], right[STEPS]["loss"]
        require(last < 0.8 * first, f"nothing is learnt: loss {first} to {last}")
        for layout in WORLDS[1:]:
            is_ = self.train(self.program(layout))
            apart = {s: abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in right}
            near, far = max(apart[s] for s in range(1, NEAR_STEPS + 1)), max(apart.values())
            print(f"{layout.name()}: losses differ by {near:.2e} in {NEAR_STEPS} steps, {far:.2e} in {STEPS}")
            require(near <= NEAR and far <= FAR, f"{layout}: losses part from those of one rank")
            require(all(is_[s]["tokens"] == right[s]["tokens"] for s in right), f"{layout}: other tokens are counted")
        print(f"loss {first:.4f} to {last:.4f} in {STEPS} steps")

    def start(self, program, *options):
        metrics = program.with_suffix(".cut.jsonl")
        metrics.unlink(missing_ok=True)
        command = [program, "--quiet", "--metrics", metrics, *options]
        process = subprocess.Popen([str(w) for w in command], env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        return process, metrics

    def wait_for_step(self, process, metrics, step):
        deadline = time.monotonic() + scaled_timeout(60)
        while not metrics.exists() or metrics.read_text().count("\n") < step:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise runner.Failed(f"step {step} was not reached\n{process.communicate()[1]}")
            time.sleep(0.01)

    def strike(self, program, rank, signal_number, at_step, *options):
        """Sends a rank the signal after a step; (exit code, stderr, seconds until the program ended)."""
        process, metrics = self.start(program, *options)
        self.wait_for_step(process, metrics, at_step)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        begin = time.monotonic()
        os.kill(int(children[rank]), signal_number)
        try:
            text = process.communicate(timeout=scaled_timeout(20))[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise runner.Failed("the other ranks do not end") from None
        seconds = time.monotonic() - begin
        left = [child for child in children if pathlib.Path(f"/proc/{child}").exists()]
        require(not left, f"ranks are still there: {left}")
        return process.returncode, text, seconds

    def resumed(self, layout, folder, right, steps, tolerance):
        """Goes on from a copy of the checkpoints; the losses must be those of the run that nobody cut."""
        mine = self.folder / "resumed"
        shutil.rmtree(mine, ignore_errors=True)
        shutil.copytree(folder, mine)
        is_ = self.train(self.program(layout, 2000), "--resume", "--checkpoint", mine, "--steps", str(steps))
        first = min(is_)
        require(first > 1 and first % 10 == 1 and max(is_) == steps, f"{layout} resumes at step {first}, ends at {max(is_)}")
        apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in is_)
        print(f"{layout.name()} resumed at step {first}: losses differ by {apart:.2e}")
        require(apart <= tolerance, f"{layout}: resumed losses differ by {apart:.2e}")

    def failure(self):
        layout, steps, folder = Layout("ring", "keys", "zigzag", lanes=4), 45, self.folder / "checkpoints"
        program = self.program(layout, 2000)
        right = self.train(program, "--steps", str(steps))
        code, text, seconds = self.strike(program, 2, signal.SIGKILL, 25, "--checkpoint", folder, "--every", "10")
        print(f"killed rank 2: all ended after {seconds:.2f} s with {code}: {text.strip()}")
        require(code == 1 and seconds < scaled_timeout(10), f"code {code} after {seconds:.1f} s\n{text}")
        require(re.search(r"rank 2\b.*step \d+", text), f"rank and step are not named: {text}")
        code, text, seconds = self.strike(program, 1, signal.SIGSTOP, 5, "--timeout", "2")
        print(f"stopped rank 1: all ended after {seconds:.2f} s with {code}: {text.strip()}")
        require(code == 1 and seconds < scaled_timeout(10), f"code {code} after {seconds:.1f} s\n{text}")
        require(re.search(r"rank \d.*step \d+", text) and re.search(r"rank 1\b", text), f"rank 1 is not named: {text}")
        self.resumed(layout, folder, right, steps, 0)
        for other in (ONE, Layout("burst", "keys", "zigzag", 2, 2, 4)):
            self.resumed(other, folder, right, steps, NEAR)

    def mpi(self):
        layout = WORLDS[3]
        program = self.program(layout)
        alone = self.train(program, "--steps", str(NEAR_STEPS))
        launcher = [self.tools.mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(layout.nodes * layout.lanes)]
        under = self.train(program, "--steps", str(NEAR_STEPS), launcher=launcher)
        require([alone[s]["loss"] for s in alone] == [under[s]["loss"] for s in alone] and len(alone) == NEAR_STEPS,
               "under mpirun the losses are others")
        print(f"{layout.name()}: {NEAR_STEPS} losses are the same bits under mpirun")


    def muon(self):
        """A matrix needs all of its shards, and is orthogonalised by one rank: which one is no matter."""
        train = TRAIN.format(data=self.data, steps=NEAR_STEPS, batch=2).replace("adamw {", "muon { momentum 0.9;")
        for layout, shape in [(layout, TEXT) for layout in MUON] + MUON_SHAPES:
            name = f"muon_{layout.name()}_{shape.heads}_{shape.ffn}"
            program = self.build(name, layout, shape, train, self.args.curve)
            done = run([program, NEAR_STEPS, self.data, *shape.masks], 120, self.environment, check=False)
            require(done.returncode == 0, f"{layout}\n{done.stdout}{done.stderr}")
            print(f"{layout.name()}: {done.stdout.strip()}", flush=True)
        self.muon_resumed(train, TEXT)
        self.muon_resumed(train, KINDS)

    def muon_resumed(self, train, shape):
        """On as many ranks the same bits, on others, and with experts in groups, nearly the same losses; and a checkpoint of AdamW is none of Muon."""
        layout, folder, grouped = MUON[11], self.folder / f"muon_checkpoints_{len(shape.masks)}", MUON[4]._replace(groups=5 if shape.experts else 1)
        programs = {other: self.build(f"muon_resumed_{shape.ffn}_{len(shape.masks)}_{other.name()}", other, shape, train) for other in (layout, ONE, grouped)}
        right = self.train(programs[layout])
        self.train(programs[layout], "--steps", "10", "--checkpoint", folder, "--every", "10")
        for other, program in programs.items():
            is_ = self.train(program, "--resume", "--checkpoint", folder, "--every", "1000")
            require(sorted(is_) == list(range(11, NEAR_STEPS + 1)), f"{other}: steps {sorted(is_)}")
            apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in is_)
            require(apart <= (0 if other == layout else NEAR), f"{other}: resumed losses differ by {apart:.2e}")
            print(f"{other.name()} resumed: losses differ by {apart:.2e}", flush=True)
            shutil.rmtree(folder)
            self.train(programs[layout], "--steps", "10", "--checkpoint", folder, "--every", "10")
        refused = run([self.program(ONE, NEAR_STEPS, shape), "--quiet", "--resume", "--checkpoint", folder], 60, self.environment, check=False)
        require(refused.returncode == 2 and "optimizer muon" in refused.stderr, f"AdamW goes on with Muon's momentum\n{refused.stderr}")

    def bf16(self):
        """Rounded where they are kept, and nowhere before: gradients are as near float64 as their rounding, losses as those of fp32."""
        for layout, tied in self.today(ROUNDED):
            layout, shape = layout._replace(gradients="bf16"), TEXT._replace(tied=tied)
            program = self.build(f"rounded_{layout.name()}", layout, shape, f"train {{ batch {2 * layout.data}; }}\n", objects=self.args.gradients)
            done = run([program, "--bf16", *shape.masks], 60, self.environment, check=False)
            require(done.returncode == 0, f"{layout} {shape}\n{done.stdout}{done.stderr}")
            is_, right = (self.train(self.program(layout._replace(gradients=g), NEAR_STEPS, shape)) for g in ("bf16", "fp32"))
            apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in right)
            print(f"{layout.name()}, tied {tied}: {done.stdout.strip()}; losses differ by {apart:.2e}", flush=True)
            require(len(is_) == NEAR_STEPS and 0 < apart <= ROUNDED_LOSS, f"{layout}: losses with bf16 gradients")

    def groups(self):
        """Of experts: any number of them has the losses of all in the layer's unit, a run goes on in another number, and files are the same."""
        for part, experts in GROUPED_PARTS:
            self.agree(GROUPED_EXPERTS, shape=TEXT._replace(part=part, experts=experts))
        self.agree([ONE._replace(chunks=3), Layout("ring", "keys", "zigzag", lanes=4, tensor=2, token_chunks=3, queries="attention"),
                    Layout("ring", "keys", "zigzag", lanes=4, tensor=2, groups=4)],
                   shape=TEXT._replace(kv_heads=4, part=PARALLEL[0], experts=PARALLEL[1]))
        self.twice(GROUPED_EXPERTS[:3], TEXT._replace(part=part, experts=experts))
        self.same_files(TEXT._replace(masks=("causal", "causal"), experts=EIGHT, part="family mixtral;"))

    def twice(self, layouts, shape):
        """The same program has the same bits."""
        for program in [self.program(layout, NEAR_STEPS, shape) for layout in layouts]:
            runs = [[[row[key] for key in ("loss", "norm", "expert_loads")] for row in self.train(program).values()] for _ in range(2)]
            require(len(runs[0]) == NEAR_STEPS and runs[0] == runs[1], f"{program}: other bits in a second run\n{runs}")

    def same_files(self, shape):
        layouts = [ONE, ONE._replace(groups=2), Layout("ring", "keys", "zigzag", lanes=2, groups=4), Layout("ring", "keys", "zigzag", lanes=4, tensor=2, groups=8)]
        folder, exported = self.folder / "groups", []
        for layout in layouts:
            start, went_on = (self.folder / f"{name}_{layout.name()}" for name in ("start", "went_on"))
            program = self.program(layout, NEAR_STEPS, shape._replace(kv_heads=4))
            self.train(program, "--steps", "0", "--export", start, "--export-dtype", "f32")
            if layout == layouts[1]:
                right = self.train(program, "--checkpoint", folder, "--every", "10", "--keep", "2")
                next(iter(sorted(folder.glob("step-*20.burst")))).unlink()
                checkpoint = self.folder / "groups_kept"
                shutil.copytree(folder, checkpoint)
            exported.append({p.name: p.read_bytes() for p in start.glob("*.safetensors")})
        require(len(exported[0]) > 0 and all(e == exported[0] for e in exported), "the first weights depend on groups")
        for layout in layouts:
            mine = self.folder / f"mine_{layout.name()}"
            shutil.copytree(checkpoint, mine)
            is_ = self.train(self.program(layout, NEAR_STEPS, shape._replace(kv_heads=4)), "--resume", "--checkpoint", mine, "--every", "1000")
            apart = max(abs(is_[s]["loss"] / right[s]["loss"] - 1) for s in is_)
            require(sorted(is_) == list(range(11, NEAR_STEPS + 1)) and apart <= NEAR, f"{layout}: resumed at {min(is_)}, losses differ by {apart:.2e}")
            print(f"{layout.name()} resumed: losses differ by {apart:.2e}", flush=True)


PARTS = ["gradients", "curve", "recompute", "memory", "tiles", "hybrid", "heads", "tokens", "tensor", "schedules", "balanced", "layers", "offload", "fetch", "optimizer", "muon", "bf16", "groups", "equality", "failure", "mpi"]


def main():
    parser = runner.options(__doc__, "--toolchain", parts=PARTS)
    parser.add_argument("--gradients", nargs="+", default=[], help="objects and libraries of gradients.c")
    parser.add_argument("--curve", nargs="+", default=[], help="objects and libraries of curve.c")
    args = parser.parse_args()
    with runner.folder(args.work) as folder:
        training = Training(args, folder)
        return runner.run_parts({part: getattr(training, part) for part in args.part or PARTS}) > 0


if __name__ == "__main__":
    runner.end(main)
