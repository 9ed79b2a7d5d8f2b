"""examples/torchtitan_attention.py and megatron_attention.py with stand-ins for their packages.

The stand-ins have the names and signatures that the examples say they are typed against, and nothing more.
The result is dense attention's in float64. 77 without torch.
"""
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STUBS = {
    "torchtitan/protocols/module.py": """
from dataclasses import dataclass
import torch
class Module(torch.nn.Module):
    @dataclass(kw_only=True, slots=True)
    class Config:
        sharding_config: object = None
""",
    "torchtitan/protocols/sharding.py": """
from dataclasses import dataclass
@dataclass
class LocalMapConfig:
    in_grad_placements: tuple
@dataclass
class ShardingConfig:
    in_src_shardings: dict
    in_dst_shardings: dict
    out_src_shardings: object
    local_map: LocalMapConfig
""",
    "torchtitan/models/common/decoder_sharding.py": """
def attention_activation_placement(*, cp="S(0)"):
    return cp
""",
    "megatron/core/packed_seq_params.py": """
from dataclasses import dataclass
@dataclass
class PackedSeqParams:
    qkv_format: str = None
""",
    "megatron/core/transformer/module.py": """
import torch
class MegatronModule(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
""",
    "megatron/core/transformer/utils.py": """
def is_layer_window_attention(window_size, window_attn_skip_freq, layer_number):
    return bool(window_size) and (window_attn_skip_freq is None or layer_number % window_attn_skip_freq != 0)
""",
    "megatron/core/models/common/embeddings/rotary_pos_embedding.py": """
import torch
class RotaryEmbedding(torch.nn.Module):
    def get_emb(self, max_seq_len, offset=0):
        return torch.arange(max_seq_len)[:, None, None, None]
""",
}
CHECK = """
import types
import torch
import burst
from torchtitan_attention import BurstAttention, keep_rows, prepare_burst_input
import megatron_attention as megatron

T, H, K, D, W = 96, 4, 2, 16, 7
torch.manual_seed(0)
q, k, v = torch.randn(T, H, D), torch.randn(T, K, D), torch.randn(T, K, D)
cu = [0, 30, 96]
doc = torch.searchsorted(torch.tensor(cu[1:]), torch.arange(T), right=True)
position = torch.cat([torch.arange(b - a) for a, b in zip(cu, cu[1:])])
i, j = torch.arange(T).view(-1, 1), torch.arange(T).view(1, -1)
keep = (j <= i) & (doc.view(-1, 1) == doc.view(1, -1))


def dense(keep, scale, sinks=None):
    s = torch.einsum("qhd,khd->hqk", q.double(), k.double().repeat_interleave(2, 1)) * scale
    s = s.masked_fill(~keep, float("-inf"))
    if sinks is not None:
        s = torch.cat([s, sinks.double().view(-1, 1, 1).expand(H, T, 1)], -1)
    p = s.softmax(-1)[..., :T]
    return torch.einsum("hqk,khd->qhd", p, v.double().repeat_interleave(2, 1)), s.logsumexp(-1)


def close(x, y, what):
    assert float((x.double() - y).norm() / y.norm()) < 3e-6, what


config = types.SimpleNamespace(window_size=(W, 0), window_attn_skip_freq=2, attention_dropout=0.0,
                               softmax_type="learnable", apply_query_key_layer_scaling=False,
                               num_attention_heads=H, params_dtype=torch.float32,
                               init_method=torch.nn.init.normal_)
plan = burst.compile(megatron.masks(config), heads=H, kv_heads=K, head_dim=D, tokens=T)

settings = BurstAttention.Config(mask="full")
keep_rows(settings)
ids = torch.arange(T)
inputs, labels, rest = prepare_burst_input(ids, ids + 1, {"positions": position}, plan)
batch = rest["attention_masks"]
assert torch.equal(inputs, batch.rows) and torch.equal(labels, inputs + 1)
assert torch.equal(rest["positions"], position[batch.rows])
module = BurstAttention(settings)
o, lse = dense(keep, 0.3)
own = [x[inputs] for x in (q, k, v)]
close(module(*own, attention_masks=batch, scale=0.3, enable_gqa=True), o[inputs], "torchtitan")
both = module(*own, attention_masks=batch, scale=0.3, out_transform=lambda o, lse: (o, lse))
close(both[1], lse[:, inputs].T, "torchtitan's lse")

for layer, keeps in (1, keep & (i - j <= W)), (2, keep):
    core = megatron.BurstCoreAttention(config, layer, "causal", "self")
    params = megatron.BurstParams(qkv_format="sbhd", batch=batch)
    got = core(*(x[inputs].unsqueeze(1) for x in (q, k, v)), None, packed_seq_params=params)
    wanted, _ = dense(keeps, D ** -0.5, core.softmax_offset)
    close(got, wanted[inputs].reshape(-1, 1, H * D), f"Megatron's layer {layer}")
rotary = megatron.BurstRotary()
rotary.batch = batch
assert torch.equal(rotary(len(inputs)).flatten(), position[inputs])
print("ok")
"""


def main():
    o = runner.options(__doc__, "--home").parse_args()
    if runner.lacks("torch"):
        return 77
    with runner.folder(o.work) as folder:
        for name, text in STUBS.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "check.py").write_text(CHECK)
        paths = os.pathsep.join(map(str, (folder, ROOT / "examples", ROOT / "python")))
        env = dict(os.environ, BURST_HOME=o.home, BURST_CACHE=str(folder / "cache"), PYTHONPATH=paths,
                   OMP_NUM_THREADS="1")
        done = runner.run([sys.executable, folder / "check.py"], 200, env=env).stdout
        runner.require("ok" in done, done)
    return 0


sys.exit(main())
