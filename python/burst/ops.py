"""Operators of torch.library: burst::attention, burst::attention_backward, burst::move.

They name a batch by its number, and are what torch.compile, selective checkpointing and autograd see.
"""
import torch
from torch import Tensor

from . import _c
from .batch import live, stream_of


def batch_of(number):
    batch = live.get(number)
    if batch is None:
        raise _c.BurstError("the batch of this call is no longer there: keep it until backward has run")
    return batch


def refuse(plan, text):
    """The other ranks, which make this call, must not wait for it."""
    if plan.ranks > 1:
        _c.library().burst_plan_abort(plan.handle, text.encode())
    raise ValueError(text)


def checked(plan, x, shape, dtype, what):
    if tuple(x.shape) != tuple(shape) or x.dtype != dtype or x.device.type != plan.device.type:
        refuse(plan, f"{what} is {x.dtype} {tuple(x.shape)} on {x.device}; this batch needs {dtype} {tuple(shape)} on {plan.device}")
    return x.contiguous()


def address(x):
    return x.data_ptr() if x is not None else None


@torch.library.custom_op("burst::attention", mutates_args=())
def attention_op(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, batch: int, mask: int, scale: float) -> tuple[Tensor, Tensor]:
    b = batch_of(batch)
    p, n = b.plan, b.count
    q = checked(p, q, (n, p.heads, p.head_dim), p.dtype, "q")
    k, v = (checked(p, x, (n, p.kv_heads, width), p.dtype, name) for x, name, width in ((k, "k", p.head_dim), (v, "v", p.value_dim)))
    sinks = checked(p, sinks, (p.heads,), torch.float32, "sinks") if sinks is not None else None
    o, lse = q.new_empty(n, p.heads, p.value_dim), torch.empty(p.heads, n, dtype=torch.float32, device=q.device)
    _c.check(_c.library().burst_attention_forward(b.handle, mask, q.data_ptr(), k.data_ptr(), v.data_ptr(), address(sinks), scale,
                                                  o.data_ptr(), lse.data_ptr(), p.workspace, stream_of(p)), p.handle)
    return o, lse


@attention_op.register_fake
def _(q, k, v, sinks, batch, mask, scale):
    return q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


@torch.library.custom_op("burst::attention_backward", mutates_args=())
def attention_backward_op(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, o: Tensor, lse: Tensor, d_o: Tensor,
                          d_lse: Tensor | None, batch: int, mask: int, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    b = batch_of(batch)
    p = b.plan
    q, k, v, o, lse = (x.contiguous() for x in (q, k, v, o, lse))
    sinks = sinks.contiguous() if sinks is not None else None
    d_o, d_lse = d_o.contiguous(), d_lse.contiguous() if d_lse is not None else None
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dsinks = torch.zeros(p.heads if sinks is not None else 0, dtype=torch.float32, device=q.device)
    _c.check(_c.library().burst_attention_backward(b.handle, mask, q.data_ptr(), k.data_ptr(), v.data_ptr(), address(sinks), scale,
                                                   o.data_ptr(), lse.data_ptr(), d_o.data_ptr(), address(d_lse), dq.data_ptr(),
                                                   dk.data_ptr(), dv.data_ptr(), dsinks.data_ptr() if sinks is not None else None,
                                                   p.workspace, stream_of(p)), p.handle)
    return dq, dk, dv, dsinks


@attention_backward_op.register_fake
def _(q, k, v, sinks, o, lse, d_o, d_lse, batch, mask, scale):
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return dq, dk, dv, q.new_empty(q.shape[1] if sinks is not None else 0, dtype=torch.float32)


def attention_setup(ctx, inputs, output):
    q, k, v, sinks, ctx.batch, ctx.mask, ctx.scale = inputs
    ctx.kept = live.get(ctx.batch)  # until backward has run
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, sinks, *output)


def attention_grad(ctx, d_o, d_lse):
    q, k, v, sinks, o, lse = ctx.saved_tensors
    if d_o is None and d_lse is None:
        return None, None, None, None, None, None, None
    d_o = torch.zeros_like(o) if d_o is None else d_o
    dq, dk, dv, dsinks = torch.ops.burst.attention_backward(q, k, v, sinks, o, lse, d_o, d_lse, ctx.batch, ctx.mask, ctx.scale)
    return dq, dk, dv, dsinks if sinks is not None else None, None, None, None


attention_op.register_autograd(attention_grad, setup_context=attention_setup)


@torch.library.custom_op("burst::move", mutates_args=())
def move_op(x: Tensor, batch: int, source: int, target: int) -> Tensor:
    b = batch_of(batch)
    rows, x = b.rows_of(source), x.contiguous()
    if x.shape[0] != rows or x.device.type != b.plan.device.type:
        refuse(b.plan, f"a tensor of {x.shape[0]} rows on {x.device}; this rank has {rows} on {b.plan.device}")
    if b.plan.device.type == "cuda":
        return b.move_on_device(x, source, target).clone()
    y = x.new_empty(b.rows_of(target), *x.shape[1:])
    width = x.element_size()
    for n in x.shape[1:]:
        width *= n
    _c.check(_c.library().burst_move(b.handle, source, target, x.data_ptr() or None, y.data_ptr() or None, width, stream_of(b.plan)),
             b.plan.handle)
    return y


@move_op.register_fake
def _(x, batch, source, target):
    return x.new_empty(live[batch].rows_of(target) if isinstance(batch, int) else x.shape[0], *x.shape[1:])


def move_setup(ctx, inputs, output):
    _, ctx.batch, ctx.source, ctx.target = inputs
    ctx.kept = live.get(ctx.batch)


def move_grad(ctx, d_y):
    return torch.ops.burst.move(d_y, ctx.batch, ctx.target, ctx.source), None, None, None


move_op.register_autograd(move_grad, setup_context=move_setup)


def attention(q, k, v, batch, mask=0, *, sinks=None, scale=None, return_lse=False):
    """Attention of the batch's rows: q [t, heads, head_dim], k [t, kv_heads, head_dim], v [t, kv_heads, value_dim]; o [t, heads, value_dim], lse [heads, t].

    Collective: all ranks call it, and their backward, in the same order. mask: its name or number. sinks [heads], fp32: a score a
    head that takes weight and has no value; lse is without it.
    """
    o, lse = torch.ops.burst.attention(q, k, v, sinks, batch.number, batch.plan.mask_index(mask), float(scale or 0))
    return (o, lse) if return_lse else o
