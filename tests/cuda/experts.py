"""experts.py: the operations of experts called on torch tensors, through the library that experts_lib.cu is built into.

A Layer is one layer of experts: its matrices in bf16, what a step keeps of it, and gradients of the matrices in fp32.
"""
import copy
import ctypes as C
import os
import pathlib

import torch

ACTIVATIONS = ("swiglu", "geglu", "geglu_tanh", "gelu", "gelu_tanh", "relu2")
GATED = 3  # the first so many
SCORES = ("softmax", "sigmoid")


class Experts(C.Structure):
    _fields_ = [("experts", C.c_int), ("top", C.c_int), ("width", C.c_int), ("activation", C.c_int), ("score", C.c_int),
                ("normalize", C.c_int), ("eps", C.c_double), ("scale", C.c_double), ("shared", C.c_int), ("shared_gate", C.c_int),
                ("correction", C.c_int), ("groups", C.c_int), ("top_groups", C.c_int), ("group_score", C.c_int), ("router_bias", C.c_int),
                ("bias", C.c_int), ("least", C.c_double), ("alpha", C.c_double), ("offset", C.c_double), ("limit", C.c_double), ("rate", C.c_double), ("balance", C.c_double), ("everywhere", C.c_int),
                ("first", C.c_int), ("rows", C.c_int)]


_library = {}


def library():
    """BURST_EXPERTS_FORM=80: the kernels of sm_80, also where those of sm_90a could run."""
    name = "libexperts80.so" if os.environ.get("BURST_EXPERTS_FORM") == "80" else "libexperts.so"
    path = os.path.join(os.environ.get("BURST_CUDA_LIB", pathlib.Path(__file__).resolve().parent), name)
    if path not in _library:
        _library[path] = C.CDLL(path)
        _library[path].test_scratch_bytes.restype = C.c_int64
        if _library[path].test_open(C.sizeof(Experts)):
            raise RuntimeError(f"{path} does not open, or has another BurstExperts")
    return _library[path]


def call(name, *arguments):
    """Tensors as their addresses, 64-bit numbers of tokens first."""
    words = [C.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor) else C.c_void_p(None) if x is None else x for x in arguments]
    status = getattr(library(), f"test_{name}")(C.c_int64(words[0]), *words[1:], C.c_void_p(torch.cuda.current_stream().cuda_stream))
    if status:
        raise RuntimeError(f"{name}: status {status}")


def empty(*shape, dtype=torch.bfloat16):
    """With NaN, or the least integer, in each element: all must be written."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else -2**31, dtype=dtype, device="cuda")


class Layer:
    def __init__(self, n, hidden, width, experts, top, activation="swiglu", score="softmax", normalize=True, eps=0., scale=1., seed=0):
        self.n, self.hidden, self.width, self.experts, self.top = n, hidden, width, experts, top
        self.m = Experts(experts, top, width, ACTIVATIONS.index(activation), SCORES.index(score), normalize, eps, scale, alpha=1.)
        make = torch.Generator("cuda").manual_seed(seed)
        def normal(*shape, std=1.):
            return (torch.randn(*shape, device="cuda", generator=make) * std).bfloat16()
        self.x, self.dy = normal(n, hidden), normal(n, hidden)
        self.router = normal(experts, hidden, std=hidden ** -.5)
        columns = width * (1 + (ACTIVATIONS.index(activation) < GATED))
        self.up, self.down = normal(experts, columns, hidden, std=hidden ** -.5), normal(experts, hidden, width, std=width ** -.5)
        rows = n * top
        self.logits, self.d_logits = empty(n, experts, dtype=torch.float32), empty(n, experts, dtype=torch.float32)
        self.choice, self.slot, self.row = (empty(rows, dtype=torch.int32) for _ in range(3))
        self.first = empty(experts + 1, dtype=torch.int32)
        self.route, self.d_route = empty(rows, dtype=torch.float32), empty(rows, dtype=torch.float32)
        self.gate_up, self.act, self.out, self.y = empty(rows, columns), empty(rows, width), empty(rows, hidden), empty(n, hidden)
        self.d_act, self.d_rows, self.dx = empty(rows, width), self.out, empty(n, hidden)
        self.d_router = torch.zeros(experts, hidden, device="cuda")
        self.d_up, self.d_down = torch.zeros(experts, columns, hidden, device="cuda"), torch.zeros(experts, hidden, width, device="cuda")
        self.scratch = torch.empty(library().test_scratch_bytes(experts), dtype=torch.uint8, device="cuda")

    def part(self, first, count):
        """Those experts alone, as an operation of a group has them: rows and gradients of its own, the layer's choices and gradients of weights."""
        part = copy.copy(self)
        part.m = Experts.from_buffer_copy(self.m)
        part.m.experts, part.m.first, part.m.rows = count, first, min(self.top, count)
        part.experts, rows = count, self.n * part.m.rows
        part.up, part.down = self.up[first:first + count], self.down[first:first + count]
        part.slot, part.row = (empty(size, dtype=torch.int32) for size in (len(self.choice), rows))
        part.first = empty(count + 1, dtype=torch.int32)
        part.gate_up, part.act, part.out, part.y = empty(rows, self.up.shape[1]), empty(rows, self.down.shape[2]), empty(rows, self.hidden), empty(self.n, self.hidden)
        part.d_act, part.d_rows = empty(rows, self.down.shape[2]), part.out
        part.d_up, part.d_down = (torch.zeros(x.shape, device="cuda") for x in (part.up, part.down))
        return part

    def choose(self):
        call("logits", self.n, self.hidden, self.experts, self.x, self.router, self.logits)
        call("choose", self.n, C.byref(self.m), self.logits, self.choice, self.route)

    def arrange(self):
        call("arrange", self.n, C.byref(self.m), self.choice, self.slot, self.row, self.first, self.scratch)

    def products(self):
        m = C.byref(self.m)
        call("up", self.n, m, self.hidden, self.x, self.row, self.first, self.up, self.gate_up)
        call("act", self.n, m, self.gate_up, self.route, self.row, self.act)
        call("down", self.n, m, self.hidden, self.act, self.first, self.down, self.out)

    def combine(self, add=None):
        call("sum", self.n, C.byref(self.m), self.hidden, self.out, self.slot, add, self.y)

    def forward(self):
        self.choose()
        self.arrange()
        self.products()
        self.combine()

    def products_back(self):
        """The gradient of gate and up is written over them."""
        m = C.byref(self.m)
        call("down_dw", self.n, m, self.hidden, self.dy, self.act, self.row, self.first, self.d_down)
        call("down_dx", self.n, m, self.hidden, self.dy, self.row, self.first, self.down, self.d_act)
        call("act_back", self.n, m, self.gate_up, self.route, self.row, self.d_act, self.gate_up, self.d_route)
        call("up_dw", self.n, m, self.hidden, self.gate_up, self.x, self.row, self.first, self.d_up)
        call("up_dx", self.n, m, self.hidden, self.gate_up, self.first, self.up, self.d_rows)

    def backward(self):
        m = C.byref(self.m)
        self.products_back()
        call("sum", self.n, m, self.hidden, self.d_rows, self.slot, None, self.dx)
        call("choose_back", self.n, m, self.logits, self.choice, self.d_route, self.d_logits)
        call("logits_dw", self.n, self.hidden, self.experts, self.d_logits, self.x, self.d_router, self.scratch)
        call("logits_dx", self.n, self.hidden, self.experts, self.d_logits, self.router, self.dx, 1, self.scratch)
