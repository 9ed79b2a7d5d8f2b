"""attention_torch.py: masks written from their definitions, and dense attention in torch: in float64 the truth, in float32 with
`rounded` what a kernel of bf16 makes of the same inputs."""
import re

import torch


def hashed(a, b):
    """hash(a, b) of the mask language: murmur's finaliser over 32 bits, in 64-bit integers."""
    low = 0xffffffff
    def mix(h):
        h = ((h ^ (h >> 16)) * 0x85ebca6b) & low
        h = ((h ^ (h >> 13)) * 0xc2b2ae35) & low
        return h ^ (h >> 16)
    return mix(mix((a + 0x9e3779b9) & low) ^ ((b * 0x9e3779b1) & low)) >> 1


def bigbird(doc, b, g, w, every):
    """Which blocks of b queries by b keys are kept is decided once."""
    q, k = (torch.arange(-(-len(doc) // b), device=doc.device).view(shape) for shape in ((-1, 1), (1, -1)))
    blocks = (k < g) | (q - k < w) | (hashed(q, k) % every == 0)
    return lambda q, k: (q >= k) & blocks[q // b, k // b]


MASKS = {  # each mask of the tests on GPUs: of the tokens' documents and its parameters, whether query q sees key k
    "full": lambda doc: lambda q, k: (q >= k) | True,
    "causal": lambda doc: lambda q, k: q >= k,
    "window": lambda doc, w: lambda q, k: (q >= k) & (q - k < w),
    "window_sink": lambda doc, w, s: lambda q, k: (q >= k) & ((q - k < w) | (k < s)),
    "dilated": lambda doc, w, d: lambda q, k: (q >= k) & (q - k < w * d) & ((q - k) % d == 0),
    "prefix_lm": lambda doc, p: lambda q, k: (q >= k) | (k < p),
    "document": lambda doc: lambda q, k: (q >= k) & (doc[q] == doc[k]),
    "bigbird": bigbird,
    "late": lambda doc: lambda q, k: q - k >= 6,
    "odd": lambda doc: lambda q, k: (((q * q + 3 * k) % 13 != 4) & ((q - k).abs() < 333)) | (hashed(q // 16, k // 16) % 5 == 0),
    "narrow_odd": lambda doc: lambda q, k: ((7 * q + 3 * k) % 11 < 8) & (q // 40 - k // 30 < 5),
    "landmarks": lambda doc: lambda q, k: (q >= k) & ((q - k < 4096) | (k % 1024 < 128)),
    "halves": lambda doc: lambda q, k: (q >= k) & ((q - k < 1024) | (k % 512 < 64)),
}


def masks_of(path):
    """The masks of a model's layers as its text has them."""
    text = re.sub(r"#.*", "", path.read_text())
    layers = {int(layer): mask for layer, mask in re.findall(r"layers (\d+): ([^;]+);", text)}
    return [re.search(r"default ([^;]+);", text)[1], *(layers[n] for n in range(1, len(layers) + 1))]


def mask_rule(mask, doc):
    """A mask as a model's text has it, as a function of tensors q and k; doc: each token's document."""
    name, *parameters = re.findall(r"\w+", mask)
    return MASKS[name](doc, *map(int, parameters))


def kept(mask, n, doc, device):
    """The mask as booleans [q][k]."""
    return mask_rule(mask, doc[:n])(torch.arange(n, device=device)[:, None], torch.arange(n, device=device)[None])


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
