"""commands.py BURSTC TOPO BURST LAYOUT: every command with every general option, on a model that makes warnings: a run ends with 0 and
no error, or with 1 or 2 and a message, never with a signal or as a fault of burstc; what is refused writes nothing. With most options
the model has the LAYOUT, since no option changes what is searched; with those of OPEN everything is open.
"""
import itertools
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from timeouts import scaled_timeout  # noqa: E402

burstc, topo, burst, layout = sys.argv[1:]
FIXED = "fixed.burst"
pathlib.Path(FIXED).write_text(pathlib.Path(burst).read_text() + f"layout {{ {layout} }}\n")


def commands(burst):
    return {
        "program": [topo, burst, "-o", "x.c"],
        "cuda": [topo, burst, "-o", "x.cu"],
        **{form: [topo, burst, f"--emit={form}"] for form in
           "ast mask partition schedule step plan kernels cost memory trace c cuda".split()},
        "picture": [topo, burst, "--emit=mask", "-o", "x.svg"],
        "explain": [topo, burst, "--explain"],
        "explore": ["explore", burst, topo, "-o", "x.html"],
        "explore alone": ["explore", burst, "-o", "x.html"],
        "fit": ["fit", topo, burst, "-o", "x.table"],
        "probe": ["probe", "0"],
        "bench": ["bench", "causal", "--tokens", "0"],
        "nothing": [],
    }


WARNINGS = re.findall(r"^    ([a-z-]+): ", subprocess.run([burstc, "--help"], capture_output=True, text=True).stdout, re.M)
OPTIONS = [[], ["--explain"], ["--print-build"], ["--help"], ["--version"], ["-Werror"], ["-W"], ["-Wno-error"],
           *([f"{kind}{name}"] for name in WARNINGS for kind in ("-Werror=", "-Wno-")),
           ["-Wfew-tokens"], ["-Werror", "-Wno-error=few-tokens"], ["--schedule", "none.sched"], ["--schedule", burst], ["--schedule"],
           ["-o", "."], ["-o", "/dev/full"], ["-o", topo], ["-o"], ["--emit"], ["--emit=none"], ["-x"], [""]]
OPEN = [[], ["-Werror"], ["--schedule", "none.sched"], ["--schedule", burst], ["--schedule"]]
# The check of CUDA text reads the toolkit's headers, which would take most of the time.
UNCHECKED = dict(os.environ, CUDA_PATH="/nowhere")
WRITTEN = [pathlib.Path(name) for name in ("x.c", "x.cu", "x.svg", "x.html", "x.table")]


def wrong(command, option):
    for path in WRITTEN:
        path.unlink(missing_ok=True)
    done = subprocess.run([burstc, *command, *option], capture_output=True, text=True, errors="replace",
                          env=UNCHECKED, timeout=scaled_timeout(60))
    error = re.search(r"^(?:\S+:\d+:\d+|burstc): error: \S", done.stderr, re.M)
    if done.returncode not in (0, 1, 2) or (done.returncode != 0) != bool(error):
        return f"status {done.returncode}, {done.stderr!r}"
    written = [str(path) for path in WRITTEN if path.exists()]
    return f"status {done.returncode}, but {written} written" if done.returncode and written else None


assert len(WARNINGS) > 4, WARNINGS
failed = 0
for model, options in ((FIXED, OPTIONS), (burst, OPEN)):
    for (name, command), option in itertools.product(commands(model).items(), options):
        text = wrong(command, option)
        if text:
            print(f"{name} of {model} {option}: {text}")
            failed += 1
print(f"{len(commands(burst))} commands, {len(OPTIONS)} options, {failed} wrong")
sys.exit(1 if failed else 0)
