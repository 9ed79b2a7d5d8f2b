"""compile_scan.py NVCC ROOT ARCH KEY_DIM FOLDER: compiles the kernels of recurrent layers and reads ptxas's report.

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

nvcc, root, arch, key_dim, folder = runner.words(__doc__, "nvcc", "root", "arch", "key_dim", "folder")
kernels = KERNELS + 2 * (1 if key_dim == "256" else 2)
shown = subprocess.run(
    [nvcc, "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra,-Werror", f"-DSCAN_KEY_DIM={key_dim}",
     f"-I{root}/runtime", f"-I{root}/runtime/include", "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-c",
     f"{root}/tests/cuda/scan_lib.cu", "-o", f"{folder}/scan_{arch}_{key_dim}.o"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
if shown.returncode:
    sys.exit(shown.stdout)
report = re.findall(rf"entry function '_Z\d+scan_(\w+?)_kernelILi({key_dim})(\w+?)EEv.*\n.*\n *(\d+) bytes stack frame, (\d+) bytes spill stores"
                    r".*\n.*Used (\d+) registers", shown.stdout)
bad = len(report) != kernels
for kernel, d, form, stack, spilled, registers in sorted(report):
    limit = SPILLED.get((kernel, int(d)), REST)
    bad |= int(spilled) > limit or int(stack) > limit
    print(f"sm_{arch} {kernel} {d} {form}: {registers} registers, {spilled} bytes spilled, stack of {stack} (limit {limit})")
if bad:
    print(f"{len(report)} kernels, {kernels} expected; or too much is spilled")
sys.exit(bad)
