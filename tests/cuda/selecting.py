"""selecting.py: blocks of keys that tiles of queries choose by the kernels, and attention over them.

A Selection is one of select.burst's or bench_select.burst's."""
import ctypes as C

import torch

from attention import Chosen, MAX_TABLES, Ring, Tokens, call, loaded, rows
from selections_torch import (FIRST_KEY, FIRST_QUERY, LIMITS, MAX_KEY, MEAN_KEY, OF_ALL, OF_HEAD, OF_KV, OWN_MEAN, PREVIOUS_MEAN, TILE, Selection, check_lists,  # noqa: F401
                              kept, lists_of, units)  # of tests/reference, which attention adds to the path

class How(C.Structure):
    _fields_ = [("top", C.c_int), ("query", C.c_int), ("key", C.c_int), ("heads", C.c_int), ("block", C.c_int64), ("queries", C.c_int64),
                ("noncausal", C.c_bool), ("indexer", C.c_bool), ("documents", C.c_int), ("by_position", C.c_bool), ("open", C.c_void_p)]


class Choose(C.Structure):
    _fields_ = [("how", How), ("q_heads", C.c_int), ("kv_heads", C.c_int), ("lists", C.c_int), ("sequence", C.c_int), ("table", C.c_void_p * MAX_TABLES)]


class Choosing(C.Structure):
    _fields_ = [("n", C.c_int), ("position", C.c_void_p)]


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
            own = self.lists
            if len(part) != self.n:
                own = torch.full((units(len(part), TILE), *self.lists.shape[1:]), -7, dtype=torch.int32, device="cuda")
            self.score_part(part, own)
            if len(part) != self.n:
                self.lists[part[::TILE].long() // TILE] = own

    def score_part(self, part, own):
        """Of a rank with these positions: own [its tiles][lists][top]."""
        c = Choosing(len(part), part.data_ptr())
        call(self.lib.test_choose, self.s.number, C.byref(self.choose), C.byref(c), C.c_void_p(self.all[0].data_ptr()),
             C.c_void_p(self.all[1].data_ptr()), C.c_void_p(self.work.data_ptr()), C.c_void_p(own.data_ptr()))

    def run(self, q, k):
        self.represent(q, k)
        self.score()
        return self.lists


class Selected:
    """Attention of the kernels over lists: a Ring for the heads of so many lists each."""

    def __init__(self, library, s, lists, h, hk, d, n, doc, parts=None, fold=1, band_bits=0, at_once=None):
        """at_once: lists in a launch; unless given as many as it may have."""
        parts = parts or [torch.arange(n, dtype=torch.int32)]
        count, top, group = lists.shape[1], lists.shape[2], h // hk
        each = h // count
        at_once = min(at_once or count, loaded(library).test_lists_at_once())
        self.rings = []
        for i in range(0, count, at_once):
            first, end = i * each, min(i + at_once, count) * each
            of_q, of_k = slice(first, end), slice(first // group, (end - 1) // group + 1)
            ring = Ring(s.mask, d, parts, end - first, of_k.stop - of_k.start, group, of_q.start, of_k.start, library=library, fold=fold,
                        chosen=Chosen(lists.data_ptr() + 4 * i * top, count * top, top), alike=each if at_once > 1 else 0, band_bits=band_bits)
            ring.prepare(doc)
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
