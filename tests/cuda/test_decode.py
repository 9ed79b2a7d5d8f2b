"""Attention of a token with a cache (cuda_decode.cuh) against float64, and the rate at which it reads the cache.

    python3 test_decode.py [--rates]      BURST_CUDA_LIB: the folder of libdecode_D_E_HEADS_KVHEADS.so and, with a cache of latents
                                          (cuda_decode_latent.cuh), liblatent_LATENT_SHARED_OWN_VALUES_HEADS.so

Caches of one rank and of two whose parts are merged, zigzag, whose length ends in the middle of a tile, with filling after the prompt and
tokens after it; two masks. Bounds: output 1e-2 of its greatest element, log-sum-exp 1e-3.
"""
import ctypes as C
import os
import re
import sys

import torch

OUTPUT, LSE, LATENT_LSE = 1e-2, 1e-3, 1e-2 # of latents' queries, which are rounded, scores differ by 2^-9 of themselves
SHAPES = re.findall(r"libdecode_(\d+)_(\d+)_(\d+)_(\d+)\.so", "\n".join(sorted(os.listdir(os.environ["BURST_CUDA_LIB"]))))
LENGTHS = [(1, 1), (16, 17), (100, 64), (1000, 999), (4096, 4096), (5000, 4097)]  # of the plan, of the prompt
LATENTS = re.findall(r"liblatent_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)\.so", "\n".join(sorted(os.listdir(os.environ["BURST_CUDA_LIB"]))))
WINDOW = 100


class Decode(C.Structure):
    _fields_ = [("q", C.c_void_p), ("k", C.c_void_p), ("v", C.c_void_p), ("running", C.c_void_p), ("position", C.c_void_p), ("kept", C.c_void_p),
                ("ranks", C.c_int), ("rank", C.c_int), ("scale", C.c_float), ("parts", C.c_void_p)]


def call(function, *arguments):
    status = function(*arguments, C.c_void_p(torch.cuda.current_stream().cuda_stream))
    if status:
        raise RuntimeError(f"{function.__name__}: CUDA error {status}")


def pointer(x):
    return C.c_void_p(x.data_ptr())


def drawn(*shape):
    return torch.randn(*shape, device="cuda").bfloat16()


def positions(length, ranks, rank):
    i = torch.arange(length, dtype=torch.int32, device="cuda")
    run = i.long() * 2 * ranks // length
    return i[torch.minimum(run, 2 * ranks - 1 - run) == rank].contiguous()


def struct_of(x, rank):
    return Decode(*(t.data_ptr() for t in (x["q"], x["k"][rank], x["v"][rank], x["running"][rank], x["position"][rank], x["kept"][rank])), len(x["k"]), rank,
                  x["scale"], x["parts"].data_ptr())


def case(library, shape, length, prompt, more, ranks, reach=0):
    """A running token with `more` before it after the prompt; its own keys are kept by the kernel. reach: of a prompt the last tokens."""
    d, e, heads, kv = shape
    there = [positions(length, ranks, rank) for rank in range(ranks)]
    position = [p[(p >= prompt - reach) & (p < prompt)] if reach else p for p in there]
    kept = [torch.tensor([int((p < prompt - reach).sum()) if reach else 0, len(k)], dtype=torch.int32, device="cuda") for p, k in zip(there, position)]
    later = [(more + ranks - rank) // ranks for rank in range(ranks)]
    x = dict(q=drawn(heads, d), position=there, kept=kept, scale=d ** -0.5, parts=torch.empty(library.test_decode_floats(), device="cuda"),
             k=[drawn(len(p) + n, kv, d) for p, n in zip(position, later)], v=[drawn(len(p) + n, kv, e) for p, n in zip(position, later)],
             running=[torch.tensor([prompt + more, prompt, len(p), more], dtype=torch.int32, device="cuda") for p in there])
    own_k, own_v = drawn(kv, d), drawn(kv, e)
    for rank in range(ranks if more >= 0 else 0):  # else the prompt's last token is running
        call(library.test_keep_row, pointer(x["running"][rank]), ranks, rank, pointer(kept[rank]), pointer(own_k), pointer(own_v), pointer(x["k"][rank]), pointer(x["v"][rank]))
    at = [torch.cat([p.long(), prompt + torch.arange(n, device="cuda") * ranks + rank]) for rank, (p, n) in enumerate(zip(position, later))]
    seen = [torch.cat([p < prompt, torch.ones(n, dtype=torch.bool, device="cuda")]) for p, n in zip(position, later)]
    return x, torch.cat(at), torch.cat(seen)


def truth(x, at, seen, mask):
    q, k, v = x["q"].double(), torch.cat(x["k"]).double(), torch.cat(x["v"]).double()
    now = x["running"][0][0].long()
    keep = seen & (at <= now) & (True if mask == 0 else now - at < WINDOW)
    k, v = (t[keep].repeat_interleave(len(q) // t.shape[1], 1) for t in (k, v))
    s = torch.einsum("hd,khd->hk", q, k) * x["scale"]
    return torch.einsum("hk,khe->he", s.softmax(-1), v), s.logsumexp(-1)


def found(library, x, shape, mask):
    _, e, heads, _ = shape
    o, lse = torch.empty(heads, e, dtype=torch.bfloat16, device="cuda"), torch.empty(heads, device="cuda")
    if len(x["k"]) == 1:
        call(library.test_decode, mask, C.byref(struct_of(x, 0)), pointer(o), pointer(lse))
        return o, lse
    parts = torch.empty(2, heads, e + 4, device="cuda")
    for rank in range(2):
        call(library.test_decode_part, mask, C.byref(struct_of(x, rank)), pointer(parts[rank]))
    call(library.test_decode_merge, pointer(parts), pointer(o), pointer(lse))
    return o, lse


def test(library, shape):
    worst, bad = [0.0, 0.0], 0
    for length, prompt in LENGTHS:
        prompt = min(prompt, length)
        for more, ranks, mask, reach in ((0, 1, 0, 0), (37, 1, 1, 0), (37, 1, 1, 112), (-1, 1, 1, 128), (0, 2, 0, 0), (5, 2, 1, 0), (5, 2, 1, 112), (-1, 2, 1, 128), (200, 2, 0, 0)):
            if length < 2 * ranks and ranks > 1:
                continue
            x, at, seen = case(library, shape, length, prompt, more, ranks, reach)
            o, lse = found(library, x, shape, mask)
            right, right_lse = truth(x, at, seen, mask)
            apart = ((o.double() - right).abs().max() / right.abs().max()).item(), (lse.double() - right_lse).abs().max().item()
            if not (apart[0] <= OUTPUT and apart[1] <= LSE):
                bad += 1
                print(f"FAIL {shape}: {length} tokens, prompt of {prompt}, {more} more, {ranks} ranks, mask {mask}, reach {reach}: {apart[0]:.1e}, {apart[1]:.1e}")
            worst = [max(pair) for pair in zip(worst, apart)]
    print(f"{'ok  ' if not bad else 'FAIL'} head_dim {shape[0]}, {shape[1]}, {shape[2]} heads on {shape[3]}: output {worst[0]:.1e}, log-sum-exp {worst[1]:.1e}", flush=True)
    return bad


def rate(library, shape, length):
    x, *_ = case(library, shape, length, length, 0, 1)
    o, lse = torch.empty(shape[2], shape[1], dtype=torch.bfloat16, device="cuda"), torch.empty(shape[2], device="cuda")
    milliseconds = timed(lambda: call(library.test_decode, 0, C.byref(struct_of(x, 0)), pointer(o), pointer(lse)))
    size = 2 * (length + 1) * shape[3] * (shape[0] + shape[1])
    print(f"     {shape}: {length} tokens {1e3 * milliseconds:.0f} us, {size / milliseconds / 1e9:.2f} TB/s", flush=True)


def timed(function):
    times = []
    for _ in range(8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1000000)  # the host is ahead
        begin.record()
        for _ in range(5):
            function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    return sorted(times)[len(times) // 2]


def latent_case(library, shape, length, prompt, more, ranks):
    latent, shared, own, values, heads = shape
    there = [positions(length, ranks, rank) for rank in range(ranks)]
    later = [(more + ranks - rank) // ranks for rank in range(ranks)]
    x = dict(q=drawn(heads, own + shared), position=there, kept=[torch.tensor([0, len(p)], dtype=torch.int32, device="cuda") for p in there],
             scale=(own + shared) ** -0.5, parts=torch.empty(library.test_latent_floats(), device="cuda"),
             k=[drawn(len(p) + n, latent) for p, n in zip(there, later)], v=[drawn(len(p) + n, shared) for p, n in zip(there, later)],
             running=[torch.tensor([prompt + more, prompt, len(p), more], dtype=torch.int32, device="cuda") for p in there],
             weight=(torch.randn(heads * (own + values), latent, device="cuda") / latent ** 0.5).bfloat16(),
             query=torch.empty(heads, latent + shared, dtype=torch.bfloat16, device="cuda"), latent=torch.empty(heads, latent, dtype=torch.bfloat16, device="cuda"))
    seen = torch.cat([torch.cat([p < prompt, torch.ones(n, dtype=torch.bool, device="cuda")]) for p, n in zip(there, later)])
    return x, seen


def latent_truth(x, seen, shape):
    _, _, own, values, heads = shape
    q, latent, shared, w = x["q"].double(), torch.cat(x["k"]).double()[seen], torch.cat(x["v"]).double()[seen], x["weight"].double()
    keys, value = (latent @ part.T for part in (w[:heads * own], w[heads * own:]))
    s = (torch.einsum("hd,khd->hk", q[:, :own], keys.view(-1, heads, own)) + q[:, own:] @ shared.T) * x["scale"]
    return torch.einsum("hk,khe->he", s.softmax(-1), value.view(-1, heads, values)), s.logsumexp(-1)


def latent_found(library, x, shape):
    latent, _, _, values, heads = shape
    o, lse = torch.empty(heads, values, dtype=torch.bfloat16, device="cuda"), torch.empty(heads, device="cuda")
    parts = torch.empty(2, heads, latent + 4, device="cuda")
    ranks = len(x["k"])
    for rank in range(ranks):
        call(library.test_latent, C.byref(struct_of(x, rank)), *map(pointer, (x["weight"], x["query"], x["latent"])),
             pointer(parts[rank]) if ranks > 1 else None, pointer(o), pointer(lse))
    if ranks > 1:
        call(library.test_latent_merge, *map(pointer, (parts, x["weight"], x["latent"], o, lse)))
    return o, lse


def test_latents(library, shape):
    worst, bad = [0.0, 0.0], 0
    for length, prompt in LENGTHS:
        prompt = min(prompt, length)
        for more, ranks in ((0, 1), (37, 1), (0, 2), (5, 2), (200, 2)):
            if length < 2 * ranks and ranks > 1:
                continue
            x, seen = latent_case(library, shape, length, prompt, more, ranks)
            (o, lse), (right, right_lse) = latent_found(library, x, shape), latent_truth(x, seen, shape)
            apart = ((o.double() - right).abs().max() / right.abs().max()).item(), (lse.double() - right_lse).abs().max().item()
            if not (apart[0] <= OUTPUT and apart[1] <= LATENT_LSE):
                bad += 1
                print(f"FAIL latents {shape}: {length} tokens, prompt of {prompt}, {more} more, {ranks} ranks: {apart[0]:.1e}, {apart[1]:.1e}")
            worst = [max(pair) for pair in zip(worst, apart)]
    print(f"{'ok  ' if not bad else 'FAIL'} latents of {shape[0]} and {shape[1]}, {shape[4]} heads of {shape[2]}: output {worst[0]:.1e}, log-sum-exp {worst[1]:.1e}", flush=True)
    return bad


def latent_rate(library, shape, length):
    x, _ = latent_case(library, shape, length, length, 0, 1)
    milliseconds = timed(lambda: latent_found(library, x, shape))
    size = 2 * ((length + 1) * sum(shape[:2]) + x["weight"].numel())
    print(f"     latents {shape}: {length} tokens {1e3 * milliseconds:.0f} us, {size / milliseconds / 1e9:.2f} TB/s", flush=True)


def main():
    torch.manual_seed(1)
    bad = 0
    for words in SHAPES:
        library = C.CDLL(os.path.join(os.environ["BURST_CUDA_LIB"], f"libdecode_{'_'.join(words)}.so"))
        shape = tuple(map(int, words))
        bad += test(library, shape)
        for length in (16 << 10, 128 << 10) if "--rates" in sys.argv else ():
            rate(library, shape, length)
    for words in LATENTS:
        library = C.CDLL(os.path.join(os.environ["BURST_CUDA_LIB"], f"liblatent_{'_'.join(words)}.so"))
        shape = tuple(map(int, words))
        bad += test_latents(library, shape)
        for length in (16 << 10, 128 << 10) if "--rates" in sys.argv else ():
            latent_rate(library, shape, length)
    sys.exit(bad > 0)


main()
