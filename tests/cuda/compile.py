"""compile.py NVCC ROOT ARCH HEAD_DIM FOLDER: compiles the attention kernels for a few masks and reads ptxas's report.

Warnings are errors, and a kernel whose predicate computes in 32 bits must not spill. A predicate in 64 bits (`odd`) may, in
its partial tiles, up to SPILL bytes a thread.
"""
import re
import subprocess
import sys

MASKS = {0: 0, 1: 0, 3: 0, 6: 0, 8: 128} # full, causal, window_sink, document, odd: bytes that may be spilled

nvcc, root, arch, head_dim, folder = sys.argv[1:]
shown = subprocess.run(
    [nvcc, "-std=c++17", "-O3", "-lineinfo", "-Werror", "all-warnings", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra,-Werror",
     f"-DHEAD_DIM={head_dim}", "-DMASKS(X)=" + " ".join(f"X({m})" for m in MASKS), f"-I{root}/templates", f"-I{root}/runtime",
     "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-c", f"{root}/tests/cuda/attention_lib.cu",
     "-o", f"{folder}/attention_{arch}_{head_dim}.o"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
if shown.returncode:
    sys.exit(shown.stdout)
report = re.findall(r"entry function '_Z\d+burst_(forward|backward)_kernelILi(\d+)E\d+PlanMask(\d+)E.*\n.*\n.* (\d+) bytes spill stores"
                    r".*\n.*Used (\d+) registers", shown.stdout)
bad = len(report) != 2 * len(MASKS)
for kernel, d, mask, spilled, registers in sorted(report):
    limit = MASKS[int(mask)]
    bad |= int(spilled) > limit
    print(f"sm_{arch} {kernel} d{d} mask {mask}: {registers} registers, {spilled} bytes spilled (limit {limit})")
sys.exit(bad)
