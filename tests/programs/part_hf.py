"""Loss and gradients of an emitted program beside Hugging Face transformers' Llama and Qwen2 with the same weights and tokens.

Weights: random, rounded to bf16, so that both sides have the same. The truth is transformers in fp32 (TF32 off); in bf16 it
shows what that precision makes of it. Gradients are compared tensor by tensor by relative L2; a bias of keys, whose gradient is a sum that
nearly cancels, may be as far off as transformers' in bf16. Then transformers' own
save_pretrained folder starts the whole program (--weights), whose first loss must be the same, and what the program writes
(--export) is loaded by transformers.
"""
import json
import re
import shutil
import struct

import machine

LOSS_LIMIT, GRADIENT_LIMIT, PEER_LIMIT = 1e-3, 2e-2, 1.25
SHAPE = dict(family="Llama", layers=4, hidden=512, heads=8, kv_heads=2, head_dim=64, ffn=1408, vocab=1024, tokens=2048)
BIASED = SHAPE | dict(family="Qwen2") # biases of queries, keys and values


def model_text(shape, ranks, schedule="ring", recompute="none"):
    return (f'import "masks";\nmodel small {{ layers {shape["layers"]}; hidden {shape["hidden"]}; heads {shape["heads"]}; '
            f'kv_heads {shape["kv_heads"]}; head_dim {shape["head_dim"]}; ffn swiglu {shape["ffn"]}; norm rmsnorm 1e-5; '
            f'rope 10000; vocab {shape["vocab"]}; tied no; {"qkv_bias yes; " if shape["family"] == "Qwen2" else ""}}}\n'
            f'attention {{ default causal; }}\nsequence {shape["tokens"]};\n'
            + machine.layout(ranks, schedule, recompute=recompute)
            + "train { steps 1; batch 1; optimizer adamw { lr 1e-4; } seed 1; }\n")


def case(world, schedule, recompute):
    return f"{world} ranks, {schedule}" + ("" if recompute == "none" else f", recompute {recompute}")


def make_model(torch, shape, device):
    import transformers
    config = getattr(transformers, shape["family"] + "Config")(
        vocab_size=shape["vocab"], hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"], rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False,
        max_position_embeddings=2 * shape["tokens"], attn_implementation="sdpa")
    torch.manual_seed(1)
    model = getattr(transformers, shape["family"] + "ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            parameter.copy_(parameter.bfloat16().float())
    return model.to(device)


def draw_tokens(torch, shape):
    """Tokens with something to learn, one more than the sequence: the last is only a label."""
    g = torch.Generator().manual_seed(2)
    return (torch.randint(0, shape["vocab"], (shape["tokens"] + 1,), generator=g) ** 2 // shape["vocab"]).int()


def loss_and_gradients(torch, model, tokens, device):
    ids = tokens[:-1].long()[None].to(device)
    logits = model(input_ids=ids).logits[0].float()
    loss = torch.nn.functional.cross_entropy(logits, tokens[1:].long().to(device))
    loss.backward()
    gradients = {name: p.grad.detach().float().cpu() for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return loss.item(), gradients


# ---- the plan's order ----

def places(tables, known):
    """[(name in transformers, offset, rows, cols)] of every tensor of every unit."""
    out, begin = [], 0
    for unit in tables:
        for repeat in range(unit["repeat"]):
            for tensor in unit["tensors"]:
                name = tensor["name"] if tensor["name"] in known else f"model.layers.{repeat}.{tensor['name']}"
                if name not in known:
                    raise machine.Failed(f"transformers has no tensor {tensor['name']}")
                out.append((name, begin + tensor["offset"], tensor["rows"], tensor["cols"]))
            begin += unit["elements"]
    if {name for name, *_ in out} != set(known):
        raise machine.Failed(f"the plan has no {set(known) - {name for name, *_ in out}}")
    return out, begin


def write_weights(torch, path, where, total, weights):
    flat = torch.zeros(total)
    for name, offset, rows, cols in where:
        flat[offset:offset + rows * cols] = weights[name].detach().float().cpu().flatten()
    path.write_bytes(flat.numpy().tobytes())


def read_gradients(torch, path, where, total):
    flat = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)
    if len(flat) != total:
        raise machine.Failed(f"{path} has {len(flat)} numbers instead of {total}")
    return {name: flat[offset:offset + rows * cols] for name, offset, rows, cols in where}


def errors(gradients, right):
    """[(relative L2, tensor)], the worst first."""
    out = []
    for name, g in right.items():
        mine = gradients[name].double().flatten()
        out.append((float((mine - g.double().flatten()).norm() / g.double().norm()), name))
    return sorted(out, reverse=True)


def kinds(found):
    """The worst of each kind of tensor."""
    worst = {}
    for error, name in found:
        kind = re.sub(r"model\.layers\.\d+\.|\.weight|self_attn\.|mlp\.|model\.", "", name)
        worst[kind] = max(worst.get(kind, 0), error)
    return ", ".join(f"{kind} {error:.1e}" for kind, error in sorted(worst.items(), key=lambda x: -x[1]))


# ---- comparing ----

def compare(m, name, program, truth):
    torch, where, total = truth["torch"], truth["where"], truth["total"]
    out = m.work / f"{program.name}.gradients"
    out.unlink(missing_ok=True)
    text = m.run([program, truth["weights"], m.work / "hf_tokens", out], program.name, 120)[1]
    loss = json.loads(re.search(r"^\{\"loss\".*\}$", text, re.M)[0])["loss"]
    found = errors(read_gradients(torch, out, where, total), truth["gradients"])
    apart = abs(loss / truth["loss"] - 1)
    m.add("hf", f"{name}: loss", f"{loss:.6f}, transformers fp32 {truth['loss']:.6f}: {apart:.1e}",
          f"<= {LOSS_LIMIT:.0e}", apart <= LOSS_LIMIT)
    biases = [(error, truth["bf16"][tensor]) for error, tensor in found if tensor.endswith("k_proj.bias")]
    others = [pair for pair in found if not pair[1].endswith("k_proj.bias")]
    m.add("hf", f"{name}: gradients", f"worst {others[0][0]:.2e} ({others[0][1]}); median {found[len(found) // 2][0]:.1e}",
          f"<= {GRADIENT_LIMIT:.0e}", others[0][0] <= GRADIENT_LIMIT)
    if biases:
        m.add("hf", f"{name}: biases of keys", ", ".join(f"{mine:.2e} (transformers bf16 {theirs:.2e})" for mine, theirs in biases),
              f"<= {PEER_LIMIT} x transformers bf16", all(mine <= PEER_LIMIT * theirs for mine, theirs in biases))
    print(f"    {kinds(found)}", flush=True)


def start_from_folder(m, program, model, tokens, truth):
    """transformers' own folder, read by the program; its file holds one window, so the first step sees these tokens."""
    folder, data, metrics = m.work / "hf_model", m.work / "hf_data.tok", m.work / "hf.jsonl"
    model.save_pretrained(folder, safe_serialization=True)
    data.write_bytes(b"BURSTTOK" + struct.pack("<IIQ", 1, 4, len(tokens)) + tokens.numpy().tobytes())
    metrics.unlink(missing_ok=True)
    code, text = m.run([program, "--weights", folder, "--data", data, "--steps", 1, "--quiet", "--metrics", metrics],
                       "hf_folder", 120, check=False)
    if code != 0:
        m.add("hf", "started from save_pretrained's folder", f"ended with {code}: {machine.tail(text, 1)}", "", False)
        return
    loss = json.loads(metrics.read_text().splitlines()[0])["loss"]
    apart = abs(loss / truth["loss"] - 1)
    m.add("hf", "started from save_pretrained's folder",
          f"first loss {loss:.6f}, transformers fp32 {truth['loss']:.6f}: {apart:.1e}",
          f"<= {LOSS_LIMIT:.0e}", apart <= LOSS_LIMIT)


def export_again(m, program, model, truth):
    """What the program writes without a step is what it has read: as f32 and, since these weights are bf16, as bf16."""
    for dtype in ("f32", "bf16"):
        folder, case = m.work / f"hf_export_{dtype}", f"exported as {dtype}, loaded by transformers"
        shutil.rmtree(folder, ignore_errors=True)
        code, text = m.run([program, "--weights", m.work / "hf_model", "--steps", 0, "--quiet", "--export", folder,
                            "--export-dtype", dtype], "hf_export", 120, check=False)
        if code != 0:
            m.add("hf", case, f"ended with {code}: {machine.tail(text, 1)}", "", False)
            continue
        there = dict(type(model).from_pretrained(folder).float().named_parameters())
        right = dict(model.named_parameters())
        apart = [name for name, w in right.items()
                 if name not in there or not truth["torch"].equal(w.detach().cpu(), there[name].detach())]
        m.add("hf", case, f"{len(right)} tensors, {len(apart)} of them with other bits", "0", not apart)


def find_truth(m, program, shape, device):
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    model, tokens = make_model(torch, shape, device), draw_tokens(torch, shape)
    weights = dict(model.named_parameters())
    tables = json.loads(m.run([program, "--tables"], "hf_tables", 60)[1])
    where, total = places(tables, weights)
    path = m.work / f"hf_weights_{shape['family']}"
    write_weights(torch, path, where, total, weights)
    labels = tokens.numpy().tobytes()
    (m.work / "hf_tokens").write_bytes(labels[:-4] + labels[4:])
    loss, gradients = loss_and_gradients(torch, model, tokens, device)
    return model, tokens, dict(torch=torch, where=where, total=total, loss=loss, gradients=gradients, weights=path)


def beside_bf16(m, family, model, tokens, truth, device):
    """The relative error of each tensor's gradient."""
    import copy
    torch = truth["torch"]
    loss, gradients = loss_and_gradients(torch, copy.deepcopy(model).bfloat16(), tokens, device)
    found = errors(gradients, truth["gradients"])
    m.add("hf", f"transformers' {family} in bf16", f"loss {loss:.6f}: {abs(loss / truth['loss'] - 1):.1e}; "
          f"gradients worst {found[0][0]:.2e} ({found[0][1]}); median {found[len(found) // 2][0]:.1e}")
    print(f"    {kinds(found)}", flush=True)
    return {tensor: error for error, tensor in found}


def run(m, shapes=(SHAPE, BIASED), device="cuda", topology=machine.gpu_topology, suffix="cu"):
    main = m.object(machine.ROOT / "tests/programs/gradients.c")
    worlds = [w for w in (1, 2, 4) if w <= m.gpus]
    points = [(w, s, "none") for w in worlds for s in (("ring", "ulysses") if w == 4 else ("ring",))]
    points += [(worlds[-1], "ring", recompute) for recompute in ("selective", "full")]

    def name_of(shape, world, schedule, recompute):
        return f"hf_{shape['family']}_{schedule}_{world}" + ("" if recompute == "none" else f"_{recompute}")

    for shape in shapes:
        def build(point):
            world, schedule, recompute = point
            return m.link(m.emit(name_of(shape, *point), topology(1, world), model_text(shape, world, schedule, recompute), suffix), [main])

        programs = {}
        for point, program in m.all(build, points):
            if isinstance(program, machine.Failed):
                m.failed("hf", f"{shape['family']}, {case(*point)}", program)
            else:
                programs[point] = program
        model, tokens, truth = find_truth(m, programs[1, "ring", "none"], shape, device)
        truth["bf16"] = beside_bf16(m, shape["family"], model, tokens, truth, device)
        for point in sorted(programs):
            try:
                compare(m, f"{shape['family']}, {case(*point)}", programs[point], truth)
            except machine.Failed as error:
                m.failed("hf", f"{shape['family']}, {case(*point)}", error)
        whole = m.link(m.work / f"{name_of(shape, worlds[-1], 'ring', 'none')}.{suffix}", name=f"hf_whole_{shape['family']}")
        start_from_folder(m, whole, model, tokens, truth)
        export_again(m, whole, model, truth)
