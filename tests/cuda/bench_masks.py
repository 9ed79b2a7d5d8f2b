"""bench_masks.py [HEADS KEY_HEADS]: the kernels under masks of several kinds beside FlexAttention and beside causal, 32768 tokens, head_dim 128.

Each line: medians of nine rounds, in each of which ours, FlexAttention and causal run in turn for 15 ms each; whole backward, as in
bench_attention.py.
`x flex`: how many times as fast. `tile`: the rate of the kernel alone that counts every pair of its tiles, in causal's, which counts its own.
Errors are test_attention.py's business; here outputs are compared with FlexAttention's, so that both compute the same.
"""
import os
import pathlib
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attention import Ring, split
from bench_attention import DOCUMENTS, medians, tensors

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "reference"))
from attention_torch import bigbird_blocks

N, D = 32768, 128
IDS = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)).int()


def rules():
    """Each mask after causal in the order of bench_masks.burst, as FlexAttention takes it."""
    ids, drawn = IDS.long().cuda(), bigbird_blocks(N, "cuda")
    return {
        "window(4096)": lambda b, h, i, j: (i >= j) & (i - j < 4096),
        "window(1024)": lambda b, h, i, j: (i >= j) & (i - j < 1024),
        "document": lambda b, h, i, j: (i >= j) & (ids[i] == ids[j]),
        "window_sink": lambda b, h, i, j: (i >= j) & ((i - j < 4096) | (j < 64)),
        "prefix_lm": lambda b, h, i, j: (i >= j) | (j < 4096),
        "bigbird(64)": lambda b, h, i, j: (i >= j) & drawn[i // 64, j // 64],
        "landmarks": lambda b, h, i, j: (i >= j) & ((i - j < 2048) | (j % 1024 < 128)),
        "halves": lambda b, h, i, j: (i >= j) & ((i - j < 1024) | (j % 512 < 64)),
    }


class Ours:
    def __init__(self, number, data, h, hk):
        library = os.path.join(os.environ["BURST_CUDA_LIB"], f"libattention{D}_masks.so")
        self.ring, (self.q, self.k, self.v, self.d_o) = Ring(number, D, split("contiguous", N, 1), h, hk, h // hk, library=library), data
        self.ring.prepare(IDS.cuda())
        make = lambda *shape, dtype=torch.float32: torch.empty(*shape, device="cuda", dtype=dtype)
        self.o, self.lse, self.delta, self.dq = make(h, N, D), make(h, N), make(h, N), make(h, N, D)
        self.dk, self.dv = torch.zeros(hk, N, D, device="cuda"), torch.zeros(hk, N, D, device="cuda")
        self.out, self.dq_out = make(h, N, D, dtype=torch.bfloat16), make(h, N, D, dtype=torch.bfloat16)

    def forward(self):
        self.ring.forward([self.q], [self.k], [self.v], [self.out], [self.o], [self.lse])

    def kernel(self):
        self.ring.backward([self.q], [self.k], [self.v], [self.d_o], [self.lse], [self.delta], [self.dq], [self.dk], [self.dv])

    def backward(self):
        self.ring.delta(self.out, self.d_o, self.delta)
        self.dq.zero_()
        self.kernel()
        self.ring.finish_dq(self.dq, self.dq_out)

    def pairs(self, backward):
        """Of all tiles that are computed."""
        return self.ring.tiles_of(backward, (0,), (0,))[0] * self.ring.tiles[2 * backward] * self.ring.tiles[2 * backward + 1]


def main():
    h, hk = (int(x) for x in sys.argv[1:3]) if len(sys.argv) > 2 else (32, 32)
    data = tensors(N, h, hk, D)
    causal = Ours(0, data, h, hk)
    causal.forward()
    for number, (name, rule) in enumerate(rules().items(), 1):
        ours = Ours(number, data, h, hk)
        blocks = create_block_mask(rule, None, None, N, N, device="cuda")
        compiled = torch.compile(flex_attention, dynamic=False)
        q, k, v = (x[None].detach().requires_grad_() for x in data[:3])
        run = lambda: compiled(q, k, v, block_mask=blocks, enable_gqa=h != hk)
        out = run()
        ours.forward()
        apart = float((ours.out.float() - out[0].float()).norm() / out.float().norm())
        f = medians([ours.forward, run, causal.forward])
        b = medians([ours.backward, lambda: torch.autograd.grad(out, (q, k, v), data[3][None], retain_graph=True), ours.kernel, causal.kernel])
        tile = [ours.pairs(0) / f[0] / (causal.pairs(0) / f[2]), ours.pairs(1) / b[2] / (causal.pairs(1) / b[3])]
        print(f"{name:13s} h{h}/{hk} forward {f[0]:7.3f} ms {f[1] / f[0]:5.2f} x flex tile {tile[0]:.2f}   "
              f"backward {b[0]:7.3f} ms {b[1] / b[0]:5.2f} x flex tile {tile[1]:.2f}   apart {apart:.1e}{'' if apart < 1e-2 else ' WRONG'}", flush=True)
        del ours, out
        torch.compiler.reset()


if __name__ == "__main__":
    main()
