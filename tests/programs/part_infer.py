"""Programs that infer, on GPUs: logits of every token and greedy tokens of model families beside transformers with the same weights.

The cases are those of tests/training/run_infer.py in the sizes of part_families.py, with weights rounded to bf16: prompts of one token, at
each length's edge and longer than windows, in layouts for the GPUs. The truth is one forward of transformers in float64 over the prompt
and the tokens that the program chose; beside it the same in bf16 on the GPU. A chosen token is the truth's, or one whose logit is as great
within the bound. BURST_INFER: names of cases; BURST_INFER_LAYOUTS: of layouts.
"""
import json
import os
import sys

import machine

sys.path.insert(0, str(machine.ROOT / "tests/training"))
sys.path.insert(0, str(machine.ROOT / "tests/lib"))

LIMIT, PEER_LIMIT = 2e-2, 1.25  # of the greatest logit
LENGTHS, TOKENS = (64, 512), 64
PROMPTS = (1, 64, 65, 300, 512)
NAMES = "llama31 mistral gemma2 qwen3 olmo2 qwen3_moe gpt_oss deepseek_v2 starcoder2 qwen3_5 granite4_h lfm2 falcon_h1"
SPLIT = "llama31 gemma2 deepseek_v2 qwen3_5 granite4_h qwen3_moe falcon_h1"  # what several GPUs run
# of which half of an expert, or of a scan's gates, is too narrow for CUDA, or heads are odd: not in layouts with `tensor`
WHOLE = "gpt_oss qwen3_moe olmo_hybrid nemotron_h falcon_h1".split()
LAYOUTS = {1: ("one", "one_chunks"), 2: ("two_ring", "two_split", "two_gathered", "two_ring_slices", "tensor_two", "tensor_two_slices", "queries"),
           4: ("ring", "ring_split", "slices", "ulysses", "ulysses_slices", "usp", "double", "tensor", "tensor_slices")}


def prepared():
    """run_infer with the sizes of kernels."""
    import part_families
    import run_infer
    import run_weights
    part_families.larger(run_infer.run_families, run_weights)
    cases = run_infer.run_families.CASES
    cases["qwen3_5"] = (cases["qwen3_5"][0], cases["qwen3_5"][1] | dict(linear_num_value_heads=8))  # two tensor ranks have gates of 16 bytes each
    run_infer.run_families.SIZES["max_position_embeddings"] = 2 * part_families.SEQUENCE
    run_infer.LENGTHS, run_infer.TOKENS, run_infer.PROMPTS = LENGTHS, TOKENS, PROMPTS
    for name in ("two_ring", "two_split", "two_gathered", "two_ring_slices"):
        like = "gathered" if "gathered" in name or "slices" in name else "ring"
        run_infer.LAYOUTS[name] = (2, run_infer.LAYOUTS[like][1].replace("context 4", "context 2"))
    return run_infer


def peer_logits(case, tokens):
    """Transformers in bf16 on the GPU."""
    import torch
    import transformers
    if not hasattr(case, "peer"):
        kind, more = case.case
        eager = {"attn_implementation": "eager"} if more.get("attn_logit_softcapping") else {}  # others leave it out
        case.peer = getattr(transformers, kind + "ForCausalLM").from_pretrained(case.folder / "start", dtype=torch.bfloat16, **eager).cuda().eval()
    with torch.no_grad():
        return case.peer(input_ids=torch.tensor([tokens]).cuda()).logits[0].double().cpu()


def compare(case, prompt, lines, count):
    """Of the greatest logit: how far logits are apart, transformers' in bf16, and how far behind the best a chosen token is; how many
    tokens are others than the truth's."""
    import torch
    chosen, last = lines[:-1], lines[-1]
    if len(chosen) != count or last["length"] != min(n for n in LENGTHS if n >= len(prompt)):
        raise machine.Failed(f"a prompt of {len(prompt)} tokens: {len(chosen)} tokens, {last}")
    tokens = [line["token"] for line in chosen]
    everything = prompt + tokens[:-1]
    wanted, peer = (x[len(prompt) - 1:] for x in (case.wanted(everything), peer_logits(case, everything)))
    most = wanted.abs().max(-1).values
    found = torch.tensor([line["logits"] for line in chosen], dtype=torch.float64)
    behind = (wanted.max(-1).values - wanted[range(count), tokens]) / most
    return (*(((x - wanted).abs().max(-1).values / most).max().item() for x in (found, peer)), behind.max().item(), int((behind > 0).sum()))


def check(m, case, layout, program, count):
    prompts = case.folder / "prompts"
    prompts.write_text("".join(json.dumps({"prompt": prompt, "logits": True}) + "\n" for prompt in case.prompts))
    out = m.run([program, "--prompts", prompts], program.name, 120)[1]
    lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"prompt"')]
    found = [compare(case, prompt, [line for line in lines if line["prompt"] == i], count) for i, prompt in enumerate(case.prompts)]
    apart, peer, behind = (max(row[i] for row in found) for i in range(3))
    bound = max(LIMIT, PEER_LIMIT * peer)
    m.add("infer", f"{case.name}, {layout}", f"logits differ by {apart:.1e} of the greatest (transformers' bf16 {peer:.1e}); of "
          f"{count * len(PROMPTS)} tokens {sum(row[3] for row in found)} others, at most {behind:.1e} behind", f"<= {bound:.1e}",
          apart <= bound and behind <= bound)


def make(m, run_infer, name):
    import part_families
    folder = m.work / name
    folder.mkdir(exist_ok=True)
    case = run_infer.Case(part_families.Programs(m, folder), name, folder)
    case.make()
    case.reference_model = case.reference_model.cuda()  # float64 takes minutes on a CPU
    return case


def run(m):
    run_infer = prepared()
    made = {}
    for name in os.environ.get("BURST_INFER", NAMES if m.gpus == 1 else SPLIT).split():
        try:
            made[name] = make(m, run_infer, name)
        except Exception as reason:  # one family leaves the others
            m.failed("infer", name, reason)
    layouts = os.environ.get("BURST_INFER_LAYOUTS", " ".join(LAYOUTS[m.gpus])).split()
    points = [(name, layout) for name in made for layout in layouts if run_infer.has_layout(name, run_infer.LAYOUTS[layout][1])
              and not (name in WHOLE and "tensor" in layout)]

    def build(point):
        name, layout = point
        return m.link(m.emit(f"infer_{name}_{layout}", machine.gpu_topology(1, m.gpus), made[name].text(layout)))

    for (name, layout), program in m.all(build, points):
        try:
            if isinstance(program, machine.Failed):
                raise program
            check(m, made[name], layout, program, run_infer.tokens_of(layout))
        except Exception as reason:
            m.failed("infer", f"{name}, {layout}", reason)
