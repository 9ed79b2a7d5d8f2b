"""Two ranks, each of a program of its own that burstc wrote: refused before the first step, with what differs.

    python3 run_pairs.py --toolchain toolchain.json

As torchrun and mpirun start them. What differs is one word of the model: a mask, who holds the weights, a value of the optimizer.
"""
import os
import pathlib
import re
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

MODEL = """import "masks";
model test {{ layers 1; hidden 24; heads 3; kv_heads 3; head_dim 8; ffn swiglu 24; norm rmsnorm {eps}; rope {rope}; vocab 256; }}
attention {{ default {mask}; }}
sequence 64;
layout {{ data 1; context 2; schedule {schedule}; partition {partition}; weights {weights}; }}
train {{ data "text.txt"; separator {separator}; steps 2; batch 2; seed {seed}; optimizer adamw {{ lr {lr}; decay 0.1; }} }}
"""
BASE = {"eps": "1e-5", "rope": "10000", "mask": "causal", "schedule": "ring", "partition": "contiguous", "weights": "zero1", "separator": 46, "seed": 3,
        "lr": "5e-3"}
# A word, its other value, and the name in the message: of a layout, the first value of the plan that it changes.
PAIRS = [("mask", "document", "mask"), ("mask", "window(17)", "mask"),
         ("weights", "zero3", "ranks that shard the weights|arena.*|number of tables|plan"),
         ("partition", "zigzag", "plan|arena.*|number of tables"), ("schedule", "gather", "plan|arena.*|number of (tables|channels)"),
         ("lr", "4e-3", "lr|last lr"), ("rope", "20000", "rope_theta"), ("eps", "1e-6", "norm_eps"), ("separator", 47, "separator"), ("seed", 4, "--seed")]
PASSED = 0, 2  # exit codes: of equal programs, of others


def by_torchrun(first, second):
    script = f'if [ "$RANK" = 0 ]; then exec "{first}" "$@"; else exec "{second}" "$@"; fi'
    return [HERE.parent / "runtime" / "ranks.py", 2, "bash", "-c", script, "bash", "--quiet", "--timeout", 60]


def by_mpirun(first, second):
    words = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe"]
    return [*words, "-n", 1, first, "--quiet", "--timeout", 60, ":", "-n", 1, second, "--quiet", "--timeout", 60]


def main():
    args = runner.options(__doc__, "--toolchain").parse_args()
    tools, failures = emitted.Toolchain(args.toolchain), 0
    launchers = {"torchrun": by_torchrun, **({"mpirun": by_mpirun} if tools.mpirun and shutil.which("mpirun") else {})}
    with runner.folder(args.work) as folder:
        (folder / "text.txt").write_text("ba dude gi folima. " * 500)

        def program(name, **other):
            return tools.link(tools.emit(folder, name, emitted.topology(1, 2), MODEL.format(**{**BASE, **other})))

        base = program("base")
        pairs = [("nothing", program("same"), None)] + [(f"{word} {value}", program(f"other{i}", **{word: value}), name)
                                                       for i, (word, value, name) in enumerate(PAIRS)]
        for what, other, name in pairs:
            for launcher, start in launchers.items():
                done = run(start(base, other), 60, emitted.quiet_environment(), check=False, cwd=folder)
                said = re.search(rf"burst: rank 1 has a different ({name}): .+, rank 0 has .+", done.stderr + done.stdout)
                good = done.returncode == PASSED[name is not None] and bool(said) == (name is not None)
                failures += not good
                print("ok" if good else "FAILED", f"{what}, {launcher}: {done.returncode}: {done.stderr if not good else said[1] if said else ''}", flush=True)
    require(not failures, f"{failures} pairs failed")


runner.end(main)
