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
LARGEST, TWO = 0, 1 # scores of a group
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


GATES = (*experts.ACTIVATIONS[:experts.GATED], "clamped")


def activated(l, kind, gate, up):
    """Of gate and up, or of what is in place of both (up None); `clamped` is SwiGLU of clamped values (GPT-OSS)."""
    if kind == "clamped":
        gate, up = gate.clamp(max=l.m.limit), up.clamp(-l.m.limit, l.m.limit)
        return gate * torch.sigmoid(l.m.alpha * gate) * (up + l.m.offset)
    return activation(kind, gate) * (1 if up is None else up)


def activation(kind, x):
    if kind == "swiglu":
        return torch.nn.functional.silu(x)
    if kind == "relu2":
        return torch.relu(x) ** 2
    return torch.nn.functional.gelu(x, approximate="tanh" if kind.endswith("_tanh") else "none")


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
    gate, u = gate_up.chunk(2, -1) if kind in GATES else (gate_up, None)
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


def kept_orders(l, order):
    """Orders with -inf outside the best groups, by the largest of a group or the sum of the two largest."""
    if not l.m.groups:
        return order
    grouped = order.view(l.n, l.m.groups, -1)
    of_group = grouped.topk(2, -1).values.sum(-1) if l.m.group_score == TWO else grouped.amax(-1)
    kept = torch.zeros_like(of_group).scatter_(1, of_group.topk(l.m.top_groups, -1).indices, 1)
    return grouped.masked_fill(kept[..., None] == 0, -torch.inf).flatten(1)


def check_corrected(case, l, make):
    """Choices by scores plus a correction, of the best groups. Scores that are as near as fp32 may change places."""
    n, e = l.n, l.experts
    l.logits.copy_(torch.randn(n, e, device="cuda", generator=make))
    correction = torch.randn(e, device="cuda", generator=make) / 4 - 1
    call("choose_corrected", n, C.byref(l.m), l.logits, correction, l.choice, l.route)
    logits, choice = l.logits.double(), l.choice.view(n, -1).long()
    score = logits.softmax(-1) if l.m.score == 0 else logits.sigmoid()
    order = kept_orders(l, score + correction.double())
    apart_from = (order.gather(1, choice) - order.topk(l.top, -1).values).abs()
    report(case, "corrected choice", float((apart_from > 1e-5).any(-1).double().mean()), 2e-3)
    report(case, "distinct", float((choice.sort(-1).values.diff(dim=-1) == 0).sum()), 0)
    report(case, "corrected route", apart(l.route.view(n, -1), weights_of(l, logits, choice)), 1e-6)


def check_biases(case, l, make):
    """Of logits, of gate and up, of outputs; gradients are added to random numbers."""
    m, n, h, e, top = C.byref(l.m), l.n, l.hidden, l.experts, l.top
    def normal(*shape):
        return torch.randn(*shape, device="cuda", generator=make)
    x, b, db = normal(n, e), normal(e).bfloat16(), normal(e)
    y, right = empty(n, e, dtype=torch.float32), db.double() + x.double().sum(0)
    call("bias", n, e, x, b, y)
    report(case, "logits bias", apart(y, x.double() + b.double()), 1e-6)
    call("bias_back", n, e, x, db)
    report(case, "logits bias_back", apart(db, right), FP32)
    first = l.first.tolist()
    expert = torch.repeat_interleave(torch.arange(e, device="cuda"), l.first.long().diff())
    x, b, db = normal(n * top, 2 * l.width).bfloat16(), normal(e, 2 * l.width).bfloat16(), normal(e, 2 * l.width)
    y, right = torch.full_like(x, float("nan")), db.double()
    right = torch.stack([right[i] + x[a:z].double().sum(0) for i, (a, z) in enumerate(zip(first, first[1:]))])
    call("experts_bias", n, m, x, l.first, b, y)
    report(case, "experts_bias", apart(y, x.double() + b.double()[expert]), BF16)
    call("experts_bias_back", n, m, x, l.first, db)
    report(case, "experts_bias_back", apart(db, right), FP32)
    b, db = normal(e, h).bfloat16(), normal(e, h)
    choice, route, d_route = l.choice.view(n, top).long(), l.route.view(n, top).double(), normal(n * top)
    gradient = d_route.double() + (l.dy.double()[:, None] * b.double()[choice]).sum(-1).flatten()
    rows = l.dy.double().repeat_interleave(top, 0) * route.flatten()[:, None]
    right = db.double().index_add(0, choice.flatten(), rows)
    for add in (None, l.dy):
        l.y.fill_(float("nan"))
        call("out_bias", n, m, h, l.choice, l.route, add, b, l.y)
        sums = (b.double()[choice] * route[..., None]).sum(1)
        report(case, "out_bias", apart(l.y, sums + (0 if add is None else add.double())), BF16)
    begun, other = torch.full_like(d_route, float("nan")), torch.zeros_like(db)
    call("out_bias_back", n, m, h, False, l.dy, l.choice, l.route, b, begun, other)
    report(case, "out_bias_back route begun", apart(begun, gradient - d_route.double()), FP32)
    call("out_bias_back", n, m, h, True, l.dy, l.choice, l.route, b, d_route, db)
    report(case, "out_bias_back route", apart(d_route, gradient), FP32)
    report(case, "out_bias_back", apart(db, right), FP32)


def check_loads(case, l, make):
    """Counts of choices, and the balance loss with its gradient, of tokens that count; sums are the same bits twice."""
    n, m, e, top = l.n, C.byref(l.m), l.experts, l.top
    l.logits.copy_((torch.randn(n, e, device="cuda", generator=make) * 4).round() / 4)
    call("choose", n, m, l.logits, l.choice, l.route)
    label = torch.randint(-1, 3, (n,), device="cuda", generator=make, dtype=torch.int32)
    weight = torch.randint(0, 3, (n,), device="cuda", generator=make).float()
    counted = ((label >= 0) & (weight > 0)).double()
    choices = torch.ones(3, e, device="cuda", dtype=torch.float64)
    call("count", n, m, 1, l.choice, l.logits, label, weight, choices)
    right = torch.ones_like(choices)
    right[1].index_add_(0, l.choice.long(), counted.repeat_interleave(top))
    report(case, "choices", float((choices - right).abs().sum()), 0)
    logits = l.logits.double().requires_grad_()
    p = logits.softmax(-1)
    order = l.logits.double().argsort(dim=-1, descending=True, stable=True)[:, :top]
    f = torch.zeros_like(p).scatter_(1, order, 1) * counted[:, None]
    sums = torch.zeros(2, 2 * e + 1, device="cuda", dtype=torch.float64)
    for twice in sums:
        call("balance", n, m, l.logits, label, weight, twice)
    right = torch.cat([f.sum(0), counted.sum()[None], (p * counted[:, None]).sum(0).detach()])
    report(case, "balance", apart(sums[0], right), 1e-6)
    report(case, "balance twice", float((sums[0] != sums[1]).sum()), 0)
    rows = counted.sum().clamp_min(1)
    loss = 0.25 * e * ((f.sum(0) / rows) * ((p * counted[:, None]).sum(0) / rows)).sum()
    gradient, = torch.autograd.grad(loss, logits)
    before = torch.randn_like(l.d_logits) * gradient.norm() / max(1, gradient.numel()) ** .5
    d_logits = before.clone()
    call("balance_back", n, m, l.logits, label, weight, sums[0], C.c_double(0.25), d_logits)
    if top < e: # all experts chosen: no gradient
        report(case, "balance_back", apart(d_logits, before.double() + gradient), FP32)
    l.logits[-1, -1] = float("inf")
    call("count", n, m, 2, l.choice, l.logits, label, weight, choices)
    report(case, "not finite", float(not choices[2].isnan().any() or choices[:2].isnan().any()), 0)


def check_groups(size, groups):
    """Experts group by group, each with rows of its own, beside all at once: the same sums, and the same gradients."""
    whole = experts.Layer(*size, seed=7)
    whole.choose()
    whole.arrange()
    whole.products()
    whole.combine()
    whole.products_back()
    y, dx = (torch.zeros(whole.n, whole.hidden, dtype=torch.float64, device="cuda") for _ in range(2))
    dx.index_add_(0, whole.row.long() // whole.top, whole.d_rows.double())
    d_route = whole.d_route.clone()
    whole.d_route.fill_(float("nan"))
    each = whole.experts // groups
    for g in range(groups):
        part = whole.part(g * each, each)
        part.arrange()
        kept = int(part.first[-1])
        mine = (whole.choice >= g * each) & (whole.choice < (g + 1) * each)
        report(size, f"group {g} of {groups} rows", abs(kept - int(mine.sum())) + int((part.slot[~mine] != -1).sum()) + int((part.row[kept:] >= 0).sum()), 0)
        part.products()
        part.combine()
        y += part.y.double()
        part.products_back()
        dx.index_add_(0, part.row[:kept].long() // whole.top, -part.d_rows[:kept].double())
        for name in ("d_up", "d_down"):
            right = getattr(whole, name)[g * each:(g + 1) * each].double()
            report(size, f"group {g} of {groups} {name}", apart(getattr(part, name), right) if right.any() else float(getattr(part, name).abs().max()), FP32)
    report(size, f"{groups} groups sum", apart(y, whole.y.double()), 2 * BF16)
    report(size, f"{groups} groups dX", float(dx.norm() / whole.d_rows.double().norm()), BF16)
    report(size, f"{groups} groups route", apart(whole.d_route, d_route.double()), FP32)


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
            activation_kind = (*GATES, "relu2", "gelu", "gelu_tanh")[(i + j) % 7]
            l = experts.Layer(*size, activation="swiglu" if activation_kind == "clamped" else activation_kind, seed=i)
            if activation_kind == "clamped":
                l.m.alpha, l.m.offset, l.m.limit = 1.702, 1., 1.5
            case = f"{size} {kind} {activation_kind}"
            l.choice.copy_(routed(kind, size[0], size[3], size[4], make).flatten())
            l.route.copy_(torch.rand(len(l.route), device="cuda", generator=make))
            check_arrange(case, l)
            check_products(case, l, activation_kind)
            if activation_kind in GATES:
                check_biases(case, l, make)
            cases += 1
        for score in experts.SCORES:
            for normalize, eps, scale in ((True, 0., 1.), (True, 1e-2, 2.5), (False, 0., 1.)):
                l = experts.Layer(*size, score=score, normalize=normalize, eps=eps, scale=scale)
                l.m.least = 0.3 if scale > 1 else 0.
                check_router(f"{size} {score} {normalize} {scale}", l, make)
                cases += 1
        check_loads(f"{size} loads", experts.Layer(*size), make)
        cases += 1
        for groups, top_groups in ((0, 0), (2, 1), (4, 2), (4, 4)):
            if groups and (size[3] % groups or size[3] // groups < 2 or size[4] > size[3] // groups * top_groups):
                continue
            for of_group in (LARGEST, TWO):
                l = experts.Layer(*size, score=experts.SCORES[of_group], scale=2.5)
                l.m.groups, l.m.top_groups, l.m.group_score = groups, top_groups, of_group
                check_corrected(f"{size} groups {groups} top {top_groups} by {of_group}", l, make)
                cases += 1
    for size, groups in (((509, 256, 96, 16, 4), 4), ((1000, 200, 136, 60, 4), 12), ((130, 64, 64, 4, 4), 2), ((7, 72, 40, 6, 2), 3), ((129, 512, 768, 128, 8), 8)):
        check_groups(size, groups)
        cases += 1
    check_twice(SIZES[-2 if SMALL else -4])
    check_nan(SIZES[3])
    torch.cuda.synchronize()
    print(f"experts: {cases} cases, {failures} failures", flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
