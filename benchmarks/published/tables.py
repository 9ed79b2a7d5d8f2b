"""Published figures, as data: what was measured on which machine, and the texts that describe it to burstc.

A Table has columns, each a problem, and rows, each a layout. `figure` says what is printed of a prediction:
seconds of a step or of attention, or a rate. None: not published. Figures are in `unit`; of rates more is better.
What compare.py finds today: `misses` are the cells that are more than 15 % off, each with its ratio in time; `furthest` is how many
times as long or as short the furthest other cell takes; `regret` is the mean regret.
"""
from dataclasses import dataclass, field, replace

HIGHER, LOWER = 1, -1


@dataclass
class Table:
    name: str
    source: str
    unit: str
    better: int
    figure: object  # of a Prediction: in `unit`
    topo: str
    model: str      # with words in capitals from a column
    columns: dict   # name: words
    rows: dict      # name: layout
    cells: dict     # row: figures by column
    furthest: float
    regret: float
    misses: dict = field(default_factory=dict)  # (row, column): predicted over published time
    figures: dict = field(default_factory=dict)  # column: its figure, where that is another
    waits: dict = field(default_factory=dict)  # row: seconds of a step that the published program waits and burstc's does not
    models: dict = field(default_factory=dict)  # row: its model, where that is another
    topos: dict = field(default_factory=dict)  # row: its cluster, where that is another
    baseline: str = ""  # the row to which the others are compared, in each column
    ordered: bool = False  # whether layouts are predicted in the published order in each column
    missed_shares: dict = field(default_factory=dict)  # (row, column): the misses of these ratios


def row(text):
    return [None if word == "-" else float(word) for word in text.split()]


def cells(text):
    lines = (line.split(":") for line in text.strip().splitlines())
    return {name.strip(): row(figures) for name, figures in lines}


def filled(text, words):
    for word, value in words.items():
        text = text.replace(word, value)
    return text


TOKENS = {"128K": "128Ki", "256K": "256Ki", "512K": "512Ki", "1M": "1Mi"}
A100S = "cluster c {{ nodes {nodes} {{ gpus 8 of a100; nics 4 of hdr; }} }}"
A800S = "cluster c {{ nodes {nodes} {{ gpus 8 of a800; nics 8 of hdr; }} }}"
LLAMA7B = """
model m {{ layers {layers}; hidden 4096; heads 32; kv_heads KEY_HEADS; head_dim 128; ffn swiglu 11008; vocab 32000; }}
attention {{ default causal; }}
sequence TOKENS;
train {{ steps 1; batch 1; }}
"""
MHA_AND_GQA = {f"{kind} {name}": {"TOKENS": tokens, "KEY_HEADS": heads}
               for kind, heads in (("MHA", "32"), ("GQA", "8")) for name, tokens in TOKENS.items()}


def usp(heads, ranks, placement):
    order = f"placement {placement}; " if 1 < heads < ranks else ""
    return f"schedule usp; heads {heads}; context {ranks // heads}; {order}partition zigzag; travel keys;"


# Rates are of all 32 GPUs; one sequence a step. Their ring with one rank to a share of heads is flat.
LOONGTRAIN = " recompute full; weights zero1;"
loongtrain_step = Table(
    name="loongtrain-step",
    source="LoongTrain (arXiv 2406.18485), table 2: LLaMA2-7B, 32 GPUs, ZeRO-1, full recomputation, head-first",
    unit="tokens/s a GPU",
    better=HIGHER,
    figure=lambda p: p.tokens / p.step / 32,
    topo=A100S.format(nodes=4),
    model=LLAMA7B.format(layers=32),
    columns=MHA_AND_GQA,
    rows={**{f"HP{h}/CP{32 // h}": usp(h, 32, "h, r") + LOONGTRAIN for h in (1, 2, 4, 8, 16, 32)},
          "Megatron ring": usp(1, 32, "h, r") + LOONGTRAIN, "DeepSpeed-Ulysses": usp(32, 32, "h, r") + LOONGTRAIN},
    cells=cells("""
        HP1/CP32:          285.0 287.4 250.4 121.2 668.5 480.0 282.5 153.0
        HP2/CP16:          311.1 314.9 267.3 151.6 740.8 501.3 290.1 155.9
        HP4/CP8:           548.9 469.2 283.6 154.1 814.4 517.4 295.1 159.5
        HP8/CP4:           752.4 498.1 286.1 154.1 838.1 528.1 299.5 160.1
        HP16/CP2:          714.3 472.4 278.9 150.9 771.4 498.6 288.0 155.1
        HP32/CP1:          700.1 459.3 268.8 146.0 717.1 468.4 262.4 147.5
        Megatron ring:     296.8 300.0 260.1 -     706.2 476.3 279.6 -
        DeepSpeed-Ulysses: 629.9 418.3 243.1 130.6 629.9 418.3 243.1 130.6
    """),
    furthest=1.16,
    regret=1.000)

loongtrain_rings = Table(
    name="loongtrain-rings",
    source="LoongTrain, inner rings of one attention, forward and backward: 64 GPUs, context-first",
    unit="ms",
    better=LOWER,
    figure=lambda p: p.attention * 1e3,
    topo=A100S.format(nodes=8).replace("hdr", "hdr in turn"),
    model=LLAMA7B.format(layers=1),
    columns=MHA_AND_GQA,
    rows={f"inner {i}": f"schedule double_ring; context {64 // i} x {i}; partition zigzag; travel keys;"
          for i in (1, 2, 4, 8)},
    cells=cells("""
        inner 1: 295.9 597.7 1214  2913 86.3 213.8 697.9 2621
        inner 2: 184.5 401.3 917.1 2823 72.6 205.7 710.7 2611
        inner 4: 140.6 316.3 842.7 2754 69.1 199.4 704.4 2610
        inner 8: 214.9 415.1 869.9 2815 77.4 198.7 705.3 2621
    """),
    furthest=1.15,
    regret=1.017,
    misses={("inner 2", "MHA 256K"): 0.832, ("inner 2", "GQA 1M"): 1.153, ("inner 4", "MHA 128K"): 0.659, ("inner 4", "MHA 256K"): 0.784,
            ("inner 8", "MHA 128K"): 0.510, ("inner 8", "MHA 256K"): 0.705})

loongtrain_heads = Table(
    name="loongtrain-heads",
    source="LoongTrain, one attention, forward and backward, by heads and placement: 64 GPUs, MHA",
    unit="ms",
    better=LOWER,
    figure=lambda p: p.attention * 1e3,
    topo=A100S.format(nodes=8),
    model=LLAMA7B.format(layers=1),
    columns={"MHA 128K": MHA_AND_GQA["MHA 128K"]},
    rows={f"{h} x {64 // h} {name}": usp(h, 64, order)
          for h in (2, 4) for name, order in (("head-first", "h, r"), ("context-first", "r, h"))},
    cells=cells("""
        2 x 32 head-first:    273.6
        2 x 32 context-first: 162
        4 x 16 head-first:    137
        4 x 16 context-first: 87
    """),
    furthest=1.14,
    regret=1.000,
    misses={("2 x 32 head-first", "MHA 128K"): 1.231, ("4 x 16 head-first", "MHA 128K"): 1.196,
            ("4 x 16 context-first", "MHA 128K"): 1.193})

# TFLOP/s of a GPU: unmasked pairs, backward counted 2.5 times forward.
def burst_tflops(p):
    return 3.5 * 4 * (p.tokens ** 2 / 2) * 40 * 128 / 32 / p.attention * 1e-12


MODEL14B = """
model m {{ layers {layers}; hidden 5120; heads 40; head_dim 128; ffn swiglu 13824; vocab 120000; }}
attention {{ default causal; }}
sequence TOKENS;
train {{ steps 1; batch 1; }}
"""
burstengine_attention = Table(
    name="burstengine-attention",
    source="BurstEngine (arXiv 2509.19836), attention forward and backward: 32 A800s, 40 heads, causal",
    unit="TFLOP/s",
    better=HIGHER,
    figure=burst_tflops,
    topo=A800S.format(nodes=4),
    model=MODEL14B.format(layers=1),
    columns={name: {"TOKENS": tokens} for name, tokens in TOKENS.items()},
    rows={"Burst": "schedule burst; context 4 x 8; partition zigzag; travel queries;",
          "USP": usp(8, 32, "h, r"),
          "DoubleRing": "schedule double_ring; context 4 x 8; partition zigzag; travel keys;",
          "ring": "schedule ring; context 32; partition zigzag; travel keys;"},
    cells=cells("""
        Burst:      129 163 179 188
        USP:        140 167 174 182
        DoubleRing: 99  145 160 141
        ring:       53  105 -   -
    """),
    furthest=1.13,
    regret=1.015,
    misses={("DoubleRing", "128K"): 0.804, ("DoubleRing", "1M"): 0.833})

# burstc's loss is fused in all rows.
burstengine_step = Table(
    name="burstengine-step",
    source="BurstEngine, ablation: 14B, 1M tokens, 32 A800s, ZeRO-3",
    unit="tokens/s a GPU",
    better=HIGHER,
    figure=lambda p: p.tokens / p.step / 32,
    topo=A800S.format(nodes=4),
    model=MODEL14B.format(layers=40),
    columns={"1M": {"TOKENS": "1Mi"}},
    rows={"base": "schedule ring; context 32; partition zigzag; travel keys; recompute full; weights zero3;",
          "+ backward communication":
              "schedule ring; context 32; partition zigzag; travel queries; recompute full; weights zero3;",
          "+ topology-aware ring":
              "schedule burst; context 4 x 8; partition zigzag; travel queries; recompute full; weights zero3;",
          "+ fused loss":
              "schedule burst; context 4 x 8; partition zigzag; travel queries; recompute full; weights zero3;",
          "+ sequence-level":
              "schedule burst; context 4 x 8; partition zigzag; travel queries; recompute tail(0.5); weights zero3;",
          "checkpoint++":
              "schedule burst; context 4 x 8; partition zigzag; travel queries; recompute selective; weights zero3;"},
    cells=cells("""
        base:                     83.79
        + backward communication: 87.48
        + topology-aware ring:    95.06
        + fused loss:             94.81
        + sequence-level:         108.82
        checkpoint++:             117.83
    """),
    furthest=1.13,
    regret=1.000)

# The same as it was launched. Its scripts set CUDA_DEVICE_MAX_CONNECTIONS=1, by which kernels start in the order of
# their launches whatever their streams. In backward a rank launches, for each of 32 chunks, the transfer of what
# travels, that of dQ on the same stream, and computing: dQ's starts when the other has ended, and computing after it.
# So nothing computes while queries and dO travel; in `base` the output travels too, in place of delta. Seconds of
# one such tensor: a rank's tokens in bf16, over its card or its link. The first chunk has no dQ to send and the last
# no queries. In two levels chunks 9 and 17 wait for the card, and none where the next is already there (8, 16, 24, 25).
# burstc's programs have a queue a stream (runtime/cuda/device/device.cu).
def launched(tensors, cards, links):
    tensor = 2 ** 20 / 32 * 5120 * 2
    return 40 * tensors * tensor * (cards / 25e9 + links / 200e9)


burstengine_launched = replace(
    burstengine_step,
    name="burstengine-launched",
    furthest=1.14,
    source="the same, with what the published program waits since it computes after the queries' transfers",
    rows={**burstengine_step.rows, "base": burstengine_step.rows["+ backward communication"]},
    waits={"base": launched(3, 30, 0), "+ backward communication": launched(2, 30, 0),
           **{row: launched(2, 2, 24) for row in ("+ topology-aware ring", "+ fused loss", "+ sequence-level", "checkpoint++")}})

# Iterations a second of one attention with Llama-3-8B's heads, 8Ki tokens a GPU; a stripe has one token. In the row flash_attn each
# GPU attends its own 8Ki tokens, an eighth of the pairs; the other rows' shares are relative to it. The H800's rates give this row its
# published time with causal (FlashAttention-2), the A100's are the stock ones. The published programs merge a step's output in passes
# of their own, which slows short steps most: stripes and zigzag forward.
RING_FLASH = {"flash_attn": "schedule ring; context 1;",
              "ring": "schedule ring; context 8; partition contiguous; travel keys;",
              "zigzag": "schedule ring; context 8; partition zigzag; travel keys;",
              "stripe": "schedule ring; context 8; partition striped; travel keys;",
              "llama3": "schedule gather; context 8; partition contiguous; travel keys;"}


def ring_flash(name, of, topo, model, iterations, published, **stated):
    """Of `iterations` sequences, each of which is a layer."""
    def rate(seconds):
        return lambda p: iterations * p.tokens / 2 ** 16 / seconds(p)

    own = cells(published)
    return Table(
        name=name,
        source=f"ring-flash-attention's README (01c8baf, 2024): 8 {of}, 64Ki tokens, 32:8 heads",
        unit="iterations/s",
        better=HIGHER,
        figure=rate(lambda p: p.attention),
        figures={"forward": rate(lambda p: p.forward)},
        topo=topo.format(gpus=8),
        topos={"flash_attn": topo.format(gpus=1)},
        model=filled(model, {"TOKENS": "64Ki", "FACTOR": "8"}),
        models={"flash_attn": filled(model, {"TOKENS": "8Ki", "FACTOR": "1"})},
        columns={"forward": {}, "forward and backward": {}},
        rows={row: RING_FLASH[row] for row in own},
        cells=own,
        baseline="flash_attn",
        ordered=True,
        **stated)


def documents(*ends):
    return "causal" + "".join(f" and (q < {end} * FACTOR or k >= {end} * FACTOR)" for end in ends)


# Sequences of its varlen benchmark in turn: a sequence's documents end here, for 8Ki tokens.
LLAMA8B_HEADS = LLAMA7B.format(layers=1).replace("KEY_HEADS", "8")
DOCUMENTS = [documents(), documents(256, 7648), documents(4096), documents(3104, 6304, 7904, 8064)]
LLAMA8B_DOCUMENTS = "".join(f"mask d{i} = {mask};\n" for i, mask in enumerate(DOCUMENTS)) + LLAMA8B_HEADS.replace(
    "layers 1", "layers 4").replace("default causal;", "default d0; layers 1: d1; layers 2: d2; layers 3: d3;")
H800_FA2 = """device h800_fa2 {{ arch sm_90a; memory 80 GB; hbm 2.98 TB/s; matmul bf16 718 TFLOP/s; link 200 GB/s;
  attention forward 387 TFLOP/s; attention backward 332 TFLOP/s; }}
cluster c {{ nodes 1 {{ gpus {gpus} of h800_fa2; }} }}"""
A100_NODE = "cluster c {{ nodes 1 {{ gpus {gpus} of a100; }} }}"
ring_flash_h800 = ring_flash("ring-flash-h800", "H800s", H800_FA2, LLAMA8B_HEADS, 1, """
        flash_attn: 73.9 19.3
        ring:       38.5 10.4
        zigzag:     63.0 17.4
        stripe:     55.0 16.0
    """, furthest=1.13, regret=1,
        misses={("stripe", "forward"): 0.791, ("stripe", "forward and backward"): 0.848},
        missed_shares={("stripe", "forward"): 0.791, ("stripe", "forward and backward"): 0.849})
ring_flash_a100 = ring_flash("ring-flash-a100", "A100s", A100_NODE, LLAMA8B_HEADS, 1, """
        flash_attn: 46.7 11.8
        ring:       24.0 6.2
        zigzag:     38.2 10.6
        stripe:     32.5 9.75
    """, furthest=1.09, regret=1,
        misses={("flash_attn", "forward"): 1.207, ("flash_attn", "forward and backward"): 1.186,
                ("stripe", "forward"): 0.840},
        missed_shares={("zigzag", "forward"): 0.811, ("stripe", "forward"): 0.696,
                       ("stripe", "forward and backward"): 0.829})
ring_flash_h800_documents = ring_flash("ring-flash-h800-documents", "H800s, documents", H800_FA2, LLAMA8B_DOCUMENTS, len(DOCUMENTS), """
        flash_attn: 106.6 28.2
        ring:       52.4  14.4
        zigzag:     74.8  21.4
        llama3:     60.8  16.4
    """, furthest=1.17, regret=1,
        misses={("ring", "forward"): 0.833, ("zigzag", "forward"): 0.808},
        missed_shares={("ring", "forward"): 0.814, ("zigzag", "forward"): 0.790,
                       ("zigzag", "forward and backward"): 0.829})
ring_flash_a100_documents = ring_flash("ring-flash-a100-documents", "A100s, documents", A100_NODE, LLAMA8B_DOCUMENTS, len(DOCUMENTS), """
        flash_attn: 66.5 16.7
        ring:       33.1 8.7
        zigzag:     47.9 13.4
        llama3:     34.3 9.7
    """, furthest=1.13, regret=1,
        misses={("flash_attn", "forward"): 1.195, ("flash_attn", "forward and backward"): 1.189},
        missed_shares={("ring", "forward"): 0.821, ("zigzag", "forward"): 0.785})

# Throughput of the first five steps; the optimizer is updated on the host, whose memory the README does not name.
easycontext = Table(
    name="easycontext",
    source="EasyContext's README (1729d4f, 2024): Llama-2-7B, 8 A100s, ring attention, ZeRO-3 with offload, full recomputation",
    unit="tokens/s",
    better=HIGHER,
    figure=lambda p: p.tokens / p.step,
    topo="host { memory 1 TB; }\n" + A100S.format(nodes=1),
    model=LLAMA7B.format(layers=32),
    columns={name: {"TOKENS": tokens, "KEY_HEADS": "32"}
             for name, tokens in {"64K": "64Ki", "128K": "128Ki", "512K": "512Ki", "700K": "700Ki"}.items()},
    models={"data parallel": LLAMA7B.format(layers=32).replace("batch 1", "batch 8")},
    rows={"data parallel": "data 8; context 1; schedule ring; recompute full; weights zero3; offload optimizer;",
          "ring": "schedule ring; context 8; partition zigzag; travel keys; recompute full; weights zero3; offload optimizer;"},
    cells=cells("""
        data parallel: 10240 -    -    -
        ring:          7816  4266 2133 1603
    """),
    furthest=1.03,
    regret=1.000,
    misses={("data parallel", "64K"): 0.824, ("ring", "64K"): 0.778, ("ring", "128K"): 0.623})

# A step of one sequence with cuDNN's attention, whose rates PyTorch's context_parallel (all-gather) has on four H200s at 256Ki tokens:
# 259.2 ms forward, 706.9 backward, 32 heads (benchmarks/log/2026-11-26-four-gpus.md); nothing is fitted to this table. Activations
# that are saved (the inputs of layers) are in host memory. TRL's program gathers keys and has bf16 weights and moments; a ring needs less
# memory here, and fp32 moments of the larger models are in host memory.
CUDNN = """device h100_cudnn { arch sm_90a; memory 80 GB; hbm 2.98 TB/s; passes 2.95 TB/s; norms 2.67 TB/s; matmul bf16 718 TFLOP/s;
  peak 989 TFLOP/s; link 391 GB/s; attention forward 543 TFLOP/s; attention backward 498 TFLOP/s; }
host { memory 2 TB; pcie 55 GB/s; }
cluster c { nodes NODES { gpus 8 of h100_cudnn; nics 8 of ndr; } }"""
QWEN3 = """
model m { LAYERS head_dim 128; vocab 151936; rope 1000000; qk_norm yes; }
attention { default causal; }
sequence TOKENS;
train { steps 1; batch 1; }
"""
QWEN3_SHAPES = {"0.6B": "layers 28; hidden 1024; heads 16; kv_heads 8; ffn swiglu 3072; tied yes;",
                "8B": "layers 36; hidden 4096; heads 32; kv_heads 8; ffn swiglu 12288;",
                "32B": "layers 64; hidden 5120; heads 64; kv_heads 8; ffn swiglu 25600;",
                "30B-A3B": "layers 48; hidden 2048; heads 32; kv_heads 4; moe { experts 128; top 8; ffn swiglu 768; normalize yes; }"}
trl = Table(
    name="trl",
    source="TRL (huggingface/trl#6845, #6846, 2026): Qwen3, nodes of 8 H100s, context parallelism, FSDP2, checkpoints in host memory",
    unit="s",
    better=LOWER,
    figure=lambda p: p.step,
    topo=CUDNN,
    model=QWEN3,
    columns={f"{shape} {tokens}": {"LAYERS": QWEN3_SHAPES[shape], "TOKENS": tokens + "i", "NODES": str(nodes),
                                   "SAVED": "activations" if shape in ("0.6B", "8B") else "activations, optimizer"}
             for shape, tokens, nodes in (("0.6B", "1M", 1), ("0.6B", "4M", 1), ("8B", "1M", 1), ("8B", "2M", 2), ("8B", "4M", 4),
                                          ("32B", "1M", 1), ("30B-A3B", "1M", 1))},
    rows={"context": "schedule ring; travel keys; partition zigzag; recompute full; weights zero3; offload SAVED;"},
    cells=cells("context: 137 2135 364 696 1346 1295 483"),
    furthest=1.08,
    regret=1.000)

# Seconds until the first token. Only the tensor-parallel rows are causal. The paper says nothing of the links' rates:
# link, matmul and attention are those with which the tensor-parallel row comes out, and the other row follows from them.
PCIE = """device a100_pcie { arch sm_80; memory 80 GB; hbm 2.0 TB/s; matmul bf16 150 TFLOP/s; attention forward 120 TFLOP/s;
  attention backward 120 TFLOP/s; }
cluster c { nodes 1 { gpus 8 of a100_pcie; } link pcie { bandwidth 6 GB/s; latency 20 us; } }"""
LLAMA7B_PROMPT = """
model m { layers 32; hidden 4096; heads 32; head_dim 128; ffn swiglu 11008; vocab 32000; }
attention { default causal; }
infer { lengths TOKENS; }
"""
burst_first_token = Table(
    name="burst-first-token",
    source="BurstAttention (arXiv 2403.09347), table 2: LLaMA-7B, 8 A100s over PCIe, first token",
    unit="s",
    better=LOWER,
    figure=lambda p: p.first,
    topo=PCIE,
    model=LLAMA7B.format(layers=32).replace("causal", "full").replace("KEY_HEADS", "32"),
    models={"tensor parallel": LLAMA7B_PROMPT},
    columns={f"{n}K": {"TOKENS": f"{n}Ki"} for n in (4, 8, 16, 32, 64, 128, 256)},
    rows={"tensor parallel": "tensor 8; context 1; schedule ring;",
          "burst": "context 8; schedule ring; partition contiguous; travel keys; recompute full; weights zero1;"},
    cells=cells("""
        tensor parallel: 0.73 1.36 2.68 5.67 12.25 28.73 75.52
        burst:           0.44 0.84 1.68 3.27 6.49  16.01 49.32
    """),
    furthest=1.16,
    regret=1.000,
    misses={("tensor parallel", "256K"): 0.821, ("burst", "4K"): 0.830, ("burst", "128K"): 0.794, ("burst", "256K"): 0.836},
    missed_shares={("burst", "4K"): 0.812, ("burst", "8K"): 0.829, ("burst", "16K"): 0.826},
    baseline="tensor parallel")

# Published with FP8 feed-forward and tensor parallelism 8; in bf16 the weights need 32 tensor ranks.
llama_405b = Table(
    name="llama-405b-first-token",
    source="Context parallelism for inference (arXiv 2411.01783): Llama-3-405B, 1M tokens, 128 H100s, first token",
    unit="s",
    better=LOWER,
    figure=lambda p: p.first,
    topo="cluster c { nodes 16 { gpus 8 of h100; nics 8 of ndr; } }",
    model="""
model m { layers 126; hidden 16384; heads 128; kv_heads 8; head_dim 128; ffn swiglu 53248; vocab 128256; rope 500000; }
attention { default causal; }
infer { lengths TOKENS; tokens 256; }
""",
    columns={"1M": {"TOKENS": "1Mi"}},
    rows={"context": "tensor 32; context 4; schedule ring; travel keys; partition zigzag;"},
    cells=cells("context: 77"),
    furthest=1.11,
    regret=1.000)

# Measured by `burst bench` (benchmarks/log/2026-11-29-rates-that-last.md). A pair's predicate that is not of an edge is counted as if its
# masked pairs lay along one.
BLOCKS = {"causal": ("32Ki", 13.548 + 40.708), "bigbird(64, 2, 8, 16)": ("32Ki", 2.281 + 6.560), "bigbird(64, 1, 3, 5)": ("32Ki", 4.347 + 12.065),
          "bigbird(128, 2, 8, 16)": ("32Ki", 2.185 + 6.826), "bigbird(64, 2, 8, 128)": ("32Ki", 1.153 + 4.166),
          "bigbird(64, 2, 8, 16) ": ("64Ki", 7.405 + 20.271), "bigbird(64, 2, 8, 16)  ": ("8Ki", 0.348 + 1.042),
          "causal and hash(q / 64, k / 64) mod 2 == 0": ("32Ki", 9.221 + 24.480),
          "causal and hash(q, k) mod 16 == 0": ("32Ki", 29.380 + 54.223), "causal and (q - k) mod 16 == 0": ("32Ki", 24.896 + 48.036)}
h200_blocks = Table(
    name="h200-blocks",
    source="one attention, forward and backward, by `burst bench` on one H200: random blocks, 32:8 heads of 128",
    unit="ms",
    better=LOWER,
    figure=lambda p: p.attention * 1e3,
    topo="cluster c { nodes 1 { gpus 1 of h200; } }",
    model="""import "masks";
mask measured = MASK;
model m { layers 1; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 64; vocab 64; }
attention { default measured; }
sequence TOKENS;
""",
    columns={f"{mask.strip()} {tokens}": {"MASK": mask.strip(), "TOKENS": tokens} for mask, (tokens, _) in BLOCKS.items()},
    rows={"one GPU": "schedule ring; recompute none; offload none;"},
    cells={"one GPU": [ms for _, ms in BLOCKS.values()]},
    furthest=1.18,
    regret=1.000,
    misses={("one GPU", "causal and (q - k) mod 16 == 0 32Ki"): 1.254})

# Measured by `gpu-test 4 scale` (benchmarks/log/2026-11-26-four-gpus.md, "Attention beside PyTorch"): launches of a ring add to an output
# in fp32.
four_h200s = Table(
    name="four-h200s",
    source="one attention, forward and backward, on four H200s by copy engines, causal, head_dim 128",
    unit="ms",
    better=LOWER,
    figure=lambda p: p.attention * 1e3,
    topo="cluster c { nodes 1 { gpus 4 of h200; } link nvlink { bandwidth 391 GB/s; latency 5 us; } }",
    model=LLAMA7B.format(layers=1),
    columns={f"32:{heads} {tokens}": {"TOKENS": tokens + "i", "KEY_HEADS": heads} for heads in ("8", "32") for tokens in ("32K", "128K")},
    rows={"ring": "schedule ring; context 4; partition zigzag; travel keys; ranges no;",
          "ulysses": "schedule ulysses; heads 4; partition contiguous;"},
    cells={"ring": [3.42 + 10.13, 52.80 + 153.94, 3.50 + 12.01, 52.94 + 161.72],
           "ulysses": [3.49 + 10.24, 51.69 + 149.86, 3.74 + 10.78, 52.54 + 154.77]},
    furthest=1.09,
    regret=1.004)

TABLES = [four_h200s, h200_blocks, burst_first_token, llama_405b, ring_flash_h800, ring_flash_a100, ring_flash_h800_documents,
          ring_flash_a100_documents, easycontext, trl, loongtrain_step, loongtrain_rings, loongtrain_heads, burstengine_attention,
          burstengine_step, burstengine_launched]
