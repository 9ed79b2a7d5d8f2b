#!/usr/bin/env python3
"""Runs that end at random instants, by signals and by disks that fail: nothing is lost that was said to be kept.

    run_disk.py MINI_MAIN [--disk LIBRARY] [--ends N] [--kills N] [--seed N]

The campaign: --all (BURST_TEST_ALL=1), which is --ends 200 --kills 150. Each case is a run on a mix of files with checkpoints, metrics,
evaluations, an export and at times a trace, ended one to three times; then it goes on to its end. The oracle is a run of the same plan that
nothing happened to: losses, those of evaluations, their order and the weights are the same, bit by bit, and no line is there twice.
"""
import errno
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

from minirun import Failed, Mini, children, main, read_checkpoint, require, scaled_timeout

STEPS, MIX = 40, "a 0.7 b 0.3"
NEWEST = re.compile(r"; the newest checkpoint is (\S+)\n")
KILLS = ["rank", "launcher", "all"]
CALLS = ["call", "enospc", "eio", "flaky"]
ENDS = [*KILLS, "term", *CALLS, "full"]


class Case:
    """One folder, and what was said to be kept in it."""

    def __init__(self, mini, args, rng, whole, number):
        self.mini, self.args, self.rng, self.name = mini, args, rng, f"case {number} of seed {args.seed}"
        self.world = rng.choice([1, 2, 3])
        self.every = rng.choice([0, 1, 2, 5])
        lines, self.weights, self.seconds, self.calls = whole(self.world)
        self.lines = [line for line in lines if line[1] == "loss" or line[0] == STEPS or self.every and line[0] % self.every == 0]
        self.kept, self.said, self.branched = 0, [], False  # the step that must not be lost
        for path in mini.folder.glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
        for name in ("disk", "tmp"):
            (mini.folder / name).mkdir()
        self.options = ["--steps", STEPS, "--checkpoint", "disk/ck", "--every", rng.choice([0, 1, 3, 7]), "--keep", rng.choice([1, 2, 5]),
                        "--metrics", "disk/m", "--export", "disk/out", "--export-dtype", "f32", "--progress", 1]
        self.options += ["--trace", "disk/t", "--trace-steps", 30] if rng.random() < 0.3 else []
        self.resume = ["--resume"]


    def start(self, **more):
        environment = {**self.environment(), **more.pop("set", {})}
        return self.mini.start(*self.options, *self.resume, mini=f"{self.world} 1 0 4 {STEPS} -1", set=environment, **more)

    def environment(self):
        return {"TMPDIR": str(self.mini.folder / "tmp"), "MINI_DATA": MIX, "MINI_EVALUATE": f"v {self.every}"}

    # ---- ends ----

    def by_signal(self, kind):
        run = self.start()
        time.sleep(self.rng.random() * self.seconds)
        victims = {"rank": children(run)[-1:], "launcher": [run.pid], "all": [run.pid, *children(run)], "term": [run.pid]}[kind]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGTERM if kind == "term" else signal.SIGKILL)
            except ProcessLookupError:
                pass
        return run

    def by_calls(self, kind):
        """Calls that write fail from a random one on: a rank dies there, or the disk is full, broken, or broken at times."""
        more = {"call": {"DISK_KILL": "1"}, "enospc": {}, "eio": {"DISK_ERROR": str(errno.EIO)}, "flaky": {"DISK_ONE_IN": "20"}}[kind]
        return self.start(set={"LD_PRELOAD": self.args.disk, "DISK_CALLS": str(self.rng.randrange(self.calls)),
                               "DISK_SEED": str(self.rng.randrange(1 << 30)), **more})

    def by_full(self):
        """A small file system, which somebody fills at a random instant; what it holds is copied to where it was mounted."""
        script = ('cp -a disk was; size=$(($0 + $(du -sk was | cut -f1))); mount -t tmpfs -o size=${size}k none disk || exit 77; '
                  'cp -a was/. disk || exit 77; rm -r was; '
                  '(sleep $1; dd if=/dev/zero of=disk/hog bs=1k 2>/dev/null) & hog=$!; shift; "$@"; code=$?; '
                  'kill $hog 2>/dev/null; wait $hog; rm -f disk/hog; cp -a disk after; umount disk; rm -r disk/; mv after disk; exit $code')
        size, wait = self.rng.choice([10, 30, 60, 100]), f"{self.rng.random() * self.seconds:.3f}"
        mini, environment = Mini("unshare", self.mini.folder), self.environment()
        program, self.mini = self.mini, mini
        mini.started = program.started
        run = mini.start("--mount", "sh", "-c", script, size, wait, program.program, *self.options, *self.resume,
                         mini=f"{self.world} 1 0 4 {STEPS} -1", set=environment)
        self.mini = program
        return run

    def end(self, kind):
        run = self.by_full() if kind == "full" else self.by_calls(kind) if kind in CALLS else self.by_signal(kind)
        ranks = children(run) if run.poll() is None and kind == "launcher" else []
        out, error = run.communicate(timeout=scaled_timeout(60))
        deadline = time.monotonic() + scaled_timeout(30)
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in ranks):
            require(time.monotonic() < deadline, f"ranks are still there: {ranks}")
            time.sleep(0.01)
        self.said.append(f"{kind}: code {run.returncode}: {error.strip()}")
        self.look(kind, run.returncode, out, error)

    # ---- what must be there ----

    def look(self, kind, code, out, error):
        folder = self.mini.folder
        steps = [read_checkpoint(path)["step"] for path in (folder / "disk" / "ck").glob("step-*.burst")]
        named = NEWEST.search(error)
        if named:
            facts = read_checkpoint(folder / named[1])
            require(facts["step"] >= self.kept, f"{facts['step']} is named, and {self.kept} was before")
            self.kept = facts["step"]
            self.resume = ["--resume", named[1]] if "rescued" in named[1] else ["--resume"]
            self.branched |= "rescued" in named[1]
        if max(steps, default=0) > self.kept:  # a run that got further than the rescued step, and was killed before it could say so
            self.resume = ["--resume"]
        if code == 0:
            self.kept, self.resume = STEPS, ["--resume"]
        self.look_at_export(code, out, error)
        self.look_at_metrics(kind in ("rank", "launcher", "all", "term", "call"), code == 0)
        last = re.search(r", step (\d+) \((writing a checkpoint|exporting weights)", error)
        if last and kind == "full" and "cannot" in error and code == 1:  # other folders have room
            require(self.kept == int(last[1]), f"the state after step {last[1]} is nowhere")

    def look_at_export(self, code, out, error):
        folder = self.mini.folder / "disk"
        said = re.search(r"the complete weights are in '([^']+)'", error)
        for name in {"out": folder / "out", "part": self.mini.folder / said[1]}.values() if said else [folder / "out"]:
            if name.exists():
                require(sorted(p.name for p in name.iterdir() if p.name != ".lock") == ["config.json", "model.safetensors"], f"{name} is no export")
                require((name / "model.safetensors").read_bytes() == self.weights, f"{name} has other weights")
        require((folder / "out").exists() or (code != 0 and "wrote " not in out), "an export that was said to be written is not there")

    def look_at_metrics(self, may_be_cut, whole):
        path = self.mini.folder / "disk" / "m"
        lines = path.read_text().split("\n") if path.exists() else [""]
        require(may_be_cut or not lines[-1], f"half a line of metrics: {lines[-1]}")
        seen = [loss_of(line) for line in lines[:-1]]
        kept = [line for line in self.lines if whole or line[0] < self.kept or line[:2] == (self.kept, "loss")]
        if self.branched:  # resumed from a FILE, with lines of both runs
            require(set(kept) <= set(seen) <= set(self.lines), f"other losses, or lines are missing: {seen}, expected {self.lines}")
            return
        require(seen == self.lines[:len(seen)], f"other losses, or lines that are there twice or not at all: {seen}, expected {self.lines}")
        require(len(seen) >= len(kept), f"{len(seen)} lines of metrics, and step {self.kept} is kept")

    def happen(self, kinds, happened):
        for kind in kinds:
            happened[kind] = happened.get(kind, 0) + 1
            self.end(kind)
            if (self.mini.folder / "disk" / "out").exists():  # whole, as look_at_export has seen
                shutil.rmtree(self.mini.folder / "disk" / "out")
                return

    def finish(self):
        """The run goes on to its end, and nothing of those before is left."""
        folder = self.mini.folder / "disk"
        run = self.start()
        out, error = run.communicate(timeout=scaled_timeout(60))
        self.said.append(f"last: code {run.returncode}: {error.strip()}")
        require(run.returncode == 0, "the run does not go on")
        resumed = re.search(r"resumed after step (\d+)", out)
        require((int(resumed[1]) if resumed else 0) >= self.kept, f"goes on from {resumed and resumed[0]}, and step {self.kept} was kept")
        self.look_at_export(0, out, error)
        self.kept = STEPS
        self.look_at_metrics(False, True)
        left = [p for p in folder.iterdir() if p.name not in ("ck", "m", "out", "t") and not p.name.startswith(".burst-")]
        left += [p for p in (folder / "ck").iterdir() if not re.fullmatch(r"\.lock|step-\d{8}\.burst|earlier-\d+", p.name)]
        require(not left, f"left: {left}")


def loss_of(line):
    """(step, which loss, loss) of a line of metrics."""
    record = json.loads(line)
    (kind,) = [key for key in ("loss", "evaluation_loss") if key in record]
    return record["step"], kind, record[kind]


def counted(mini, args):
    """Of a run that nothing happens to, by the number of its ranks: losses, weights, seconds, and calls that write."""
    known, rng = {}, random.Random(3)
    for name, size in (("a", 20000), ("b", 3000), ("v", 900)):
        (mini.folder / name).write_bytes(bytes(rng.randrange(23) for _ in range(size)))

    def whole(world):
        if world not in known:
            subprocess.run(["rm", "-rf", "whole"], cwd=mini.folder, check=True)
            begin = time.monotonic()
            mini.run(0, "", "--quiet", "--steps", STEPS, "--metrics", "whole.m", "--checkpoint", "whole.ck", "--every", 1, "--fresh", "--export",
                     "whole", "--export-dtype", "f32", mini=f"{world} 1 0 4 {STEPS} -1", set={"MINI_DATA": MIX, "MINI_EVALUATE": "v 1"})
            seconds = time.monotonic() - begin
            lines = [loss_of(line) for line in (mini.folder / "whole.m").read_text().splitlines()]
            require(len(lines) == 2 * STEPS, f"a whole run has {len(lines)} lines of metrics")
            known[world] = (lines, (mini.folder / "whole" / "model.safetensors").read_bytes(), seconds, 12 * STEPS)
        return known[world]
    return whole


def may_mount():
    return subprocess.run(["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0


def campaign(mini, args, kinds, count):
    rng, whole, happened, number = random.Random(args.seed), counted(mini, args), {}, 0
    while sum(happened.values()) < count:
        case, number = Case(mini, args, rng, whole, number), number + 1
        try:
            case.happen([rng.choice(kinds) for _ in range(rng.choice([1, 2, 3]))], happened)
            case.finish()
        except (OSError, Failed) as failure:
            raise Failed(f"{case.name}: {failure}; what happened: {case.said}") from None
    print(f"seed {args.seed}: {sum(happened.values())} ends in {number} cases: {happened}", flush=True)


def ends(mini, args):
    kinds = [k for k in ENDS if (args.disk or k not in CALLS) and (k != "full" or may_mount())]
    campaign(mini, args, kinds, args.ends or (200 if args.all else 16))


def kills(mini, args):
    campaign(mini, args, KILLS, args.kills or (150 if args.all else 8))


def slow(mini, args):
    """An fsync that takes longer than --timeout is no deadlock, a rank that is stopped in one is."""
    if not args.disk:
        return
    options = ["--quiet", "--timeout", "0.3", "--checkpoint", "ck", "--every", 1]
    disk = {"LD_PRELOAD": args.disk, "DISK_FSYNC_MS": "700"}
    said = mini.run(0, "storage may be slow", *options, "--export", "out", mini="3 1 0 4 2 -1", set=disk)
    require(said.count("\n") == 1 and (mini.folder / "out" / "config.json").exists(), said)
    run = mini.start(*options, "--resume", mini="3 1 0 4 4 -1", set={**disk, "DISK_FSYNC_MS": "400"})
    mini.wait_for(run, lambda: list((mini.folder / "ck").glob(".step-00000003.*")), "the third checkpoint")
    os.kill(children(run)[1], signal.SIGSTOP)
    said = run.communicate(timeout=scaled_timeout(60))[1]
    require(run.returncode == 1 and re.search(r"timed out after 0.3 s .*all wait for rank 1, step 3 \(writing a checkpoint\)", said), said)


def add_options(parser):
    parser.add_argument("--ends", type=int, help="200 with --all, else 16")
    parser.add_argument("--kills", type=int, help="150 with --all, else 8")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400), help="that of the day, if left out")
    parser.add_argument("--disk", type=os.path.abspath, help="the library of disk.c")


if __name__ == "__main__":
    main([ends, kills, slow], __doc__, add_options)
