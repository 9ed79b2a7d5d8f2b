"""test_experts.py [--small]: the operations of experts on a GPU against float64, at odd sizes, for choices of all kinds.

Products and activations are given the choice. Bounds are relative L2: of what is rounded to bf16 4e-3, of fp32 2e-5; orders are
exact. Every output is NaN before it is written; gradients of matrices are added to random numbers. Run twice, all bits are equal.
"""
import ctypes as C
import sys

import torch

import experts
from experts import call, empty

BF16, FP32 = 4e-3, 2e-5
SMALL = "--small" in sys.argv
# tokens, hidden, width, experts, top
SIZES = [(1, 64, 8, 2, 1), (7, 72, 40, 6, 2), (130, 64, 64, 4, 4), (509, 256, 96, 16, 4)] + [
    (1000, 200, 136, 60, 4), (129, 512, 768, 128, 8), (2048, 2048, 768, 128, 8), (777, 2880, 2880, 32, 4), (300, 320, 24, 1000, 3)] * (not SMALL)
ROUTES = ("uniform", "one", "few", "zipf")
failures = 0


def report(case, what, error, bound):
    global failures
    good = error <= bound
    failures += not good
    if not good or error > bound / 2:
        print(f"{'ok  ' if good else 'FAIL'} {case} {what}: {error:.2e} [{bound:.0e}]", flush=True)
    return error


def apart(x, right):
    return float((x.double() - right).norm() / right.norm().clamp_min(1e-30))


def routed(kind, n, e, top, make):
    """Choices [n, top] of distinct experts: of all alike, all to the same, to some alone, by Zipf."""
    if kind == "one":
        return torch.arange(e - top, e, device="cuda").expand(n, top).contiguous()
    p = torch.ones(e, device="cuda") if kind != "zipf" else 1 / torch.arange(1, e + 1, device="cuda").float()
    if kind == "few":
        p[torch.arange(e, device="cuda") % max(1, min(3, e // top)) > 0] = 0
    return torch.multinomial(p.expand(n, e), top, generator=make)


def check_arrange(case, l):
    l.arrange()
    order = l.choice.long().argsort(stable=True)
    first = torch.zeros(l.experts + 1, dtype=torch.long, device="cuda")
    first[1:] = l.choice.long().bincount(minlength=l.experts).cumsum(0)
    slot = torch.empty_like(order)
    slot[order] = torch.arange(len(order), device="cuda")
    for name, right in (("row", order), ("first", first), ("slot", slot)):
        report(case, f"arrange {name}", float((getattr(l, name).long() != right).sum()), 0)


def activated(l, kind, gate, up):
    """Of gate and up; `clamped` is SwiGLU of clamped values (GPT-OSS)."""
    if kind == "clamped":
        gate, up = gate.clamp(max=l.m.limit), up.clamp(-l.m.limit, l.m.limit)
        return gate * torch.sigmoid(l.m.alpha * gate) * (up + l.m.offset)
    return activation(kind, gate) * up


def activation(kind, x):
    if kind == "swiglu":
        return torch.nn.functional.silu(x)
    return torch.nn.functional.gelu(x, approximate="tanh" if kind == "geglu_tanh" else "none")


def check_products(case, l, kind):
    """Each product against float64 of the same bf16 inputs, with the activation in between."""
    m, n, h = C.byref(l.m), l.n, l.hidden
    token, first = l.row.long() // l.top, l.first.tolist()
    l.products()
    l.combine()
    parts = [slice(a, b) for a, b in zip(first, first[1:])]
    x, dy, up, down = l.x.double(), l.dy.double(), l.up, l.down
    right = torch.cat([x[token[p]] @ up[e].double().T for e, p in enumerate(parts)])
    report(case, "up", apart(l.gate_up, right), BF16)
    gate_up = l.gate_up.double().requires_grad_()
    route = l.route.double().requires_grad_()
    gate, u = gate_up.chunk(2, -1)
    act = activated(l, kind, gate, u) * route[l.row.long()][:, None]
    report(case, "act", apart(l.act, act.detach()), BF16)
    right = torch.cat([l.act[p].double() @ down[e].double().T for e, p in enumerate(parts)])
    report(case, "down", apart(l.out, right), BF16)
    right = torch.zeros_like(x).index_add_(0, token, l.out.double())
    report(case, "sum", apart(l.y, right), BF16)
    l.combine(l.dy)
    report(case, "sum added", apart(l.y, right + dy), BF16)

    d_down = torch.randn_like(l.d_down)
    d_up = torch.randn_like(l.d_up)
    l.d_down.copy_(d_down), l.d_up.copy_(d_up)
    call("down_dw", n, m, h, l.dy, l.act, l.row, l.first, l.d_down)
    right = torch.stack([dy[token[p]].T @ l.act[p].double() for p in parts])
    report(case, "down_dw", apart(l.d_down, d_down + right), FP32)
    call("down_dx", n, m, h, l.dy, l.row, l.first, l.down, l.d_act)
    right = torch.cat([dy[token[p]] @ down[e].double() for e, p in enumerate(parts)])
    report(case, "down_dx", apart(l.d_act, right), BF16)
    d_gate_up, d_route = torch.autograd.grad(act, (gate_up, route), l.d_act.double())
    call("act_back", n, m, l.gate_up, l.route, l.row, l.d_act, l.gate_up, l.d_route)
    report(case, "act_back", apart(l.gate_up, d_gate_up), BF16)
    report(case, "act_back route", apart(l.d_route, d_route), FP32)
    call("up_dw", n, m, h, l.gate_up, l.x, l.row, l.first, l.d_up)
    right = torch.stack([l.gate_up[p].double().T @ x[token[p]] for p in parts])
    report(case, "up_dw", apart(l.d_up, d_up + right), FP32)
    l.d_rows.fill_(float("nan"))
    call("up_dx", n, m, h, l.gate_up, l.first, l.up, l.d_rows)
    right = torch.cat([l.gate_up[p].double() @ up[e].double() for e, p in enumerate(parts)])
    report(case, "up_dx", apart(l.d_rows, right), BF16)


def weights_of(l, logits, choice):
    score = logits.softmax(-1) if l.m.score == 0 else logits.sigmoid()
    kept = score.gather(1, choice)
    return kept * l.m.scale / ((kept.sum(-1, keepdim=True) + l.m.eps).clamp_min(l.m.least) if l.m.normalize else 1)


def check_router(case, l, make):
    m, n, e = C.byref(l.m), l.n, l.experts
    call("logits", n, l.hidden, e, l.x, l.router, l.logits)
    report(case, "logits", apart(l.logits, l.x.double() @ l.router.double().T), FP32)
    # of few values: many are equal, and those that are not are far apart
    l.logits.copy_((torch.randn(n, e, device="cuda", generator=make) * 4).round() / 4)
    call("choose", n, m, l.logits, l.choice, l.route)
    order = l.logits.double().argsort(dim=-1, descending=True, stable=True)[:, :l.top]
    report(case, "choice", float((l.choice.view(n, -1).long() != order).sum()), 0)
    logits = l.logits.double().requires_grad_()
    route = weights_of(l, logits, order)
    report(case, "route", apart(l.route.view(n, -1), route.detach()), 1e-6)
    l.d_route.copy_(torch.randn(n * l.top, device="cuda", generator=make))
    call("choose_back", n, m, l.logits, l.choice, l.d_route, l.d_logits)
    right, = torch.autograd.grad(route, logits, l.d_route.double().view(n, -1))
    if float(right.norm()) > 1e-6: # one expert a token, normalised: no gradient
        report(case, "choose_back", apart(l.d_logits, right), FP32)
    before = torch.randn_like(l.d_router)
    l.d_router.copy_(before)
    call("logits_dw", n, l.hidden, e, l.d_logits, l.x, l.d_router, l.scratch)
    report(case, "logits_dw", apart(l.d_router, before + l.d_logits.double().T @ l.x.double()), BF16)
    for add in (0, 1):
        l.dx.copy_(l.dy if add else torch.full_like(l.dx, float("nan")))
        call("logits_dx", n, l.hidden, e, l.d_logits, l.router, l.dx, add, l.scratch)
        report(case, "logits_dx", apart(l.dx, l.d_logits.double() @ l.router.double() + (l.dy.double() if add else 0)), 1.5 * BF16)


def check_twice(size):
    """All bits of both directions."""
    kept = []
    for _ in range(2):
        l = experts.Layer(*size, seed=5)
        l.forward()
        l.backward()
        kept.append([t.clone() for t in (l.choice, l.y, l.dx, l.d_up, l.d_down, l.d_router)])
    report(size, "twice", float(sum((a != b).sum() for a, b in zip(*kept))), 0)


def check_nan(size):
    """Choices of logits that are no numbers are still distinct experts."""
    l = experts.Layer(*size)
    l.logits.fill_(float("nan"))
    call("choose", l.n, C.byref(l.m), l.logits, l.choice, l.route)
    report(size, "NaN", float((l.choice.view(l.n, -1).long() != torch.arange(l.top, device="cuda")).sum()), 0)


def main():
    make = torch.Generator("cuda").manual_seed(1)
    cases = 0
    for i, size in enumerate(SIZES):
        for j, kind in enumerate(ROUTES):
            activation_kind = (*experts.ACTIVATIONS, "clamped")[(i + j) % 4]
            l = experts.Layer(*size, activation="swiglu" if activation_kind == "clamped" else activation_kind, seed=i)
            if activation_kind == "clamped":
                l.m.alpha, l.m.offset, l.m.limit = 1.702, 1., 1.5
            case = f"{size} {kind} {activation_kind}"
            l.choice.copy_(routed(kind, size[0], size[3], size[4], make).flatten())
            l.route.copy_(torch.rand(len(l.route), device="cuda", generator=make))
            check_arrange(case, l)
            check_products(case, l, activation_kind)
            cases += 1
        for score in experts.SCORES:
            for normalize, eps, scale in ((True, 0., 1.), (True, 1e-2, 2.5), (False, 0., 1.)):
                l = experts.Layer(*size, score=score, normalize=normalize, eps=eps, scale=scale)
                l.m.least = 0.3 if scale > 1 else 0.
                check_router(f"{size} {score} {normalize} {scale}", l, make)
                cases += 1
    check_twice(SIZES[-2 if SMALL else -4])
    check_nan(SIZES[3])
    torch.cuda.synchronize()
    print(f"experts: {cases} cases, {failures} failures", flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
