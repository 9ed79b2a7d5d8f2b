"""Random programs for GPUs: every one is emitted, passes libclang's check, and compiles with nvcc (warnings fatal).

    python3 emitted.py --burstc BURSTC --share SHARE [--nvcc NVCC] [--seed N] [--count N]

A program draws a device (A100, H100, H200, one of sm_100), head_dim (every multiple of 16 that kernels have), masks that read zero to four
tables, experts, windows, softcap, sinks, schedules, what travels, and whether it trains or continues prompts. None may be refused. Of each form of the kernels their shared memory is checked
against a block's by the kernels themselves (static_assert). A sample compiles to PTX without optimising; --all compiles to machine code.
A few programs a day; BURST_TEST_ALL=1: 300 of a fixed seed.
"""
import pathlib
import random
import subprocess
import sys
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import random_attention  # noqa: E402
import runner  # noqa: E402
from runner import require  # noqa: E402

ALL, SAMPLE = 300, 4
DEVICES = ("a100", "h100", "h200", "b200")
ARCH = {"a100": "80", "h100": "90a", "h200": "90a", "b200": "100"}
OWN = """device b200 { arch sm_100; memory 180 GB; hbm 8 TB/s; matmul bf16 1500 TFLOP/s; link 900 GB/s;
  attention forward 1000 TFLOP/s; attention backward 800 TFLOP/s; }
"""
TABLES = ("doc", "position", "x", "y")
HEAD_DIMS = range(32, 257, 16)


class Program(typing.NamedTuple):
    number: int
    device: str
    head_dim: int
    topo: str
    model: str

    def name(self):
        return f"{self.number}_{self.device}_d{self.head_dim}"


def of_table(r, table):
    """A condition that reads a table of both tokens, or of one."""
    c = r.choice((1, 8, 100))
    return r.choice((f"{table}[q] == {table}[k]", f"{table}[q] >= {table}[k]", f"{table}[q] - {table}[k] < {c}", f"{table}[k] < {c}",
                     f"abs({table}[q] - {table}[k]) <= {c}", f"max({table}[q], {table}[k]) mod {c + 1} == 0", f"hash({table}[q], {table}[k]) mod 3 != 0"))


def mask_of(r, tables):
    """A mask that reads each of the tables; every query sees itself, so that no row is empty."""
    parts = [random_attention.condition(r, r.choice((0, 0, 1, 2)))[0]] + [of_table(r, table) for table in tables]
    r.shuffle(parts)
    text = parts[0]
    for part in parts[1:]:
        text = f"({text}) {r.choice(('and', 'and', 'or'))} ({part})"
    return f"k <= q and (({text}) or q == k)" if r.random() < 0.7 else f"({text}) or q == k"


def attention_of(r, masks):
    lines = [f"default {masks[0]};"] + [f"layers {i}: {mask};" for i, mask in enumerate(masks[1:], 1)]
    lines += [f"softcap {r.choice((5, 50))};"] * (r.random() < 0.3) + ["sinks learned;"] * (r.random() < 0.3)
    return "attention { " + " ".join(lines) + " }"


def program(seed, number):
    r = random.Random(f"{seed} {number}")
    device = DEVICES[number % len(DEVICES)]
    head_dim = HEAD_DIMS[number // len(DEVICES) % len(HEAD_DIMS)]
    gpus, most = r.choice((1, 2, 4)), r.choice((0, 1, 2, 2, 3, 4))
    heads = r.choice((4, 8))
    masks = [(f"m{i}", mask_of(r, r.sample(TABLES[:most], r.randint(min(1, most), most)))) for i in range(r.randint(1, 3))]
    used = [name for name, _ in masks] + ["document_sink(50, 4)", "causal", "window(300)"]
    chosen = [used[0]] + r.sample(used[1:], r.randint(0, 2))
    tables = sorted(set(TABLES[:most]) | ({"doc", "position"} if "document_sink(50, 4)" in chosen else set()))
    declared = "".join(f"table {name} per token;\n" for name in tables)
    schedule = r.choice(("ring", "burst", "gather", "ulysses", "halo", "bidirectional")) if gpus > 1 else "ring"
    layout = f"data 1; schedule {schedule}; partition {r.choice(('zigzag', 'contiguous', 'striped'))};" + r.choice(("", " travel keys;", " recompute selective;"))
    text = 'import "masks";\n' + declared + "".join(f"mask {name} = {mask};\n" for name, mask in masks)
    ffn = "moe { experts 8; top 2; ffn swiglu 64; normalize yes; }" if r.random() < 0.3 else "ffn swiglu 128;"
    work = 'sequence 2Ki;\nlayout { LAYOUT }\ntrain { data "d"; separator 0; }\n'
    causal = {name for name, mask in masks if mask.startswith("k <= q") and "[" not in mask} | {"causal", "window(300)"}
    if not tables and causal.issuperset(chosen) and r.random() < 0.7:  # it continues prompts
        work, layout = "layout { LAYOUT }\ninfer { lengths 256, 2Ki; tokens 9; }\n", layout.replace(" recompute selective;", "")
    text += (f"model m {{ layers {len(chosen)}; hidden 128; heads {heads}; kv_heads {r.choice((1, 2, heads))}; head_dim {head_dim}; {ffn} vocab 512; }}\n"
             f"{attention_of(r, chosen)}\n{work.replace('LAYOUT', layout)}")
    topo = 'import "devices";\n' + OWN * (device == "b200") + f"cluster c {{ nodes 1 {{ gpus {gpus} of {device}; nics 1 of ndr; }} }}\n"
    return Program(number, device, head_dim, topo, text)


def compile_with(nvcc, p, share, cu, everything):
    arch = ARCH[p.device]
    how = (["-O1", "-Xptxas", "-O1", "-c", "-gencode", f"arch=compute_{arch},code=sm_{arch}"] if everything else
           ["-Xcicc", "-O0", "-ptx", "-gencode", f"arch=compute_{arch},code=compute_{arch}"])
    done = subprocess.run([nvcc, "-std=c++17", *how, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", f"-I{share}/include", cu,
                           "-o", cu.with_suffix(".o")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    require(done.returncode == 0, f"nvcc ends with {done.returncode}\n{done.stdout[-3000:]}\n{p.topo}{p.model}")
    cu.with_suffix(".o").unlink()


def check(options, work):
    def one(p):
        topo, model, cu = (work / f"{p.name()}.{ext}" for ext in ("topo", "burst", "cu"))
        topo.write_text(p.topo)
        model.write_text(p.model)
        done = subprocess.run([options.burstc, topo, model, "-Wno-one-document", "-o", cu], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        require(done.returncode == 0, f"burstc ends with {done.returncode}\n{done.stdout[-3000:]}\n{p.topo}{p.model}")
        form = "90" if "#define BURST_FORM 90" in cu.read_text() else "80"
        if options.nvcc:
            compile_with(options.nvcc, p, options.share, cu, options.all)
        cu.unlink()
        return form
    return one


def main():
    parser = runner.options(__doc__, "--burstc", "--share")
    parser.add_argument("--nvcc", help="without it, nothing is compiled")
    parser.add_argument("--seed", type=int, help=f"of the programs; {ALL} with 1, or a few of today's")
    parser.add_argument("--count", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seed = options.seed or (1 if options.all else int(time.time() // 86400))
    count = options.count or (ALL if options.all else SAMPLE)
    programs = [program(seed, i) for i in random.Random(seed).sample(range(max(ALL, count)), count)]
    with runner.folder(options.work) as work:
        held, failures = runner.check_all(check(options, work), runner.chosen(programs, options.only), options.jobs)
    print(f"seed {seed}: {len(held)} programs, {sum(form == '80' for _, form in held)} with sm_80 kernels{'' if options.nvcc else ', none compiled'}")
    return failures > 0 or not held


if __name__ == "__main__":
    sys.exit(main())
