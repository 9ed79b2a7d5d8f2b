"""Loads of experts of emitted programs, beside the host backend with the same weights and text: the balance loss, the largest load of each
layer, and corrections that move once a step, with the optimizer on the device, in host memory, and there for the device's update.

Choices of bf16 differ from fp32's for near scores, so the balance loss agrees within BALANCE, and of the corrections after three steps all but
SHARE are equal to the bit. Loads agree within LOAD in the first step; later ones follow from corrections that differ. A router whose logits overflow ends the run with its layer.
"""
import json
import pathlib
import sys

import machine

sys.path.insert(0, str(machine.ROOT / "tests/lib"))

LOAD, BALANCE, SHARE, RATE, STEPS = 0.02, 2e-3, 0.08, 0.0625, 3
LAYOUTS = {"device": "", "offload": "offload optimizer; update host;", "fetched": "offload optimizer; update device;"}
MOE = "moe { experts 16; top 4; ffn swiglu 96; score sigmoid; normalize yes; eps 1e-20; correction %g; balance 0.3; shared 96; }" % RATE


def text_of(ranks, more):
    return (f'import "masks";\nmodel small {{ layers 3; hidden 256; heads 4; kv_heads 2; head_dim 64; vocab 256; family glm4_moe; {MOE} }}\n'
            f'attention {{ default causal; }}\nsequence 512;\nlayout {{ context {ranks}; schedule ring; travel keys; partition zigzag; {more} }}\n'
            f'train {{ batch 2; weights "start"; optimizer adamw {{ lr 1e-4; warmup 0; }} }}\n')


def metrics(m, program, name, *options, check=True):
    path = m.work / f"{name}.jsonl"
    path.unlink(missing_ok=True)
    code, text = m.run([program, "--quiet", "--data", m.bundle / "data/text", "--metrics", path, "--steps", STEPS, *options], name, 120, check=check)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [], code, text


def corrections(folder):
    import safetensors.torch
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        found |= {n: t.float() for n, t in safetensors.torch.load_file(path).items() if n.endswith("correction_bias")}
    return found


def compare(m, name, lines, right, moved, right_moved):
    load = max(abs(a / b - 1) for a, b in zip(lines[0]["expert_loads"], right[0]["expert_loads"]))
    balance = max(abs(x["balance"] / y["balance"] - 1) for x, y in zip(lines, right))
    apart = sum(int((moved[n] != t).sum()) for n, t in right_moved.items()) / sum(t.numel() for t in right_moved.values())
    m.add("loads", name, f"first loads differ by {load:.1e}, balance by {balance:.1e}, {100 * apart:.1f} % of the corrections; loss {lines[-1]['loss']:.4f}, "
          f"host {right[-1]['loss']:.4f}", f"<= {LOAD}, {BALANCE}, {100 * SHARE} %",
          len(lines) == STEPS and load <= LOAD and balance <= BALANCE and apart <= SHARE and moved.keys() == right_moved.keys())


def check_infinite(m, program):
    import safetensors.torch
    broken = m.work / "broken"
    broken.mkdir(exist_ok=True)
    start = m.work / "start"
    path, = start.glob("*.safetensors")
    tensors = safetensors.torch.load_file(path)
    router = tensors[next(n for n in tensors if ".1." in n and n.endswith("mlp.gate.weight"))]
    router[0] = 3e38
    safetensors.torch.save_file(tensors, broken / path.name, {"format": "pt"})
    (broken / "config.json").write_text((start / "config.json").read_text())
    _, code, text = metrics(m, program, "infinite", "--weights", broken, check=False)
    told = "logits of the router in layer 1 are not finite" in text
    m.add("loads", "a router that overflows", "told with its layer" if told else machine.tail(text), "told", told and code == 1)


def run(m):
    ranks = min(m.gpus, 2)
    cluster, text = (machine.ROOT / "examples/cpu8.topo").read_text(), text_of(8, "")
    host = m.link(m.emit("loads_host", cluster, text, "c"))
    begin = m.link(m.emit("loads_begin", cluster, text.replace('weights "start";', ""), "c"))
    m.run([begin, "--quiet", "--data", m.bundle / "data/text", "--steps", 1, "--export", m.work / "start"], "loads_begin", 120)
    right, _, _ = metrics(m, host, "loads_host", "--weights", m.work / "start", "--export", m.work / "host")
    programs = dict(m.all(lambda n: m.link(m.emit(f"loads_{n}", machine.gpu_topology(1, ranks), text_of(ranks, LAYOUTS[n]))), list(LAYOUTS)))
    for name, program in programs.items():
        try:
            if isinstance(program, machine.Failed):
                raise program
            lines, _, _ = metrics(m, program, f"loads_{name}", "--weights", m.work / "start", "--export", m.work / name)
            compare(m, name, lines, right, corrections(m.work / name), corrections(m.work / "host"))
        except machine.Failed as error:
            m.failed("loads", name, error)
    check_infinite(m, programs["device"])
