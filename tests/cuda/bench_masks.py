"""bench_masks.py [HEADS KEY_HEADS]: the kernels under masks of several kinds beside FlexAttention and beside causal, 32768 tokens, head_dim 128.

Each line: medians of nine rounds, in each of which ours, FlexAttention and causal run in turn for 15 ms each; whole backward, as in
bench_attention.py.
`x flex`: how many times as fast. `tile`: the rate of the kernel alone that counts every pair of its tiles, in causal's, which counts its own.
Errors are test_attention.py's business; here outputs are compared with FlexAttention's, so that both compute the same.
"""
import pathlib
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from bench_attention import Ours, autograd, library, medians, tensors

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "reference"))
from attention_torch import mask_rule, masks_of

sys.path.append(str(HERE.parent / "lib"))
import runner  # noqa: E402

N, D = 32768, 128
DOCUMENTS = [8192, 1024, 512, 12000, 3000, 4096, 3944]
IDS = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)).int()


def main():
    heads, = runner.words(__doc__, more="heads")
    h, hk = (int(x) for x in heads or (32, 32))
    data, path, table = tensors(N, h, hk, D), library(D, "masks"), IDS.cuda()
    causal = Ours(path, 0, data)
    causal.forward()
    for number, name in list(enumerate(masks_of(HERE / "bench_masks.burst")))[1:]:
        sees = mask_rule(name, IDS.long().cuda())
        ours = Ours(path, number, data, table)
        ours.forward()
        blocks = create_block_mask(lambda b, h, i, j: sees(i, j), None, None, N, N, device="cuda")
        compiled = torch.compile(flex_attention, dynamic=False)
        run = lambda q, k, v: compiled(q, k, v, block_mask=blocks, enable_gqa=h != hk)
        theirs = run(*(x[None] for x in data[:3]))[0].float()
        apart = float((ours.out[0].float() - theirs).norm() / theirs.norm())
        flex = autograd(run, data)
        f = medians([ours.forward, flex[0], causal.forward])
        b = medians([ours.backward, flex[1], ours.kernel, causal.kernel])
        tile = [ours.pairs(0) / f[0] / (causal.pairs(0) / f[2]), ours.pairs(1) / b[2] / (causal.pairs(1) / b[3])]
        print(f"{name:20s} h{h}/{hk} forward {f[0]:7.3f} ms {f[1] / f[0]:5.2f} x flex tile {tile[0]:.2f}   "
              f"backward {b[0]:7.3f} ms {b[1] / b[0]:5.2f} x flex tile {tile[1]:.2f}   apart {apart:.1e}{'' if apart < 1e-2 else ' WRONG'}", flush=True)
        del ours, flex
        torch.compiler.reset()


if __name__ == "__main__":
    main()
