"""compile_decode.py NVCC ROOT ARCH FOLDER: compiles attention of a token with a cache for a few shapes and reads ptxas's report.

Warnings are errors; of kernels for heads of 256, whose output has most registers, some bytes may be spilled.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

SHAPES = [(128, 128, 32, 8, 0), (64, 64, 32, 1, 0), (192, 128, 16, 16, 0), (256, 256, 8, 4, 96)]  # with values of, heads, key heads, bytes spilled

nvcc, root, arch, folder = runner.words(__doc__, "nvcc", "root", "arch", "folder")
bad = False
for d, e, heads, kv_heads, limit in SHAPES:
    shown = subprocess.run(
        [nvcc, "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra,-Werror", f"-DHEAD_DIM={d}", f"-DVALUE_DIM={e}",
         f"-DQUERY_HEADS={heads}", f"-DKEY_HEADS={kv_heads}", f"-I{root}/templates/kernels", f"-I{root}/runtime/include", "-gencode", f"arch=compute_{arch},code=sm_{arch}",
         "-c", f"{root}/tests/cuda/decode_lib.cu", "-o", f"{folder}/decode_{arch}.o"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    if shown.returncode:
        sys.exit(shown.stdout)
    report = re.findall(r"entry function '_Z\w*burst_(decode|merge_parts|keep_row)_kernel.*\n.*\n *(\d+) bytes stack frame, (\d+) bytes spill stores.*\n.*Used (\d+) registers",
                        shown.stdout)
    bad |= len(report) < 4
    for kernel, stack, spilled, registers in sorted(report):
        bad |= int(spilled) > limit or int(stack) > limit
        print(f"sm_{arch} {kernel} d{d} v{e}, {heads} heads on {kv_heads}: {registers} registers, {spilled} bytes spilled, stack of {stack} (limit {limit})")
sys.exit(bad)
