"""attention.py: the attention kernels called on torch tensors, through the library that attention_lib.cu is built into.

A Ring holds the chunks of one sequence on one GPU and folds the pairs in ring order, as ranks would, `fold` of them in a launch where
the form of the kernels takes so many.
"""
import ctypes as C
import os

import torch

MASKS = ["full", "causal", "window(100)", "window_sink(96, 20)", "dilated(20, 5)", "prefix_lm(130)", "document", "late",
         "odd", "narrow_odd", "window(4096)", "window(1024)", "bigbird(64, 1, 3, 5)"]
MAX_TABLES = 4
FIRST, LAST = 1, 2


class Rows(C.Structure):
    _fields_ = [("at", C.c_void_p), ("row", C.c_int64), ("head", C.c_int64)]


class Tokens(C.Structure):
    _fields_ = [("n", C.c_int), ("position", C.c_void_p), ("table", C.c_void_p * MAX_TABLES)]


class Lists(C.Structure):
    _fields_ = [("rows", C.c_int), ("stride", C.c_int), ("order", C.c_void_p), ("count", C.c_void_p), ("list", C.c_void_p),
                ("taken", C.c_void_p), ("turn", C.c_void_p), ("added", C.c_void_p)]


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
                 library=None):
        """mask: a name of MASKS; or its number in `library`, the path of one built for other masks."""
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
        self.parts = [p.cuda() for p in parts]
        self.index = [p.long() for p in self.parts]
        self.values = [torch.zeros(MAX_TABLES, max(len(p), 1), dtype=torch.int32, device="cuda") for p in self.parts]
        self.tokens = [Tokens(len(p), p.data_ptr(), (C.c_void_p * MAX_TABLES)(v[0].data_ptr(), None, None, None))
                       for p, v in zip(self.parts, self.values)]
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.lists = {}

    def prepare(self, table=None):
        """Table values (documents by position) and tile lists of every pair; again for each batch with other tables."""
        if table is not None:
            for p, v in zip(self.parts, self.values):
                call(self.lib.test_gather, len(p), C.c_void_p(p.data_ptr()), C.c_void_p(table.data_ptr()), C.c_void_p(v.data_ptr()))
        self.keep = []
        for backward in (0, 1):
            for i in range(len(self.parts)):
                for js in self.launches(backward, i):
                    self.make_lists(backward, i, js)

    def make_lists(self, backward, i, js):
        q, ks = self.tokens[i], (Tokens * len(js))(*(self.tokens[j] for j in js))
        tq, tk = -(-q.n // self.tiles[2 * backward]), sum(-(-k.n // self.tiles[2 * backward + 1]) for k in ks)
        own, other = (tk, tq) if backward else (tq, tk)
        memory = torch.full((own * (2 * other + 5) + 1 + self.heads[0] * other,), -1, dtype=torch.int32, device="cuda")
        sides = torch.empty(48 * (3 * own + other), dtype=torch.uint8, device="cuda")
        lists = self.lists[backward, i, js] = Lists()
        call(self.lib.test_lists, self.mask, C.byref(q), ks, len(js), backward, C.c_void_p(sides.data_ptr()),
             C.c_void_p(memory.data_ptr()), C.byref(lists))
        self.keep += [memory, sides]

    def launches(self, backward, i):
        """Chunks of keys that chunk i of queries meets, as a ring hands them on, by launch."""
        ranks, fold = len(self.parts), self.fold[backward]
        order = [(i - s) % ranks for s in range(ranks)]
        return [tuple(order[s:s + fold]) for s in range(0, ranks, fold)]

    def tiles_of(self, backward, i, *js):
        """(tiles with work, partial ones) of a launch."""
        lists = self.lists[backward, i, js]
        memory = next(m for m in self.keep if m.data_ptr() == lists.order)
        count, entries = memory[4 * lists.rows:5 * lists.rows], memory[5 * lists.rows:(5 + lists.stride) * lists.rows]
        used = torch.arange(lists.stride, device="cuda")[None] < count[:, None]
        entries = entries.view(lists.rows, lists.stride)[used]
        return len(entries), int((entries & 1).sum())

    def forward_pairs(self, i, js, q, ks, vs, out, o, lse, flags):
        """ks, vs, and the like below: of all chunks."""
        qh, _, q0, k0 = self.heads
        pairs = [Forward(rows(q), rows(ks[j]), rows(vs[j]), rows(out), o.data_ptr(), lse.data_ptr(), self.tokens[i], self.tokens[j],
                         self.lists[0, i, js], qh, q0, k0, self.group, flags, 0, self.scale) for j in js]
        call(self.lib.test_forward, self.mask, (Forward * len(js))(*pairs), len(js), self.multiprocessors)

    def backward_pairs(self, i, js, q, ks, vs, d_o, lse, delta, dq, dks, dvs):
        qh, kh, q0, k0 = self.heads
        pairs = [Backward(rows(q), rows(ks[j]), rows(vs[j]), rows(d_o), lse.data_ptr(), delta.data_ptr(), dq.data_ptr(),
                          dks[j].data_ptr(), dvs[j].data_ptr(), self.tokens[i], self.tokens[j], self.lists[1, i, js], qh, kh, q0, k0,
                          self.group, 0, 0, self.scale) for j in js]
        call(self.lib.test_backward, self.mask, (Backward * len(js))(*pairs), len(js), self.multiprocessors)

    def forward(self, i, q, ks, vs, out, o, lse):
        """Attention of chunk i of queries to all keys."""
        launches = self.launches(0, i)
        for s, js in enumerate(launches):
            self.forward_pairs(i, js, q, ks, vs, out, o, lse, (FIRST if s == 0 else 0) | (LAST if s == len(launches) - 1 else 0))

    def backward(self, i, q, ks, vs, d_o, lse, delta, dq, dks, dvs):
        for js in self.launches(1, i):
            self.backward_pairs(i, js, q, ks, vs, d_o, lse, delta, dq, dks, dvs)

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
        ranks, d = len(self.parts), self.d
        qs, ds = ([self.chunk(x, i, token_major) for i in range(ranks)] for x in (q, d_o))
        ks, vs = ([self.chunk(x, i, not token_major) for i in range(ranks)] for x in (k, v))
        nan = float("nan")
        out, dq_out = torch.full_like(q, nan), torch.full_like(q, nan)
        lse = torch.full(q.shape[:2], nan, device="cuda")
        dk, dv = torch.full(k.shape, nan, device="cuda"), torch.full(k.shape, nan, device="cuda")
        dks, dvs = ([torch.zeros(c.shape, device="cuda") for c in ks] for _ in range(2))
        for i in range(ranks):
            n = len(self.parts[i])
            bf, of = torch.full_like(qs[i], nan), torch.full((q.shape[0], n, d), nan, device="cuda")
            le, dl = torch.full(of.shape[:2], nan, device="cuda"), torch.full(of.shape[:2], nan, device="cuda")
            self.forward(i, qs[i], ks, vs, bf, of, le)
            self.delta(bf, ds[i], dl)
            dq = torch.zeros_like(of)
            self.backward(i, qs[i], ks, vs, ds[i], le, dl, dq, dks, dvs)
            done = torch.full_like(bf, nan)
            self.finish_dq(dq, done)
            out[:, self.index[i]], lse[:, self.index[i]], dq_out[:, self.index[i]] = bf, le, done
        for i in range(ranks):
            dk[:, self.index[i]], dv[:, self.index[i]] = dks[i], dvs[i]
        return out, lse, dq_out, dk, dv
