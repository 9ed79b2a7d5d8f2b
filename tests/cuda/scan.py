"""scan.py: the kernels of recurrent layers called on torch tensors, through the libraries that scan_lib.cu is built into, and their
definition token by token in float64.
"""
import ctypes as C
import os
import pathlib

import torch

MOST_PIECES, EPS = 128, 1e-6


class Sizes(C.Structure): # BurstScan
    _fields_ = [(name, C.c_int) for name in ("heads", "key_heads", "key_dim", "value_dim", "read", "normalize")] + \
        [("scale", C.c_double)] + [(name, C.c_int) for name in ("columns", "q", "k", "v")] + \
        [(name, C.c_double) for name in ("beta_most", "step_least", "step_most")]


class Pieces(C.Structure):
    _fields_ = [("count", C.c_int), ("first", C.POINTER(C.c_int64))]


class Call(C.Structure): # ScanCall
    _fields_ = [("s", C.POINTER(Sizes)), ("p", C.POINTER(Pieces))] + \
        [(name, C.c_void_p) for name in ("place", "x", "skip", "beta", "decay", "scratch", "stream")]


_library = {}


def library(key_dim):
    if key_dim not in _library:
        folder = os.environ.get("BURST_CUDA_LIB", pathlib.Path(__file__).resolve().parent)
        _library[key_dim] = C.CDLL(os.path.join(folder, f"libscan{key_dim}.so"))
        _library[key_dim].scan_bytes.restype = _library[key_dim].scan_map_floats.restype = C.c_int64
    return _library[key_dim]


def at(x):
    return C.c_void_p(x.data_ptr() if x is not None else None)


def sizes(heads, key_heads, key_dim, value_dim, read):
    keys = key_heads * key_dim
    return Sizes(heads, key_heads, key_dim, value_dim, read, read, key_dim ** -0.5, 2 * keys + heads * value_dim, 0, keys, 2 * keys)


class Scan:
    """One rank's rows of a recurrent layer, in pieces that begin at rows `first` and end at the last of them."""

    def __init__(self, s, first, place, x, beta, decay, skip=None):
        self.s, self.first, self.inputs = s, (C.c_int64 * len(first))(*first), (place, x, beta, decay, skip)
        self.n, self.count, self.lib = first[-1], len(first) - 1, library(s.key_dim)
        longest = max(b - a for a, b in zip(first, first[1:]))
        self.scratch = torch.empty(self.lib.scan_bytes(C.byref(s), self.count, C.c_int64(longest)), dtype=torch.uint8, device="cuda")
        self.pieces = Pieces(self.count, self.first)
        pointers = [t.data_ptr() if t is not None else None for t in (place, x, skip, beta, decay, self.scratch)]
        self.call = Call(C.pointer(s), C.pointer(self.pieces), *pointers, torch.cuda.current_stream().cuda_stream)
        self.state = (self.count, s.heads, s.key_dim, s.value_dim)

    def run(self, name, *args):
        status = getattr(self.lib, name)(C.byref(self.call), *(at(x) for x in args))
        if status:
            raise RuntimeError(f"{name}: CUDA error {status}")

    def forward(self, before=None):
        o = torch.full((self.n, self.s.heads, self.s.value_dim), float("nan"), device="cuda", dtype=torch.bfloat16)
        after = torch.full(self.state, float("nan"), device="cuda")
        self.run("scan_run", before, o, after)
        return o, after

    def backward(self, d_o, before=None, d_after=None):
        """dx, d_beta, d_decay, d_skip, d_before"""
        _, x, beta, decay, skip = self.inputs
        dx, d_beta, d_decay = (torch.full_like(t, float("nan")) for t in (x, beta, decay))
        d_skip = torch.zeros(self.s.heads, device="cuda") if skip is not None else None
        d_before = torch.full(self.state, float("nan"), device="cuda")
        self.run("scan_run_back", before, d_o, d_after, dx, d_beta, d_decay, d_skip, d_before)
        return dx, d_beta, d_decay, d_skip, d_before

    def maps(self, d_o=None):
        """E as states, and M, [pieces][heads][key_dim][key_dim]"""
        s = self.s
        maps = torch.full((self.count, self.lib.scan_map_floats(C.byref(s))), float("nan"), device="cuda")
        self.run("scan_run_map", d_o, maps)
        e, m = maps.split([s.heads * s.key_dim * s.value_dim, maps.shape[1] - s.heads * s.key_dim * s.value_dim], 1)
        m = m.view(self.count, s.heads, s.key_dim, -1)
        return e.view(self.state), m if s.read else torch.diag_embed(m[..., 0])


def loop(s, place, x, beta, decay, skip, before):
    """The recurrence of burst_model.h in the inputs' own precision: o [n][heads][value_dim], and the state after it."""
    n, group = len(place), s.heads // s.key_heads
    columns = (s.key_heads, s.key_dim), (s.key_heads, s.key_dim), (s.heads, s.value_dim)
    q, k, v = (x[:, a:a + h * d].view(n, h, d) for a, (h, d) in zip((s.q, s.k, s.v), columns))
    if s.normalize:
        q, k = (t * torch.rsqrt((t * t).sum(-1, keepdim=True) + EPS) for t in (q, k))
    q, k = ((t * by).repeat_interleave(group, 1) for t, by in ((q, s.scale), (k, 1)))
    state, o, starts = before, [], (place == 0).tolist()
    for t in range(n):
        state = torch.zeros_like(state) if starts[t] else state * decay[t].exp()[:, None, None]
        u = v[t] - torch.einsum("hkv,hk->hv", state, k[t]) if s.read else v[t]
        state = state + k[t][:, :, None] * (beta[t][:, None] * u)[:, None, :]
        o.append(torch.einsum("hkv,hk->hv", state, q[t]))
    o = torch.stack(o)
    return o + skip[:, None] * v if skip is not None else o, state
