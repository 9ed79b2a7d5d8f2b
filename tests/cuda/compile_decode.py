"""compile_decode.py NVCC ROOT ARCH FOLDER: compiles attention of a token with a cache, of keys and values and of latents, for a few shapes
and reads ptxas's report.

Warnings are errors; of kernels for heads of 256, whose output has most registers, some bytes may be spilled.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

KEYS = ("HEAD_DIM", "VALUE_DIM", "QUERY_HEADS", "KEY_HEADS")
LATENTS = ("LATENT_DIM", "SHARED_DIM", "OWN_DIM", "VALUE_DIM", "QUERY_HEADS")
CASES = [*(("decode_lib", KEYS, shape, limit) for *shape, limit in ((128, 128, 32, 8, 0), (64, 64, 32, 1, 0), (192, 128, 16, 16, 0), (256, 256, 8, 4, 96))),
         *(("decode_latent_lib", LATENTS, shape, 0) for shape in ((512, 64, 128, 128, 128), (256, 32, 64, 64, 40), (64, 32, 64, 64, 4)))]  # last: bytes spilled
KERNELS = {"decode_lib": {"decode", "merge_parts", "keep_row"}, "decode_latent_lib": {"decode_latent", "latent_query", "latent_value", "merge_parts"}}

nvcc, root, arch, folder = runner.words(__doc__, "nvcc", "root", "arch", "folder")
bad, seen = False, set() # sources whose host code, the same for all shapes, was compiled
for source, names, shape, limit in CASES:
    shown = subprocess.run(
        [nvcc, "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra,-Werror",
         *(f"-D{name}={value}" for name, value in zip(names, shape)), f"-I{root}/templates/kernels", f"-I{root}/runtime/include",
         "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-c" if source not in seen else "-cubin", f"{root}/tests/cuda/{source}.cu", "-o", f"{folder}/{source}_{arch}.o"],
        stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    if shown.returncode:
        sys.exit(shown.stdout)
    report = re.findall(r"entry function '_Z\w*?burst_([a-z_]+)_kernel.*\n.*\n *(\d+) bytes stack frame, (\d+) bytes spill stores.*\n.*Used (\d+) registers",
                        shown.stdout)
    seen.add(source)
    missing = KERNELS[source] - {kernel for kernel, *_ in report}
    if missing:
        sys.exit(f"{source}: no report of {', '.join(sorted(missing))}\n{shown.stdout}")
    for kernel, stack, spilled, registers in sorted(x for x in report if x[0] in KERNELS[source]):
        bad |= int(spilled) > limit or int(stack) > limit
        print(f"sm_{arch} {kernel} {' '.join(map(str, shape))}: {registers} registers, {spilled} bytes spilled, stack of {stack} (limit {limit})")
sys.exit(bad)
