"""bench_select.py [TOKENS]: blocks that tiles choose and attention over their lists, 64 query heads on 8 key heads of 128, 128Ki tokens, blocks of 128.

Medians of a few rounds in which all run in turn. `tile`: the rate that counts every pair of the tiles that are computed, in causal's or in
window(2048)'s of the same call. Lists of tiles, made before each launch, are in the times, as in programs. `choose`: what
represents tiles and blocks, scores, and lists. bands: backward takes the tiles of queries in so many parts, whose rows then stay in the L2
cache. flex: FlexAttention over the same blocks. --kind=NAME: also the library that has this name at its end.
"""
import sys

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from attention import Chosen, FIRST, LAST, Ring, loaded, split
from bench_attention import Ours, autograd, library, medians, tensors
from selecting import FIRST_QUERY, MAX_KEY, MEAN_KEY, OF_HEAD, OF_KV, TILE, Chooser, Selection

H, HK, D, BLOCK = 64, 8, 128, 128
ROUNDS, LEAST = 3, 1
KINDS = [""] + [f"_{x[7:]}" for x in sys.argv[1:] if x.startswith("--kind=")]  # libraries libattention128_bench_select_KIND.so beside the usual one
SELECTIONS = {OF_KV: Selection(0, 2, BLOCK, FIRST_QUERY, MEAN_KEY, OF_KV, None, None), OF_HEAD: Selection(1, 3, BLOCK, FIRST_QUERY, MEAN_KEY, OF_HEAD, None, None)}


class Over:
    """Attention over lists [tiles][lists][top], `at_once` of them in a launch."""

    def __init__(self, mask, lists, like, data, band_bits=0, at_once=None, name="bench_select"):
        self.data, self.like, (_, count, top), n = data, like, lists.shape, data[0].shape[1]
        each, group, self.parts = H // count, H // HK, []
        at_once = min(at_once or count, loaded(library(D, name)).test_lists_at_once())
        for i in range(0, count, at_once):
            q, end = i * each, min(i + at_once, count) * each
            k, kv = q // group, (end - 1) // group + 1
            ring = Ring(mask, D, [torch.arange(n, dtype=torch.int32)], end - q, kv - k, group, q, k, library=library(D, name),
                        chosen=Chosen(lists.data_ptr() + 4 * i * top, count * top, top), alike=each if at_once > 1 else 0, band_bits=band_bits)
            ring.prepare()
            self.parts.append((ring, slice(q, end), slice(k, kv)))

    def walk(self, backward, launch):
        for ring, of_q, of_k in self.parts:
            ring.make_lists_again(backward)
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
        total = 0
        for ring, of_q, _ in self.parts:
            made = ring.lists[backward, (0,), (0,)]
            begin, rows = 4 * made.sets * made.rows, made.sets * made.rows
            total += int(ring.listed[backward, (0,), (0,)][begin:begin + rows].sum()) * (ring.alike or of_q.stop - of_q.start)
        ring = self.parts[0][0]
        return total / H * ring.tiles[2 * backward] * ring.tiles[2 * backward + 1]


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
            over = Over(s.mask, lists, causal, data, at_once=None if heads == OF_KV else 16)
            x = medians([over.forward, chooser_run(chooser, data), lambda: chooser.represent(*data[:2]), lambda: over.only_lists(0), lambda: over.only_lists(1)], ROUNDS, LEAST)
            forward = over.pairs(0) / x[0]
            print(f"{name} n {top:3d}: forward {x[0]:8.3f} ms {flops * forward:4.0f} TFLOP/s of tiles, {forward / rate[0][0]:.3f} of causal's, {forward / rate[0][1]:.3f} of the window's; "
                  f"choose {x[1]:.3f} ms ({x[1] / x[0]:.3f} of forward), of that {x[2]:.3f} to represent; lists of tiles {x[3]:.3f} and {x[4]:.3f} ms", flush=True)
            apart = Over(s.mask, lists, causal, data, at_once=1)
            y = medians([apart.forward], ROUNDS, LEAST)[0]
            print(f"{name} n {top:3d}: forward, a launch for each list {y:8.3f} ms, {y / x[0]:.3f} x as long", flush=True)
            del apart
            for at_once in ((None, 1) if heads == OF_KV else (8, 1)):
                for bits in (0, 1, 2, 3, 4):
                    if at_once == 1 and bits not in (0, 2):
                        continue
                    for kind in KINDS:
                        banded = Over(s.mask, lists, causal, data, bits, at_once, f"bench_select{kind}")
                        y = medians([banded.kernel], ROUNDS, LEAST)[0]
                        backward = banded.pairs(1) / y
                        print(f"{name} n {top:3d}: backward kernel{kind}, {1 << bits:2d} bands, {at_once or 'all'} lists in a launch: {y:8.3f} ms {2.5 * flops * backward:4.0f} TFLOP/s of tiles, "
                              f"{backward / rate[1][0]:.3f} of causal's, {backward / rate[1][1]:.3f} of the window's", flush=True)
                        del banded
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
    for key, name in ((MEAN_KEY, "mean K"), (MAX_KEY, "max K")):
        show_balance(SELECTIONS[OF_KV]._replace(key=key), f"{name}, kv_head", data, doc)
    show_greatest(SELECTIONS[OF_KV]._replace(key=MAX_KEY), "an indexer's 4 heads on 1", [x[:4 if i == 0 else 1].contiguous() for i, x in enumerate(data[:2])], doc)


def show_greatest(s, name, data, doc):
    """Scores with every key and lists, and the rate of the products that a causal mask needs."""
    h, n, hk = data[0].shape[0], data[0].shape[1], data[1].shape[0]
    chooser = Chooser(library(D, "bench_select"), s, 16, h, hk, n, doc)
    x = medians([chooser_run(chooser, data), lambda: chooser.represent(*data[:2])], ROUNDS, LEAST)
    products = 1e-9 * D * h * (n / TILE) * n
    print(f"max K, {name}: choose {x[0]:.3f} ms, of that {x[1]:.3f} to represent; {products / (x[0] - x[1]):.0f} TFLOP/s", flush=True)


def show_balance(s, name, data, doc):
    """Scores and lists of each of several ranks' tiles, alone on this GPU: the slowest rank over the mean."""
    h, n, hk = data[0].shape[0], data[0].shape[1], data[1].shape[0]
    chooser = Chooser(library(D, "bench_select"), s, 16, h, hk, n, doc)
    chooser.represent(*data[:2])
    for ranks in (2, 4):
        for partition in ("zigzag", "contiguous"):
            parts = [p.cuda() for p in split(partition, n, ranks)]
            own = torch.empty(n // TILE, *chooser.lists.shape[1:], dtype=torch.int32, device="cuda")
            t = medians([lambda p=p: chooser.score_part(p, own) for p in parts], 2 * ROUNDS + 1, LEAST)
            print(f"scores, {name}, {ranks} ranks, {partition}: {' '.join(f'{x:.3f}' for x in t)} ms, slowest over mean {max(t) * ranks / sum(t):.3f}", flush=True)


def chooser_run(chooser, data):
    return lambda: chooser.run(data[0], data[1])


if __name__ == "__main__":
    main()
