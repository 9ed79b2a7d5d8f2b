"""Wrong changes of burstc's own source: a proof refuses each, or its programs are right all the same.

    python3 run_mutants.py --build BUILD --curve OBJECTS [--all] [--count N] [--random N] [--seed SEED] [--only REGEX] [--program NAME]

A mutant is a line of mutants.txt, or drawn (--random): one small change of a file of compiler/attention, step/passes or step/memory. The file
is compiled and linked in front of the other passes; that burstc then compiles every program of PROGRAMS. Each is refused (by a proof, or an
error), or the same text as burstc's, or another text: of those some are built, and trained against float64. A mutant survives where such a program
ends badly, or computes other numbers: then a proof is missing. Without --all a few of the table and of the programs are drawn by the date.
"""
import collections
import concurrent.futures
import json
import pathlib
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("lib", "training"):
    sys.path.insert(0, str(ROOT / "tests" / folder))
import emitted  # noqa: E402
import run_training as training  # noqa: E402
import runner  # noqa: E402
from run_training import ALTERNATING, BIAS, DOCUMENT, EVERY_OTHER, EXPERTS, NORM, ONE, SCANS, SIGMOIDS, WHOLE, Layout, Shape  # noqa: E402
from runner import require, run, scaled_timeout  # noqa: E402

FOLDERS = ("attention", "step/passes", "step/memory")
STEPS = 6
TEXT = Shape(vocab=256, masks=("causal", "document"))
DEEP = Shape(vocab=256, masks=("causal", "document", "window(17)", "causal", "document"))
LONG = Shape(vocab=256, masks=("window(17)", "causal"), sequence=700)  # several tiles a rank
PROGRAMS = {
    "alone": (ONE, TEXT),
    "zero3": (Layout("ring", "keys", "zigzag", lanes=2), DEEP._replace(part=BIAS)),
    "zero2": (Layout("ring", "queries", "striped", lanes=3, weights="zero2", recompute="selective"), TEXT._replace(tied="yes")),
    "zero1": (Layout("burst", "keys", "zigzag", nodes=2, lanes=2, weights="zero1 within node", chunks=3), TEXT._replace(tied="yes")),
    "no_sync": (Layout("ring", "keys", "contiguous", 2, 2, 2, weights="zero3_no_sync within node", recompute="full"), TEXT),
    "tied": (Layout("gather", "keys", "zigzag", lanes=2), DEEP._replace(tied="yes", sinks=True)),
    "tensor": (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, recompute="selective"), TEXT._replace(part=WHOLE, kv_heads=4)),
    "tensor_zero1": (Layout("ring", "keys", "zigzag", 2, 2, 4, weights="zero1", tensor=4, offload="activations"), TEXT._replace(part=NORM)),
    "host": (Layout("ring", "keys", "striped", lanes=2, chunks=2, offload="activations, optimizer"), DEEP),
    "fetched": (Layout("ring", "keys", "zigzag", lanes=2, recompute="selective", offload="activations(o, lse), optimizer", update="device"), DEEP),
    "groups": (Layout("ring", "keys", "zigzag", lanes=2, recompute="full(2)", offload="activations"), DEEP),
    "experts": (Layout("ring", "keys", "zigzag", lanes=2, chunks=3, recompute="full"), TEXT._replace(experts=EXPERTS)),
    "expert_groups": (Layout("ring", "keys", "zigzag", lanes=2, recompute="full(2)"), DEEP._replace(experts=EXPERTS)),
    "experts_apart": (Layout("ring", "keys", "zigzag", lanes=2, chunks=3, recompute="selective", groups=5), TEXT._replace(experts=EXPERTS)),
    "experts_apart_tensor": (Layout("ring", "keys", "zigzag", lanes=4, tensor=2, weights="zero2", groups=3), TEXT._replace(kv_heads=4, experts=SIGMOIDS)),
    "experts_apart_mixed": (Layout("ring", "keys", "zigzag", lanes=2, groups=3), Shape(vocab=256, masks=ALTERNATING, experts=EVERY_OTHER)),
    "scans": (Layout("ring", "keys", "zigzag", lanes=2, recompute="full"), Shape(vocab=256, masks=DOCUMENT, experts=SCANS)),
    "scans_tensor": (Layout("ring", "keys", "zigzag", lanes=4, tensor=2), Shape(vocab=256, kv_heads=4, masks=DOCUMENT, experts=SCANS)),
    "heads": (Layout("ulysses", "keys", "contiguous", lanes=2, recompute="full", head_chunks=3), Shape(vocab=256, heads=16, kv_heads=8, masks=("causal", "document"))),
    "tokens": (Layout("ring", "keys", "zigzag", lanes=2, token_chunks=3, recompute="selective"), DEEP),
    "queries": (Layout("ring", "keys", "striped", lanes=2, token_chunks=3, queries="attention", offload="activations", fetch="chunks"), DEEP),
    "keys": (Layout("ring", "keys", "zigzag", lanes=2, recompute="save(q, k, x_mid(1))", token_chunks=3, queries="keys"), DEEP),
    "keys_window": (Layout("ring", "keys", "contiguous", lanes=2, token_chunks=4, queries="keys"), LONG),
    "shares": (Layout("ulysses", "keys", "contiguous", lanes=2, token_chunks=2, queries="attention"), TEXT),
    "tail": (Layout("ring", "keys", "zigzag", lanes=2, recompute="tail(0.5)"), DEEP),
    "muon": (Layout("ring", "keys", "zigzag", lanes=2), TEXT),
    "usp": (Layout("usp", "keys", "zigzag", lanes=4, mesh=(2, 2)), TEXT),
    "ranges": (Layout("ring", "keys", "contiguous", lanes=4), LONG),
    "halo": (Layout("halo", "keys", "contiguous", lanes=3), LONG._replace(masks=("window(17)", "document"))),
    "queries_ranges": (Layout("near", "queries", "zigzag", lanes=3), LONG._replace(masks=("window(17)", "document"))),
    "double_ring": (Layout("double_ring", "queries", "contiguous", lanes=4, mesh=(2, 2)), TEXT),
    "layers": (Layout("near for window(17), ring", "keys for window(17), queries", "contiguous", lanes=3), TEXT._replace(masks=("causal", "window(17)"))),
}
# Instead of reading each text by libclang, which takes most of a compile: what differs is compiled.
UNCHECKED = "int check_emitted_c(void *a, void *d, void *name, void *text, void *include, void *target); " \
            "int check_emitted_c(void *a, void *d, void *name, void *text, void *include, void *target) { return 0; }\n"
RANGED = ("ranges", "halo", "queries_ranges")


class Mutant(typing.NamedTuple):
    file: str
    old: str
    new: str
    at: int  # where it is in the file
    line: int

    def __str__(self):
        return f"{self.file}:{self.line}: `{self.old.strip()}` -> `{self.new.strip()}`"


# ---- mutants ----

def read_table():
    """A mutant a line: file | text, which the file has once | what stands there instead."""
    mutants, file = [], None
    for number, line in enumerate((ROOT / "tests/mutants/mutants.txt").read_text().splitlines(), 1):
        if line.endswith(":") and " " not in line:
            file = line[:-1]
            text = (ROOT / "compiler" / file).read_text()
        elif line and not line.startswith("#"):
            old, new = (part.strip() for part in line.split(" => "))
            require(text.count(old) == 1, f"mutants.txt:{number}: {file} has it {text.count(old)} times")
            mutants.append(Mutant(file, old, "" if new == "nothing" else new, text.index(old), text[:text.index(old)].count("\n") + 1))
    return mutants


OPERATORS = [(r" < ", [" <= "]), (r" <= ", [" < "]), (r" > ", [" >= "]), (r" >= ", [" > "]), (r" == ", [" != "]), (r" != ", [" == "]),
             (r" && ", [" || "]), (r" \|\| ", [" && "]), (r" \+ 1\b", ["", " + 2"]), (r" - 1\b", ["", " - 2"]), (r" \+ ", [" - "]), (r" - ", [" + "]),
             (r" \|= ", [" &= "]), (r"\btrue\b", ["false"]), (r"\bfalse\b", ["true"]), (r", 0\)", [", 1)"]), (r", 1\)", [", 0)"]), (r"\bif \(", ["if (!"]),
             (r"\.next\b", [".value"]), (r"->layer\b", ["->unit"]), (r"->chunk\b", ["->key"]), (r"->visit\b", ["->unit"]), (r"read\[0\]", ["read[1]"]),
             (r"write\[0\]", ["write[1]"]), (r"\b(T_Q|T_KV)\b", ["T_KV", "T_Q"]), (r"\bINDEX_VISIT\b", ["INDEX_UNIT"]), (r"\bBLOCK_HEAD\b", ["BLOCK_FORWARD"]),
             (r"\bWHEN_FIRST\b", ["WHEN_LAST"]), (r"\bWHEN_LAST\b", ["WHEN_ALWAYS"]), (r"\bSTREAM_WEIGHTS\b", ["STREAM_COPIES"])]
STATEMENT = re.compile(r"(?m)^ +[a-z_>\-*.\[\]]+(?:\(.*\)| [|+]?= .*);$")


def random_mutants(rng, count):
    files = [path for folder in FOLDERS for path in sorted((ROOT / "compiler" / folder).glob("*.c"))]
    weights, mutants = [len(path.read_text()) for path in files], []
    while len(mutants) < count:
        path = rng.choices(files, weights)[0]
        text, old, new = path.read_text(), None, ""
        body = text.index("*/")
        if rng.random() < 0.25:
            places = [m for m in STATEMENT.finditer(text, body)]
        else:
            old, news = rng.choice(OPERATORS)
            places, new = list(re.finditer(old, text[body:])), rng.choice(news)
        if not places:
            continue
        place = rng.choice(places)
        at = place.start() + (body if old else 0)
        line = text[text.rfind("\n", 0, at) + 1:text.find("\n", at)]
        if line.lstrip().startswith(("/*", "*", "#", "//", "text_", "static ", "X(")) or "text_printf" in line or place[0] == new:
            continue
        file = str(path.relative_to(ROOT / "compiler"))
        mutants.append(Mutant(file, place[0], new, at, text[:at].count("\n") + 1))
    return mutants


# ---- one mutant ----

def limit():
    """Limits the processor seconds and bytes of a process that may run for ever or take all memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


class Campaign:
    def __init__(self, args, folder, programs):
        self.args, self.folder = args, folder
        self.build = pathlib.Path(args.build).resolve()
        self.tools = emitted.Toolchain(self.build / "tests/toolchain.json")
        self.environment = emitted.quiet_environment()
        self.commands = {entry["file"]: entry["command"] for entry in json.loads((self.build / "compile_commands.json").read_text())}
        links = run(["ninja", "-C", self.build, "-t", "commands", "burstc"], 60).stdout.splitlines()
        self.link_command = next(line for line in links if "-o bin/burstc " in line)
        self.tree = folder / "tree"  # as it is now, whatever is written or built meanwhile
        for name in ("compiler", "dsl", "runtime"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=lambda at, names: [n for n in names if "." in n and not n.endswith((".c", ".h", ".def"))])
        for name in ("libburstc_passes.a", "CMakeFiles/burstc.dir/main.c.o"):
            (self.tree / "build/compiler" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.build / "compiler" / name, self.tree / "build/compiler" / name)
        (folder / "unchecked.c").write_text(UNCHECKED)
        run([self.tools.cc, "-c", folder / "unchecked.c", "-o", folder / "unchecked.o"], 60)
        self.data = folder / "text.txt"
        training.write_text(self.data)
        self.right, self.worked = {}, {}
        self.programs = {name: PROGRAMS[name] for name in programs}
        for name, (layout, shape) in self.programs.items():
            train = training.TRAIN.format(data=self.data, steps=STEPS, batch=2 * layout.data).replace("warmup 8", "warmup 2")
            text = training.model_text(layout, shape, train.replace("adamw {", "muon { momentum 0.9;") if name == "muon" else train)
            text = text.replace("layout {", "layout { ranges yes;") if name in RANGED else text
            (folder / f"{name}.topo").write_text(layout.topology())
            (folder / f"{name}.burst").write_text(text)

    def emit(self, burstc, name, to):
        """Its status, and what it says."""
        share = dict(self.environment, BURSTC_SHARE=str(self.build / "share/burstc"))
        words = [burstc, f"{name}.topo", f"{name}.burst", "-o", to, "-Wno-few-tokens"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=self.folder, env=share, preexec_fn=limit)
        return done.returncode, done.stderr

    def first(self):
        """What burstc itself writes, which runs."""
        for name in self.programs:
            status, said = self.emit(self.tools.burstc, name, f"{name}.c")
            require(status == 0, f"{name}: {status}\n{said}")
            self.right[name] = self.text_of(self.folder / f"{name}.c")
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            for name, fault in [] if not self.args.check else zip(self.programs, pool.map(lambda name: self.fault_of(name, self.folder / f"{name}.c"), self.programs)):
                require(not fault, f"{name}: {fault}")

    def text_of(self, path):
        """Without what was typed, and predictions."""
        return re.sub(r"(?m)^.*(predicted|burstc .*-o|pred_).*$", "", path.read_text())

    def fault_of(self, name, source):
        """What is wrong with a program that was written; None: nothing."""
        layout, shape = self.programs[name]
        try:
            program = self.tools.link(source, self.args.curve)
        except runner.Failed as failure:
            return "does not compile: " + next((line for line in str(failure).splitlines() if "error:" in line), "")
        try:
            done = subprocess.run([program, str(STEPS), self.data, *shape.masks], capture_output=True, text=True, env=self.environment,
                                  timeout=scaled_timeout(30), preexec_fn=limit)
        except subprocess.TimeoutExpired:
            return "hangs"
        program.unlink()
        return None if done.returncode == 0 else f"ends with {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"

    def make(self, number, mutant):
        """The mutant as a burstc; None: it does not compile."""
        text = (self.tree / "compiler" / mutant.file).read_text()
        require(text[mutant.at:].startswith(mutant.old), f"{mutant}: the file has changed")
        at = self.folder / f"mutant{number}"
        at.mkdir()
        source, thing = at / pathlib.Path(mutant.file).name, at / "mutant.o"
        source.write_text(text[:mutant.at] + mutant.new + text[mutant.at + len(mutant.old):])
        command = self.commands[str(ROOT / "compiler" / mutant.file)]
        command = re.sub(r" -o \S+ -c \S+", f" -o {thing} -c {source}", command).replace("-O3", "-O0").replace("-Werror", "").replace(f"-I{ROOT}/", f"-I{self.tree}/")
        if subprocess.run(shlex.split(command), capture_output=True, cwd=self.build).returncode:
            return None
        link = self.link_command.replace("-o bin/burstc ", f"{thing} {self.folder}/unchecked.o -o {at}/burstc ")
        run(["sh", "-c", link], 60, cwd=self.tree / "build")
        return at / "burstc"

    def judge(self, number, mutant):
        """What became of it, for each program: {how: [program]}."""
        burstc = self.make(number, mutant)
        if not burstc:
            return {"build": ["does not compile"]}
        found, others = collections.defaultdict(list), []
        for name in self.programs:
            source = burstc.parent / f"{name}.c"
            status, said = self.emit(burstc, name, source)
            proof = re.search(r"proof (\d+) \(", said)
            if status == 0 and source.exists():
                same = self.text_of(source) == self.right[name]
                found["same"].append(name) if same else others.append(name)
            elif proof:
                found[f"proof {proof[1]}"].append(name)
            else:
                error = next((line for line in said.splitlines() if "error" in line), f"ends with {status}")
                found["error" if status in (1, 2, 3) else "crash"].append(f"{name} ({error[:160]})")
        for name in random.Random(number).sample(others, min(self.args.runs, len(others))):
            fault = self.fault_of(name, burstc.parent / f"{name}.c")
            how = "SURVIVES" if fault else "harmless"
            found["text" if fault and fault.startswith("does not compile") else how].append(f"{name} ({fault})" if fault else name)
        shutil.rmtree(burstc.parent)
        return found


def verdict(found):
    if "SURVIVES" in found:
        return "SURVIVES"
    caught = [how for how in sorted(found) if how not in ("same", "harmless")]
    if caught:
        return ", ".join(caught)
    return "harmless" if "harmless" in found else "same programs"


def main():
    parser = runner.options(__doc__, "--build")
    parser.add_argument("--curve", nargs="+", required=True, help="objects and libraries of training/curve.c")
    parser.add_argument("--random", type=int, default=0, help="so many drawn mutants instead of the table")
    parser.add_argument("--count", type=int, default=2, help="so many of the table")
    parser.add_argument("--seed", default=str(int(time.time() // 86400)))
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="these programs alone; repeats")
    parser.add_argument("--runs", type=int, default=3, help="of the programs with another text, so many are run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-check", dest="check", action="store_false", help="burstc's own programs are not run first")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    table = read_table()
    mutants = random_mutants(rng, args.random) if args.random else table if args.all else rng.sample(table, min(args.count, len(table)))
    mutants = [mutant for mutant in mutants if all(re.search(word, str(mutant)) for word in args.only)]
    with runner.folder(args.work) as folder:
        sample = list(PROGRAMS) if args.all or args.random else sorted(rng.sample(list(PROGRAMS), 6))
        campaign = Campaign(args, folder, args.program or sample)
        campaign.first()
        counts = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            futures = {pool.submit(campaign.judge, number, mutant): mutant for number, mutant in enumerate(mutants)}
            for future in concurrent.futures.as_completed(futures):
                mutant, found = futures[future], future.result()
                what = verdict(found)
                counts[what] += 1
                print(f"{mutant}: {what}")
                for how, names in found.items():
                    print(f"    {how}: {', '.join(names)}", flush=True) if how not in ("same", "build") else None
    print(f"{len(mutants)} mutants: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return 1 if counts["SURVIVES"] else 0


if __name__ == "__main__":
    runner.end(main)
