"""Ranks that do not call the same, by mismatch.c, with two plans that differ in a mask."""
import os
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner
from run_cases import TOPO

MODEL = """table doc per token;
mask all = causal and doc[q] == doc[k];
mask near = all and q - k < %d;
model a { heads 4; kv_heads 2; head_dim 16; layers 2; }
attention { default all; layers 1: near; }
sequence 100;
layout { schedule %s; }
"""


def under_load(command, runs=15):
    """Ranks come late to what others do: a call must not end well before all have checked their own."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        for _ in range(runs):
            runner.run(command, 60)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main():
    o = runner.options(__doc__, "--burstc", "--mismatch").parse_args()
    with runner.folder(o.work) as folder:
        (folder / "c.topo").write_text(TOPO % 3)
        for schedule in "ring", "ulysses":
            plans = []
            for width in 40, 41:
                model = folder / f"{schedule}{width}.burst"
                model.write_text('import "masks";\n' + MODEL % (width, schedule))
                plans.append(model.with_suffix(".so"))
                runner.run([o.burstc, folder / "c.topo", model, "-o", plans[-1]], 120)
            print(runner.run([o.mismatch, *plans], 60).stdout)
            under_load([o.mismatch, *plans])
    return 0


sys.exit(main())
