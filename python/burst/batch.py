"""Batches: documents of a plan, which rows each rank has of them, and rows from one layout to another."""
import ctypes
import itertools
import weakref

import torch
import torch.distributed as dist

from . import _c
from .given import INT32, int32s, whole

live = weakref.WeakValueDictionary()  # states by their numbers, none of which is used twice
numbers = itertools.count()


class Tag(bytearray):
    """The memory of a tensor that names a state, which is there as long as that memory."""
    state = None


class Shared:
    """Open in this process: copies are the same object, and nothing of it can be pickled."""

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce_ex__(self, protocol):
        raise TypeError(f"a {type(self).__name__} is open in this process and cannot be pickled: make another one where it is needed")


def release(close, handle, plan):
    close(handle)
    del plan  # which was kept until now


class State:
    """What calls need of a batch. Operators name it by a tensor, its tag: numbers would be constants of compiled graphs.

    It is there until the last of its tags is gone, such as one that backward of a compiled graph has saved.
    """

    def __init__(self, plan, handle):
        lib = _c.library()
        self.plan, self.number = plan, next(numbers)
        self._handle = handle
        self._closes = weakref.finalize(self, release, lib.burst_batch_close, handle, plan)
        size = lib.burst_plan_bytes(plan.handle, _c.BATCH_MEMORY)
        self._memory = torch.empty(size + 256, dtype=torch.uint8, device=plan.device)
        memory = (self._memory.data_ptr() + 255) // 256 * 256
        _c.check(lib.burst_batch_load(handle, memory, stream_of(plan)), plan.handle)
        self.rows, self.positions = self._rows()
        self.counts = (len(self.rows), plan.bounds[plan.rank + 1] - plan.bounds[plan.rank], plan.tokens)  # of rows, by layout
        self._all_rows, self._all_counts = None, None
        live[self.number] = self
        plan._batches.add(self)

    @property
    def closed(self):
        return not self._closes.alive

    @property
    def handle(self):
        if self.closed:
            raise _c.BurstError("the batch is closed" + (", with its plan" if self.plan.closed else ""))
        return self._handle

    def close(self):
        self._closes()

    def tag(self):
        memory = Tag(self.number.to_bytes(8, "little"))
        memory.state = self
        return torch.frombuffer(memory, dtype=torch.int64)

    def _rows(self):
        """The token of each row of this rank, and its position inside its document."""
        rows = _c.library().burst_batch_rows(self.handle, _c.BALANCED, None, None)
        token, position = torch.empty(rows, dtype=torch.int32), torch.empty(rows, dtype=torch.int32)
        _c.library().burst_batch_rows(self.handle, _c.BALANCED, token.data_ptr(), position.data_ptr())
        return token.long().to(self.plan.device), position.long().to(self.plan.device)

    # ---- rows on GPUs: by torch's collectives, all of them to all where they are not all there ----

    def _rows_of_all(self):
        """The token of every rank's rows, rank by rank, each padded to the longest. Collective when it is first asked for."""
        if self._all_rows is None:
            counts = [torch.zeros(1, dtype=torch.long, device=self.rows.device) for _ in range(self.plan.ranks)]
            if self.plan.ranks > 1:
                dist.all_gather(counts, torch.tensor([len(self.rows)], device=self.rows.device), group=self.plan.group)
            else:
                counts = [torch.tensor([len(self.rows)])]
            self._all_counts = [int(c) for c in counts]
            self._all_rows = self._gather_padded(self.rows)
        return self._all_rows

    def _gather_padded(self, x):
        most = max(self._all_counts)
        padded = torch.zeros(most, *x.shape[1:], dtype=x.dtype, device=x.device)
        padded[:len(x)] = x
        every = torch.empty(self.plan.ranks * most, *x.shape[1:], dtype=x.dtype, device=x.device)
        if self.plan.ranks > 1:
            dist.all_gather_into_tensor(every, padded, group=self.plan.group)
        else:
            every = padded
        return torch.cat([every[r * most:r * most + n] for r, n in enumerate(self._all_counts)])

    def move_on_device(self, x, source, target):
        bounds = self.plan.bounds
        if source == _c.BALANCED:
            rows = self._rows_of_all()
            x = torch.empty(self.plan.tokens, *x.shape[1:], dtype=x.dtype, device=x.device).index_copy_(0, rows, self._gather_padded(x))
        elif source == _c.CONTIGUOUS:
            kept, self._all_counts = self._all_counts, [b - a for a, b in zip(bounds, bounds[1:])]
            x, self._all_counts = self._gather_padded(x), kept
        if target == _c.BALANCED:
            return x[self.rows]
        return x if target == _c.REPLICATED else x[bounds[self.plan.rank]:bounds[self.plan.rank + 1]]


class Batch(Shared):
    """Made by Plan.batch. Rows are the first dimension of tensors."""

    def __init__(self, plan, cu_seqlens, tables):
        lib, made = _c.library(), ctypes.c_void_p()
        self.cu_seqlens = int32s([0, plan.tokens] if cu_seqlens is None else cu_seqlens, "cu_seqlens")
        if self.cu_seqlens.ndim != 1 or len(self.cu_seqlens) < 2:
            raise ValueError(f"cu_seqlens has the shape {tuple(self.cu_seqlens.shape)}; it is a list of two numbers or more")
        given = given_tables(plan, tables)
        pointers = (ctypes.c_void_p * (len(given) + 1))(*[v.data_ptr() if v is not None else None for v in given])
        _c.check(lib.burst_batch_make(plan.handle, self.cu_seqlens.data_ptr(), len(self.cu_seqlens) - 1, pointers, ctypes.byref(made)),
                 plan.handle)
        self.plan, self.state = plan, State(plan, made.value)
        self.tag = self.state.tag()
        self.rows, self.positions, self.count = self.state.rows, self.state.positions, len(self.state.rows)

    @property
    def handle(self):
        return self.state.handle

    def rows_of(self, layout):
        return self.state.counts[layout]

    def close(self):
        self.state.close()

    def _move(self, x, source, target):
        return torch.ops.burst.move(x, self.tag, source, target, self.rows_of(target))

    def dispatch(self, x, shift=0, ignore=-100):
        """This rank's rows of all tokens' [T, ...], which every rank has alike; the gradient again has all tokens.

        shift: row t belongs to token t - shift: -1 for labels, the next token. Where that is outside of t's document: ignore.
        """
        shift = whole(shift, "shift", -INT32.max)
        if x.ndim == 0 or x.shape[0] != self.plan.tokens or x.device != self.plan.device:
            raise ValueError(f"a tensor of {tuple(x.shape)} on {x.device}: a batch of this plan has {self.plan.tokens} tokens on {self.plan.device}")
        if not shift:
            return self._move(x, _c.REPLICATED, _c.BALANCED)
        begin = self.rows - self.positions
        ends = self.cu_seqlens[1:].long().to(self.plan.device)
        end = ends[torch.searchsorted(ends, self.rows, right=True)]
        source = self.rows - shift
        inside = (source >= begin) & (source < end)
        shifted = x[source.clamp(0, self.plan.tokens - 1)]
        return torch.where(inside.view(-1, *[1] * (x.ndim - 1)), shifted, torch.full_like(shifted, filler(ignore, x.dtype)))

    def undispatch(self, x):
        """All tokens' rows of [t, ...], in their order, on every rank."""
        return self._move(x, _c.BALANCED, _c.REPLICATED)

    def contiguous(self, x):
        """This rank's share of the tokens in their order, as recurrent layers need them."""
        return self._move(x, _c.BALANCED, _c.CONTIGUOUS)

    def balanced(self, x):
        """Back from there."""
        return self._move(x, _c.CONTIGUOUS, _c.BALANCED)

    def mean(self, loss_sum, count):
        """This rank's part of the mean over all ranks' counted tokens: the parts add up to the mean.

        A count that is negative or not finite is an error; on GPUs, which are not waited for, the loss is NaN.
        """
        own = torch.as_tensor(count, dtype=torch.float64, device=loss_sum.device).detach()
        if own.numel() != 1:
            raise ValueError(f"count has the shape {tuple(own.shape)}: it is the number of this rank's counted tokens")
        total = torch.where((own >= 0) & own.isfinite(), own, torch.nan).reshape(())
        if self.plan.ranks > 1:
            dist.all_reduce(total, group=self.plan.group)
        if not (total.is_cuda or torch.compiler.is_compiling()) and bool(total.isnan()):
            raise ValueError("a rank's count of tokens is negative or not finite")
        return (loss_sum.double() / torch.where(total == 0, 1.0, total)).to(loss_sum.dtype)


def given_tables(plan, tables):
    """The values of each table of the plan, or None."""
    unknown = set(tables) - set(plan.tables)
    if unknown:
        raise ValueError(f"the plan's masks read no table {', '.join(sorted(map(str, unknown)))}")
    given = [int32s(tables[name], f"table {name}") if name in tables else None for name in plan.tables]
    for name, values in zip(plan.tables, given):
        if values is not None and values.shape != (plan.tokens,):
            raise ValueError(f"table {name} has the shape {tuple(values.shape)}, not ({plan.tokens},)")
    return given


def filler(value, dtype):
    """What dispatch puts where there is no token, if such a tensor can have it."""
    if not (dtype.is_floating_point or dtype.is_complex):
        whole(value, "ignore", *((0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)))
    return value


def stream_of(plan):
    return torch._C._cuda_getCurrentRawStream(plan.device.index) if plan.is_cuda else None
