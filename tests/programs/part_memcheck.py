"""Small emitted programs of one rank under compute-sanitizer: memcheck and racecheck, no finding.

Attention under every mask (the harness; its answers' scale is wide, since numbers are the numerics part's business), and a
training step of a small Llama.
"""
import re

import machine
import part_hf
import part_numerics

TOKENS = 150
SHAPE = dict(family="Llama", layers=2, hidden=128, heads=4, kv_heads=2, head_dim=64, ffn=192, vocab=128, tokens=192)
TOOLS = ("memcheck", "racecheck")
FINDING = 9


def programs(m):
    out = []
    harness = m.object(machine.ROOT / "tests/numerics/harness.c")
    for d in (64, 128):
        part_numerics.LENGTH[2, d] = TOKENS
        point = part_numerics.Point("ring", "keys", "zigzag", 1, 1, 2, d)
        answers = m.work / f"answers_{d}"
        part_numerics.write_answers(answers, point.shape(), device="cpu")
        out.append((f"attention, head_dim {d}", [part_numerics.build(m, point, harness), answers, "--tolerance", "4"]))
    main = m.object(machine.ROOT / "tests/programs/gradients.c")
    step = m.link(m.emit("memcheck_step", machine.gpu_topology(1, 1), part_hf.model_text(SHAPE, 1)), [main])
    truth = part_hf.find_truth(m, step, SHAPE, "cpu")[2]
    return out + [("training step", [step, truth["weights"], m.work / "hf_tokens", m.work / "gradients"])]


def run(m):
    for name, command in programs(m):
        for tool in TOOLS:
            whole = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", FINDING, *command]
            code, text = m.run(whole, f"{tool}_{command[0].name}", 280, check=False)
            summary = [line.strip("= ") for line in text.splitlines() if "SUMMARY" in line]
            m.add("memcheck", f"{name}, {tool}", "; ".join(summary) or machine.tail(text, 2).replace("\n", " | "), "no finding",
                  code == 0 and bool(summary) and all(re.search(r"\b0 (errors|hazards)", line) for line in summary))
