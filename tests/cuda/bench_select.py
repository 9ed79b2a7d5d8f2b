"""bench_select.py [TOKENS]: blocks that tiles choose and attention over their lists, 64 query heads on 8 key heads of 128, 128Ki tokens, blocks of 128.

Medians of a few rounds in which all run in turn. `tile`: the rate that counts every pair of the tiles that are computed, in causal's or in
window(2048)'s of the same call. Lists of tiles, made for each list of blocks before its launch, are in the times, as in programs. `choose`: what
represents tiles and blocks, scores, and lists. bands: backward takes so many tiles of queries at a time, whose rows then stay in the L2
cache. flex: FlexAttention over the same blocks.
"""
import ctypes as C
import sys

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from attention import Chosen, FIRST, LAST, Lists, Ring, Tokens, call, rows
from bench_attention import Ours, autograd, library, medians, tensors
from selecting import FIRST_QUERY, MAX_KEY, MEAN_KEY, OF_HEAD, OF_KV, TILE, Chooser, Selection

H, HK, D, BLOCK = 64, 8, 128, 128
ROUNDS, LEAST = 3, 1
SELECTIONS = {OF_KV: Selection(0, 2, BLOCK, FIRST_QUERY, MEAN_KEY, OF_KV, None, None), OF_HEAD: Selection(1, 3, BLOCK, FIRST_QUERY, MEAN_KEY, OF_HEAD, None, None)}


class Over:
    """Attention over lists [tiles][lists][top], a launch for the heads of each."""

    def __init__(self, mask, lists, like, data, bands=0):
        self.data, self.like, (_, count, top), n = data, like, lists.shape, data[0].shape[1]
        each, tiles = H // count, lists.shape[0]
        step = -(-tiles // bands) if bands else tiles
        self.parts, group = [], H // HK
        for i in range(count):
            q, k = i * each, i * each // group
            kv = ((i + 1) * each - 1) // group + 1 - k
            for backward, (begin, end) in ((0, (0, tiles)), *((1, (b, b + step)) for b in range(0, tiles, step))):
                ring = Ring(mask, D, [torch.arange(n, dtype=torch.int32)], each, kv, group, q, k, library=library(D, "bench_select"),
                            chosen=Chosen(lists.data_ptr() + 4 * i * top, count * top, top, begin, end))
                self.parts.append((ring, backward, slice(q, q + each), slice(k, k + kv)))
        tq, tk = ([-(-n // ring.tiles[2 * b + side]) for b in (0, 1)] for side in (0, 1))
        self.memory = torch.zeros(max((tk if b else tq)[b] * ((tq if b else tk)[b] + 9) + 8 for b in (0, 1)), dtype=torch.int32, device="cuda")
        self.sides = torch.empty(48 * 8 * (max(tq) + max(tk)), dtype=torch.uint8, device="cuda")
        self.tiles = {0: 0, 1: 0}

    def lists(self, ring, backward):
        made = (Lists * 2)()
        made[0].chosen = ring.chosen
        call(ring.lib.test_lists, ring.mask, C.byref(ring.tokens[0]), 1, C.byref(ring.tokens[0]), 1, backward, 0, C.c_void_p(self.sides.data_ptr()),
             C.c_void_p(self.memory.data_ptr()), made)
        return made[0]

    def walk(self, backward, launch):
        for ring, direction, of_q, of_k in self.parts:
            if direction == backward:
                ring.lists[backward, (0,), (0,)] = self.lists(ring, backward)
                launch(ring, of_q, of_k)

    def forward(self):
        q, k, v, _ = self.data
        x = self.like
        self.walk(0, lambda ring, a, b: ring.forward_pairs((0,), (0,), (q[a],), (k[b],), (v[b],), (x.out[0][a],), (x.o[0][a],), (x.lse[0][a],), FIRST | LAST))

    def kernel(self):
        q, k, v, d_o = self.data
        x = self.like
        self.walk(1, lambda ring, a, b: ring.backward_pairs((0,), (0,), (q[a],), (k[b],), (v[b],), (d_o[a],), (x.lse[0][a],), (x.delta[0][a],),
                                                            (x.dq[0][a],), (x.dk[0][b],), (x.dv[0][b],)))

    def backward(self):
        x = self.like
        x.ring.delta(x.out[0], self.data[3], x.delta[0])
        x.dq[0].zero_()
        self.kernel()
        x.ring.finish_dq(x.dq[0], x.dq_out[0])

    def only_lists(self, backward):
        self.walk(backward, lambda *_: None)

    def pairs(self, backward):
        """Of all heads and tiles that are computed, a head of causal's as one."""
        total = []

        def count(ring, of_q, _):
            made = ring.lists[backward, (0,), (0,)]
            begin = 4 * made.rows
            total.append(int(self.memory[begin:begin + made.rows].sum()) * (of_q.stop - of_q.start))
        self.walk(backward, count)
        ring = self.parts[0][0]
        return sum(total) / H * ring.tiles[2 * backward] * ring.tiles[2 * backward + 1]


def flex(lists, data):
    """FlexAttention over the same blocks: those that were chosen are whole, the own tile's is causal."""
    tiles, count, top = lists.shape
    of = lists.permute(1, 0, 2).repeat_interleave(H // count, 0)[None].contiguous()
    full = (of >= 0).sum(3).int()
    room = torch.zeros(1, H, tiles, tiles, dtype=torch.int32, device="cuda")
    room[..., :top] = of.clamp(min=0)
    own = torch.zeros_like(room)
    own[..., 0] = torch.arange(tiles, device="cuda", dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(torch.ones_like(full), own, full, room, BLOCK_SIZE=BLOCK, mask_mod=lambda b, h, q, k: q >= k)
    compiled = torch.compile(flex_attention, dynamic=False)
    return autograd(lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=True), data)


def main():
    n = int(next((x for x in sys.argv[1:] if x.isdigit()), 131072))
    data = tensors(n, H, HK, D)
    causal = Ours(library(D, "bench_select"), 0, data)
    window = Ours.__new__(Ours)
    window.__dict__.update(causal.__dict__)  # shares its arrays
    window.ring = Ring(1, D, [torch.arange(n, dtype=torch.int32)], H, HK, H // HK, library=library(D, "bench_select"))
    window.ring.prepare()
    doc = torch.zeros(n, dtype=torch.int32, device="cuda")
    print(f"{torch.cuda.get_device_name()}, {n} tokens, {H} heads on {HK}, blocks of {BLOCK}", flush=True)
    f = medians([causal.forward, window.forward], ROUNDS, LEAST)
    b = medians([causal.kernel, window.kernel], ROUNDS, LEAST)
    rate = [[one.pairs(way) / t for one, t in zip((causal, window), times)] for way, times in ((0, f), (1, b))]
    flops = 4e-9 * D * H
    for i, name in enumerate(("causal", "window(2048)")):
        print(f"{name:14s} forward {f[i]:8.3f} ms {flops * rate[0][i]:4.0f} TFLOP/s of tiles   backward kernel {b[i]:8.3f} ms {2.5 * flops * rate[1][i]:4.0f}", flush=True)
    for heads, name in ((OF_KV, "kv_head"), (OF_HEAD, "each head")):
        for top in (64, 16):
            s = SELECTIONS[heads]
            chooser = Chooser(library(D, "bench_select"), s, top, H, HK, n, doc)
            lists = chooser.run(data[0], data[1])
            over = Over(s.mask, lists, causal, data)
            x = medians([over.forward, chooser_run(chooser, data), lambda: chooser.represent(*data[:2]), lambda: over.only_lists(0), lambda: over.only_lists(1)], ROUNDS, LEAST)
            forward = over.pairs(0) / x[0]
            print(f"{name} n {top:3d}: forward {x[0]:8.3f} ms {flops * forward:4.0f} TFLOP/s of tiles, {forward / rate[0][0]:.3f} of causal's, {forward / rate[0][1]:.3f} of the window's; "
                  f"choose {x[1]:.3f} ms ({x[1] / x[0]:.3f} of forward), of that {x[2]:.3f} to represent; lists of tiles {x[3]:.3f} and {x[4]:.3f} ms", flush=True)
            for bands in ((0, 2, 4, 8, 16, 32) if heads == OF_KV else (0, 2, 8)):
                banded = Over(s.mask, lists, causal, data, bands)
                y = medians([banded.kernel], ROUNDS, LEAST)[0]
                backward = over.pairs(1) / y
                print(f"{name} n {top:3d}: backward kernel, bands {bands:2d}: {y:8.3f} ms {2.5 * flops * backward:4.0f} TFLOP/s of tiles, {backward / rate[1][0]:.3f} of causal's, "
                      f"{backward / rate[1][1]:.3f} of the window's", flush=True)
            if heads == OF_KV and "--no-flex" not in sys.argv:
                try:
                    theirs = flex(lists, data)
                    z = medians([over.forward, theirs[0], over.backward, theirs[1]], ROUNDS, LEAST)
                    print(f"{name} n {top:3d}: flex forward {z[1]:8.3f} ms, {z[1] / z[0]:.2f} x ours; backward {z[3]:8.3f} ms, {z[3] / z[2]:.2f} x ours", flush=True)
                    del theirs
                except Exception as error:
                    print(f"flex: {str(error).splitlines()[0][:200]}", flush=True)
                torch.compiler.reset()
                torch.cuda.empty_cache()
    for heads, name in ((OF_KV, "kv_head"), (OF_HEAD, "each head")):
        show_greatest(SELECTIONS[heads]._replace(key=MAX_KEY), name, data, doc)
    show_greatest(SELECTIONS[OF_KV]._replace(key=MAX_KEY), "an indexer's 4 heads on 1", [x[:4 if i == 0 else 1].contiguous() for i, x in enumerate(data[:2])], doc)


def show_greatest(s, name, data, doc):
    """Scores with every key and lists, and the rate of the products that a causal mask needs."""
    h, n, hk = data[0].shape[0], data[0].shape[1], data[1].shape[0]
    chooser = Chooser(library(D, "bench_select"), s, 16, h, hk, n, doc)
    x = medians([chooser_run(chooser, data), lambda: chooser.represent(*data[:2])], ROUNDS, LEAST)
    products = 1e-9 * D * h * (n / TILE) * n
    print(f"max K, {name}: choose {x[0]:.3f} ms, of that {x[1]:.3f} to represent; {products / (x[0] - x[1]):.0f} TFLOP/s", flush=True)


def chooser_run(chooser, data):
    return lambda: chooser.run(data[0], data[1])


if __name__ == "__main__":
    main()
