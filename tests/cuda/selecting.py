"""selecting.py: blocks of keys that tiles of queries choose, by the kernels and by brute force in float64, and attention over them.

A Selection is one of select.burst's or bench_select.burst's. Rules are those of docs/language.md, written from them."""
import ctypes as C
import typing

import torch

from attention import Chosen, MAX_TABLES, Ring, Tokens, call, loaded, rows

TILE = 128
FIRST_QUERY, PREVIOUS_MEAN, OWN_MEAN = range(3)
MEAN_KEY, LIMITS, FIRST_KEY, MAX_KEY = range(4)
OF_HEAD, OF_KV, OF_ALL = range(3)


class Selection(typing.NamedTuple):
    number: int       # among those of its file
    mask: int         # the mask that is it
    block: int
    query: int
    key: int
    heads: int
    where: typing.Callable   # of q, k, doc
    always: typing.Callable
    noncausal: bool = False
    documents: bool = False


class How(C.Structure):
    _fields_ = [("top", C.c_int), ("query", C.c_int), ("key", C.c_int), ("heads", C.c_int), ("block", C.c_int64), ("queries", C.c_int64),
                ("noncausal", C.c_bool), ("indexer", C.c_bool), ("documents", C.c_int), ("by_position", C.c_bool), ("open", C.c_void_p)]


class Choose(C.Structure):
    _fields_ = [("how", How), ("q_heads", C.c_int), ("kv_heads", C.c_int), ("lists", C.c_int), ("sequence", C.c_int), ("table", C.c_void_p * MAX_TABLES)]


class Choosing(C.Structure):
    _fields_ = [("n", C.c_int), ("position", C.c_void_p)]


def units(n, size):
    return -(-n // size)


def lists_of(s, h, hk):
    return {OF_HEAD: h, OF_KV: hk, OF_ALL: 1}[s.heads]


class Chooser:
    """The lists of a sequence, by the kernels: what represents its blocks and tiles is made by ranks with the positions `parts`."""

    def __init__(self, library, s, top, h, hk, n, doc, parts=None):
        self.lib, self.s, self.top, self.h, self.hk, self.n, self.doc = loaded(library), s, top, h, hk, n, doc
        self.parts = [p.cuda() for p in (parts or [torch.arange(n, dtype=torch.int32)])]
        self.lib.test_choose_work.restype = C.c_int64
        self.lib.test_choose_work.argtypes = [C.c_int64, C.c_int64]
        how = How(top, s.query, s.key, s.heads, s.block, TILE, s.noncausal, False, 1 if s.documents else 0, False, None)
        self.choose = Choose(how, h, hk, lists_of(s, h, hk), n, (C.c_void_p * MAX_TABLES)(doc.data_ptr(), None, None, None))
        self.blocks, self.tiles = units(n, s.block), units(n, TILE)
        self.work = torch.empty(self.lib.test_choose_work(self.blocks, self.tiles), dtype=torch.uint8, device="cuda")
        self.lists = torch.full((self.tiles, lists_of(s, h, hk), top), -7, dtype=torch.int32, device="cuda")
        d2 = 2 if s.query == PREVIOUS_MEAN else 1, {LIMITS: 2, MAX_KEY: s.block}.get(s.key, 1)
        self.room = [torch.empty(self.tiles * h * d2[0] * 256, device="cuda"), torch.empty(self.blocks * hk * d2[1] * 256, device="cuda")]
        self.all = [torch.empty_like(x) for x in self.room]

    def represent(self, q, k):
        """q, k: [heads, n, d] of the whole sequence."""
        for part in self.parts:
            c = Choosing(len(part), part.data_ptr())
            whole = len(part) == self.n
            for queries, x in ((0, k), (1, q)):
                own = x if whole else x[:, part.long()].contiguous()
                call(self.lib.test_represent, C.byref(self.choose), C.byref(c), C.byref(rows(own)), queries,
                     C.c_void_p(self.room[not queries].data_ptr()), C.c_void_p(self.all[not queries].data_ptr()))

    def score(self):
        for part in self.parts:
            c, own = Choosing(len(part), part.data_ptr()), self.lists
            if len(part) != self.n:
                own = torch.full((units(len(part), TILE), *self.lists.shape[1:]), -7, dtype=torch.int32, device="cuda")
            call(self.lib.test_choose, self.s.number, C.byref(self.choose), C.byref(c), C.c_void_p(self.all[0].data_ptr()),
                 C.c_void_p(self.all[1].data_ptr()), C.c_void_p(self.work.data_ptr()), C.c_void_p(own.data_ptr()))
            if len(part) != self.n:
                self.lists[part[::TILE].long() // TILE] = own

    def run(self, q, k):
        self.represent(q, k)
        self.score()
        return self.lists


class Selected:
    """Attention of the kernels over lists: a Ring for the heads of each list."""

    def __init__(self, library, s, lists, h, hk, d, n, doc, parts=None, fold=1, band=None):
        """band: backward takes so many tiles of queries at a time."""
        parts = parts or [torch.arange(n, dtype=torch.int32)]
        count, top, group = lists.shape[1], lists.shape[2], h // hk
        each = h // count
        self.rings = []
        for i in range(count):
            of_q, of_k = slice(i * each, (i + 1) * each), slice(i * each // group, ((i + 1) * each - 1) // group + 1)

            def make(begin, end):
                chosen = Chosen(lists.data_ptr() + 4 * i * top, count * top, top, begin, end)
                ring = Ring(s.mask, d, parts, each, of_k.stop - of_k.start, group, of_q.start, of_k.start, library=library, fold=fold, chosen=chosen)
                ring.prepare(doc)
                return ring
            ring, bands = make(0, 1 << 30), [make(b, b + band) for b in range(0, units(n, TILE), band)] if band else []
            if bands:
                ring.backward = lambda *arrays, bands=bands: [one.backward(*arrays) for one in bands]
            self.rings.append((ring, of_q, of_k))

    def run(self, q, k, v, d_o):
        """(out, lse, dq, dk, dv) of the whole sequence, as Ring.run."""
        outs, dk, dv = [], torch.zeros(k.shape, device="cuda"), torch.zeros(v.shape, device="cuda")
        for ring, of_q, of_k in self.rings:
            out, lse, dq, dk_, dv_ = ring.run(*(x.contiguous() for x in (q[of_q], k[of_k], v[of_k], d_o[of_q])))
            outs.append((out, lse, dq))
            dk[of_k] += dk_
            dv[of_k] += dv_
        return (*(torch.cat(x) for x in zip(*outs)), dk, dv)


# ---- by brute force, in float64 ----
def allowed(s, n, doc):
    """[tiles][blocks]: `where` leaves a pair that is not always kept, of a block before the tile and in its document."""
    i = torch.arange(n, device="cuda")
    open_ = s.where(i[:, None], i[None], doc) & ~s.always(i[:, None], i[None])
    tiles, blocks = units(n, TILE), units(n, s.block)
    pad = torch.zeros(tiles * TILE, blocks * s.block, dtype=torch.bool, device="cuda")
    pad[:n, :n] = open_
    found = pad.view(tiles, TILE, blocks, s.block).any(3).any(1)
    first = torch.arange(tiles, device="cuda") * TILE
    last = (torch.arange(1, blocks + 1, device="cuda") * s.block - 1).clamp(max=n - 1)
    if not s.noncausal:
        found &= last[None] <= first[:, None]
    if s.documents:
        found &= doc[last.long()][None] == doc[first.long()][:, None]
    return found


def represent_keys(s, k, doc):
    """[kv][blocks][keys that represent a block][d]"""
    hk, n, d = k.shape
    out = []
    for b in range(0, n, s.block):
        x = k[:, b:b + s.block].double()
        if s.documents:
            own = doc[b:b + x.shape[1]]
            x = x[:, own == own[-1]]
        out.append({MEAN_KEY: lambda: x.mean(1)[:, None], LIMITS: lambda: torch.stack((x.amin(1), x.amax(1)), 1), FIRST_KEY: lambda: x[:, :1],
                    MAX_KEY: lambda: x[:, torch.arange(s.block, device="cuda").clamp(max=x.shape[1] - 1)]}[s.key]())
    return torch.stack(out, 1)


def represent_queries(s, q, doc):
    """[h][tiles][d]"""
    h, n, d = q.shape
    out = []
    for t in range(0, n, TILE):
        own = q[:, t].double()
        if s.query == OWN_MEAN:
            own = q[:, t:t + TILE].double()[:, (doc[t:t + TILE] == doc[t]) if s.documents else slice(None)].mean(1)
        elif s.query == PREVIOUS_MEAN and t and (not s.documents or doc[t - 1] == doc[t]):
            own = q[:, t - TILE:t].double()[:, (doc[t - TILE:t] == doc[t]) if s.documents else slice(None)].mean(1)
        out.append(own)
    return torch.stack(out, 1)


def brute_force(s, q, k, doc):
    """(score, size) [lists][tiles][blocks]: -inf where a block may not be chosen (NaN counts so too, but may be); size: of the terms."""
    h, hk = q.shape[0], k.shape[0]
    queries, keys = represent_queries(s, q, doc), represent_keys(s, k, doc).repeat_interleave(h // hk, 0)
    if s.key == LIMITS:
        terms = torch.maximum(queries[:, :, None] * keys[:, None, :, 0], queries[:, :, None] * keys[:, None, :, 1])
        score, size = terms.sum(3), terms.abs().sum(3)
    elif s.key == MAX_KEY:
        score = torch.einsum("htd,hbkd->htbk", queries, keys).amax(3)
        size = torch.einsum("htd,hbkd->htbk", queries.abs(), keys.abs()).amax(3)
    else:
        score = queries @ keys[:, :, 0].transpose(1, 2)
        size = queries.abs() @ keys[:, :, 0].abs().transpose(1, 2)
    each = h // lists_of(s, h, hk)
    score, size = (x.view(-1, each, *x.shape[1:]).sum(1) for x in (score, size))
    return score, size


def check_lists(s, top, lists, q, k, doc):
    """Lists beside brute force: (right, lists, lists that differ by scores nearer than fp32 tells apart)."""
    n = q.shape[1]
    may = allowed(s, n, doc)
    score, size = brute_force(s, q, k, doc)
    score = torch.where(score.isnan(), float("-inf"), score)
    right, near = True, 0
    for t in range(lists.shape[0]):
        candidates = may[t].nonzero()[:, 0]
        for i in range(lists.shape[1]):
            got = lists[t, i]
            count = int((got >= 0).sum())
            own = got[:count].long()
            right &= count == min(top, len(candidates)) and bool((got[count:] == -1).all()) and bool((own[1:] > own[:-1]).all())
            right &= bool(may[t][own].all())
            order = sorted(candidates.tolist(), key=lambda b: (-float(score[i, t, b]), b))[:top]
            if sorted(order) == own.tolist():
                continue
            only, missed = set(own.tolist()) - set(order), set(order) - set(own.tolist())
            limit = 2.0 ** -22 * float(size[i, t, list(only | missed)].max())
            right &= all(abs(float(score[i, t, a]) - float(score[i, t, b])) <= limit for a in only for b in missed)
            near += 1
    return right, lists.shape[0] * lists.shape[1], near


def kept(s, lists, h, n, doc):
    """[heads][n][n]: where and (always or chosen)."""
    i = torch.arange(n, device="cuda")
    blocks = units(n, s.block)
    chosen = torch.zeros(*lists.shape[:2], blocks + 1, dtype=torch.bool, device="cuda")
    chosen.scatter_(2, torch.where(lists < 0, blocks, lists).long(), True)
    of = chosen[i // TILE][:, :, i // s.block].permute(1, 0, 2).repeat_interleave(h // lists.shape[1], 0)
    return s.where(i[:, None], i[None], doc) & (s.always(i[:, None], i[None]) | of)
