"""compile.py NVCC ROOT ARCH HEAD_DIM FOLDER [NAME MACRO=VALUE]: compiles the attention kernels for a few masks and reads ptxas's report.

Warnings are errors, and a kernel whose predicate computes in 32 bits must not spill. A predicate in 64 bits (`odd`) may, in
its partial tiles, up to SPILL bytes a thread. sm_90a: the kernels of that form; what ptxas says of products that wait for one
another, or of setmaxnreg ignored, is an error too (such a kernel is right and slow), and where there is cuobjdump, every
kernel of that form must have HGMMA. No kernel may keep what registers are for in memory that spills do not count.
Two of the masks a day, others for each head_dim; BURST_TEST_ALL=1: all. Host code is compiled for head_dim 64 and 128 alone: that of
variants and other head_dims is the same.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

FOLDERS = ["templates/kernels", "templates/kernels/sm80", "templates/kernels/sm90", "runtime/include"]
MASKS = {0: 0, 1: 0, 3: 0, 6: 0, 8: 200, 12: 0} # full, causal, window_sink, document, odd, bigbird: bytes that may be spilled
MASKS_80 = MASKS | {12: 8} # its hash has one register too many backward
SLOW = "C7508|C7511|C7512|C7514|C7515"

nvcc, root, arch, head_dim, folder, variant = runner.words(__doc__, "nvcc", "root", "arch", "head_dim", "folder", more="variant")
hopper = arch == "90a"
if not hopper:
    MASKS = MASKS_80
if variant:
    MASKS = {1: 0, 6: 0}
if variant[:1] == ["select"]: # select.burst's; of blocks that its tiles do not divide, one register too many backward
    MASKS = {0: 0, 1: 8, 2: 8, 3: 8, 4: 8} if (arch, head_dim) == ("80", "128") else dict.fromkeys(range(5), 0)
if hopper and head_dim == "192" and "VALUE_DIM=128" in variant:
    MASKS = {1: 0} # without tables: compiler/ir/kernels.c
every = os.environ.get("BURST_TEST_ALL") == "1"
host = every or (not variant and head_dim in ("64", "128"))
if not variant:
    at = int(head_dim) // 16 % 3
    MASKS = dict(runner.of_the_day([*MASKS.items()][at:] + [*MASKS.items()][:at], every, 3))
object_file = f"{folder}/attention_{arch}_{head_dim}{'_' + variant[0] if variant else ''}.o"
shown = subprocess.run(
    [nvcc, "-std=c++17", "-O3", "-lineinfo", "-Werror", "all-warnings", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra,-Werror",
     f"-DHEAD_DIM={head_dim}", "-DMASKS(X)=" + " ".join(f"X({m})" for m in MASKS), *[f"-I{root}/{folder}" for folder in FOLDERS],
     *(["-DHOPPER"] if hopper else []), *(f"-D{x}" for x in variant[1:]), "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-c" if host else "-cubin",
     f"{root}/tests/cuda/attention_lib.cu", "-o", object_file], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
if shown.returncode:
    sys.exit(shown.stdout)
report = re.findall(r"entry function '_Z\d+burst_(forward|backward)_kernelILi(\d+)E\d+PlanMask(\d+)Li(\d+)E.*\n.*\n *(\d+) bytes stack frame, (\d+) bytes spill stores"
                    r".*\n.*Used (\d+) registers", shown.stdout)
bad = len(report) != 2 * len(MASKS)
for kernel, d, mask, e, stack, spilled, registers in sorted(report):
    limit = MASKS[int(mask)]
    bad |= int(spilled) > limit or int(stack) > limit
    print(f"sm_{arch} {kernel} d{d} v{e} mask {mask}: {registers} registers, {spilled} bytes spilled, stack of {stack} (limit {limit})")
for kernel, spilled in re.findall(r"entry function '_Z\d+(burst_(?:select|by)\w+)'.*\n.*\n.*, (\d+) bytes spill stores", shown.stdout):
    print(f"sm_{arch} {kernel}: {spilled} bytes spilled")
    bad |= int(spilled) > 0
for line in re.findall(f"^.*(?:{SLOW}).*$", shown.stdout, re.M):
    print(line)
    bad = True
cuobjdump = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.path.dirname(nvcc))
if hopper and not cuobjdump:
    print("no cuobjdump here: HGMMA was not looked for")
elif hopper:
    code = subprocess.run([cuobjdump, "--dump-sass", object_file], stdout=subprocess.PIPE, text=True, check=True).stdout
    for name, text in re.findall(r"Function : (\S*burst_(?:for|back)ward_kernel\S*)\n(.*?)(?=Function :|\Z)", code, re.S):
        print(f"{name}: {text.count('HGMMA')} HGMMA")
        bad |= "HGMMA" not in text
sys.exit(bad)
