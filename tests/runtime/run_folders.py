#!/usr/bin/env python3
"""Checkpoint folders that several runs, dead runs and hostile files share.

    run_folders.py MINI_MAIN [--tries N] [--kills N] [--part NAME]

The campaigns: --tries 200 --kills 140.
"""
import json
import math
import os
import random
import re
import signal
import stat
import subprocess
import time

from minirun import children, header_of, main, read_checkpoint, require, scaled_timeout, write_header

OPTIONS = ["--quiet", "--checkpoint", "ck"]


def checkpoints(mini):
    return sorted((mini.folder / "ck").glob("step-*.burst"))


def clear(mini):
    subprocess.run(["rm", "-rf", "ck", "m"], cwd=mini.folder, check=True)


def train(mini, *options):
    """Steps 5 and 10."""
    clear(mini)
    mini.run(0, "", *OPTIONS, "--steps", 10, "--every", 5, *options)
    return mini.folder / "ck"


# ---- two runs, dead runs ----

def holder(text):
    match = re.search(r"another run is using the directory 'ck': process (\d+) on \S+ since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: \S*mini_main \(mini\)", text)
    require(match, f"the second run does not say who has the folder: {text}")
    return int(match[1])


def parent(pid):
    try:
        return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def two_runs(mini, args):
    """At most one runs in a folder; the other says who does, and no checkpoint is damaged. A try whose second run began
    after the first had ended, as happens on a busy machine, does not count."""
    rng, met = random.Random(1), 0
    for i in range(20 * args.tries):
        if met == args.tries:
            break
        clear(mini)
        runs = []
        for world in rng.sample([1, 2, 3], 2):
            runs.append((world, mini.start(*OPTIONS, "--every", 1, "--keep", 9, "--steps", 40, mini=f"{world} 1 0 4 40 -1")))
            time.sleep(rng.choice([0, 0, rng.random() * 0.03]))
        loser = next((r for r in sorted(runs, key=lambda r: r[1].poll() is None) if r[1].wait(scaled_timeout(30)) != 0), None)
        require(loser, f"try {i}: both runs wrote into the folder")
        winner = runs[1 - runs.index(loser)]
        said = loser[1].stderr.read()
        if loser[1].returncode == 2 and "has checkpoints of an earlier run, up to step 40" in said:
            require(winner[1].wait(scaled_timeout(30)) == 0, f"try {i}: {winner[1].stderr.read()}")
            continue
        met += 1
        pid = holder(said)
        owner = parent(pid)
        require(owner in (None, winner[1].pid) and loser[1].returncode == 1, f"try {i}: {pid} is named, of {owner}")
        require(winner[1].wait(scaled_timeout(30)) == 0, f"try {i}: {winner[1].stderr.read()}")
        facts = [read_checkpoint(path) for path in checkpoints(mini)]
        require([f["step"] for f in facts] == list(range(32, 41)), f"try {i}: {facts}")
        require(all(f["world"] == winner[0] for f in facts), f"try {i}: files of both runs")
        for _, run in runs:
            run.communicate()
    require(met == args.tries, f"only {met} tries in which two runs met")


def named_process(mini, args):
    """The process that a refused run names is a rank of the run that has the folder."""
    clear(mini)
    run = mini.start(*OPTIONS, "--every", 1, mini="2 1 0 4 1000000 -1", stdout=subprocess.DEVNULL)
    mini.wait_for(run, lambda: checkpoints(mini), "a checkpoint")
    pid = holder(mini.run(1, "another run is using the directory", *OPTIONS, mini="1 1 0 4 40 -1"))
    owner = parent(pid)
    run.kill()
    run.communicate()
    require(owner == run.pid, f"{pid} is named, of {owner}; {run.pid} has the folder")


def killed(mini, args):
    """kill -9 of the launcher or of a rank at any time: what has its name is whole, nothing is lost, nothing is left."""
    rng, shape, newest = random.Random(2), "3 1 0 4 4000 -1", 0
    begin = time.monotonic()
    first = mini.start(*OPTIONS, "--every", 1, mini=shape, stdout=subprocess.DEVNULL)
    mini.wait_for(first, lambda: checkpoints(mini), "a checkpoint")
    usual = time.monotonic() - begin  # until there is one, on a machine as busy as this
    first.kill()
    first.communicate()
    for i in range(args.kills):
        run = mini.start(*OPTIONS, "--every", 1, "--resume", mini=shape, stdout=subprocess.DEVNULL)
        time.sleep(usual * (0.2 + 2 * rng.random()))
        victims = [run.pid] + children(run)
        os.kill(rng.choice(victims), signal.SIGKILL)
        text = run.communicate(timeout=scaled_timeout(30))[1]
        require("ignoring" not in text and "no valid checkpoint" not in text, f"kill {i}: {text}")
        facts = [read_checkpoint(path) for path in checkpoints(mini)]
        require(not facts or facts[-1]["step"] >= newest, f"kill {i}: from step {newest} back to {facts}")
        newest = facts[-1]["step"] if facts else newest
        time.sleep(0.6 if victims[0] == run.pid and i % 8 == 0 else 0)
    require(newest > 0, "no checkpoint came to be")
    deadline = time.monotonic() + scaled_timeout(10)
    while any(os.path.exists(f"/proc/{pid}") for pid in victims):
        require(time.monotonic() < deadline, f"ranks outlive their launcher: {victims}")
        time.sleep(0.01)
    mini.run(0, "", *OPTIONS, "--resume", "--steps", newest + 3, "--every", 0, "--metrics", "cut", mini=shape)
    mini.run(0, "", "--quiet", "--steps", newest + 3, "--metrics", "whole", mini=shape)
    last = [json.loads((mini.folder / name).read_text().splitlines()[-1])["loss"] for name in ("cut", "whole")]
    require(last[0] == last[1], f"losses after {newest + 3} steps: {last}")
    left = {p.name for p in (mini.folder / "ck").iterdir()} - {p.name for p in checkpoints(mini)}
    require(left <= {".lock"}, f"left in the folder: {left}")


def leftovers(mini, args):
    """Unfinished files of dead runs go; what only looks like one is not followed and not removed."""
    folder = train(mini)
    victim = mini.folder / "victim"
    victim.write_text("precious")
    (folder / ".step-00000007.part").write_text("cut")
    (folder / ".step-00000008.0123456789abcdef.part").write_text("cut")
    for step in (11, 12):
        (folder / f".step-{step:08}.part").symlink_to(victim)
    mini.run(0, "", *OPTIONS, "--resume", "--steps", 12, "--every", 1)
    require(victim.read_bytes() == b"precious", "a link was followed")
    hidden = {p.name for p in folder.glob(".*")}
    require(hidden == {".lock", ".step-00000011.part", ".step-00000012.part"}, f"hidden files: {hidden}")
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(victim)
    mini.run(1, "cannot write 'ck/.lock': Too many levels of symbolic links", *OPTIONS, "--resume", "--steps", 13)
    (folder / ".lock").unlink()
    os.mkfifo(folder / ".lock")
    mini.run(1, "'ck/.lock' is not a regular file", *OPTIONS, "--resume", "--steps", 13)
    require(victim.read_bytes() == b"precious", "the lock's link was followed")


def lock_mode(mini, args):
    """Who may not write the lock cannot open it: a file that is open for reading could be locked too."""
    lock = train(mini) / ".lock"
    require(stat.S_IMODE(lock.stat().st_mode) == 0o600, f"a new lock: {lock.stat().st_mode:o}")
    for step, (before, after) in enumerate([(0o644, 0o600), (0o666, 0o666), (0o664, 0o660), (0o200, 0o600)], 11):
        lock.chmod(before)
        inode = lock.stat().st_ino
        mini.run(0, "", *OPTIONS, "--resume", "--steps", step)
        now = lock.stat()
        require(stat.S_IMODE(now.st_mode) == after and now.st_ino == inode, f"a lock of mode {before:o}: {now.st_mode:o}")


def replaced(mini, args):
    """A folder that goes away under its run is made again, but not one that another run has by then."""
    run = mini.start(*OPTIONS, "--every", 400, "--metrics", "m", mini="2 1 0 4 100000 -1")
    mini.wait_for_lines(run, "m", 20)
    os.rename(mini.folder / "ck", mini.folder / "gone")
    mini.wait_for(run, lambda: checkpoints(mini), "a checkpoint in a new folder")
    mini.wait_for_lines(run, "m", 402)  # that checkpoint is whole: the run has gone on
    os.rename(mini.folder / "ck", mini.folder / "gone2")
    other = mini.start(*OPTIONS, "--every", 1, mini="1 1 0 4 100000 -1")
    said = run.communicate(timeout=scaled_timeout(30))[1]
    ranks = children(other)
    other.kill()
    other.communicate()
    require(holder(said) in ranks and run.returncode == 1, f"{ranks}: {said}")


# ---- runs before ----

def earlier_runs(mini, args):
    folder = train(mini)
    before = {p.name: p.read_bytes() for p in checkpoints(mini)}
    for options in ([], ["--seed", 4], ["--steps", 3]):
        mini.run(2, "'ck' has checkpoints of an earlier run, up to step 10; use --resume to continue from there, --fresh to move them", *OPTIONS,
                 "--metrics", "m", *options)
    require(not (mini.folder / "m").exists() and {p.name: p.read_bytes() for p in checkpoints(mini)} == before, "the folder was touched")
    mini.run(0, "moved 2 earlier checkpoints of 'ck' to 'ck/earlier-1'", *OPTIONS, "--fresh", "--steps", 3, "--seed", 4)
    require({p.name: p.read_bytes() for p in (folder / "earlier-1").iterdir()} == before, "earlier checkpoints were changed")
    require([p.name for p in checkpoints(mini)] == ["step-00000003.burst"], "the fresh run's checkpoint")
    mini.run(0, "moved 1 earlier checkpoint of 'ck' to 'ck/earlier-2'", *OPTIONS, "--fresh", "--steps", 2)
    mini.run(2, "--fresh requires --checkpoint DIR", "--quiet", "--fresh")
    mini.run(2, "remove one, or use --resume FILE", *OPTIONS, "--fresh", "--resume")
    folder = train(mini)
    back = ["--resume", "ck/step-00000005.burst", "--steps", 7]
    mini.run(2, "'ck' has checkpoints later than step 5, where this run starts (up to step 10); use --fresh to move", *OPTIONS, *back)
    mini.run(0, "moved 1 earlier checkpoint of 'ck'", *OPTIONS, *back, "--fresh")
    mini.run(0, "", "--quiet", "--steps", 0, "--checkpoint", "ck")  # trains nothing, writes nothing


def other_values(mini, args):
    """A run that goes on with other values says which."""
    train(mini, "--seed", 3)
    head = "resuming from 'ck/step-00000010.burst' with changed settings: "
    said = mini.run(0, head, *OPTIONS, "--resume", "--seed", 8, "--data", mini.program, "--steps", 10, mini="2 1 0 2 14 -1")
    values = sorted(said.strip().split(head)[1].split("; "))
    require(values == ["batch was 4, now 2", f'data was null, now "{mini.program}"', "seed was 3, now 8", "steps was 12, now 14"],
            f"{values}")
    said = mini.run(0, "", *OPTIONS, "--resume", "--steps", 11, mini="1 1 0 4 12 -1")
    require(said == "", f"nothing differs but the world: {said}")
    for field, value, fact in ("activation", 1, '{"ffn":"geglu"}'), ("rotary", 2, '{"rotary":2}'):
        said = mini.run(0, "", *OPTIONS, "--resume", "--steps", 11, set={"MINI_SET": f"{field} {value}"})
        require(f"layer was {{}}, now {fact}" in said, f"{field}: {said}")


def data_of_bytes(mini, args):
    """Whether data are bytes is among the values that a run which goes on may have changed."""
    data = mini.folder / "small bytes"
    data.write_bytes(bytes(i % 20 for i in range(4000)))
    train(mini, "--data", data, "--bytes")
    said = mini.run(0, "", *OPTIONS, "--resume", "--data", data, "--steps", 11)
    require(said.strip().endswith(f'with changed settings: data was "{data} bytes", now "{data}"'), said)


def raw_names(mini, args):
    """No name reaches the terminal as it is: each message that has one, on either stream."""
    raw = "\x1b[2J\x07"
    shown = r"\x1b[2J\x07"
    clear(mini)

    def says(code, text, *options, **more):
        said = mini.run(code, text.replace(raw, shown), *options, **more)
        require("\x1b" not in said and "\x07" not in said, f"{options}: raw: {said!r}")

    kept = ["--checkpoint", "c" + raw, "--steps", 4, "--every", 2]
    says(0, f"no checkpoint in 'c{raw}'; starting from step 0", "--quiet", *kept, "--resume")
    (mini.folder / ("c" + raw) / "step-00000009.burst").write_bytes(b"x")
    says(0, f"ignoring 'c{raw}/step-00000009.burst': ", "--quiet", *kept, "--resume")
    says(0, f"earlier checkpoints of 'c{raw}' to 'c{raw}/earlier-1'", "--quiet", *kept, "--fresh")
    says(0, f"resuming from 'c{raw}/step-00000004.burst' with changed settings", "--quiet", *kept, "--resume", "--seed", 8)
    says(0, f"wrote the weights to e{raw} as BF16", "--steps", 2, "--export", "e" + raw)
    says(0, f"to t{raw}", "--steps", 3, "--trace", "t" + raw)
    (mini.folder / ("d" + raw)).write_bytes(bytes(4000))
    says(0, f"d{raw}", "--steps", 2, "--data", "d" + raw)
    says(2, f"unknown option '{raw}'", raw)
    says(2, f"--steps is '{raw}', expected", "--steps", raw)
    says(0, f"BURST_TIMEOUT is '{raw}', expected a number", "--steps", 1, set={"BURST_TIMEOUT": raw})
    link = mini.folder / ("p" + raw)
    link.symlink_to(mini.program)
    program, mini.program = mini.program, str(link)
    says(0, f"p{raw} trains the model of ", "--help")
    mini.program = program


def rates(mini, args):
    """The learning rate of every step is the schedule's, wherever a run resumed; mini.c: 4 steps up to 0.05, then down to 0.005 at the last."""
    steps, warmup, lr, end = 12, 4, 0.05, 0.005
    turn = [math.cos(math.pi * (s - warmup) / (steps - warmup)) for s in range(1, steps + 1)]
    wanted = [lr * s / warmup if s <= warmup else end + (lr - end) * (1 + turn[s - 1]) / 2 for s in range(1, steps + 1)]
    clear(mini)
    for step in range(1, steps + 1):
        mini.run(0, "", *OPTIONS, "--metrics", "m", "--resume", "--steps", step)
    lines = [json.loads(line) for line in (mini.folder / "m").read_text().splitlines()]
    require([line["step"] for line in lines] == list(range(1, steps + 1)), f"{lines}")
    for line, rate in zip(lines, wanted):
        require(abs(line["lr"] / rate - 1) < 1e-8, f"step {line['step']} has lr {line['lr']}, expected {rate}")


# ---- hostile files ----

def edited(text, **facts):
    old = json.loads(text)
    for key, value in facts.items():
        if value is None:
            del old[key]
        else:
            old[key] = value
    return json.dumps(old).encode()


STEPS = "the step in its header is not valid"
HEADERS = [({"step": -5}, STEPS), ({"step": 0}, STEPS), ({"step": None}, STEPS), ({"step": "10"}, STEPS), ({"step": 10.0}, STEPS),
           ({"step": 2**63 - 1}, STEPS), ({"step": 2**53}, STEPS), ({"step": 2**63}, "its header cannot be read"),
           ({"step": 9}, "its name and its header give different steps")]


def headers(mini, args):
    """A header that makes no sense, its checksum right: the checkpoint before is used, with the reason."""
    folder = train(mini)
    newest = folder / "step-00000010.burst"
    good, text = newest.read_bytes(), header_of(newest)
    texts = [(edited(text, **facts), reason) for facts, reason in HEADERS]
    texts += [(b"[1]", "its header cannot be read"), (b"{" * 4000, "its header cannot be read"), (b"", "its header cannot be read")]
    for new, reason in texts:
        (mini.folder / "good").write_bytes(good)
        write_header(mini.folder / "good", newest, new)
        said = mini.run(0, f"ignoring 'ck/step-00000010.burst': {reason}", "--checkpoint", "ck", "--resume", "--steps", 5, "--timeout", 5)
        require("resumed after step 5" in said, f"{new}: {said}")
        if reason == STEPS:
            mini.run(1, f"cannot resume from 'ck/step-00000010.burst': {reason}", "--resume", newest.relative_to(mini.folder))
    newest.write_bytes(good + b"\0")
    mini.run(0, "': the file is truncated", "--checkpoint", "ck", "--resume", "--steps", 5)
    flipped = bytearray(good)  # one digit of the model: damage, and not another model
    flipped[good.index(b'"hidden": 6') + 10] ^= 1
    newest.write_bytes(flipped)
    mini.run(0, "': its header does not match its checksum", "--checkpoint", "ck", "--resume", "--steps", 5)


def names(mini, args):
    """Names and kinds of files that no run makes hide no checkpoint."""
    folder = train(mini)
    good = (folder / "step-00000010.burst").read_bytes()
    for name in ("step-9007199254740993.burst", "step-99999999999999999999.burst", "step-11.burst", "step--0000001.burst", "step-00000000.burst"):
        (folder / name).write_bytes(good)
        said = mini.run(0, f"ignoring 'ck/{name}': not a checkpoint's name", "--checkpoint", "ck", "--resume", "--steps", 10)
        require("resumed after step 10" in said, said)
        (folder / name).unlink()
    os.mkfifo(folder / "step-00000011.burst")
    said = mini.run(0, "ignoring 'ck/step-00000011.burst': it is not a regular file", "--checkpoint", "ck", "--resume", "--steps", 10)
    require("resumed after step 10" in said, said)
    mini.run(1, "cannot resume from 'ck/step-00000011.burst': it is not a regular file", "--resume", "ck/step-00000011.burst")
    os.mkfifo(mini.folder / "data")
    mini.run(1, "cannot read 'data': it is not a regular file", "--data", "data", "--quiet")
    mini.run(1, "cannot read '/dev/zero': it is not a regular file", "--data", "/dev/zero", "--quiet")


def unusable(mini, args):
    """Folders that no checkpoint can be written into are found before the first step."""
    (mini.folder / "file").write_text("")
    (mini.folder / "dangling").symlink_to("nowhere/at/all")
    cases = [("no/parent", "cannot create the directory 'no/parent': No such file"), ("file", "cannot write 'file/.lock': Not a directory"),
             ("/proc/burst", "cannot create the directory '/proc/burst': "), ("/proc", "cannot write '/proc/.lock': "),
             ("dangling", "cannot write 'dangling/.lock': No such file"), ("x" * 300, "File name too long")]
    for folder, text in cases:
        for more in ([], ["--resume"]):
            mini.run(1, text, "--checkpoint", folder, "--metrics", "m", *more)
            require(not (mini.folder / "m").exists(), f"{folder}: found after training had begun")
    mini.run(1, "cannot read the directory 'file': Not a directory", "--checkpoint", "file", "--resume", "--steps", 0)
    os.mkdir(mini.folder / "full")
    script = 'mount -t tmpfs -o size=8k none full || exit 77; "$0" --checkpoint full --metrics m; code=$?; ls -A full; exit $code'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, mini.program], cwd=mini.folder, capture_output=True, text=True, timeout=scaled_timeout(30))
    if done.returncode == 77 or "unshare failed" in done.stderr:
        print("no full file system: this user may not mount one")
        return
    text = r"cannot write 'full/\.step-\S+': a checkpoint takes \S+ GiB: No space left on device"
    require(done.returncode == 1 and re.search(text, done.stderr), f"{done.returncode}: {done.stderr}")
    require(not (mini.folder / "m").exists() and done.stdout == ".lock\n", f"found late, or something is left: {done.stdout}")


def add_options(parser):
    parser.add_argument("--tries", type=int, default=6, help="of two runs in one folder")
    parser.add_argument("--kills", type=int, default=8)


if __name__ == "__main__":
    main([two_runs, named_process, killed, leftovers, lock_mode, replaced, earlier_runs, other_values, data_of_bytes, raw_names, rates, headers, names, unusable], __doc__, add_options)
