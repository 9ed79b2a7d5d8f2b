"""recurrent_noise.py KIND [SEED [documents]]: what torch's bf16 alone does to gradients of models with recurrent layers, of the shapes and
weights' sizes of part_gradients.py: the worst relative L2 of a tensor's gradient, bf16 activations and weights with fp32 inside of
operations, against float64. Two sequences; one document each, or documents of about ten tokens. KIND: delta, mamba, mamba64.

Measured: delta 3.7e-2 to 1.16e-1 by the seed (A_log, dt_bias; a norm's weight 3.7e-2 to 4.3e-2), mamba64 4.1e-2 to 5.1e-2 (D, dt_bias),
mamba with documents 7.8e-2 to 1.06e-1 (dt_bias; in_proj_a 6.6e-2 to 7.6e-2): a few numbers, sums over tokens that nearly cancel. gradients.c
judges a gradient over 3e-2 by what rounding the float64 oracle to bf16 gives for the same weights: scan64.c rounds rows, what is written to a
state and the factors of a chunk, as the kernels do. Alone that is, for the points of part_gradients.py: delta in contiguous pieces 4.9e-2
(dt_bias; 4.1e-2 in the layer where a GPU has 4.95e-2), mamba with one document 7.8e-2 (dt_bias), mamba64 6.0e-2 (D, which an H100 has 8.6e-2
off: an RMSNorm ignores the length of its input, which is nearly D x there, so that the gradient nearly cancels).
"""
import sys

import torch

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, N, LAYERS, EPS = 256, 8, 4, 64, 320, 256, 509, 4, 1e-5
KINDS = {"delta": dict(h=4, kh=2, dk=64, dv=64, layers=(0, 1, 2), read=True, bias=False, skip=False, most=1e30),
         "mamba": dict(h=8, kh=2, dk=128, dv=64, layers=(0, 1, 2), read=False, bias=True, skip=True, most=2.0),
         "mamba64": dict(h=8, kh=1, dk=64, dv=64, layers=(1, 3), read=False, bias=False, skip=True, most=1e30)}
KERNEL = 4
silu = torch.nn.functional.silu


def wave(n, middle):
    return middle + 0.2 * torch.sin(torch.arange(n, dtype=torch.float64))


def weights(c):
    """Rounded to bf16, as gradients.c stirs them."""
    matrix = lambda *shape: torch.randn(*shape, dtype=torch.float64) * 0.06
    keys, values = c["kh"] * c["dk"], c["h"] * c["dv"]
    p = {"embed": matrix(VOCAB, HIDDEN), "head": matrix(VOCAB, HIDDEN), "norm": wave(HIDDEN, 1)}
    for layer in range(LAYERS):
        of = {"ln1": wave(HIDDEN, 1), "ln2": wave(HIDDEN, 1), "gate": matrix(FFN, HIDDEN), "up": matrix(FFN, HIDDEN), "down": matrix(HIDDEN, FFN)}
        if layer in c["layers"]:
            columns = 2 * keys + values
            of |= {"in_qkv": matrix(columns, HIDDEN), "in_z": matrix(values, HIDDEN), "in_a": matrix(c["h"], HIDDEN), "conv": matrix(columns, KERNEL),
                   "norm": wave(c["dv"] if c["read"] else values, 1), "out": matrix(HIDDEN, values), "A_log": wave(c["h"], 0), "dt_bias": wave(c["h"], 1)}
            of |= {"in_b": matrix(c["h"], HIDDEN)} if c["read"] else {}
            of |= ({"conv_bias": wave(columns, 0)} if c["bias"] else {}) | ({"D": wave(c["h"], 1)} if c["skip"] else {})
        else:
            of |= {"q": matrix(HEADS * HEAD_DIM, HIDDEN), "k": matrix(KV_HEADS * HEAD_DIM, HIDDEN), "v": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
                   "o": matrix(HIDDEN, HEADS * HEAD_DIM)}
        p |= {f"{layer}.{name}": x for name, x in of.items()}
    return {name: x.bfloat16().double() for name, x in p.items()}


class Model:
    def __init__(self, c, p, low):
        self.c, self.a, self.inside = c, torch.bfloat16 if low else torch.float64, torch.float32 if low else torch.float64
        self.p = {name: x.detach().clone().to(self.a).requires_grad_() for name, x in p.items()}

    def up(self, x):
        return x.to(self.inside)

    def norm(self, x, w):
        x = self.up(x)
        return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * self.up(w)).to(self.a)

    def convolved(self, x, g, place):
        sums = self.up(g("conv_bias")) if self.c["bias"] else 0
        for back in range(KERNEL):
            rows = torch.cat([torch.zeros_like(x[:back]), x[:N - back]]) * (place >= back)[:, None]
            sums = sums + rows * self.up(g("conv"))[:, KERNEL - 1 - back]
        return self.up(silu(sums).to(self.a))

    def scan(self, x, g, place, same):
        """As one product over all tokens of a document."""
        c, keys, values = self.c, self.c["kh"] * self.c["dk"], self.c["h"] * self.c["dv"]
        y = self.convolved(self.up(x @ g("in_qkv").t()), g, place)
        step = torch.nn.functional.softplus(self.up(x @ g("in_a").t()) + self.up(g("dt_bias"))).clamp(max=c["most"])
        q, k, v = y.split([keys, keys, values], 1) if c["read"] else reversed(y.split([values, keys, keys], 1))
        beta = torch.sigmoid(self.up(x @ g("in_b").t())) if c["read"] else step
        heads = lambda t, n: t.reshape(N, n, -1).permute(1, 0, 2)
        q, k, v = heads(q, c["kh"]), heads(k, c["kh"]), heads(v, c["h"])
        if c["read"]:
            q, k = (t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
            q = q / c["dk"] ** 0.5
        q, k = (t.repeat_interleave(c["h"] // c["kh"], 0) for t in (q, k))
        sums = torch.cumsum((-torch.exp(self.up(g("A_log"))) * step).double(), 0).t()
        between = self.up(torch.exp((sums[:, :, None] - sums[:, None]).masked_fill(~same, -1e30)))
        written = beta.t()[:, :, None] * v
        if c["read"]:
            a = torch.tril(beta.t()[:, :, None] * (k @ k.transpose(1, 2)) * between, -1)
            written = torch.linalg.solve_triangular(a + torch.eye(N, dtype=a.dtype), written, upper=False, unitriangular=True)
        o = ((q @ k.transpose(1, 2) * between) @ written).permute(1, 0, 2)
        o = o + self.up(g("D"))[:, None] * v.permute(1, 0, 2) if c["skip"] else o
        return self.gated(self.up(o.to(self.a)), silu(self.up(x @ g("in_z").t())), self.up(g("norm"))) @ g("out").t()

    def gated(self, o, z, w):
        if not self.c["read"]:
            o, z = o.reshape(N, -1) * z, 1
        groups = o.reshape(N, self.c["h"] if self.c["read"] else self.c["kh"], -1)
        groups = groups * torch.rsqrt((groups * groups).mean(-1, keepdim=True) + EPS)
        return ((groups * w if self.c["read"] else groups).reshape(N, -1) * (z if self.c["read"] else w)).to(self.a)

    def attention(self, x, g, same):
        heads = lambda name, n: (x @ g(name).t()).reshape(N, n, HEAD_DIM)
        angle = torch.arange(N, dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        cos, sin = self.up(torch.cos(angle))[:, None], self.up(torch.sin(angle))[:, None]

        def turned(t):
            a, b = self.up(t).chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(self.a)
        q, k, v = turned(heads("q", HEADS)), turned(heads("k", KV_HEADS)), heads("v", KV_HEADS)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", self.up(q), self.up(k)) / HEAD_DIM ** 0.5
        shares = self.up(torch.softmax(scores.masked_fill(~same, -1e30), -1).to(self.a))
        return torch.einsum("hij,jhd->ihd", shares, self.up(v)).reshape(N, -1).to(self.a) @ g("o").t()

    def loss(self, tokens, documents):
        place = torch.tensor([int(t - (documents == documents[t]).nonzero()[0, 0]) for t in range(N)])
        same = (torch.arange(N)[:, None] >= torch.arange(N)) & (documents[:, None] == documents)
        x = self.p["embed"][tokens[:-1]]
        for layer in range(LAYERS):
            g = lambda name, layer=layer: self.p[f"{layer}.{name}"]
            h = self.norm(x, g("ln1"))
            x = x + (self.scan(h, g, place, same) if layer in self.c["layers"] else self.attention(h, g, same))
            h = self.norm(x, g("ln2"))
            x = x + (silu(self.up(h @ g("gate").t())) * self.up(h @ g("up").t())).to(self.a) @ g("down").t()
        logits = self.up(self.norm(x, self.p["norm"]) @ self.p["head"].t())
        return torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="sum")

    def gradients(self, sequences):
        loss = sum(self.loss(*s) for s in sequences)
        loss.backward()
        return loss.item(), {name: x.grad.double() for name, x in self.p.items()}


def main():
    c = KINDS[sys.argv[1]]
    torch.manual_seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    p = weights(c)
    begins = lambda: torch.cumsum((torch.rand(N) < (0.1 if len(sys.argv) > 3 else 0)).long(), 0)
    sequences = [(torch.randint(0, VOCAB, (N + 1,)), begins()) for _ in range(2)]
    (right, want), (loss, got) = (Model(c, p, low).gradients(sequences) for low in (False, True))
    errors = {name: float((got[name] - x).norm() / x.norm()) for name, x in want.items()}
    print(f"loss {abs(loss / right - 1):.1e}", *(f"{name} {errors[name]:.2e}" for name in sorted(errors, key=errors.get)[:-7:-1]))


if __name__ == "__main__":
    main()
