"""attention.py: the attention kernels called on torch tensors, through the library that attention_lib.cu is built into.

A Ring holds the chunks of one sequence on one GPU and folds the pairs in ring order, as ranks would, where the form of the kernels takes so
many `fold` chunks of keys in a launch, and `together` chunks of queries.
"""
import ctypes as C
import os
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "reference"))
from attention_torch import masks_of

MASKS = masks_of(HERE / "masks.burst")
MAX_TABLES = 4
FIRST, LAST, PART = 1, 2, 4


class Rows(C.Structure):
    _fields_ = [("at", C.c_void_p), ("row", C.c_int64), ("head", C.c_int64)]


class Tokens(C.Structure):
    _fields_ = [("n", C.c_int), ("position", C.c_void_p), ("table", C.c_void_p * MAX_TABLES)]


class Chosen(C.Structure):
    _fields_ = [("list", C.c_void_p), ("stride", C.c_int64), ("top", C.c_int)]


class Lists(C.Structure):
    _fields_ = [("rows", C.c_int), ("stride", C.c_int), ("heads", C.c_int), ("band_bits", C.c_int), ("sets", C.c_int), ("order", C.c_void_p), ("count", C.c_void_p), ("list", C.c_void_p),
                ("taken", C.c_void_p), ("turn", C.c_void_p), ("added", C.c_void_p), ("chosen", Chosen)]


class Forward(C.Structure):
    _fields_ = [("q", Rows), ("k", Rows), ("v", Rows), ("out", Rows), ("o", C.c_void_p), ("lse", C.c_void_p),
                ("q_tokens", Tokens), ("k_tokens", Tokens), ("lists", Lists), ("q_heads", C.c_int), ("q_head0", C.c_int),
                ("kv_head0", C.c_int), ("group", C.c_int), ("flags", C.c_int), ("section", C.c_int), ("scale", C.c_float)]


class Backward(C.Structure):
    _fields_ = [("q", Rows), ("k", Rows), ("v", Rows), ("d_o", Rows), ("lse", C.c_void_p), ("delta", C.c_void_p),
                ("dq", C.c_void_p), ("dk", C.c_void_p), ("dv", C.c_void_p), ("q_tokens", Tokens), ("k_tokens", Tokens),
                ("lists", Lists), ("q_heads", C.c_int), ("kv_heads", C.c_int), ("q_head0", C.c_int), ("kv_head0", C.c_int),
                ("group", C.c_int), ("splits", C.c_int), ("section", C.c_int), ("scale", C.c_float)]


_library = {}


def path_of(d, softcap, deterministic):
    name = f"libattention{d}{f'_softcap{softcap}' if softcap else '_deterministic' if deterministic else ''}.so"
    return os.path.join(os.environ.get("BURST_CUDA_LIB", os.path.dirname(os.path.abspath(__file__))), name)


def loaded(path):
    if path not in _library:
        _library[path] = C.CDLL(str(path))
    return _library[path]


def call(function, *arguments):
    status = function(*arguments, C.c_void_p(torch.cuda.current_stream().cuda_stream))
    if status:
        raise RuntimeError(f"{function.__name__}: CUDA error {status}")


def rows(x):
    """x: [heads, n, d] view with any strides but the last."""
    assert x.stride(2) == 1 and x.dtype == torch.bfloat16
    return Rows(x.data_ptr(), x.stride(1), x.stride(0))


def split(partition, n, ranks, block=48):
    """Positions of each rank, int32."""
    i = torch.arange(n, dtype=torch.int32)
    if partition == "contiguous":
        owner = i.long() * ranks // n
    elif partition == "zigzag":
        piece = i.long() * 2 * ranks // n
        owner = torch.minimum(piece, 2 * ranks - 1 - piece)
    elif partition == "striped":
        owner = i.long() % ranks
    else:
        owner = i.long() // block % ranks
    return [i[owner == r].contiguous() for r in range(ranks)]


class Ring:
    """Attention of one sequence whose chunks have the positions `parts`; q_range, kv_range: the global heads held here."""

    def __init__(self, mask, d, parts, q_heads, kv_heads, group, q_head0=0, kv_head0=0, softcap=0, deterministic=False, fold=1,
                 together=1, library=None, home=0, chosen=None, alike=0, band_bits=0):
        """mask: a name of MASKS; or its number in `library`, the path of one built for other masks. home: where one launch of forward would
        take all keys, two with a part of the queries each: those that see the first so many chunks of keys alone, then the others. chosen: the lists
        of a mask with a selection, for all of these heads, or the first of the lists of `alike` query heads each. band_bits: backward has
        lists of 2^band_bits bands of the tiles of queries."""
        self.home, self.chosen, self.alike, self.band_bits = home, chosen or Chosen(), alike, band_bits
        self.mask, self.d, self.group = mask if library else MASKS.index(mask), d, group
        self.heads = (q_heads, kv_heads, q_head0, kv_head0)
        self.lib, self.scale = loaded(library or path_of(d, softcap, deterministic)), d ** -0.5
        if self.lib.test_setup(self.mask):
            raise RuntimeError("setup failed")
        tiles = (C.c_int * 4)()
        self.lib.test_tiles(self.mask, tiles)
        self.tiles = list(tiles)
        most = (C.c_int * 2)()
        self.lib.test_chunks(most)
        self.fold = [min(fold, m) for m in most]
        self.together = [min(together, m) for m in most]
        self.parts = [p.cuda() for p in parts]
        self.index = [p.long() for p in self.parts]
        self.values = [torch.zeros(MAX_TABLES, max(len(p), 1), dtype=torch.int32, device="cuda") for p in self.parts]
        self.tokens = [Tokens(len(p), p.data_ptr(), (C.c_void_p * MAX_TABLES)(v[0].data_ptr(), None, None, None))
                       for p, v in zip(self.parts, self.values)]
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.lists, self.rest, self.listed, self.again = {}, {}, {}, {}

    def home_of(self, ks):
        return self.home if self.home < len(ks) == len(self.parts) else 0

    def prepare(self, table=None):
        """Table values (documents by position) and tile lists of every pair; again for each batch with other tables."""
        if table is not None:
            for p, v in zip(self.parts, self.values):
                call(self.lib.test_gather, len(p), C.c_void_p(p.data_ptr()), C.c_void_p(table.data_ptr()), C.c_void_p(v.data_ptr()))
        self.keep = []
        for backward in (0, 1):
            for qs in self.queries(backward):
                for ks in self.launches(backward, qs):
                    self.make_lists(backward, qs, ks)

    def make_lists(self, backward, qs, ks):
        q, k = ((Tokens * len(of))(*(self.tokens[j] for j in of)) for of in (qs, ks))
        tq, tk = (sum(-(-t.n // self.tiles[2 * backward + side]) for t in of) for side, of in enumerate((q, k)))
        own, other = (tk, tq) if backward else (tq, tk)
        home = 0 if backward else self.home_of(ks)
        bits, qh, q0 = self.band_bits * backward, self.heads[0], self.heads[2]
        sets = (((q0 + qh - 1) // self.alike - q0 // self.alike + 1) if self.alike else 1) << bits
        ints = sets * own * (-(-other >> bits) + 9) + 8 if sets > 1 else own * (2 * other + 9) + 8 + qh * other
        memory = torch.full((ints,), -1, dtype=torch.int32, device="cuda")
        sides = torch.empty(96 * (3 * own + other), dtype=torch.uint8, device="cuda")
        made = (Lists * 2)()

        def again():
            made[0].chosen, made[0].heads, made[0].band_bits, made[0].sets = self.chosen, self.alike, bits, sets
            call(self.lib.test_lists, self.mask, q, len(qs), k, len(ks), backward, home, C.c_void_p(sides.data_ptr()),
                 C.c_void_p(memory.data_ptr()), made)
        again()
        self.again[backward] = again
        self.lists[backward, qs, ks], self.listed[backward, qs, ks] = made[0], memory
        if home:
            self.rest[qs, ks] = made[1]
        self.keep += [memory, sides]

    def make_lists_again(self, backward):
        """Those of the last launch of prepare, in the same memory."""
        self.again[backward]()

    def entries(self, backward, q, k):
        """Of the lists of one pair of chunks: {(tile of queries, of keys): whether it is partial}."""
        tiles = [-(-self.tokens[chunk].n // self.tiles[2 * backward + side]) for side, chunk in enumerate((q, k))]
        own, other = reversed(tiles) if backward else tiles
        memory = self.listed[backward, (q,), (k,)].cpu()
        count, entry = memory[4 * own:5 * own], memory[5 * own:5 * own + own * other].view(own, other)
        pairs = {(row, int(e) >> 1 & (1 << 22) - 1): bool(e & 1) for row in range(own) for e in entry[row, :count[row]]}
        return {(at[::-1] if backward else at): partial for at, partial in pairs.items()}

    def queries(self, backward):
        """Chunks of queries by launch."""
        ranks, together = len(self.parts), self.together[backward]
        return [tuple(range(i, min(i + together, ranks))) for i in range(0, ranks, together)]

    def launches(self, backward, qs):
        """Chunks of keys that these chunks of queries meet, as a ring hands them to the first of them, by launch."""
        ranks, fold = len(self.parts), self.fold[backward]
        order = [(qs[0] - s) % ranks for s in range(ranks)]
        return [tuple(order[s:s + fold]) for s in range(0, ranks, fold)]

    def tiles_of(self, backward, qs, ks):
        """(tiles with work, partial ones) of a launch."""
        lists = self.lists[backward, qs, ks]
        memory = next(m for m in self.keep if m.data_ptr() == lists.order)
        begin = (8 if not backward and self.home_of(ks) else 4) * lists.rows
        count, entries = memory[begin:begin + lists.rows], memory[begin + lists.rows:begin + (1 + lists.stride) * lists.rows]
        used = torch.arange(lists.stride, device="cuda")[None] < count[:, None]
        entries = entries.view(lists.rows, lists.stride)[used]
        return len(entries), int((entries & 1).sum())

    def forward_pairs(self, qs, ks, q, k, v, out, o, lse, flags):
        """One launch, or its two parts: chunks qs of queries with chunks ks of keys. q, k, and the like: of all chunks."""
        qh, _, q0, k0 = self.heads
        parts = (self.lists[0, qs, ks], self.rest[qs, ks]) if self.home_of(ks) else (self.lists[0, qs, ks],)
        for lists in parts:
            pairs = [Forward(rows(q[i]), rows(k[j]), rows(v[j]), rows(out[i]), o[i].data_ptr(), lse[i].data_ptr(), self.tokens[i], self.tokens[j],
                             lists, qh, q0, k0, self.group, flags | (PART if len(parts) == 2 else 0), 0, self.scale) for i in qs for j in ks]
            call(self.lib.test_forward, self.mask, (Forward * len(pairs))(*pairs), len(qs), len(ks), self.multiprocessors)

    def backward_pairs(self, qs, ks, q, k, v, d_o, lse, delta, dq, dk, dv):
        qh, kh, q0, k0 = self.heads
        pairs = [Backward(rows(q[i]), rows(k[j]), rows(v[j]), rows(d_o[i]), lse[i].data_ptr(), delta[i].data_ptr(), dq[i].data_ptr(),
                          dk[j].data_ptr(), dv[j].data_ptr(), self.tokens[i], self.tokens[j], self.lists[1, qs, ks], qh, kh, q0, k0,
                          self.group, 0, 0, self.scale) for i in qs for j in ks]
        call(self.lib.test_backward, self.mask, (Backward * len(pairs))(*pairs), len(qs), len(ks), self.multiprocessors)

    def forward(self, q, k, v, out, o, lse):
        """Attention of all queries to all keys."""
        for qs in self.queries(0):
            launches = self.launches(0, qs)
            for s, ks in enumerate(launches):
                self.forward_pairs(qs, ks, q, k, v, out, o, lse, (FIRST if s == 0 else 0) | (LAST if s == len(launches) - 1 else 0))

    def backward(self, q, k, v, d_o, lse, delta, dq, dk, dv):
        for qs in self.queries(1):
            for ks in self.launches(1, qs):
                self.backward_pairs(qs, ks, q, k, v, d_o, lse, delta, dq, dk, dv)

    def delta(self, out, d_o, delta):
        call(self.lib.test_delta, C.byref(rows(out)), C.byref(rows(d_o)), out.shape[1], out.shape[0], C.c_void_p(delta.data_ptr()))

    def finish_dq(self, dq, out):
        call(self.lib.test_finish_dq, C.c_void_p(dq.data_ptr()), out.shape[1], out.shape[0], C.c_float(self.scale),
             C.byref(rows(out)))

    def chunk(self, x, i, token_major):
        """Chunk i of x [heads, N, d]; token_major: as [n][heads][d] in memory."""
        part = x[:, self.index[i]]
        return part.transpose(0, 1).contiguous().transpose(0, 1) if token_major else part.contiguous()

    def run(self, q, k, v, d_o, token_major=False):
        """(out, lse, dq, dk, dv) of the whole sequence; out and dq bf16, the rest fp32. Outputs start as NaN."""
        ranks, nan = len(self.parts), float("nan")
        qs, ds = ([self.chunk(x, i, token_major) for i in range(ranks)] for x in (q, d_o))
        ks, vs = ([self.chunk(x, i, not token_major) for i in range(ranks)] for x in (k, v))
        out, dq_out = torch.full_like(q, nan), torch.full_like(q, nan)
        lse = torch.full(q.shape[:2], nan, device="cuda")
        dk, dv = torch.full(k.shape, nan, device="cuda"), torch.full(k.shape, nan, device="cuda")
        dks, dvs = ([torch.zeros(c.shape, device="cuda") for c in ks] for _ in range(2))
        bf, done = ([torch.full_like(c, nan) for c in qs] for _ in range(2))
        of, le, dl = ([torch.full(shape, nan, device="cuda") for shape in shapes]
                      for shapes in ([c.shape for c in qs], [c.shape[:2] for c in qs], [c.shape[:2] for c in qs]))
        dqs = [torch.zeros_like(x) for x in of]
        self.forward(qs, ks, vs, bf, of, le)
        for i in range(ranks):
            self.delta(bf[i], ds[i], dl[i])
        self.backward(qs, ks, vs, ds, le, dl, dqs, dks, dvs)
        for i in range(ranks):
            self.finish_dq(dqs[i], done[i])
            out[:, self.index[i]], lse[:, self.index[i]], dq_out[:, self.index[i]] = bf[i], le[i], done[i]
            dk[:, self.index[i]], dv[:, self.index[i]] = dks[i], dvs[i]
        return out, lse, dq_out, dk, dv
