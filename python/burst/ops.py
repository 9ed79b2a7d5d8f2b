"""Operators of torch.library: burst::attention, burst::attention_backward, burst::move.

They name a batch by its tag, a tensor, and are what torch.compile, selective checkpointing and autograd see. Defined by schema, not by
torch.library.custom_op, whose checks of aliases take a third of a call's time on the host.
"""
import torch

from . import _c
from .batch import Batch, live, stream_of
from .given import positive

LIBRARY = torch.library.Library("burst", "DEF")
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)


def operator(schema):
    """Defines an operator: what follows is its implementation on all devices that plans are for."""
    def define(function):
        LIBRARY.define(schema, tags=TAGS)
        for device in ("CPU", "CUDA"):
            LIBRARY.impl(schema.partition("(")[0], function, device)
        return function
    return define


def shapes_of(name):
    """The operator's shapes where nothing is computed: under torch.compile, on the meta device."""
    return torch.library.register_fake(f"burst::{name}", lib=LIBRARY)


def differentiate(name, backward, setup):
    torch.library.register_autograd(f"burst::{name}", backward, setup_context=setup, lib=LIBRARY)


def refuse(plan, text, error=ValueError):
    """The other ranks, which make this call, must not wait for it."""
    if plan.ranks > 1 and not plan.closed:
        _c.library().burst_plan_abort(plan.handle, text.encode())
    raise error(text)


def state_of(tag):
    state = live.get(tag.item())
    if state is None:
        raise _c.BurstError("the batch of this call is no longer there: keep it until backward has run")
    if state.closed:
        refuse(state.plan, f"the {'plan' if state.plan.closed else 'batch'} of this call is closed", _c.BurstError)
    return state


def seen(tag):
    """The state, to be kept until backward has run. A compiler shows tensors without numbers: its graphs keep the tag."""
    return live.get(tag.item()) if type(tag) is torch.Tensor else None


def checked(plan, x, shape, dtype, what):
    if x.shape != shape or x.dtype != dtype or x.device != plan.device:
        refuse(plan, f"{what} is {x.dtype} {tuple(x.shape)} on {x.device}; this batch needs {dtype} {tuple(shape)} on {plan.device}")
    return x.contiguous()


def checked_call(plan, mask, scale):
    """The number of a mask, and a scale as C has it: 0 is 1 / sqrt(head_dim)."""
    try:
        return plan.mask_index(mask), 0.0 if scale is None else positive(scale, "scale")
    except ValueError as error:
        refuse(plan, str(error))


def address(x):
    return x.data_ptr() if x is not None else None


@operator("attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor batch, SymInt mask, float scale) -> (Tensor, Tensor)")
def attention_op(q, k, v, sinks, batch, mask, scale):
    b = state_of(batch)
    p, n = b.plan, len(b.rows)
    q = checked(p, q, (n, p.heads, p.head_dim), p.dtype, "q")
    k, v = (checked(p, x, (n, p.kv_heads, width), p.dtype, name) for x, name, width in ((k, "k", p.head_dim), (v, "v", p.value_dim)))
    sinks = checked(p, sinks, (p.heads,), torch.float32, "sinks") if sinks is not None else None
    o, lse = q.new_empty(n, p.heads, p.value_dim), torch.empty(p.heads, n, dtype=torch.float32, device=q.device)
    _c.check(_c.library().burst_attention_forward(b.handle, mask, q.data_ptr(), k.data_ptr(), v.data_ptr(), address(sinks), scale,
                                                  o.data_ptr(), lse.data_ptr(), p.workspace, stream_of(p)), p.handle)
    return o, lse


@shapes_of("attention")
def _(q, k, v, sinks, batch, mask, scale):
    return q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


@operator("attention_backward(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor o, Tensor lse, Tensor d_o, Tensor? d_lse, "
          "Tensor batch, SymInt mask, float scale) -> (Tensor, Tensor, Tensor, Tensor)")
def attention_backward_op(q, k, v, sinks, o, lse, d_o, d_lse, batch, mask, scale):
    b = state_of(batch)
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


@shapes_of("attention_backward")
def _(q, k, v, sinks, o, lse, d_o, d_lse, batch, mask, scale):
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return dq, dk, dv, q.new_empty(q.shape[1] if sinks is not None else 0, dtype=torch.float32)


def no_second_derivative(ctx, *gradients):
    raise NotImplementedError("burst.attention has no second derivatives")


differentiate("attention_backward", no_second_derivative, lambda ctx, inputs, output: None)


def attention_setup(ctx, inputs, output):
    q, k, v, sinks, tag, ctx.mask, ctx.scale = inputs
    ctx.kept = seen(tag)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, sinks, tag, *output)


def attention_grad(ctx, d_o, d_lse):
    q, k, v, sinks, tag, o, lse = ctx.saved_tensors
    if d_o is None and d_lse is None:
        return None, None, None, None, None, None, None
    d_o = torch.zeros_like(o) if d_o is None else d_o
    dq, dk, dv, dsinks = torch.ops.burst.attention_backward(q, k, v, sinks, o, lse, d_o, d_lse, tag, ctx.mask, ctx.scale)
    return dq, dk, dv, dsinks if sinks is not None else None, None, None, None


differentiate("attention", attention_grad, attention_setup)


@operator("move(Tensor x, Tensor batch, SymInt source, SymInt target, SymInt rows) -> Tensor")
def move_op(x, batch, source, target, rows):
    b, x = state_of(batch), x.contiguous()
    given = b.counts[source]
    if x.ndim == 0 or x.shape[0] != given or x.device != b.plan.device:
        refuse(b.plan, f"a tensor of {tuple(x.shape)} on {x.device}; this rank has {given} rows on {b.plan.device}")
    if b.plan.is_cuda:
        return b.move_on_device(x, source, target).clone()
    y = x.new_empty(rows, *x.shape[1:])
    width = x.element_size()
    for n in x.shape[1:]:
        width *= n
    _c.check(_c.library().burst_move(b.handle, source, target, x.data_ptr() or None, y.data_ptr() or None, width, stream_of(b.plan)),
             b.plan.handle)
    return y


@shapes_of("move")
def _(x, batch, source, target, rows):
    return x.new_empty(rows, *x.shape[1:])


def move_setup(ctx, inputs, output):
    x, tag, ctx.source, ctx.target, _ = inputs
    ctx.kept, ctx.rows = seen(tag), x.shape[0]
    ctx.save_for_backward(tag)


def move_grad(ctx, d_y):
    return torch.ops.burst.move(d_y, *ctx.saved_tensors, ctx.target, ctx.source, ctx.rows), None, None, None, None


differentiate("move", move_grad, move_setup)


class Attention(torch.autograd.Function):
    """burst::attention without the dispatcher, which takes as long as the rest of a call on the host: more than half of that is autograd's."""

    @staticmethod
    def forward(ctx, *inputs):
        output = attention_op(*inputs)
        attention_setup(ctx, inputs, output)
        return output

    backward = staticmethod(attention_grad)


def sees_operators(*tensors):
    """Whether somebody looks at operators as they are called: a compiler, a mode such as selective checkpointing, a transform, a subclass."""
    return (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0 or torch._C._are_functorch_transforms_active()
            or any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in tensors))


def attention(q, k, v, batch, mask=0, *, sinks=None, scale=None, return_lse=False):
    """Attention of the batch's rows: q [t, heads, head_dim], k [t, kv_heads, head_dim], v [t, kv_heads, value_dim]; o [t, heads, value_dim], lse [heads, t].

    Collective: all ranks call it, and their backward, in the same order. mask: its name or number. sinks [heads], fp32: a score a
    head that takes weight and has no value; lse is without it.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"batch is a {type(batch).__name__}, not what Plan.batch returns")
    mask, scale = checked_call(batch.plan, mask, scale)
    call = torch.ops.burst.attention if sees_operators(q, k, v) else Attention.apply
    o, lse = call(q, k, v, sinks, batch.tag, mask, scale)
    return (o, lse) if return_lse else o
