#!/usr/bin/env python3
"""Takes ';' out of right texts, one at each place and a few at once: what is said must be that they are missing, each at
its place, and nothing else.

    run_semicolons.py DSLCHECK STOCK FOLDER_OF_SCHEDULES
"""
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

TEXTS = {"m.burst": """import "masks";
model m { layers 4; hidden 64; heads 4; kv_heads 2; head_dim 16; ffn swiglu 128; norm rmsnorm 1e-5; rope 1e4; vocab 256; tied no; }
mask a(n) = k <= q and q - k < n;
mask b = a(4) or k < 2;
attention { default a(7); layers 1, 2: b; layers 3: causal; }
table doc per token lengths 4 .. 64;
sequence 1Ki;
layout { data 1; context auto; schedule ring; travel keys; recompute none; ffn chunks auto; weights zero3; }
train { data "x"; steps 10; batch 2; optimizer adamw { lr 1e-3; betas 0.9 0.95; cosine to 1e-4; } checkpoint "c" every 5; seed 3; }
""", "c.topo": """import "devices";
cluster c {
  nodes 2 { gpus 2 of d; nics 1 of n; }
  link nv { bandwidth 450 GB/s; latency 2 us; }
  fabric { oversubscription 1; }
}
device d { arch sm_90a; memory 80 GB; matmul bf16 700 TFLOP/s; attention forward 400 TFLOP/s; attention backward 300 TFLOP/s; }
nic n { bandwidth 400 Gb/s; latency 5 us; }
host { memory 512 GiB; pcie 55 GB/s; cores 64; }
"""}


def place(text, at):
    return text[:at].count("\n") + 1, at - text.rfind("\n", 0, at)


def check(command, path, text, missing):
    """missing: offsets of ';' in text, in order."""
    left, wanted = "", []
    for at, letter in enumerate(text):
        if at in missing:
            wanted.append(place(left, len(left)))
        else:
            left += letter
    path.write_text(left)
    said = subprocess.run([*command, str(path)], capture_output=True, text=True).stdout
    errors = re.findall(r":(\d+):(\d+): error: (.*)$", said, re.M)
    good = sorted((int(line), int(column)) for line, column, _ in errors) == wanted
    if good and all(text.startswith("expected ';' here") for *_, text in errors):
        return True
    print(f"{path.name} without ';' at {wanted}:\n{said}")
    return False


def main():
    program, stock, schedules = runner.words(__doc__, "dslcheck", "stock", "schedules")
    texts = TEXTS | {p.name: re.sub(r"#[^\n]*", "", p.read_text()) for p in pathlib.Path(schedules).glob("*.sched")}
    draw, good = random.Random(1), []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            places = [at for at, letter in enumerate(text) if letter == ";"]
            sets = [[at] for at in places] + [sorted(draw.sample(places, draw.randint(2, min(6, len(places))))) for _ in range(20)]
            good += [check([program, stock, "."], pathlib.Path(folder) / name, text, s) for s in sets]
    print(f"{len(good)} texts, {good.count(False)} wrong")
    return 0 if all(good) and len(good) > 100 else 1


if __name__ == "__main__":
    sys.exit(main())
