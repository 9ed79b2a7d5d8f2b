"""bench_scan.py [--quick]: rates of a gated delta-rule layer's kernels, 32 value heads on 16 key heads of 128, 64Ki tokens, and of
fla-core's chunk_gated_delta_rule beside it where it can be imported; time by kernel. --quick: 16Ki tokens.

A rate counts 4 key_dim value_dim operations a token and head forward and 8 backward. Ends with 1 below 35 and 25 TFLOP/s on an H100.
"""
import pathlib
import sys

import torch

from scan import Scan, sizes

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

FLOOR = 35, 25 # TFLOP/s forward and backward, on an H100


def milliseconds(run, times=10):
    for _ in range(3):
        run()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for a, b in marks:
        a.record()
        run()
        b.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in marks)[times // 2]


def by_kernel(run):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        run()
        torch.cuda.synchronize()
    for e in sorted(p.key_averages(), key=lambda e: -e.device_time_total)[:8]:
        print(f"    {e.device_time_total / 1e3:8.3f} ms {e.count:5d} x {e.key[:90]}")


def shown(name, s, n, forward, backward=None):
    work = n * s.heads * s.key_dim * s.value_dim / 1e9
    rates = [each * work / time for each, time in ((4, forward), (8, backward)) if time]
    parts = [f"{way} {time:.3f} ms, {rate:.1f} TFLOP/s" for way, time, rate in zip(("forward", "backward"), (forward, backward), rates)]
    print(f"{name}: {'; '.join(parts)}", flush=True)
    return rates


def ours(s, n, x, beta, decay, d_o, pieces):
    place = torch.arange(n, device="cuda", dtype=torch.int32)
    one = Scan(s, [n * i // pieces for i in range(pieces + 1)], place, x, beta, decay)
    o, after = one.forward()
    dx, d_beta, d_decay, _, d_before = one.backward(d_o)
    forward = lambda: one.run("scan_run", None, o, after)
    backward = lambda: one.run("scan_run_back", None, d_o, None, dx, d_beta, d_decay, None, d_before)
    rates = shown(f"kernels, {pieces} piece(s), scratch {one.scratch.numel() >> 20} MiB", s, n, milliseconds(forward), milliseconds(backward))
    by_kernel(forward)
    by_kernel(backward)
    maps = torch.empty(pieces, one.lib.scan_map_floats(one.call.s), device="cuda")
    for name, d in (("maps", None), ("maps of gradients", d_o)):
        print(f"  {name}: {milliseconds(lambda: one.run('scan_run_map', d, maps)):.3f} ms", flush=True)
    return rates


def theirs(s, n, x, beta, decay, d_o):
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError as e:
        print(f"fla-core: {e}")
        return
    keys = s.key_heads * s.key_dim
    split = [(0, s.key_heads, s.key_dim), (keys, s.key_heads, s.key_dim), (2 * keys, s.heads, s.value_dim)]
    q, k, v = (x[:, a:a + h * d].reshape(1, n, h, d).detach().requires_grad_() for a, h, d in split)
    b, g = beta[None].detach().requires_grad_(), decay[None].detach().requires_grad_()
    group = s.heads // s.key_heads
    run = lambda: chunk_gated_delta_rule(*(t.repeat_interleave(group, 2) for t in (q, k)), v, g, b, scale=s.scale,
                                         use_qk_l2norm_in_kernel=True)[0]
    o = run()
    back = lambda: torch.autograd.grad(o, (q, k, v, b, g), d_o[None], retain_graph=True)
    with torch.no_grad():
        forward = milliseconds(run)
    try:
        shown("fla-core", s, n, forward, milliseconds(back))
    except RuntimeError as e: # refuses some versions of Triton
        shown("fla-core", s, n, forward)
        print(f"fla-core's backward: {e}")


def main():
    quick, = runner.words(__doc__, "--quick")
    n, s = (16 if quick else 64) << 10, sizes(32, 16, 128, 128, 1)
    torch.manual_seed(1)
    x, d_o = torch.randn(n, s.columns, device="cuda").bfloat16(), torch.randn(n, s.heads, s.value_dim, device="cuda").bfloat16()
    beta, decay = torch.rand(n, s.heads, device="cuda"), -torch.rand(n, s.heads, device="cuda") * 0.1
    print(torch.cuda.get_device_name(), f"{n} tokens")
    rates = ours(s, n, x, beta, decay, d_o, 1)
    ours(s, n, x, beta, decay, d_o, 2)
    theirs(s, n, x, beta, decay, d_o)
    if torch.cuda.get_device_capability() == (9, 0) and not quick and any(a < b for a, b in zip(rates, FLOOR)):
        print(f"below {FLOOR[0]} and {FLOOR[1]} TFLOP/s")
        sys.exit(1)


if __name__ == "__main__":
    main()
