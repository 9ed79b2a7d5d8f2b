#!/usr/bin/env python3
"""run_identity.py MINI_MAIN MINI_OTHER [--seed N] [--count N]: pairs of runs that differ in one thing.

One rank, drawn, has something else than the others: a value of the plan, its text, an option, a file, the runtime (MINI_OTHER).
Started as by torchrun (one host, two), srun and mpirun, all of them must end with code 2, soon, and say which ranks and what.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from runner import Failed, require, scaled_timeout  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 600  # seconds: what --timeout of the runs says
SOON = 10  # seconds, on an idle machine

# Values of the plan by mini_main's MINI_SET, with their names in the message.
PLAN = {"lr": "lr", "lr_end": "last lr", "warmup": "warmup", "beta1": "beta1", "beta2": "beta2", "eps": "eps of AdamW", "decay": "decay",
        "clip": "clip", "rope_theta": "rope_theta", "norm_eps": "norm_eps", "softcap": "softcap", "logit_scale": "logit_scale", "predict": "predict", "vocab": "vocab",
        "shard_ranks": "ranks that shard the weights", "layers": "layers", "hidden": "hidden", "sequence": "sequence",
        "text": "plan", "arena": "arena (bytes)"}


class One:
    """What one rank is given: its program, environment, options."""

    def __init__(self, program, world):
        self.program, self.environment, self.options = program, {"MINI": f"{world} 1 0 4 3 -1"}, {}

    def words(self, extra=()):
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return ["env", *settings, self.program, "--quiet", "--timeout", str(LIMIT), *[w for pair in self.options.items() for w in pair if w],
                *extra]


def write(path, data):
    path.write_bytes(data)
    return str(path)


def differ_plan(draw, base, odd, folder):
    field = draw.choice(list(PLAN))
    value = draw.choice([2, 3, 5]) if field not in ("arena", "text") else draw.randrange(1 << 22, 1 << 24)
    odd.environment["MINI_SET"] = f"{field} {value}" # shard_ranks: also some that no world of this size can have
    return PLAN[field]


def differ_shape(draw, base, odd, folder):
    world, data, partition, batch, steps, separator = odd.environment["MINI"].split()
    field = draw.choice(["world", "batch", "separator", "ffn", "steps"])
    if field == "ffn":
        odd.environment["MINI_FFN"] = str(draw.randrange(7, 99))
    world = {"world": str(int(world) + draw.choice([-1, 1, 4]))}.get(field, world)
    batch = {"batch": str(draw.randrange(5, 50))}.get(field, batch)
    steps = {"steps": str(draw.randrange(4, 50))}.get(field, steps)
    separator = {"separator": str(draw.randrange(10))}.get(field, separator)
    odd.environment["MINI"] = " ".join([world, data, partition, batch, steps, separator])
    return {"world": "number of ranks", "steps": "--steps"}.get(field, field)


def differ_option(draw, base, odd, folder):
    name = draw.choice(["--seed", "--steps", "--every", "--keep", "--trace-steps", "--checkpoint", "--export", "--trace", "--fresh", "BURST_TRANSPORT"])
    if name == "BURST_TRANSPORT":
        odd.environment[name] = "nccl"
        return name
    if name in ("--fresh", "--every", "--keep") or draw.random() < 0.3:
        base.options["--checkpoint"] = odd.options["--checkpoint"] = str(folder / "both")
    if name == "--trace-steps":
        base.options["--trace"] = odd.options["--trace"] = str(folder / "trace")
    if name == "--fresh":
        odd.options[name] = ""
    elif name in ("--checkpoint", "--export", "--trace"):
        odd.options[name] = str(folder / f"odd{draw.randrange(1000)}")
    else:
        odd.options[name] = str(draw.randrange(100, 10000))
    return name


def differ_data(draw, base, odd, folder):
    data = bytearray(draw.randbytes(draw.choice([400, 5000, 70000, 3 << 20])))
    base.options["--data"] = write(folder / "tokens", bytes(data))
    how = draw.randrange(8)
    if how == 5:
        odd.options["--raw"] = "2"
        return "--raw"
    if how == 6:
        base.options["--evaluate"] = odd.options["--evaluate"] = write(folder / "valid", b"x" * 400)
        odd.options["--evaluate"] = write(folder / "other valid", b"y" * 400)
        return "evaluation file"
    if how == 7:  # Megatron-LM's pair, of which the index alone differs
        for ranks, end in ((base, b"a"), (odd, b"b")):
            (folder / end.decode()).mkdir()
            ranks.options["--data"] = write(folder / end.decode() / "t.bin", bytes(data))
            write(folder / end.decode() / "t.idx", b"MMIDIDX\0\0" + end)
        return "index of the data file"
    if how == 0:
        data += b"x"
    elif how == 1:
        data[draw.choice([0, 7, 30, -1, -100])] ^= 1 << draw.randrange(8)
    elif how == 2:
        if len(data) <= 1 << 20:
            data[draw.randrange(len(data))] ^= 1
        else:
            data[0] ^= 1
    elif how == 3:
        odd.options["--data"] = str(folder / "nowhere")
        return "data file"
    else:
        return "data file"  # random tokens at one rank
    odd.options["--data"] = write(folder / "others", bytes(data))
    return "data file"


def differ_weights(draw, base, odd, folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        write(folder / name / "config.json", b"{}")
        write(folder / name / "model.safetensors", bytes(100000))
    base.options["--weights"], odd.options["--weights"] = str(folder / "a"), str(folder / "b")
    draw.choice([lambda: write(folder / "b" / "config.json", b"[]"), lambda: write(folder / "b" / "model-2.safetensors", b""),
                 lambda: (folder / "b" / "model.safetensors").rename(folder / "b" / "other.safetensors"),
                 lambda: write(folder / "b" / "model.safetensors", bytes(99999) + b"x"),
                 lambda: odd.options.pop("--weights"),
                 lambda: ((folder / "b" / "config.json").unlink(), os.mkfifo(folder / "b" / "config.json"))])()
    return "weights directory"


def differ_runtime(draw, base, odd, folder):
    odd.program = differ_runtime.other
    return "runtime"


KINDS = [differ_plan, differ_plan, differ_shape, differ_option, differ_data, differ_weights, differ_runtime]


def by_ranks(options):
    def start(world, which, base, odd):
        script = f'if [ "${{RANK:-$SLURM_PROCID}}" = {which} ]; then shift {len(base.words())}; else set -- "${{@:1:{len(base.words())}}}"; fi; exec "$@"'
        return [str(HERE / "ranks.py"), *options, str(world), "bash", "-c", script, "bash", *base.words(), *odd.words()]
    return start


def by_mpirun(world, which, base, odd):
    words = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe"]
    parts = [(which, base), (1, odd), (world - 1 - which, base)]
    return words + " : ".join("-n\0%d\0%s" % (n, "\0".join(one.words())) for n, one in parts if n).replace(" : ", "\0:\0").split("\0")


def launchers():
    known = {"torchrun": by_ranks([]), "torchrun, 2 hosts": by_ranks(["--hosts", "2"]), "srun": by_ranks(["--as", "srun"])}
    if shutil.which("mpirun"):
        known["mpirun"] = by_mpirun
    return known


def run(command, folder):
    environment = {k: v for k, v in os.environ.items() if not re.match(r"(MINI|BURST|RANK|WORLD_SIZE|MASTER|SLURM|PMI|OMPI)", k)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment)
    began = time.monotonic()
    try:
        return process.communicate(timeout=scaled_timeout(6 * SOON))[0], process.returncode, time.monotonic() - began
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed("hangs") from None


def expected(world, which, name):
    name = re.escape(name)
    if which:
        return rf"burst: rank {which} has a different {name}: .+, rank 0 has .+"
    if world == 2:
        return rf"burst: rank 1 has a different {name}: .+, rank 0 has .+"
    ranks = ", ".join(map(str, range(1, world - 1))) + f" and {world - 1}"
    return rf"burst: ranks {ranks} have a different {name}: rank 1 has .+, rank 0 has .+"


def impossible(draw, base, odd, folder):
    """What rank 1 of 2 would refuse alone, by itself."""
    odd.environment["MINI_SET"] = "shard_ranks 3"
    return PLAN["shard_ranks"]


def random_pair(draw, launcher, program, number):
    world = draw.randrange(2, 5)
    one_pair(draw, launcher, program, number, world, draw.randrange(world), draw.choice(KINDS))


def one_pair(draw, launcher, program, number, world, which, differ):
    base, odd = One(program, world), One(program, world)
    with tempfile.TemporaryDirectory() as folder:
        name = differ(draw, base, odd, pathlib.Path(folder))
        said, code, seconds = run(launchers()[launcher](world, which, base, odd), folder)
    what = f"pair {number}, {launcher}, rank {which} of {world}, {name}: code {code}, {seconds:.1f} s: {said}"
    require(re.search(expected(world, which, name), said), what)
    require(code == 2, what)
    require(said.count("burst: ") <= (2 if "hosts" in launcher else 1), "said more than once a host: " + what)
    require(seconds < min(LIMIT, scaled_timeout(SOON)), what)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mini", type=os.path.abspath)
    parser.add_argument("other", type=os.path.abspath)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    options = parser.parse_args()
    differ_runtime.other = options.other
    failures = []
    names = list(launchers())
    for number in range(-len(names), options.count):
        draw = random.Random(f"{options.seed} {number}")
        try:
            if number < 0:
                one_pair(draw, names[number], options.mini, number, 2, 1, impossible)
            else:
                random_pair(draw, names[number % len(names)], options.mini, number)
        except Failed as failure:
            failures.append(failure)
            print("FAILED:", failure, flush=True)
    print(f"{options.count} pairs by {', '.join(names)}: {len(failures)} not refused as they should be")
    sys.exit(bool(failures))


main()
