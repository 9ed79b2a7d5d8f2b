"""Writes golden_hf.h: what Hugging Face transformers' Llama gives for small models whose weights are a formula.

    python3 golden_hf.py > golden_hf.h        (needs torch and transformers; the tests read only the header)

Every case gives the loss sum of one sequence and, for every weight tensor, its gradient's component along a
pseudo-random vector. The model runs in float64, but transformers computes rotary angles and
RMSNorm's statistics in float32.
"""
import torch
import transformers

MASK64 = (1 << 64) - 1


def uniform(stream, count):
    """splitmix64 of (stream, index), in [-0.5, 0.5); test_model64.c has the same."""
    out = torch.empty(count, dtype=torch.float64)
    for i in range(count):
        z = (stream * 0x9E3779B97F4A7C15 + (i + 1) * 0xD1B54A32D192ED03) & MASK64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
        z ^= z >> 31
        out[i] = (z >> 11) * 2.0**-53 - 0.5
    return out


TENSORS = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
           "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
SHAPE = dict(layers=2, hidden=12, heads=4, head_dim=6, ffn=20, vocab=17, tokens=23)
CASES = [("causal_gqa", 2, False, 0), ("window_mha_tied", 4, True, 5), ("causal_mqa_tied", 1, True, 0)]


def names(tied):
    layers = [f"model.layers.{i}.{t}.weight" for i in range(SHAPE["layers"]) for t in TENSORS]
    return ["model.embed_tokens.weight", *layers, "model.norm.weight"] + ([] if tied else ["lm_head.weight"])


def model(kv_heads, tied):
    s = SHAPE
    config = transformers.LlamaConfig(
        vocab_size=s["vocab"], hidden_size=s["hidden"], intermediate_size=s["ffn"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], num_key_value_heads=kv_heads, head_dim=s["head_dim"], rms_norm_eps=1e-5,
        rope_theta=100.0, tie_word_embeddings=tied, attn_implementation="eager")
    m = transformers.LlamaForCausalLM(config).double()
    weights = dict(m.named_parameters())
    for i, name in enumerate(names(tied)):
        w = uniform(i, weights[name].numel()).reshape(weights[name].shape)
        weights[name].data = 1 + w if w.dim() == 1 else w
    return m, weights


def case(name, kv_heads, tied, window):
    m, weights = model(kv_heads, tied)
    n, vocab = SHAPE["tokens"], SHAPE["vocab"]
    token = ((uniform(1000, n) + 0.5) * vocab).long()
    q, k = torch.arange(n)[:, None], torch.arange(n)[None, :]
    keep = (k <= q) & (q - k < (window or n))
    bias = torch.zeros(n, n, dtype=torch.float64).masked_fill(~keep, torch.finfo(torch.float64).min)
    logits = m(input_ids=token[None], attention_mask=bias[None, None]).logits[0]
    label, weight = token[1:].clone(), uniform(1001, n)[:-1] + 1
    label[::7] = -1
    loss = (weight * torch.nn.functional.cross_entropy(logits[:-1], label, ignore_index=-1, reduction="none")).sum()
    loss.backward()
    along = [float((weights[t].grad.flatten() * uniform(2000, weights[t].numel())).sum()) for t in names(tied)]
    print(f"    {{\"{name}\", {kv_heads}, {str(tied).lower()}, {window}, {loss.item():.17g},")
    print("     {" + ", ".join(f"{a:.17g}" for a in along) + "}},")


print(f"/* golden_hf.h: made by golden_hf.py with transformers {transformers.__version__}, torch {torch.__version__}. */")
print("static const Golden goldens[] = {")
for c in CASES:
    case(*c)
print("};")
