"""Model and cluster texts to running programs."""
import json
import os
import pathlib
import shutil

from runner import run


def quiet_environment():
    """One BLAS thread a rank: the ranks already fill the machine. OpenBLAS has the kernels of Haswell wherever they run, so that
    sums round alike on all machines: a gradient near its bound is on the same side of it."""
    return dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", **haswell())


def haswell():
    flags = pathlib.Path("/proc/cpuinfo")
    words = set(flags.read_text().split()) if flags.exists() else set()
    return {"OPENBLAS_CORETYPE": "Haswell"} if {"avx2", "fma"} <= words else {}


def burstc(program, folder, *arguments, status=0):
    """What burstc prints in a folder; with another exit status, what it says of it."""
    done = run([program, *arguments], 300, status=status, cwd=folder)
    return done.stderr if status else done.stdout


class Toolchain:
    """burstc and the C compiler, as CMake found them (toolchain.json)."""

    def __init__(self, path):
        words = json.loads(pathlib.Path(path).read_text())
        self.burstc, self.cc, self.include = words["burstc"], words["cc"], words["include"]
        self.flags = [f for f in words["flags"] if f]
        self.libraries = [library for library in words["libraries"] if library]
        self.mpirun = words["mpirun"]
        self.linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
        self.tcc = not self.flags and shutil.which("tcc")  # which has no sanitizers

    def emit(self, folder, name, topo, model):
        """Writes name.topo and name.burst and compiles them to name.c, whose path comes back."""
        folder = pathlib.Path(folder)
        for suffix, text in (("topo", topo), ("burst", model)):
            (folder / f"{name}.{suffix}").write_text(text)
        source = folder / f"{name}.c"
        run([self.burstc, folder / f"{name}.topo", folder / f"{name}.burst", "-o", source], timeout=60)
        return source

    def link(self, source, objects=(), optimise="-O0"):
        """The program of an emitted source. With objects, one of them has the main. Compiling takes most of the time of
        these tests: programs as small as theirs are as fast without optimisation. tcc, where it is installed, takes a
        twentieth of the time of gcc, which compiles what tcc does not. Without tables for unwinding, which nothing reads,
        gcc takes an eighth less. gold takes half as long as ld.bfd."""
        program = source.with_suffix("")
        no_main = ["-DPLAN_NO_MAIN"] if objects else []
        if self.tcc and optimise == "-O0":
            compiled = source.with_suffix(".o")
            done = run([self.tcc, "-c", *no_main, f"-I{self.include}", source, "-o", compiled], timeout=120, check=False)
            source = source if done.returncode else compiled
        run([self.cc, "-std=gnu17", optimise, "-fno-asynchronous-unwind-tables", *self.flags, *no_main, f"-I{self.include}",
             source, *objects, "-o", program, *self.linker, *self.libraries], timeout=120)
        return program


def topology(nodes, lanes):
    return f"""cluster test {{
  nodes {nodes} {{ gpus {lanes} of core; nics 1 of lan; }}
  link local {{ bandwidth 10 GB/s; latency 1 us; }}
}}
device core {{ arch cpu; memory 4 GB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; }}
nic lan {{ bandwidth 10 Gb/s; latency 10 us; }}
"""


def few(nodes=1, gpus=4, device="small", memory="1 GiB"):
    """A cluster of small devices, or of one of import "devices"."""
    return f"""cluster few {{ nodes {nodes} {{ gpus {gpus} of {device}; nics 1 of loop; }} link nvlink {{ bandwidth 300 GB/s; latency 2 us; }} }}
device small {{ arch cpu; memory {memory}; hbm 20 GB/s; matmul fp32 50 GFLOP/s; attention forward 40 GFLOP/s; attention backward 35 GFLOP/s; }}
nic loop {{ bandwidth 80 Gb/s; latency 5 us; }}
host {{ memory 64 GiB; pcie 8 GB/s; cores 8; }}
"""


def layout(data, ranks, schedule, travel, partition, recompute="none", mesh=(), ranges=""):
    """The layout block: ranks share a sequence, by a ring (context; mesh: sizes of its coordinates), with ulysses by heads, and with
    usp and the like by both, where the last size is that of heads."""
    context, heads = (1, ranks) if schedule == "ulysses" else (" x ".join(map(str, mesh)) or ranks, 1)
    if schedule.strip('"').startswith("usp"):
        context, heads = " x ".join(map(str, mesh[:-1])) or 1, mesh[-1]
    return (f"layout {{ data {data}; context {context}; heads {heads}; tensor 1; schedule {schedule}; travel {travel}; "
            f"partition {partition}; recompute {recompute}; {ranges and f'ranges {ranges}; '}}}\n")
