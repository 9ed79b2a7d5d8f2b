"""bench_attention.py [--quick]: our kernels beside torch SDPA (FlashAttention-2, cuDNN) and FlexAttention, in one process.

Medians of nine samples of at least 15 ms each, by CUDA events, on random data, bf16, batch 1. Only unmasked pairs count: 4 pairs d operations forward, 2.5 times
that backward. Backward includes what a step needs besides the kernel: delta, zeroing and finishing dQ. `tiles`: the rate of the
kernel alone that counts every pair of the tiles that were not skipped. ring R by Q x K: R chunks in ring order, not at once, so many of
queries and of keys in a launch.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention import Ring, split

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "reference"))
from attention_torch import bigbird_blocks

BIGBIRD = "bigbird(64, 1, 3, 5)"
DOCUMENTS = [8192, 1024, 512, 12000, 3000, 4096, 3944]


def timed(function, times=1):
    """Milliseconds of one call, of so many after one another: what the host does for a launch is beside the launch before."""
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(times):
        function()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b) / times


def medians(functions, rounds=9, least=15):
    """Of rounds in which all run in turn, each for at least so many milliseconds."""
    times = []
    for one in functions:
        one(), one()
        torch.cuda.synchronize()
        times.append(max(1, round(least / timed(one, 2))))
    sample = [[timed(one, n) for one, n in zip(functions, times)] for _ in range(rounds)]
    return [sorted(column)[rounds // 2] for column in zip(*sample)]


def pair_count(mask, n):
    if mask == "full":
        return n * n
    if mask == "document":
        return sum(x * (x + 1) // 2 for x in DOCUMENTS)
    if mask == BIGBIRD: # blocks of 64, half of those on the diagonal
        whole = n // 64
        return int(bigbird_blocks(n, "cpu").tril(-1).sum()) * 64 * 64 + whole * 64 * 65 // 2
    window = int(mask[7:-1]) if mask.startswith("window(") else n
    return sum(min(i + 1, window) for i in range(n))


def show(name, mask, n, h, hk, d, forward, backward, extra=""):
    flops = 4e-9 * pair_count(mask, n) * d * h
    print(f"{name:18s} {mask:12s} n{n:6d} h{h}/{hk} d{d:3d}  forward {forward:8.3f} ms {flops / forward:6.1f}  "
          f"backward {backward:8.3f} ms {2.5 * flops / backward:6.1f} TFLOP/s {extra}", flush=True)


def tensors(n, h, hk, d):
    torch.manual_seed(0)
    make = lambda heads: torch.randn(heads, n, d, device="cuda").bfloat16()
    return make(h), make(hk), make(hk), make(h)


def ours(mask, n, h, hk, d, data, ranks=1, partition="zigzag", fold=1, together=1):
    ring = Ring(mask, d, split(partition, n, ranks) if ranks > 1 else split("contiguous", n, 1), h, hk, h // hk, fold=fold,
                together=together)
    table = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)).int().cuda() if mask == "document" else None
    ring.prepare(table)
    cut = [[ring.chunk(x, i, False) for i in range(ranks)] for x in data]
    m = len(ring.parts[0])
    empty = lambda *shape, dtype=torch.float32: [torch.empty(*shape, device="cuda", dtype=dtype) for _ in range(ranks)]
    o, lse, delta, dq, dks, dvs = empty(h, m, d), empty(h, m), empty(h, m), empty(h, m, d), empty(hk, m, d), empty(hk, m, d)
    out, dq_out = (empty(h, m, d, dtype=torch.bfloat16) for _ in range(2))

    def forward():
        ring.forward(*cut[:3], out, o, lse)

    def backward_alone():
        ring.backward(*cut, lse, delta, dq, dks, dvs)

    def backward():
        for i in range(ranks):
            ring.delta(out[i], cut[3][i], delta[i])
            dq[i].zero_()
        backward_alone()
        for i in range(ranks):
            ring.finish_dq(dq[i], dq_out[i])

    f, b, alone = medians([forward, backward, backward_alone])
    tiles = [sum(ring.tiles_of(w, qs, ks)[0] for qs in ring.queries(w) for ks in ring.launches(w, qs)) * ring.tiles[2 * w] * ring.tiles[2 * w + 1]
             for w in (0, 1)]
    rate = [4e-9 * t * d * h * x / time for t, x, time in zip(tiles, (1, 2.5), (f, alone))]
    show("ours" if ranks == 1 else f"ours ring {ranks} by {together} x {fold}", mask, n, h, hk, d, f, b, f"tiles {rate[0]:.1f} {rate[1]:.1f}")


def autograd(name, mask, n, h, hk, d, data, run):
    try:
        q, k, v = (x[None].detach().requires_grad_() for x in data[:3])
        out = run(q, k, v)
        f, b = medians([lambda: run(q, k, v), lambda: torch.autograd.grad(out, (q, k, v), data[3][None], retain_graph=True)])
        show(name, mask, n, h, hk, d, f, b)
    except Exception as problem: # a peer that cannot do a case is a line, not the end
        print(f"{name:18s} {mask:12s} n{n:6d} not run: {str(problem)[:100]}", flush=True)


def sdpa(name, backend, mask, n, h, hk, d, data):
    def run(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=h != hk)
    autograd(name, mask, n, h, hk, d, data, run)


def flex(mask, n, h, hk, d, data):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    ids = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)).cuda()
    window = int(mask[7:-1]) if mask.startswith("window(") else 0
    drawn = bigbird_blocks(n, "cuda") # of one hash for both, as a table: torch has no product of 32 bits without a sign
    rule = {"document": lambda b, h, i, j: (i >= j) & (ids[i] == ids[j]), BIGBIRD: lambda b, h, i, j: (i >= j) & drawn[i // 64, j // 64],
            }.get(mask, lambda b, h, i, j: (i >= j) & (i - j < window))
    blocks = create_block_mask(rule, None, None, n, n, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    autograd("flex", mask, n, h, hk, d, data, lambda q, k, v: compiled(q, k, v, block_mask=blocks))


def main():
    quick = "--quick" in sys.argv
    print(torch.__version__, torch.cuda.get_device_name(), "cuDNN", torch.backends.cudnn.version(), flush=True)
    dense = [("causal", 16384, 32, 32, 128), ("full", 16384, 32, 32, 128), ("causal", 16384, 32, 32, 64)]
    masked = ["window(4096)", "document"]
    if not quick:
        dense += [("causal", 8192, 32, 32, 128), ("causal", 32768, 32, 32, 128), ("causal", 16384, 32, 8, 128)]
        masked += ["window(1024)", BIGBIRD]
    # Ours first, causal beside the masks: `tiles` are compared, and a GPU that has grown warm is slower.
    for mask, n, h, hk, d in dense[:1] + [(mask, 32768, 32, 32, 128) for mask in masked] + dense[1:]:
        ours(mask, n, h, hk, d, tensors(n, h, hk, d))
    for mask, n, h, hk, d in dense:
        data = tensors(n, h, hk, d)
        sdpa("fa2", SDPBackend.FLASH_ATTENTION, mask, n, h, hk, d, data)
        sdpa("cudnn", SDPBackend.CUDNN_ATTENTION, mask, n, h, hk, d, data)
    for mask in [] if quick else masked:
        flex(mask, 32768, 32, 32, 128, tensors(32768, 32, 32, 128))
    data = tensors(16384, 32, 32, 128)
    ours("causal", 16384, 32, 32, 128, data, 2)
    ours("causal", 16384, 32, 32, 128, data, 4)
    ours("causal", 16384, 32, 32, 128, data, 4, fold=4)
    ours("causal", 16384, 32, 32, 128, data, 4, fold=4, together=4)
    ours("causal", 16384, 32, 32, 128, data)


if __name__ == "__main__":
    main()
