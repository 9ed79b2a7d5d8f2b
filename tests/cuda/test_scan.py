"""test_scan.py [--small]: the kernels of recurrent layers against the token loop in float64 on the GPU, whole and in chained pieces;
prints a line a case and ends with 1 after a failure.

Error: |x - x64| / |x64| over all elements. One rounding to bf16 gives 1.1e-3 to 1.7e-3; a result has rounded states, writes and
factors of both, so that limits are a few of these in squares. Decays' gradients are differences of sums. --small: few small cases,
for compute-sanitizer. BURST_KEY_DIMS: those whose libraries there are ("64 128 256").
"""
import os
import pathlib
import random
import sys

import torch

from scan import Scan, loop, sizes

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

LIMITS = {"o": 4e-3, "after": 4e-3, "dq": 5e-3, "dk": 6e-3, "dv": 5e-3, "d_beta": 6e-3, "d_decay": 1.5e-2, "d_skip": 1e-5,
          "d_before": 5e-3, "map": 5e-3}
KEY_DIMS = [int(d) for d in os.environ.get("BURST_KEY_DIMS", "64 128 256").split()]


def places(r, n, documents):
    """Positions in documents: one that goes on from a state, or borders anywhere, with documents of 1, 2, 3, 31."""
    place, at, left = [], r.randint(1, 9), n if not documents else r.randint(1, n)
    for _ in range(n):
        if left == 0:
            at, left = 0, r.choice((1, 2, 3, 31, 64, r.randint(1, n)))
        place.append(at)
        at, left = at + 1, left - 1
    return place


def borders(r, n, pieces):
    return sorted({0, n, *(r.randint(1, max(1, n - 1)) for _ in range(pieces - 1))})


def error(x, y):
    return float((x.double() - y.double()).norm() / y.double().norm().clamp_min(1e-30)) if y.numel() else 0.0


def check(name, results):
    """results: {name: (ours, float64)}"""
    errors = {key: error(x, y) for key, (x, y) in results.items()}
    good = all(e <= LIMITS[key.split(" ")[0]] for key, e in errors.items()) # NaN fails
    print(f"{'ok  ' if good else 'FAIL'} {name}: {' '.join(f'{k} {e:.1e}' for k, e in errors.items())}", flush=True)
    return good


def drawn(r, s, n, documents, skip):
    g = torch.Generator(device="cuda").manual_seed(r.randint(0, 1 << 30))
    normal = lambda *shape: torch.randn(*shape, device="cuda", generator=g)
    uniform = lambda *shape: torch.rand(*shape, device="cuda", generator=g)
    place = torch.tensor(places(r, n, documents), dtype=torch.int32, device="cuda")
    x = normal(n, s.columns).bfloat16()
    beta = uniform(n, s.heads) * (1 if s.read else 0.1)
    decay = -uniform(n, s.heads) * r.choice((0.02, 0.2, 5))
    return place, x, beta, decay, normal(s.heads).bfloat16() if skip else None, normal(n, s.heads, s.value_dim).bfloat16()


def truth(s, place, x, beta, decay, skip, d_o, before, d_after):
    inputs = [t.double().requires_grad_() if t is not None else None for t in (x, beta, decay, skip, before)]
    o, after = loop(s, place, *inputs)
    wanted = [t for t in inputs if t is not None]
    grads = torch.autograd.grad((o * d_o.double()).sum() + (after * d_after.double()).sum(), wanted, allow_unused=True)
    grads = dict(zip([i for i, t in enumerate(inputs) if t is not None], grads))
    zero = lambda i: grads[i] if grads.get(i) is not None else torch.zeros_like(inputs[i])
    return o.detach(), after.detach(), zero(0), zero(1), zero(2), zero(3) if skip is not None else None, zero(4)


def parts(s, dx, want):
    keys = s.key_heads * s.key_dim
    cut = {"dq": slice(0, keys), "dk": slice(keys, 2 * keys), "dv": slice(2 * keys, None)}
    return {name: (dx[:, c], want[:, c]) for name, c in cut.items()}


def whole(r, s, n, documents, skip):
    """One piece that goes on from a state and into another."""
    place, x, beta, decay, skipped, d_o = drawn(r, s, n, documents, skip)
    before, d_after = torch.randn(2, 1, s.heads, s.key_dim, s.value_dim, device="cuda").unbind(0)
    one = Scan(s, [0, n], place, x, beta, decay, skipped)
    o, after = one.forward(before)
    dx, d_beta, d_decay, d_skip, d_before = one.backward(d_o, before, d_after)
    want = truth(s, place, x, beta, decay, skipped, d_o, before[0], d_after[0])
    results = {"o": (o, want[0]), "after": (after[0], want[1]), **parts(s, dx, want[2]), "d_beta": (d_beta, want[3]), "d_decay": (d_decay, want[4]),
               "d_before": (d_before[0], want[6])}
    if skip:
        results["d_skip"] = d_skip, want[5]
    return check(f"{s.heads}/{s.key_heads} heads, {s.key_dim} x {s.value_dim}, read {s.read}, n {n}{' documents' if documents else ''}", results)


def chained(r, s, n, documents, count):
    """Pieces of one sequence, each from the state that the maps of those before it give."""
    place, x, beta, decay, _, d_o = drawn(r, s, n, documents, False)
    place[0] = 0
    for t in range(1, n):
        if not documents or int(place[t]) != 0:
            place[t] = place[t - 1] + 1
    one = Scan(s, borders(r, n, count), place, x, beta, decay)
    zero = torch.zeros(one.state[1:], device="cuda")
    e, m = one.maps()
    before = [zero]
    for i in range(one.count - 1):
        before.append(e[i] + m[i] @ before[-1])
    before = torch.stack(before)
    o, _ = one.forward(before)
    f, m = one.maps(d_o)
    d_after = [zero]
    for i in range(one.count - 1, 0, -1):
        d_after.insert(0, f[i] + m[i].transpose(-1, -2) @ d_after[0])
    dx, d_beta, d_decay, _, _ = one.backward(d_o, before, torch.stack(d_after))
    want = truth(s, place, x, beta, decay, None, d_o, zero, zero)
    return check(f"{one.count} pieces, {s.heads}/{s.key_heads} heads, {s.key_dim} x {s.value_dim}, read {s.read}, n {n}{' documents' if documents else ''}",
                 {"o": (o, want[0]), **parts(s, dx, want[2]), "d_beta": (d_beta, want[3]), "d_decay": (d_decay, want[4])})


def cases(r, small):
    for key in KEY_DIMS:
        for read in (1, 0):
            if small:
                yield whole, sizes(2, 1, key, 64, read), 100, True, True
                continue
            for value in (64, 128, 256):
                yield whole, sizes(4, 2, key, value, read), r.choice((1, 2, 63, 64, 65, 200)), False, not read
                yield whole, sizes(2, 1, key, value, read), r.randint(100, 700), True, not read
            yield whole, sizes(1, 1, key, 64, read), 64 * 64 + 65, False, False # two slabs of chunks
            for pieces in (2, 5, 16):
                yield chained, sizes(4, 2, key, 128, read), r.randint(100, 700), r.random() < 0.5, pieces
            yield chained, sizes(2, 2, key, 64, read), 140, True, 100 # pieces of a token or two


def main():
    small, = runner.words(__doc__, "--small")
    torch.backends.cuda.matmul.allow_tf32 = False
    r = random.Random(1)
    results = [case(r, *of) for case, *of in cases(r, small)]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
