#!/usr/bin/env python3
"""How runs end that something happens to, and outputs that are no regular files.

    run_ends.py MINI_MAIN [--part NAME]
"""
import json
import os
import pathlib
import re
import select
import signal
import stat
import subprocess
import threading
import time

from minirun import children, main, read_checkpoint, require, scaled_timeout

LONG = "4 1 0 4 1000000 -1"
CK = ["--quiet", "--metrics", "m", "--checkpoint", "ck", "--every", 10]


def running(mini, *options, **more):
    """A run of 4 ranks behind its step 25."""
    subprocess.run(["rm", "-rf", "ck", "m"], cwd=mini.folder, check=True)
    run = mini.start(*options, mini=LONG, **more)
    mini.wait_for_lines(run, "m", 25)
    return run


def told(mini, send, code, text, *options):
    run = running(mini, *options, start_new_session=True)
    ranks = children(run)
    begin = time.monotonic()
    send(run, ranks)
    said = run.communicate(timeout=scaled_timeout(30))[1]
    require(run.returncode == code and re.search(text, said) and said.count("\n") == 1, f"code {run.returncode}: {said}")
    require(time.monotonic() - begin < scaled_timeout(15), f"ended after {time.monotonic() - begin:.1f} s")
    left = [pid for pid in ranks if pathlib.Path(f"/proc/{pid}").exists()]
    require(not left, f"ranks are still there: {left}")


def signals(mini, args):
    """SIGTERM and its like: the signal, the step and the newest checkpoint are said; the shell sees the signal."""
    at, saved = r"at rank 0, step \d+ \(.+\)", r"; the newest checkpoint is ck/step-\d{8}\.burst\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        name = f"signal {int(number)}, .*"
        told(mini, lambda run, ranks: os.kill(run.pid, number), -number, f"^burst: stopped by {name}, {at}{saved}", *CK)
        told(mini, lambda run, ranks: os.killpg(run.pid, number), -number, rf"{name}step \d+.*{saved}", *CK)  # as from a terminal
    told(mini, lambda run, ranks: os.kill(run.pid, signal.SIGTERM), -signal.SIGTERM, f"Terminated, {at}; this run has written no checkpoint\n",
         "--quiet", "--metrics", "m")
    told(mini, lambda run, ranks: os.kill(ranks[2], signal.SIGTERM), 1, rf"lost rank 2, step \d+ \(.*killed by signal 15, .*{saved}", *CK)
    run = running(mini, "--quiet", "--metrics", "m", "--steps", 1000, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.kill(run.pid, signal.SIGHUP)  # as under nohup
    require(run.wait(scaled_timeout(60)) == 0, f"an ignored signal ends the run: {run.communicate()}")
    run.communicate()


def launched(mini, args):
    """A rank that torchrun or srun started is told to end: also one that never waits."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
    run = mini.start(*CK, mini="1 1 0 4 1000000 -1", set=place)
    mini.wait_for_lines(run, "m", 25)
    run.terminate()
    said = run.communicate(timeout=scaled_timeout(30))[1]
    require(run.returncode == 1 and re.search(r"rank 0, step \d+ \(.+\): stopped by signal 15, Terminated; the newest checkpoint is ck/step-", said), said)


def stopped_launcher(mini, args):
    """Nobody is there to see how a rank ended: the others see that it is gone, say so and end."""
    run = running(mini, "--quiet", "--metrics", "m")
    ranks = children(run)
    os.kill(run.pid, signal.SIGSTOP)
    begin = time.monotonic()
    os.kill(ranks[2], signal.SIGKILL)
    ready = select.select([run.stderr], [], [], scaled_timeout(10))[0]
    said = os.read(run.stderr.fileno(), 4096).decode() if ready else ""
    seconds = time.monotonic() - begin
    os.kill(run.pid, signal.SIGCONT)
    said += run.communicate(timeout=scaled_timeout(30))[1]
    require(re.fullmatch(r"burst: rank [013], step \d+ \(.+\): lost rank 2, step \d+ \(.+\): its process \d+ has exited\n", said), said)
    require(seconds < scaled_timeout(10) and run.returncode == 1, f"said after {seconds:.1f} s, code {run.returncode}")


def cut_data(mini, args):
    """A token file that is cut short under the run."""
    data = mini.folder / "d"
    for separator, world in ((-1, 2), (3, 1)):
        data.write_bytes(bytes(i * 7 % 23 for i in range(200000)))
        (mini.folder / "m").unlink(missing_ok=True)
        run = mini.start("--quiet", "--metrics", "m", "--data", "d", mini=f"{world} 1 0 4 1000000 {separator}")
        mini.wait_for_lines(run, "m", 10)
        os.truncate(data, 1000)
        said = run.communicate(timeout=scaled_timeout(30))[1]
        require(run.returncode == 1 and re.search(r"rank \d, step \d+ \(.+\): 'd' was truncated during the run: cannot read token \d+ of 200000", said), said)


def full_disk(mini, args):
    full, no_space = open("/dev/full", "w"), "No space left on device"
    for options in ([], ["--help"], ["--version"], ["--progress", 5], ["--quiet", "--trace", "t", "--checkpoint", "ck"]):
        quiet = "--quiet" in options
        mini.run(0 if quiet else 1, "" if quiet else f"cannot write to standard output: {no_space}", *options, stdout=full)
    mini.run(1, f"cannot write '/dev/full': {no_space}", "--quiet", "--metrics", "/dev/full")
    mini.run(1, f"cannot write '/dev/full': {no_space}", "--quiet", "--trace", "/dev/full")
    script = 'ulimit -f 400; exec "$0" --quiet --steps 300 --trace big --trace-steps 200'
    done = subprocess.run(["sh", "-c", script, mini.program], cwd=mini.folder, capture_output=True, text=True, timeout=scaled_timeout(30))
    require(done.returncode == 1 and "cannot write 'big': File too large" in done.stderr, f"{done.returncode}: {done.stderr}")
    require(not list(mini.folder.glob("big*")), "an unfinished trace is left")


def limits(mini, args):
    """ulimit -v: OpenBLAS would wait for ever for memory, in each start, fork and exit."""
    if b"__asan_init" in pathlib.Path(mini.program).read_bytes():
        return print("not under AddressSanitizer, which needs the address space")

    def run(code, text, mib, *options, mini_shape="2 1 0 4 3 -1", **setting):
        script = f'ulimit -v {mib << 10}; exec "$0" "$@"'
        done = subprocess.run(["sh", "-c", script, mini.program, *options], cwd=mini.folder, capture_output=True, text=True, timeout=scaled_timeout(60),
                              env=dict(os.environ, MINI=mini_shape, **setting))
        require(done.returncode == code and text in done.stderr, f"{mib} MiB: {done.returncode}: {done.stderr}")

    too_few = "burst: the address space is limited to 150 MiB (ulimit -v), but "
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29440"}
    for setting in ({}, alone, {"OPENBLAS_NUM_THREADS": "1"}):
        for options in ([], ["--help"], ["--steps", "x"]):
            run(1, too_few, 150, *options, mini_shape=f"{1 if setting is alone else 2} 1 0 4 3 -1", **setting)
        run(0, "", 1024, "--quiet", mini_shape=f"{1 if setting is alone else 2} 1 0 4 3 -1", **setting)
    run(1, "1024 MiB for arenas and messages", 1024, MINI_SET=f"arena {512 << 20}", OPENBLAS_NUM_THREADS="1")
    run(0, "", 2048, "--quiet", MINI_SET=f"arena {512 << 20}", OPENBLAS_NUM_THREADS="1")


def suspended(mini, args):
    """All processes at once, for longer than the time-out, as docker pause and Slurm's preemption do it: the run goes on."""
    run = running(mini, "--quiet", "--metrics", "m", "--timeout", 1, start_new_session=True)
    os.kill(children(run)[2], signal.SIGSTOP)
    time.sleep(0.3)  # the others wait for it, and count
    os.killpg(run.pid, signal.SIGSTOP)
    time.sleep(2)
    before = (mini.folder / "m").read_text().count("\n")
    os.killpg(run.pid, signal.SIGCONT)
    mini.wait_for_lines(run, "m", before + 100)
    time.sleep(1.5)  # no rank waits in vain for another
    require(run.poll() is None, "the run has ended")
    os.kill(run.pid, signal.SIGTERM)
    said = run.communicate(timeout=scaled_timeout(30))[1]
    require(run.returncode == -signal.SIGTERM and "stuck" not in said, said)


def closed_descriptors(mini, args):
    """0 to 2 closed by the caller: no file and no memory takes their place, and no text goes into one."""
    def run(name, closed, *more):
        options = [*more, "--steps", "12", "--metrics", f"m{name}", "--checkpoint", f"c{name}", "--every", "4", "--keep", "9", "--trace", f"t{name}"]
        script = f'exec "$0" "$@" {closed}'
        return subprocess.run(["sh", "-c", script, mini.program, *options], cwd=mini.folder, env=dict(os.environ, MINI="2 1 0 4 12 -1"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=scaled_timeout(30)).returncode

    def losses(name):
        return [{k: v for k, v in json.loads(line).items() if k in ("step", "loss")} for line in (mini.folder / f"m{name}").read_text().splitlines()]

    require(run("open", "") == 0, "with all open")
    for name, closed in (("1", "1>&-"), ("012", "0<&- 1>&- 2>&-")):
        require(run(name, closed) == 1, f"{closed}: progress goes to a closed output, and nobody is told")
        lines = [json.loads(line) for line in (mini.folder / f"m{name}").read_text().splitlines()] if (mini.folder / f"m{name}").exists() else []
        require(len(lines) <= 1, f"{closed}: trained: {lines}")
    for name, closed, quiet in (("0", "0<&-", []), ("2", "2>&-", []), ("02", "0<&- 2>&-", []), ("q1", "1>&-", ["--quiet"]),
                                ("q012", "0<&- 1>&- 2>&-", ["--quiet"])):
        code = run(name, closed, *quiet)
        require(code == 0, f"{closed}: code {code}")
        require(len(losses(name)) == 12 and losses(name) == losses("open"), f"{closed}: {losses(name)}")
        for step in (4, 8, 12):
            path = mini.folder / f"c{name}" / f"step-{step:08d}.burst"
            read_checkpoint(path)
        require((mini.folder / f"c{name}" / ".lock").read_text().count("\n") == 1, "text in the lock")


# ---- outputs ----

def reads(path, into):
    thread = threading.Thread(target=lambda: into.append(path.read_text()))
    thread.start()
    return thread


def outputs(mini, args):
    """--trace and --metrics: what is no regular file is written as it is, a link leads to its file."""
    at = mini.folder
    null = at / "null"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3)) if os.geteuid() == 0 else null.symlink_to("/dev/null")
    fifo, text = at / "fifo", []
    os.mkfifo(fifo)
    for option in ("--trace", "--metrics"):
        thread = reads(fifo, text)
        mini.run(0, "", "--quiet", option, "fifo")
        thread.join(scaled_timeout(10))
        mini.run(0, "", "--quiet", option, "null")
        require(stat.S_ISFIFO(fifo.stat().st_mode) and stat.S_ISCHR(null.stat().st_mode), f"{option}: no FIFO or no device any more")
    require(json.loads(text[0])["traceEvents"] and len(text[1].splitlines()) == 12, f"what came through: {text}")
    (at / "sub").mkdir()
    (at / "sub" / "old").write_text("old")
    (at / "sub" / "old").chmod(0o640)
    for link, target in (("one", "sub/old"), ("two", "one"), ("three", str(at / "sub" / "new")), ("sub/four", "../plain")):
        (at / link).symlink_to(target)
        mini.run(0, "", "--quiet", "--trace", link)
        require((at / link).is_symlink() and json.loads((at / link).read_text()), f"{link} is no link any more")
    require(stat.S_IMODE((at / "sub" / "old").stat().st_mode) == 0o640 and (at / "plain").exists(), "target or permissions")
    (at / "loop").symlink_to("loop")
    mini.run(1, "cannot write 'loop': Too many levels", "--quiet", "--trace", "loop")
    mini.run(1, "cannot write 'sub': Is a directory", "--metrics", "mm", "--trace", "sub")
    require(not (at / "mm").exists(), "found after training had begun")
    with open(at / "log", "w") as log:
        mini.run(0, "", "--trace", "/dev/stdout", stdout=log)
    require("step 12/12" in (at / "log").read_text() and "traceEvents" in (at / "log").read_text(), "standard output was replaced")
    (at / "plain.part").write_text("mine")
    mini.run(0, "", "--quiet", "--trace", "plain")
    require((at / "plain.part").read_text() == "mine" and not list(at.glob("**/*.*.part")), f"unfinished files: {list(at.glob('**/*.part'))}")


def exports(mini, args):
    """--export through links; two at once."""
    at = mini.folder
    (at / "real").mkdir()
    (at / "link").symlink_to("real")
    (at / "new").symlink_to("made")
    (at / "precious").mkdir()
    (at / "precious" / "model.safetensors").write_text("precious")
    for name in ("link", "new", "plain/"):
        mini.run(0, "", "--quiet", "--export", name)
        require((at / name / "config.json").exists(), f"nothing in {name}")
    require((at / "link").is_symlink() and (at / "new").is_symlink() and not list(at.glob("*.part")), "links or leftovers")
    (at / "other.part").symlink_to("precious")
    mini.run(2, "cannot export to 'other': 'other.part' is in the way: ", "--metrics", "mm", "--export", "other")
    (at / "third.part").mkdir()
    (at / "third.part" / "model.py").write_text("precious")
    mini.run(2, "'third.part' is in the way and has files that no export wrote", "--metrics", "mm", "--export", "third")
    require((at / "precious" / "model.safetensors").exists() and (at / "third.part" / "model.py").exists() and not (at / "mm").exists(),
            "files are lost, or found after training had begun")
    for i in range(3):
        runs = [mini.start("--quiet", "--export", f"both{i}", "--seed", seed, "--export-dtype", "f32") for seed in (1, 2)]
        said = [run.communicate(timeout=scaled_timeout(30))[1] for run in runs]
        codes = sorted(run.returncode for run in runs)
        require(codes in ([0, 1], [0, 2]), f"codes {codes}: {said}")
        winner = [run.returncode for run in runs].index(0) + 1
        mini.run(0, "", "--quiet", "--export", f"alone{i}", "--seed", winner, "--export-dtype", "f32")
        same = (at / f"both{i}" / "model.safetensors").read_bytes() == (at / f"alone{i}" / "model.safetensors").read_bytes()
        require(same, f"the export of two runs is of neither: {said}")
    first = mini.start("--quiet", "--export", "late", set={"MINI_RENAME_MS": "4000"})
    mini.wait_for(first, lambda: (at / "late.part" / "config.json").exists() and (at / "late.part" / "config.json").read_bytes()[:1] == b"{", "a whole export that has not its name yet")
    mini.run(1, "another run is using the directory 'late.part'", "--quiet", "--export", "late")
    require(first.wait(scaled_timeout(30)) == 0 and sorted(f.name for f in (at / "late").iterdir()) == ["config.json", "model.safetensors"],
            f"a second export has taken files from the first: {first.communicate()}")


if __name__ == "__main__":
    main([signals, launched, stopped_launcher, suspended, limits, closed_descriptors, cut_data, full_disk, outputs, exports], __doc__)
