"""bench_experts.py [--quick]: experts beside torch, in turn in one process: the products alone beside torch._grouped_mm, and the whole layer, from
the router to the sum of a token's rows, beside the same function in torch, compiled.

Shapes: Qwen3-30B-A3B (128 experts, top 8, hidden 2048, width 768) and gpt-oss-20b (32, top 4, 2880, 2880), uniform and by Zipf. TFLOP/s count
the products alone, 6 tokens top hidden width forward and twice that backward, by the time of everything. Ours gathers rows within the products
and adds the gradients of matrices to fp32; torch's products begin with rows that are gathered already, and write bf16.
"""
import ctypes as C
import sys

import torch
import torch.nn.functional as F

import experts
from experts import call

SHAPES = {"qwen3-30b-a3b": (2048, 768, 128, 8), "gpt-oss-20b": (2880, 2880, 32, 4)}
TOKENS = (32768, 65536)
ROUNDS = 8


def timed(functions):
    """Medians in ms of functions that run in turn."""
    for f in functions:
        f(), f()
    times = [[] for _ in functions]
    for _ in range(ROUNDS):
        for f, of in zip(functions, times):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            a.record()
            f()
            b.record()
            torch.cuda.synchronize()
            of.append(a.elapsed_time(b))
    return [sorted(of)[len(of) // 2] for of in times]


def layer_of_torch(top):
    def layer(x, router, bias, gate_up, down):
        """x [n, hidden]; gate_up [experts, hidden, 2 width], down [experts, width, hidden]."""
        n, e = x.shape[0], router.shape[0]
        w, chosen = (F.linear(x, router).float() + bias).softmax(-1).topk(top, -1)
        w = (w / w.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        ends = torch.bincount(chosen.flatten(), minlength=e).cumsum(0).to(torch.int32)
        g, u = torch._grouped_mm(x[order // top], gate_up, offs=ends).chunk(2, -1)
        y = torch._grouped_mm(F.silu(g) * u * w.flatten()[order, None], down, offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(n * top, device=x.device)
        return y[back].view(n, top, -1).sum(1)
    return torch.compile(layer)


def products(name, n, kind):
    hidden, width, e, top = SHAPES[name]
    make = torch.Generator("cuda").manual_seed(1)
    p = torch.ones(e, device="cuda") if kind == "uniform" else 1 / torch.arange(1, e + 1, device="cuda").float()
    l = experts.Layer(n, hidden, width, e, top)
    l.choose()
    l.choice.copy_(torch.multinomial(p.expand(n, e), top, generator=make).flatten())
    l.arrange()
    m, h = C.byref(l.m), hidden
    parts = {"up": lambda: call("up", n, m, h, l.x, l.row, l.first, l.up, l.gate_up),
             "act": lambda: call("act", n, m, l.gate_up, l.route, l.row, l.act),
             "down": lambda: call("down", n, m, h, l.act, l.first, l.down, l.out),
             "down_dw": lambda: call("down_dw", n, m, h, l.dy, l.act, l.row, l.first, l.d_down),
             "down_dx": lambda: call("down_dx", n, m, h, l.dy, l.row, l.first, l.down, l.d_act),
             "act_back": lambda: call("act_back", n, m, l.gate_up, l.route, l.row, l.d_act, l.gate_up, l.d_route),
             "up_dw": lambda: call("up_dw", n, m, h, l.gate_up, l.x, l.row, l.first, l.d_up),
             "up_dx": lambda: call("up_dx", n, m, h, l.gate_up, l.first, l.up, l.d_rows),
             "sum": l.combine, "arrange": l.arrange}
    flops = 2. * n * top * hidden * width
    ms = dict(zip(parts, timed(list(parts.values()))))
    print("    " + "  ".join(f"{part} {t:.2f}" + (f" ({flops * (2 if 'up' in part else 1) / t / 1e9:.0f})" if part[:2] in ("up", "do") else "")
                             for part, t in ms.items()), flush=True)

    ends = l.first[1:].contiguous()
    x = l.x[l.row.long() // top].requires_grad_()
    a, b = l.up.transpose(1, 2).contiguous().requires_grad_(), l.down.transpose(1, 2).contiguous().requires_grad_()
    def forward():
        g, u = torch._grouped_mm(x, a, offs=ends).chunk(2, -1)
        return torch._grouped_mm(F.silu(g) * u, b, offs=ends)
    d = torch.randn_like(forward())
    def both():
        x.grad = a.grad = b.grad = None
        forward().backward(d)
    tf, tb, of, ob = timed([forward, both, l.products, l.products_back])
    line = f"{name}, {n // 1024}Ki tokens, {kind}: products forward {of:.2f} ms {3 * flops / of / 1e9:.0f} TFLOP/s, backward {ob:.2f} ms {6 * flops / ob / 1e9:.0f}"
    print(f"{line}; torch {tf:.2f} ms {3 * flops / tf / 1e9:.0f}, {tb - tf:.2f} ms {6 * flops / (tb - tf) / 1e9:.0f}", flush=True)


def whole(name, n, kind):
    hidden, width, e, top = SHAPES[name]
    l = experts.Layer(n, hidden, width, e, top)
    bias = torch.zeros(e, device="cuda") if kind == "uniform" else -torch.arange(1, e + 1, device="cuda").float().log()
    # skewed by Zipf for ours: a constant column of x carries the bias
    x, router = l.x.clone().requires_grad_(), l.router.clone().requires_grad_()
    if kind != "uniform":
        with torch.no_grad():
            l.x[:, 0] = 8
            l.router[:, 0] = bias / 8
            x.copy_(l.x), router.copy_(l.router)
        bias = torch.zeros(e, device="cuda")
    a, b = l.up.transpose(1, 2).contiguous().requires_grad_(), l.down.transpose(1, 2).contiguous().requires_grad_()
    layer = layer_of_torch(top)
    def forward():
        return layer(x, router, bias, a, b)
    def both():
        x.grad = router.grad = a.grad = b.grad = None
        forward().backward(l.dy)
    def ours():
        l.forward()
        l.backward()
    tf, tb, of, ob = timed([forward, both, l.forward, ours])
    flops = 6. * n * top * hidden * width
    l.forward()
    error = float((forward().detach().float() - l.y.float()).norm() / l.y.float().norm())
    print(f"{name}, {n // 1024}Ki tokens, {kind}: layer forward {of:.2f} ms {flops / of / 1e9:.0f} TFLOP/s, both {ob:.2f} ms {3 * flops / ob / 1e9:.0f}; "
          f"torch {tf:.2f} ms, {tb:.2f} ms: {tf / of:.2f} x, {tb / ob:.2f} x (apart {error:.1e})", flush=True)


def main():
    quick = "--quick" in sys.argv
    print(torch.cuda.get_device_name(), flush=True)
    for name in SHAPES:
        for n in TOKENS[:1] if quick else TOKENS:
            for kind in ("uniform", "zipf"):
                products(name, n, kind)
                torch.cuda.empty_cache()
        for n in TOKENS[:1] if quick else TOKENS:
            for kind in ("uniform", "zipf"):
                whole(name, n, kind)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
