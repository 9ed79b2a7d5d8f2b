"""The demo's model, 300 steps on 1, 2 and 4 GPUs by a ring, on GPUs that split layers by twos, on four by other schedules, with Muon, and with
recurrent layers, against the same training by the host backend in fp32. BURST_TRAIN is an expression on the points' names.

Losses are compared as means over windows of 20 steps: single steps differ by more than one per cent where a small change of
the weights changes what is learnt next. The greatest single-step difference is printed beside it.
"""
import concurrent.futures
import json
import os
import re
import typing

import machine

STEPS, WINDOW, LIMIT = int(os.environ.get("BURST_TRAIN_STEPS", 300)), 20, 0.01


class Point(typing.NamedTuple):
    gpus: int
    tensor: int = 1 # GPUs that split a layer
    schedule: str = "ring"
    sizes: str = ""
    optimizer: str = "adamw"
    scan: str = "" # of some layers

    def name(self):
        return (f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}, {self.schedule}" + (f", tensor {self.tensor}" if self.tensor > 1 else "")
                + (f", {self.optimizer}" if self.optimizer != "adamw" else "") + (", recurrent layers" if self.scan else ""))


SCAN = "scan layers 0 .. 2: { heads 4; key_heads 2; key_dim 64; value_dim 64; conv 4; }"
POINTS = [Point(1), Point(2), Point(4), Point(2, 2), Point(4, 2), Point(4, 1, "usp", "context 2; heads 2;"),
          Point(4, 1, "double_ring", "context 2 x 2;"), Point(4, 1, "gather"), Point(4, 1, "near"), Point(4, 1, "biring"),
          Point(1, optimizer="muon"), Point(2, optimizer="muon"), *(Point(gpus, scan=SCAN) for gpus in (1, 2, 4))]


def with_scan(text, scan):
    if "tied no; }" not in text.replace("\n", " "):
        raise machine.Failed("examples/demo.burst has no end of its model where recurrent layers could be")
    return text.replace("tied no;", f"tied no; {scan}") if scan else text


def with_optimizer(text, name):
    found = re.search(r"optimizer adamw \{[^}]*\}", text)
    if not found:
        raise machine.Failed("examples/demo.burst has no optimizer to replace")
    return text if name == "adamw" else text.replace(found[0], f"optimizer {name} {{ lr 1e-3; }}")


def demo_text(p):
    text = with_scan(with_optimizer((machine.ROOT / "examples/demo.burst").read_text(), p.optimizer), p.scan)
    text, count = re.subn(r"layout\s*\{[^}]*\}", machine.layout(p.gpus // p.tensor, p.schedule, sizes=p.sizes, tensor=p.tensor).strip(), text)
    if count != 1:
        raise machine.Failed("examples/demo.burst has no layout to replace")
    return text


def train(m, program, name, timeout):
    metrics = m.work / f"{name}.jsonl"
    metrics.unlink(missing_ok=True)
    m.run([program, "--steps", STEPS, "--data", m.bundle / "data/text", "--metrics", metrics, "--quiet"], name, timeout)
    losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
    if len(losses) != STEPS:
        raise machine.Failed(f"{name}: {len(losses)} lines of metrics instead of {STEPS}")
    return losses


def train_host(m, optimizer, scan):
    cluster, demo = ((machine.ROOT / "examples" / name).read_text() for name in ("cpu8.topo", "demo.burst"))
    name = f"train_host_{optimizer}{'_scan' if scan else ''}"
    return train(m, m.link(m.emit(name, cluster, with_scan(with_optimizer(demo, optimizer), scan), "c")), name, 500)


def windows(losses):
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, STEPS, WINDOW)]


def compare(m, name, losses, right):
    apart = [abs(a / b - 1) for a, b in zip(windows(losses), windows(right))]
    single = max(abs(a / b - 1) for a, b in zip(losses, right))
    last = windows(losses)[-1] / windows(right)[-1] - 1
    m.add("train", name, f"worst window of {WINDOW} steps {100 * max(apart):.2f} %, the last {100 * last:+.2f} %, "
          f"worst single step {100 * single:.2f} %; last loss {losses[-1]:.4f}, host {right[-1]:.4f}",
          f"windows within {100 * LIMIT:.0f} %", max(apart) <= LIMIT)
    print("    by window:", *[f"{100 * (a / b - 1):+.2f}" for a, b in zip(windows(losses), windows(right))], "%", flush=True)


def run(m):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        points = [p for p in POINTS if p.gpus <= m.gpus and re.search(os.environ.get("BURST_TRAIN", ""), p.name())]
        host = {way: pool.submit(train_host, m, *way) for way in sorted({(p.optimizer, p.scan) for p in points})}
        programs = dict(m.all(lambda p: m.link(m.emit(f"train_{p.name()}", machine.gpu_topology(1, p.gpus), demo_text(p))), points))
        losses = {}
        for point in points:
            if isinstance(programs[point], machine.Failed):
                m.failed("train", point.name(), programs[point])
                continue
            losses[point] = train(m, programs[point], programs[point].name, 450 if m.share else 150)
        right = {way: future.result() for way, future in host.items()}
    for (optimizer, scan), found in right.items():
        m.add("train", f"host backend, 8 ranks, {optimizer}{', recurrent layers' if scan else ''}", f"loss {found[0]:.4f} to {found[-1]:.4f} in {STEPS} steps")
    for point, found in losses.items():
        compare(m, point.name(), found, right[point.optimizer, point.scan])
