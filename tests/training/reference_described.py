"""Models that transformers has no class of, written from their published descriptions in torch: MiniCPM (arXiv 2404.06395, with the
longrope of MiniCPM 4), InternLM2 (arXiv 2403.17297). They stand in for transformers' classes in run_families.py: named_parameters,
save_pretrained, logits."""
import json
import math
import types

import safetensors.torch
import torch

TYPE = {"MiniCPM": "rope_type", "InternLM2": "type"}  # of rope_scaling, as their code reads it
NAMES = {  # of a folder's tensors
    "MiniCPM": {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "before": "input_layernorm",
                "between": "post_attention_layernorm", "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
                "down": "mlp.down_proj"},
    "InternLM2": {"embed": "model.tok_embeddings", "norm": "model.norm", "head": "output", "before": "attention_norm",
                  "between": "ffn_norm", "o": "attention.wo", "gate": "feed_forward.w1", "up": "feed_forward.w3",
                  "down": "feed_forward.w2"}}


class Model:
    def __init__(self, kind, config):
        """config: fields of config.json. Weights are random."""
        self.kind, self.fields, self.names = kind, config, NAMES[kind]
        self.config = types.SimpleNamespace(**{"tie_word_embeddings": kind == "MiniCPM", **config})
        self.config.head_dim = config["hidden_size"] // config["num_attention_heads"]
        self.weight = {name: (torch.randn(shape) * 0.1 if len(shape) > 1 else torch.ones(shape)).requires_grad_()
                       for name, shape in self.shapes()}

    def shapes(self):
        c, n = self.config, self.names
        kv, ffn, hidden = c.num_key_value_heads * c.head_dim, c.intermediate_size, c.hidden_size
        yield f"{n['embed']}.weight", (c.vocab_size, hidden)
        for i in range(c.num_hidden_layers):
            at = f"model.layers.{i}."
            if self.kind == "InternLM2":
                yield f"{at}attention.wqkv.weight", (hidden + 2 * kv, hidden)
            else:
                for part, rows in zip("qkv", (hidden, kv, kv)):
                    yield f"{at}self_attn.{part}_proj.weight", (rows, hidden)
            for part, shape in (("before", (hidden,)), ("o", (hidden, hidden)), ("between", (hidden,)), ("gate", (ffn, hidden)),
                                ("up", (ffn, hidden)), ("down", (hidden, ffn))):
                yield f"{at}{n[part]}.weight", shape
        yield f"{n['norm']}.weight", (hidden,)
        if not c.tie_word_embeddings:
            yield f"{n['head']}.weight", (c.vocab_size, hidden)

    def parameters(self):
        return self.weight.values()

    def named_parameters(self):
        return self.weight.items()

    def named_buffers(self):
        return []

    def of_type(self, dtype):
        self.weight = {name: w.detach().to(dtype).requires_grad_() for name, w in self.weight.items()}
        return self

    def double(self):
        return self.of_type(torch.float64)

    def float(self):
        return self.of_type(torch.float32)

    def train(self):
        return self

    def save_pretrained(self, folder, max_shard_size=None):
        folder.mkdir(exist_ok=True)
        own = {"model_type": self.kind.lower(), "architectures": [f"{self.kind}ForCausalLM"], "hidden_act": "silu",
               "auto_map": {"AutoConfig": f"configuration_{self.kind.lower()}.{self.kind}Config",
                            "AutoModelForCausalLM": f"modeling_{self.kind.lower()}.{self.kind}ForCausalLM"}}
        (folder / "config.json").write_text(json.dumps({**own, **self.fields}))
        safetensors.torch.save_file({name: w.detach().contiguous() for name, w in self.weight.items()}, folder / "model.safetensors",
                                    metadata={"format": "pt"})

    # ---- what it computes ----

    def normed(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps) * self.weight[f"{name}.weight"]

    def turned(self, x):
        """x [heads, n, d]"""
        c, n = self.config, x.shape[1]
        d, base, amplitude = c.head_dim, getattr(c, "rope_theta", 10000.0), 1.0
        scaling = getattr(c, "rope_scaling", None) or {}
        pair = torch.arange(d // 2, dtype=torch.float64)
        kind, most = scaling[TYPE[self.kind]] if scaling else None, c.max_position_embeddings
        if kind == "dynamic" and n > most:
            base *= (scaling["factor"] * n / most - (scaling["factor"] - 1)) ** (d / (d - 2))
        frequency = base ** (-2 * pair / d)
        if kind == "longrope":
            original = scaling["original_max_position_embeddings"]
            frequency = frequency / torch.tensor(scaling["long_factor" if n > original else "short_factor"], dtype=torch.float64)
            amplitude = math.sqrt(1 + math.log(most / original) / math.log(original))
        angle = torch.arange(n, dtype=torch.float64)[:, None] * frequency
        cosine, sine, a, b = amplitude * angle.cos(), amplitude * angle.sin(), x[..., :d // 2], x[..., d // 2:]
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)

    def projected(self, at, h):
        c, n = self.config, len(h)
        if self.kind == "InternLM2":  # of each key head its queries, then the key, then the value
            x = (h @ self.weight[f"{at}attention.wqkv.weight"].T).view(n, c.num_key_value_heads, -1, c.head_dim)
            return x[:, :, :-2].reshape(n, -1, c.head_dim), x[:, :, -2], x[:, :, -1]
        return [(h @ self.weight[f"{at}self_attn.{part}_proj.weight"].T).view(n, -1, c.head_dim) for part in "qkv"]

    def attended(self, at, h):
        c, n = self.config, len(h)
        q, k, v = (x.transpose(0, 1) for x in self.projected(at, h))
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = self.turned(k).repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = self.turned(q) @ k.transpose(1, 2) / math.sqrt(c.head_dim)
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        return (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1) @ self.weight[f"{at}{self.names['o']}.weight"].T

    def __call__(self, input_ids):
        c, w, n = self.config, self.weight, self.names
        residual = getattr(c, "scale_depth", 0) / math.sqrt(c.num_hidden_layers) or 1
        x = w[f"{n['embed']}.weight"][input_ids[0]] * getattr(c, "scale_emb", 1)
        for i in range(c.num_hidden_layers):
            at = f"model.layers.{i}."
            x = x + residual * self.attended(at, self.normed(x, at + n["before"]))
            h = self.normed(x, at + n["between"])
            gate, up = (h @ w[f"{at}{n[part]}.weight"].T for part in ("gate", "up"))
            x = x + residual * ((gate * gate.sigmoid() * up) @ w[f"{at}{n['down']}.weight"].T)
        x = self.normed(x, n["norm"]) * (c.dim_model_base / c.hidden_size if hasattr(c, "dim_model_base") else 1)
        return types.SimpleNamespace(logits=(x @ w[f"{n['embed' if c.tie_word_embeddings else 'head']}.weight"].T)[None])
