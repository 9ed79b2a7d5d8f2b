"""Batches: documents of a plan, which rows each rank has of them, and rows from one layout to another."""
import ctypes
import itertools
import weakref

import torch
import torch.distributed as dist

from . import _c

live = weakref.WeakValueDictionary()  # by the number that operators name a batch by
numbers = itertools.count()
free = []


def int32(values):
    return torch.as_tensor(values, dtype=torch.int32, device="cpu").contiguous()


def take_number():
    """Numbers are used again: compiled graphs know them."""
    return free.pop() if free else next(numbers)


def release(number, close, handle, plan):
    close(handle)
    del plan  # which was kept until now
    free.append(number)


class Batch:
    """Made by Plan.batch. Rows are the first dimension of tensors."""

    def __init__(self, plan, cu_seqlens, tables):
        lib, made = _c.library(), ctypes.c_void_p()
        unknown = set(tables) - set(plan.tables)
        if unknown:
            raise ValueError(f"the plan's masks read no table {', '.join(sorted(unknown))}")
        self.cu_seqlens = int32([0, plan.tokens] if cu_seqlens is None else cu_seqlens)
        given = [int32(tables[name]) if name in tables else None for name in plan.tables]
        for name, values in zip(plan.tables, given):
            if values is not None and values.shape != (plan.tokens,):
                raise ValueError(f"table {name} has the shape {tuple(values.shape)}, not ({plan.tokens},)")
        if self.cu_seqlens.ndim != 1 or len(self.cu_seqlens) < 2:
            raise ValueError("cu_seqlens is a list of two numbers or more")
        pointers = (ctypes.c_void_p * (len(given) + 1))(*[v.data_ptr() if v is not None else None for v in given])
        _c.check(lib.burst_batch_make(plan.handle, self.cu_seqlens.data_ptr(), len(self.cu_seqlens) - 1, pointers, ctypes.byref(made)),
                 plan.handle)
        self.plan, self.handle, self.number = plan, made.value, take_number()
        live[self.number] = self
        plan._batches.add(self)
        self._closes = weakref.finalize(self, release, self.number, lib.burst_batch_close, self.handle, plan)
        size = lib.burst_plan_bytes(plan.handle, _c.BATCH_MEMORY)
        self._memory = torch.empty(size + 256, dtype=torch.uint8, device=plan.device)
        memory = (self._memory.data_ptr() + 255) // 256 * 256
        _c.check(lib.burst_batch_load(self.handle, memory, stream_of(plan)), plan.handle)
        self.rows, self.positions = self._rows(_c.BALANCED)
        self._all_rows, self._all_counts = None, None
        self.count = len(self.rows)

    def close(self):
        self._closes()
        live.pop(self.number, None)

    def _rows(self, layout):
        """The token of each row of this rank, and its position inside its document."""
        rows = _c.library().burst_batch_rows(self.handle, layout, None, None)
        token, position = torch.empty(rows, dtype=torch.int32), torch.empty(rows, dtype=torch.int32)
        _c.library().burst_batch_rows(self.handle, layout, token.data_ptr(), position.data_ptr())
        return token.long().to(self.plan.device), position.long().to(self.plan.device)

    def rows_of(self, layout):
        return _c.library().burst_batch_rows(self.handle, layout, None, None)

    # ---- rows on GPUs: by torch's collectives, all of them to all where they are not all there ----

    def _rows_of_all(self):
        """The token of every rank's rows, rank by rank, each padded to the longest. Collective when it is first asked for."""
        if self._all_rows is None:
            counts = [torch.zeros(1, dtype=torch.long, device=self.rows.device) for _ in range(self.plan.ranks)]
            if self.plan.ranks > 1:
                dist.all_gather(counts, torch.tensor([self.count], device=self.rows.device), group=self.plan.group)
            else:
                counts = [torch.tensor([self.count])]
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

    def _bounds(self):
        return [self.plan.tokens * r // self.plan.ranks for r in range(self.plan.ranks + 1)]

    def move_on_device(self, x, source, target):
        bounds = self._bounds()
        if source == _c.BALANCED:
            rows = self._rows_of_all()
            x = torch.empty(self.plan.tokens, *x.shape[1:], dtype=x.dtype, device=x.device).index_copy_(0, rows, self._gather_padded(x))
        elif source == _c.CONTIGUOUS:
            kept, self._all_counts = self._all_counts, [b - a for a, b in zip(bounds, bounds[1:])]
            x, self._all_counts = self._gather_padded(x), kept
        if target == _c.BALANCED:
            return x[self.rows]
        return x if target == _c.REPLICATED else x[bounds[self.plan.rank]:bounds[self.plan.rank + 1]]

    def _check_whole(self, x):
        if x.shape[0] != self.plan.tokens:
            raise ValueError(f"a tensor of {x.shape[0]} rows: a batch of this plan has {self.plan.tokens} tokens")

    def dispatch(self, x, shift=0, ignore=-100):
        """This rank's rows of all tokens' [T, ...], which every rank has alike; the gradient is again that of all tokens.

        shift: row t is that of token t - shift: -1 for labels, the next token. Where that is outside of t's document: ignore.
        """
        self._check_whole(x)
        if not shift:
            return torch.ops.burst.move(x, self.number, _c.REPLICATED, _c.BALANCED)
        begin = self.rows - self.positions
        ends = self.cu_seqlens[1:].long().to(self.plan.device)
        end = ends[torch.searchsorted(ends, self.rows, right=True)]
        source = self.rows - shift
        inside = (source >= begin) & (source < end)
        shifted = x[source.clamp(0, self.plan.tokens - 1)]
        return torch.where(inside.view(-1, *[1] * (x.ndim - 1)), shifted, torch.full_like(shifted, ignore))

    def undispatch(self, x):
        """All tokens' rows of [t, ...], in their order, on every rank."""
        return torch.ops.burst.move(x, self.number, _c.BALANCED, _c.REPLICATED)

    def contiguous(self, x):
        """This rank's share of the tokens in their order, as recurrent layers need them."""
        return torch.ops.burst.move(x, self.number, _c.BALANCED, _c.CONTIGUOUS)

    def balanced(self, x):
        """Back from there."""
        return torch.ops.burst.move(x, self.number, _c.CONTIGUOUS, _c.BALANCED)

    def mean(self, loss_sum, count):
        """This rank's part of the mean over all ranks' counted tokens: the parts add up to the mean."""
        total = torch.as_tensor(count, dtype=torch.float64, device=loss_sum.device).detach().clone()
        if self.plan.ranks > 1:
            dist.all_reduce(total, group=self.plan.group)
        return loss_sum / total.clamp(min=1).to(loss_sum.dtype)


def stream_of(plan):
    return torch._C._cuda_getCurrentRawStream(plan.device.index) if plan.is_cuda else None
