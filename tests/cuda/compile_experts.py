"""compile_experts.py NVCC ROOT ARCH FOLDER [REPORT]: compiles the products of experts and reads ptxas's report. REPORT: what the build kept
of it (cmake/keep_report.sh); then nothing is compiled.

Warnings are errors, as are registers spilled beyond SPILL. sm_90a: what ptxas says of products that wait for one another, or of setmaxnreg ignored, is an error
too (such a kernel is right and slow).
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

SLOW = "C7508|C7511|C7512|C7514|C7515"
KERNELS = {"80": 6, "90a": 6 + 18} # six products; three widths of tiles
SPILL = {"80": 8, "90a": 0} # bytes: gradients of gate and up need two registers more on sm_80

nvcc, root, arch, folder, reports = runner.words(__doc__, "nvcc", "root", "arch", "folder", more="reports")


def compiled():
    nccl = next((f"-I{path}" for path in (pathlib.Path(nvcc).parent.parent / "include",) if (path / "nccl.h").exists()), "-I.")
    shown = subprocess.run(
        [nvcc, "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra,-Werror,-Wno-missing-field-initializers",
         *(f"-I{root}/{name}" for name in ("runtime", "runtime/include", "templates", "templates/kernels")), nccl, "-gencode",
         f"arch=compute_{arch},code=sm_{arch}", "-c", f"{root}/runtime/cuda/experts/product.cu", "-o", f"{folder}/experts_{arch}.o"],
        stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    if shown.returncode:
        sys.exit(shown.stdout)
    return shown.stdout


text = "".join(pathlib.Path(path).read_text() for path in reports) if reports else compiled()
report = re.findall(rf"entry function '(_Z\d+burst_experts_kernel\S*)' for 'sm_{arch}'\n.*\n *(\d+) bytes stack frame, (\d+) bytes spill stores.*\n.*Used (\d+) registers", text)
report = [kernel for kernel in report if arch == "90a" or "kernel_80" in kernel[0]] # others are empty there
bad = len(report) != KERNELS[arch]
for kernel, stack, spilled, registers in sorted(report):
    bad |= max(int(spilled), int(stack)) > SPILL[arch]
    print(f"sm_{arch} {kernel}: {registers} registers, {spilled} bytes spilled, stack of {stack}")
for line in re.findall(f"^.*(?:{SLOW}).*$", text, re.M):
    print(line)
    bad = True
sys.exit(bad)
