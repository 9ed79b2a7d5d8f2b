"""What Hugging Face transformers says of a small Llama, Qwen2 or Qwen3 model: its folder, its loss and its gradients. Used by run_weights.py."""
import contextlib
import json
import re

import safetensors.torch
import torch
import transformers


KINDS = {"": "Llama", "qkv_bias yes;": "Qwen2", "qk_norm yes;": "Qwen3"}  # by what the model has beside a Llama's parts


def config_of(shape, sequence):
    return getattr(transformers, KINDS[shape.part] + "Config")(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.ffn, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, rms_norm_eps=1e-5,
        rope_theta=500000.0, tie_word_embeddings=shape.tied, max_position_embeddings=sequence, initializer_range=0.1)


@contextlib.contextmanager
def in_float64():
    """What models compute in float32 whatever their weights are, such as recurrent layers' states, in float64."""
    to, narrow, zeros = torch.Tensor.to, torch.Tensor.float, torch.zeros_like

    def wider(of):
        return lambda x, *args, **named: of(x, *(torch.float64 if a is torch.float32 else a for a in args),
                                            **{name: torch.float64 if value is torch.float32 else value for name, value in named.items()})
    torch.Tensor.to, torch.Tensor.float, torch.zeros_like = wider(to), torch.Tensor.double, wider(zeros)
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.float, torch.zeros_like = to, narrow, zeros


def loss(model, text, sequence):
    """Mean over the tokens of the file's first window, in float64 where the model is."""
    token = torch.tensor(list(text.read_bytes()[:sequence + 1]))
    wide = any(hasattr(model.config.get_text_config(), name) for name in ("linear_num_value_heads", "mamba_d_state")) if hasattr(model.config, "get_text_config") else False
    with in_float64() if wide else contextlib.nullcontext():
        logits = model(input_ids=token[None, :-1]).logits[0]
    return torch.nn.functional.cross_entropy(logits, token[1:])


def write(folder, shape, sequence):
    """folder/start: the model in several files; text.bin, one window of tokens; reference.json; gradients.safetensors."""
    torch.manual_seed(11)
    model = getattr(transformers, KINDS[shape.part] + "ForCausalLM")(config_of(shape, sequence))
    for name, weight in model.named_parameters():
        if weight.dim() == 1:  # norms are not all ones
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder / "start", max_shard_size="300KB")
    text = folder / "text.bin"
    text.write_bytes(bytes(torch.randint(0, shape.vocab, (sequence + 1,), generator=torch.Generator().manual_seed(7)).tolist()))
    model = model.double()
    value = loss(model, text, sequence)
    value.backward()
    gradients = {name: weight.grad.float().contiguous() for name, weight in model.named_parameters()}
    safetensors.torch.save_file(gradients, folder / "gradients.safetensors")
    (folder / "reference.json").write_text(json.dumps({"loss": value.item(), "shape": shape._asdict()}))


def write_pytorch(start, folder):
    """The model as torch.save writes it; the tensors that a conversion has."""
    model = transformers.AutoModelForCausalLM.from_pretrained(start)
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return dict(model.state_dict())


def write_fp8(start, folder):
    """Its projections in fp8 by blocks of 64 x 64, each with a scale; the tensors that dequantizing makes of them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(start)
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [64, 64]}
    (folder / "config.json").write_text(json.dumps(config))
    stored, wanted = {}, dict(model.state_dict())
    for name, weight in wanted.items():
        stored[name] = weight.clone()
        if "_proj." in name:
            scale = torch.stack([torch.stack([block.abs().max() / 448 for block in rows.split(64, 1)]) for rows in weight.split(64)])
            wide = scale.repeat_interleave(64, 0).repeat_interleave(64, 1)
            stored[name] = (weight / wide).to(torch.float8_e4m3fn)
            stored[name + "_scale_inv"], wanted[name] = scale, stored[name].float() * wide
    safetensors.torch.save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return wanted


FORMS = {"pytorch": write_pytorch, "fp8": write_fp8}  # folders in other forms, which a line of burstc says how to convert


def follow(line, to):
    """Runs the Python that a line of burstc gives, but for where it saves; the tensors that it writes there."""
    eval(re.sub(r'"[A-Z]+"', repr(str(to)), line.split("in Python: ")[1].strip()), {"transformers": transformers})
    return safetensors.torch.load_file(to / "model.safetensors")


def distance(is_, wanted):
    return max((is_[name].float() - weight.float()).norm() / weight.float().norm() for name, weight in wanted.items()).item()


def loss_of(folder, text, sequence, own_code=False):
    """The loss of a folder's weights; nothing may be missing in it or left over. own_code: it brings code that computes it."""
    capped = json.loads((folder / "config.json").read_text()).get("attn_logit_softcapping")
    eager = {"attn_implementation": "eager"} if capped else {}  # others leave the softcap out
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, trust_remote_code=own_code, **eager)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            raise RuntimeError(f"{folder}: {kind} {info[kind]}")
    model.config._experts_implementation = "eager"  # others refuse float64
    return loss(model.double(), text, sequence).item()


def loss_of_whole(folder, text, sequence):
    """The same of a folder whose text model is a part of a larger one."""
    model, info = transformers.AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            raise RuntimeError(f"{folder}: {kind} {info[kind]}")
    model.config.text_config._experts_implementation = "eager"
    return loss(model.double(), text, sequence).item()


def fields():
    """[(name, value)] of the configurations of all models that transformers knows, by default."""
    found = set()
    for kind in sorted(transformers.CONFIG_MAPPING):
        try:
            config = transformers.CONFIG_MAPPING[kind]().to_dict()
        except Exception:  # of a library that is not installed
            continue
        texts = [(name, json.dumps(value)) for name, value in config.items() if not isinstance(value, dict)]
        found.update((name, text) for name, text in texts if "Infinity" not in text and "NaN" not in text)  # no JSON
    return [(name, json.loads(value)) for name, value in sorted(found)]


def judge(folder, text, sequence):
    """Loss and norm of the gradient, as a folder is trained; a text where it cannot be loaded or does not fit its weights."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)  # as stored
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if info[kind]:
                return f"{kind} {info[kind]}"
        model = model.double().train()
        value = loss(model, text, sequence)
        value.backward()
    except Exception as error:  # of whatever a config.json makes of the library
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    return value.item(), sum(float((w.grad ** 2).sum()) for w in model.parameters()) ** 0.5
