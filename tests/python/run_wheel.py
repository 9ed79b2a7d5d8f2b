"""The package as a wheel, installed by pip without a network into a virtual environment with nothing else.

There the first example of docs/python.md runs as it stands (torch is this interpreter's), and the C example
of docs/library.md with the wheel's burstc, burst.h and libburst. The system's python3 builds it where it can,
whose setuptools is older than this interpreter's; one that cannot is told what it lacks. 77 without torch, pip,
or a setuptools that builds wheels.
"""
import os
import pathlib
import re
import sys
import venv

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILDS = "import setuptools, pip; setuptools.Distribution().get_command_class('bdist_wheel')"
NEEDED = """import os, torch, pip, ensurepip
print(os.path.dirname(torch.__path__[0]))"""
TOPO = """cluster cpus { nodes 1 { gpus 2 of core; } link nvlink { bandwidth 8 GB/s; latency 2 us; } }
device core { arch cpu; memory 1 GiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; }
host { memory 8 GiB; pcie 8 GB/s; cores 4; }
"""


def block(page, language):
    return re.search(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)[1]


def builder():
    """An interpreter that builds wheels; None: there is none."""
    for python in ("/usr/bin/python3", sys.executable):
        if os.access(python, os.X_OK) and runner.run([python, "-W", "ignore", "-c", BUILDS], 60, check=False).returncode == 0:
            return python
    return None


def check_lacks(folder, home):
    """An interpreter without packages is refused before anything is built."""
    (folder / "bare").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    (folder / "bare").chmod(0o755)
    done = runner.run(["bash", ROOT / "scripts/wheel", "--of", home, folder / "none"], 60, check=False, env=dict(os.environ, PYTHON=str(folder / "bare")))
    runner.require(done.returncode == 1 and "lacks pip, setuptools 64 or later, wheel; on Debian or Ubuntu: apt install" in done.stderr,
                   done.stderr)
    runner.require(not (folder / "none").exists(), "a folder of wheels was made")


def installed(folder, home, torch):
    """An environment's interpreter, and the package's native files."""
    bare = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BURST_HOME")}
    runner.run(["bash", ROOT / "scripts/wheel", "--of", home, folder / "dist"], 600,
               env=dict(bare, PYTHON=builder()))
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv/bin/python"
    runner.run([
        python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
        *(folder / "dist").glob("burstc-*.whl")
    ], 300, env=bare)
    packages = pathlib.Path(
        runner.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                   60).stdout.strip())
    runner.require((packages / "burst/native/bin/burstc").exists(), f"no burstc in {packages}")
    (packages / "torch.pth").write_text(torch + "\n")
    return python, packages / "burst/native", dict(bare, BURST_CACHE=str(folder / "cache"),
                                                   OMP_NUM_THREADS="1")


def check_c(folder, native, env):
    (folder / "cluster.topo").write_text(TOPO)
    (folder / "attention.burst").write_text(block("library.md", ""))
    (folder / "example.c").write_text(block("library.md", "c"))
    env = dict(env, PKG_CONFIG_PATH=str(native / "lib/pkgconfig"), LD_LIBRARY_PATH=str(native / "lib"))
    env["PATH"] = f"{native / 'bin'}:{env['PATH']}"
    commands = re.search(r"^    (burstc cluster.topo attention.burst -o plan.so)\n    (cc example.c .*)$",
                         (ROOT / "docs/library.md").read_text(), re.M)
    for command in commands.groups():
        printed = runner.run(["sh", "-c", command], 200, env=env, cwd=folder).stdout
    runner.require(printed.count("mask ") == 2, printed)


def main():
    o = runner.options(__doc__, "--home").parse_args()
    there = runner.run([sys.executable, "-c", NEEDED], 120, check=False)
    if there.returncode != 0 or not builder():
        print("torch, pip or setuptools is not installed, or too old")
        return 77
    with runner.folder(o.work) as folder:
        check_lacks(folder, o.home)
        python, native, env = installed(folder, o.home, there.stdout.strip())
        (folder / "example.py").write_text(block("python.md", "python"))
        printed = runner.run([python, folder / "example.py"], 300, env=env, cwd=folder).stdout
        runner.require("(512, 4, 32) True" in printed, printed)
        check_c(folder, native, env)
    return 0


sys.exit(main())
