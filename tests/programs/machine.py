"""What the parts of gpu-test share: a bundle (burstc, its share folder, the runtime's libraries), this machine's compilers and
GPUs, programs made from texts, launches with a time-out and a log, and one table of results."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NO_GPU = 77


class Failed(Exception):
    """A command that should have succeeded did not; the text says which and how."""


class Row(typing.NamedTuple):
    part: str
    case: str
    value: str
    bound: str = ""
    good: typing.Optional[bool] = None  # None: a figure without a bound


def gpu_names():
    smi = shutil.which("nvidia-smi")
    if not smi:
        return []
    done = subprocess.run([smi, "--query-gpu=name,compute_cap", "--format=csv,noheader"], capture_output=True, text=True,
                          check=False)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def tail(text, lines=6):
    return "\n    ".join(text.strip().splitlines()[-lines:])


def gpu_topology(nodes, lanes, more="", device=None, nic=""):
    """A cluster of this machine's devices, as the stock texts have them; nic: the body of a network card (nodes > 1)."""
    names = gpu_names()
    stock = "h200" if all("H200" in name for name in names) else "h100"
    device = device or (stock if all(name.endswith("9.0") for name in names) else "a100")
    nics = f" nics {lanes} of lan;" if nodes > 1 else ""
    card = f"nic lan {{ {nic or 'bandwidth 400 Gb/s; latency 5 us;'} }}\n" if nodes > 1 else ""
    link = more or "link nvlink { bandwidth 391 GB/s; latency 5 us; }"
    return f"cluster test {{ nodes {nodes} {{ gpus {lanes} of {device};{nics} }} {link} }}\n{card}"


def layout(ranks, schedule, travel="keys", partition="zigzag", recompute="none", data=1, sizes="", tensor=1):
    sizes = sizes or (f"context 1; heads {ranks};" if schedule == "ulysses" else f"context {ranks}; heads 1;")
    sizes += f" tensor {tensor};" if tensor > 1 else ""
    return (f"layout {{ data {data}; {sizes} schedule {schedule}; travel {travel}; "
            f"partition {partition}; recompute {recompute}; }}\n")


def table(rows, path):
    """The rows as text, which is written to the path too."""
    wide = [max([len(row[i]) for row in rows] + [4]) for i in range(2)]
    verdict = {None: "    ", True: "ok  ", False: "FAIL"}
    lines = ["  ".join([verdict[row.good], row.part.ljust(wide[0]), row.case.ljust(wide[1]), row.value,
                        f"[{row.bound}]" if row.bound else ""]).rstrip() for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return "\n".join(lines)


RUNNING = set()  # commands


def below(process):
    """It and all that it started, in whatever group or session they are."""
    children = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            children.setdefault(int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(folder.name))
        except OSError:
            pass  # it has ended
    found = [process]
    for one in found:
        found += children.get(one, [])
    return found


def end(process):
    """torchrun's workers have sessions of their own: those that outlive it would hold the GPUs."""
    for one in below(process):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass


def end_commands(number, _):
    """A signal that ends this process ends its commands."""
    for process in list(RUNNING):
        end(process)
    os._exit(128 + number)


class Machine:
    def __init__(self, bundle, gpus, out, jobs=None, share=False):
        self.bundle, self.gpus, self.out = pathlib.Path(bundle).resolve(), gpus, pathlib.Path(out).resolve()
        self.share, self.devices = share, max(1, min(gpus, len(gpu_names())))  # gpus: those that programs are made for
        if share:
            os.environ["BURST_SHARE_GPUS"] = "1"
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.work = self.out / "work"
        self.logs = self.out / "logs"
        for folder in (self.work, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.arch = self.find_arch()
        self.rows, self.rows_file = [], self.out / "rows.json"
        if not os.access(self.bundle / "bin/burstc", os.X_OK):  # copied without its permissions
            (self.bundle / "bin/burstc").chmod(0o755)

    def find_arch(self):
        names = gpu_names()
        digits = names[0].rsplit(",", 1)[1].strip().replace(".", "") if names else "90"
        return digits + ("a" if digits == "90" else "")

    # ---- results ----

    def add(self, *row):
        self.rows.append(Row(*row))
        self.rows_file.write_text(json.dumps(self.rows))
        verdict = {None: "    ", True: "ok  ", False: "FAIL"}[self.rows[-1].good]
        print(verdict, *[word for word in self.rows[-1][:4] if word], flush=True)

    def failed(self, part, case, error):
        self.add(part, case, str(error).replace("\n", " | ")[:400], "", False)

    # ---- commands ----

    def run(self, command, name, timeout, env=None, check=True):
        """Runs it; what it started is killed when the time is over. The output goes to a log as well."""
        command = [str(word) for word in command]
        environment = dict(os.environ, NCCL_NVLS_ENABLE="0", OPENBLAS_NUM_THREADS="1", **(env or {}))
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env=environment, start_new_session=True)
        RUNNING.add(process.pid)
        late = False
        try:
            text = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            late = True
            end(process.pid)
            text = process.communicate()[0]
        RUNNING.discard(process.pid)
        code = "timeout" if late else process.returncode
        seconds = time.monotonic() - begin
        for path in [self.logs / f"{name}.log", *([self.out / "failures.log"] if code != 0 else [])]:
            with open(path, "a", encoding="utf-8") as log:
                print("$", *[f"{k}={v}" for k, v in (env or {}).items()], *command, file=log)
                print(text, f"ended with {code} after {seconds:.1f} s", sep="\n", file=log)
        if check and code != 0:
            raise Failed(f"{name}: ended with {code} after {seconds:.0f} s\n    {tail(text)}")
        return code, text

    def all(self, function, items, jobs=None):
        """[(item, result or Failed)], as they end."""
        with concurrent.futures.ThreadPoolExecutor(jobs or self.jobs) as pool:
            futures = {pool.submit(function, item): item for item in items}
            for future in concurrent.futures.as_completed(futures):
                try:
                    yield futures[future], future.result()
                except Failed as error:
                    yield futures[future], error

    # ---- programs ----

    def emit(self, name, topo, model, suffix="cu", options=()):
        name = re.sub(r"[^\w.]", "_", name)
        for ending, text in (("topo", topo), ("burst", model)):
            (self.work / f"{name}.{ending}").write_text(text)
        out = self.work / f"{name}.{suffix}"
        self.run([self.bundle / "bin/burstc", self.work / f"{name}.topo", self.work / f"{name}.burst", "-o", out, *options],
                 f"{name}.emit", 60)
        return out

    def cost(self, name, topo, model):
        """The text of the simulated step."""
        return self.emit(name, topo, model, "cost", ["--emit=cost"]).read_text()

    def libraries(self, cuda):
        names = (["libburst_rt_cuda.a"] if cuda else []) + ["libburst_rt.a", "libjansson.a", "libsodium.a", "libz.a"]
        return [*(self.bundle / "lib" / name for name in names), "-lopenblas", *(["-lnccl", "-lcublasLt"] if cuda else []),
                "-lm", "-lpthread"]

    def object(self, source, *flags):
        out = self.work / (pathlib.Path(source).stem + ".o")
        self.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers",
                  f"-I{self.bundle}/share/burstc/include", f"-I{ROOT}/tests/numerics", *flags, "-c", source, "-o", out],
                 out.stem, 60)
        return out

    def nvcc_command(self):
        return [self.nvcc, "-std=c++17", "-O2", "-gencode", f"arch=compute_{self.arch},code=sm_{self.arch}",
                f"-I{self.bundle}/share/burstc/include"]

    def link(self, source, objects=(), flags=(), name=None):
        """The program of an emitted source. With objects, one of them has the main."""
        program = self.work / (name or source.stem)
        if source.suffix == ".c":
            command = ["cc", "-std=gnu17", "-O3", "-march=native", f"-I{self.bundle}/share/burstc/include"]
        else:
            command = self.nvcc_command()
        command += ["-DPLAN_NO_MAIN"] if objects else []
        self.run([*command, *flags, source, *objects, "-o", program, *self.libraries(source.suffix != ".c")],
                 f"{program.name}.build", 400)
        return program
