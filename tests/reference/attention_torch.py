"""attention_torch.py: masks written from their definitions, and dense attention in torch: in float64 the truth, in float32 with
`rounded` what a kernel of bf16 makes of the same inputs."""
import torch


def hashed(a, b):
    """hash(a, b) of the mask language: murmur's finaliser over 32 bits, in 64-bit integers."""
    low = 0xffffffff
    def mix(h):
        h = ((h ^ (h >> 16)) * 0x85ebca6b) & low
        h = ((h ^ (h >> 13)) * 0xc2b2ae35) & low
        return h ^ (h >> 16)
    return mix(mix((a + 0x9e3779b9) & low) ^ ((b * 0x9e3779b1) & low)) >> 1


def bigbird_blocks(n, device, b=64, g=1, w=3, every=5):
    """Which blocks of b queries by b keys bigbird(b, g, w, every) keeps, apart from causal."""
    q, k = torch.arange(-(-n // b), device=device)[:, None], torch.arange(-(-n // b), device=device)[None]
    return (k < g) | (q - k < w) | (hashed(q, k) % every == 0)


def kept(mask, n, doc, device):
    """The mask as booleans [q][k]; doc: each token's document."""
    q, k = torch.arange(n, device=device)[:, None], torch.arange(n, device=device)[None]
    causal, far = q >= k, q - k
    return {
        "full": lambda: causal | True, "causal": lambda: causal, "window(100)": lambda: causal & (far < 100),
        "window_sink(96, 20)": lambda: causal & ((far < 96) | (k < 20)),
        "dilated(20, 5)": lambda: causal & (far < 100) & (far % 5 == 0),
        "prefix_lm(130)": lambda: causal | (k < 130), "document": lambda: causal & (doc[q] == doc[k]),
        "late": lambda: far >= 6,
        "odd": lambda: (((q * q + 3 * k) % 13 != 4) & (far.abs() < 333)) | (hashed(q // 16, k // 16) % 5 == 0),
        "narrow_odd": lambda: ((7 * q + 3 * k) % 11 < 8) & (q // 40 - k // 30 < 5),
        "window(4096)": lambda: causal & (far < 4096), "window(1024)": lambda: causal & (far < 1024),
        "bigbird(64, 1, 3, 5)": lambda: causal & bigbird_blocks(n, device)[q // 64, k // 64],
    }[mask]()


def dense(q, k, v, d_o, keep, rounded, by_head=False, softcap=0):
    """(o, lse, dq, dk, dv) in the type of q; q, d_o [heads][n][d], k, v [kv_heads][n][d]. rounded: P, dS and results through
    bf16; by_head: dK and dV of each query head too, before they are summed; softcap: of scores, 0: none."""
    group, scale = q.shape[0] // k.shape[0], q.shape[2] ** -0.5
    low = (lambda x: x.bfloat16().to(x.dtype)) if rounded else (lambda x: x)
    ke, ve = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    s = q @ ke.transpose(1, 2) * scale
    t = torch.tanh(s / softcap) if softcap else torch.zeros_like(s)
    s = (softcap * t if softcap else s).masked_fill(~keep, float("-inf"))
    lse = torch.logsumexp(s, 2)
    part = torch.exp(s - s.amax(2, keepdim=True).nan_to_num(neginf=0))
    total = part.sum(2, keepdim=True)
    o = low(low(part) @ ve / torch.where(total > 0, total, 1))
    p = torch.exp(s - lse.nan_to_num(neginf=0)[..., None])
    ds = low(p * (d_o @ ve.transpose(1, 2) - (d_o * o).sum(2, keepdim=True)) * (1 - t * t))
    fold = lambda x: (low(x) if by_head else x).view(k.shape[0], group, *k.shape[1:]).sum(1)
    dk, dv = fold(ds.transpose(1, 2) @ q * scale), fold(low(p).transpose(1, 2) @ d_o)
    return o, lse, low(ds @ ke * scale), low(dk), low(dv)
