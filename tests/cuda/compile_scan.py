"""compile_scan.py NVCC ROOT ARCH KEY_DIM FOLDER [REPORT ...]: compiles the kernels of recurrent layers and reads ptxas's report. REPORT: what
the build kept of it (cmake/keep_report.sh); then the library of the tests on GPUs is compiled without optimising, and to PTX alone.

Warnings are errors. A kernel may spill what SPILLED says, by its name and key_dim, and no more. At 256 the gradients' blocks have 512
threads of 128 registers.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

SPILLED = {("gradients", 64): 260, ("gradients", 256): 1400, ("local", 128): 64, ("local", 256): 64, ("chain", 128): 32}
REST = 16
KERNELS = 2 * (2 + 3 + 2) # local, chain and reverse, for each kind of layer

nvcc, root, arch, key_dim, folder, reports = runner.words(__doc__, "nvcc", "root", "arch", "key_dim", "folder", more="reports")
kernels = KERNELS + 2 * (1 if key_dim == "256" else 2)


def compiled(code, *how):
    shown = subprocess.run(
        [nvcc, "-std=c++17", *how, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", f"-DSCAN_KEY_DIM={key_dim}",
         f"-I{root}/runtime", f"-I{root}/runtime/include", "-gencode", f"arch=compute_{arch},code={code}_{arch}", "-c",
         f"{root}/tests/cuda/scan_lib.cu", "-o", f"{folder}/scan_{arch}_{key_dim}.o"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    if shown.returncode:
        sys.exit(shown.stdout)
    return shown.stdout


if reports:
    compiled("compute", "-Xcicc", "-O0")
    text = "".join(pathlib.Path(path).read_text() for path in reports)
else:
    text = compiled("sm", "-O3", "-Xptxas", "-v")
# Some kernels are in both objects of the build.
report = set(re.findall(rf"entry function '_Z\d+scan_(\w+?)_kernelILi({key_dim})(\w+?)EEv.*' for 'sm_{arch}'\n.*\n *(\d+) bytes stack frame, "
                        r"(\d+) bytes spill stores.*\n.*Used (\d+) registers", text))
bad = len(report) != kernels
for kernel, d, form, stack, spilled, registers in sorted(report):
    limit = SPILLED.get((kernel, int(d)), REST)
    bad |= int(spilled) > limit or int(stack) > limit
    print(f"sm_{arch} {kernel} {d} {form}: {registers} registers, {spilled} bytes spilled, stack of {stack} (limit {limit})")
if bad:
    print(f"{len(report)} kernels, {kernels} expected; or too much is spilled")
sys.exit(bad)
