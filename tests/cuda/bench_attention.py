"""bench_attention.py [--quick]: our kernels beside torch SDPA (cuDNN, FlashAttention-2), and chunks of a ring beside one chunk.

Medians of nine rounds, bf16, batch 1, random data: in each round all run in turn, each for 15 ms of launches (CUDA events). Only unmasked
pairs count: 4 pairs d operations forward, 2.5 times that backward. Backward includes what a step needs besides the kernel: delta, zeroing and
finishing dQ; `kernel` is without them. ring R by Q x K: R zigzag chunks, so many of queries and of keys in a launch. Libraries: bench_dense.burst
up to 16Ki tokens, bench_masks.burst above, since key tiles follow the length. running: with the running state of a ring. bench_masks.py has the other masks.
"""
import os
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention import FIRST, LAST, Ring, split

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

DENSE = {"causal": 0, "full": 1} # their numbers in bench_dense.burst; causal's also in bench_masks.burst


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


def tensors(n, h, hk, d):
    torch.manual_seed(0)
    make = lambda heads: torch.randn(heads, n, d, device="cuda").bfloat16()
    return make(h), make(hk), make(hk), make(h)


def library(d, name):
    return os.path.join(os.environ["BURST_CUDA_LIB"], f"libattention{d}_{name}.so")


class Ours:
    """Mask `number` of a library on the data (q, k, v, d_o) of a sequence, in zigzag chunks of which launches take `together` x `fold`."""

    def __init__(self, path, number, data, table=None, ranks=1, together=1, fold=1):
        (h, n, d), hk = data[0].shape, data[1].shape[0]
        parts = split("zigzag", n, ranks) if ranks > 1 else split("contiguous", n, 1)
        self.ring = Ring(number, d, parts, h, hk, h // hk, fold=fold, together=together, library=path)
        self.ring.prepare(table)
        self.cut, m = [[self.ring.chunk(x, i, False) for i in range(ranks)] for x in data], n // ranks
        make = lambda *shape, dtype=torch.float32: [torch.zeros(*shape, device="cuda", dtype=dtype) for _ in range(ranks)]
        self.o, self.lse, self.delta, self.dq = make(h, m, d), make(h, m), make(h, m), make(h, m, d)
        self.dk, self.dv = make(hk, m, d), make(hk, m, d)
        self.out, self.dq_out = make(h, m, d, dtype=torch.bfloat16), make(h, m, d, dtype=torch.bfloat16)

    def forward(self):
        self.ring.forward(*self.cut[:3], self.out, self.o, self.lse)

    def kernel(self):
        self.ring.backward(*self.cut, self.lse, self.delta, self.dq, self.dk, self.dv)

    def backward(self):
        for i, d_o in enumerate(self.cut[3]):
            self.ring.delta(self.out[i], d_o, self.delta[i])
            self.dq[i].zero_()
        self.kernel()
        for dq, out in zip(self.dq, self.dq_out):
            self.ring.finish_dq(dq, out)

    def pairs(self, backward):
        """Of all tiles that are computed."""
        tiles = sum(self.ring.tiles_of(backward, qs, ks)[0] for qs in self.ring.queries(backward) for ks in self.ring.launches(backward, qs))
        return tiles * self.ring.tiles[2 * backward] * self.ring.tiles[2 * backward + 1]


def autograd(run, data):
    """Forward and backward of torch's attention, as functions."""
    q, k, v = (x[None].detach().requires_grad_() for x in data[:3])
    out = run(q, k, v)
    return lambda: run(q, k, v), lambda: torch.autograd.grad(out, (q, k, v), data[3][None], retain_graph=True)


def sdpa(backend, mask, data):
    def run(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=q.shape[1] != k.shape[1])
    return autograd(run, data)


def dense(mask, n, h, hk, d):
    data = tensors(n, h, hk, d)
    ours = Ours(library(d, "dense" if n <= 16384 else "masks"), DENSE[mask], data)
    ours.forward()
    cudnn, flash = sdpa(SDPBackend.CUDNN_ATTENTION, mask, data), sdpa(SDPBackend.FLASH_ATTENTION, mask, data)
    flops = 4e-9 * (n * (n + 1) // 2 if mask == "causal" else n * n) * d * h
    f, b = medians([ours.forward, cudnn[0], flash[0]]), medians([ours.backward, cudnn[1], flash[1], ours.kernel])
    print(f"{mask:6s} n{n:6d} h{h}/{hk} d{d:3d}  forward {f[0]:7.3f} ms {flops / f[0]:4.0f} TFLOP/s {f[1] / f[0]:.2f} x cudnn {f[2] / f[0]:.2f} x fa2"
          f"   backward {b[0]:7.3f} ms {2.5 * flops / b[0]:4.0f} TFLOP/s {b[1] / b[0]:.2f} x cudnn {b[2] / b[0]:.2f} x fa2"
          f"   kernel {b[3]:7.3f} ms {b[1] / b[3]:.2f} x cudnn", flush=True)


def ring(n, h, hk, d, ranks):
    data, path = tensors(n, h, hk, d), library(d, "dense")
    forms = [(1, 1, 1), (ranks, 1, 1), (ranks, 1, ranks), (ranks, ranks, ranks)]
    all_of = [Ours(path, 0, data, None, *form) for form in forms]
    for ours in all_of:
        ours.forward(), ours.kernel()
    f, b = medians([ours.forward for ours in all_of]), medians([ours.kernel for ours in all_of])
    for form, x, y in zip(forms, f, b):
        print(f"ring {form[0]} by {form[1]} x {form[2]} causal n{n} h{h}/{hk}  forward {x:7.3f} ms {f[0] / x:.3f} of one chunk   "
              f"kernel backward {y:7.3f} ms {b[0] / y:.3f}", flush=True)


def running(n, h, hk, d):
    """One launch that takes and leaves (O, lse) in fp32, as those between a ring's first and last do, beside one that does neither."""
    data = tensors(n, h, hk, d)
    ours = Ours(library(d, "dense" if n <= 16384 else "masks"), 0, data)
    ours.forward()

    def launch(flags):
        return lambda: ours.ring.forward_pairs((0,), (0,), *ours.cut[:3], ours.out, ours.o, ours.lse, flags)
    f = medians([launch(flags) for flags in (FIRST | LAST, FIRST, 0, LAST)])
    print(f"running state causal n{n} h{h}/{hk} d{d}  none {f[0]:.3f} ms   " +
          "   ".join(f"{name} {f[0] / x:.3f} of its rate" for name, x in zip(("out", "in and out", "in"), f[1:])), flush=True)


def main():
    quick, = runner.words(__doc__, "--quick")
    print(torch.__version__, torch.cuda.get_device_name(), "cuDNN", torch.backends.cudnn.version(), flush=True)
    for case in [("causal", 16384, 32, 32, 128), ("full", 16384, 32, 32, 128), ("causal", 16384, 32, 32, 64)]:
        dense(*case)
    if quick:
        return
    for case in [("causal", 8192, 32, 32, 128), ("causal", 32768, 32, 32, 128), ("causal", 16384, 32, 8, 128), ("causal", 16384, 32, 1, 128),
                 ("full", 16384, 32, 32, 64)]:
        dense(*case)
    for case in [(16384, 32, 32, 128, 4), (16384, 32, 8, 128, 4), (16384, 32, 32, 128, 2)]:
        ring(*case)
    for n in (8192, 16384, 32768):
        running(n, 32, 32, 128)


if __name__ == "__main__":
    main()
