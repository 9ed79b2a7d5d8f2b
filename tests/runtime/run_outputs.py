#!/usr/bin/env python3
"""Outputs before the first step: compared with all inputs and with each other, tried, and until then as they were.

    run_outputs.py MINI_MAIN [--part NAME]
"""
import json
import os
import pathlib
import re
import resource
import struct
import subprocess

from minirun import children, main, require, scaled_timeout

TRAINED = ["--quiet", "--checkpoint", "ck", "--every", 5, "--steps", 10]


def kept(mini):
    """All regular files, by name."""
    return {str(p.relative_to(mini.folder)): p.read_bytes() for p in mini.folder.rglob("*") if p.is_file() and p.name != ".lock"}


def refused(mini, text, *options, code=2, **more):
    """This error, before any file was changed or made."""
    before = kept(mini)
    said = mini.run(code, text, "--quiet", *options, **more)
    require(kept(mini) == before, f"{options}: files have changed: {sorted(set(kept(mini)) ^ set(before))}")
    require("step 1/" not in said, said)


def prepared(mini):
    """A run before, with tokens, checkpoints, weights and metrics; and links to them."""
    at = mini.folder
    (at / "d").write_bytes(bytes(i % 23 for i in range(4000)))
    mini.run(0, "", *TRAINED, "--metrics", "m", "--export", "w", "--data", "d")
    for name, target in (("hard", "d"), ("hardm", "m"), ("hardck", "ck/step-00000010.burst"), ("hardw", "w/model.safetensors")):
        os.link(at / target, at / name)
    for name, target in (("soft", "d"), ("softck", "ck"), ("softw", "w")):
        (at / name).symlink_to(target)
    (at / "e").mkdir()
    tokens = 2000  # of one document
    (at / "c.idx").write_bytes(struct.pack("<9sQBQQiqqq", b"MMIDIDX", 1, 8, 1, 2, tokens, 0, 0, 1))
    (at / "c.bin").write_bytes(struct.pack(f"<{tokens}H", *(i % 23 for i in range(tokens))))


def compared(mini, args):
    prepared(mini)
    for option in ("--metrics", "--trace"):
        for name in ("d", "./d", "hard", "soft"):
            refused(mini, f"{option} {name} is the same file as --data d; choose another", "--data", "d", option, name)
        refused(mini, "is the same file as the program", option, mini.program)
        refused(mini, f"{option} hardck is the same file as --resume ck/step-00000010.burst", "--resume", "ck/step-00000010.burst", option, "hardck")
        for name in ("ck/step-00000005.burst", "ck/step-00000011.burst", "ck/.lock", "hardck", "softck/step-00000010.burst"):
            refused(mini, f"{option} {name} is a file that belongs to --checkpoint ck; choose another", "--checkpoint", "ck", option, name)
        for name in ("c.bin", "c.idx"):
            refused(mini, f"{option} {name} is the same file as --data c.bin; choose another", "--data", "c.bin", option, name)
            refused(mini, f"{option} {name} is the same file as --evaluate c.idx; choose another", "--evaluate", "c.idx", option, name)
        for name in ("w/config.json", "softw/model.safetensors", "hardw", "w/tokenizer.json", "softw/merges.txt", "w/model-00002-of-00002.safetensors"):
            refused(mini, f"{option} {name} is a file that belongs to --weights w; choose another", "--weights", "w", option, name)
        for name in ("e/m", "e/../e/m"):
            refused(mini, f"{option} {name} is inside --export e, which must stay empty", "--export", "e", option, name)
    for name in ("m", "hardm", "./m"):
        refused(mini, f"--trace {name} is the same file as --metrics m", "--metrics", "m", "--trace", name)
    refused(mini, "--trace new is the same file as --metrics ./new", "--metrics", "./new", "--trace", "new")
    refused(mini, "--export softw/ is the same directory as --weights w", "--weights", "w", "--export", "softw/")
    refused(mini, "--export softck is the same directory as --checkpoint ck", "--checkpoint", "ck", "--export", "softck", "--resume")
    refused(mini, "--export new is the same directory as --checkpoint ./new/", "--checkpoint", "./new/", "--export", "new")
    refused(mini, "--checkpoint e/ck is inside --export e", "--checkpoint", "e/ck", "--export", "e")
    with open(mini.folder / "log", "w") as log:
        refused(mini, "--metrics log is the same file as standard output", "--metrics", "log", stdout=log)
    with open(mini.folder / "log", "w") as log:
        mini.run(0, "", "--metrics", "/dev/stdout", "--trace", "/dev/null", stdout=log)
    require((mini.folder / "log").read_text().count('{"step"') == 12, "lines on standard output were written over")
    mini.run(0, "", "--quiet", "--metrics", "/dev/null", "--trace", "/dev/null")
    mini.run(0, "", "--quiet", "--metrics", "ck/m", "--checkpoint", "ck", "--resume", "--export", "ck/out")


def begun(mini, args):
    """A run that cannot begin leaves metrics and checkpoints as they were."""
    prepared(mini)
    short = mini.folder / "short"
    short.write_bytes(b"123")
    for data in ("mistyped", "short", "e"):
        for more in ([], ["--checkpoint", "ck", "--fresh"], ["--checkpoint", "new"]):
            refused(mini, data, "--data", data, "--metrics", "m", *more, code=1)
    for options in (["--weights", "none"], ["--trace", "none/t"], ["--export", "none/x"], ["--weights", "e"]):
        before = kept(mini)
        mini.run(1 if "none/x" not in options else 2, "none" if "none" in options[1] else "e", "--quiet", "--metrics", "m", "--checkpoint", "ck", "--fresh", *options)
        require(kept(mini) == before, f"{options}: files have changed")
    refused(mini, "this run resumes after step 10, but --steps 8 ends earlier; use --steps 10 or more, an earlier checkpoint", "--checkpoint",
            "ck", "--resume", "--steps", 8, "--metrics", "m", "--export", "x")
    mini.run(0, "", "--quiet", "--checkpoint", "ck", "--resume", "--steps", 0, "--export", "x")
    mini.run(0, "", "--quiet", "--checkpoint", "ck", "--resume", "--steps", 10, "--export", "y")


def tried(mini, args):
    """Folders that no export can be renamed to, and room that is not there."""
    at = mini.folder
    for name in ("e", "empty"):
        (at / name).mkdir()
    done = subprocess.run([mini.program, "--quiet", "--metrics", "../m", "--export", "."], cwd=at / "empty", capture_output=True, text=True, timeout=scaled_timeout(30))
    text = "cannot export to '.': the directory cannot be replaced: Device or resource busy; choose a new directory inside it"
    require(done.returncode == 2 and text in done.stderr and not (at / "m").exists() and not list(at.glob("*.part")), done.stderr)
    require(not list((at / "empty").iterdir()), "something is left")
    (at / "e").chmod(0o750)
    mini.run(0, "", "--quiet", "--export", "e")
    require((at / "e").stat().st_mode & 0o777 == 0o750, "the folder's permissions")
    for size, keep, more, text in ((16, 1, [], r"not enough space in 'full/ck' for 2 checkpoints \(--keep 1, plus the one being written\) of \S+ GiB each; there is space for 1"),
                                   (40, 1, [], ""), (40, 9, [], r"not enough space in .* for 5 checkpoints"),
                                   (24, 1, ["--export", "full/x", "--export-dtype", "f32"], "cannot write 'full/x.part/.*': No space left")):
        script = f'mount -t tmpfs -o size={size}k none full || exit 77; "$@"; code=$?; find full -type f | grep -v lock; exit $code'
        command = ["unshare", "--mount", "sh", "-c", script, "-", mini.program, "--quiet", "--checkpoint", "full/ck", "--metrics", "m", "--steps", "5",
                   "--every", "1", "--keep", str(keep), *more]
        (at / "full").mkdir(exist_ok=True)
        done = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=scaled_timeout(30))
        if done.returncode == 77 or "unshare failed" in done.stderr:
            print("no full file system: this user may not mount one")
            return
        require(done.returncode == (1 if text else 0) and re.search(text, done.stderr), f"{size}, {keep}: {done.returncode}: {done.stderr}")
        require(not text or (not (at / "m").exists() and not done.stdout), f"found late, or something is left: {done.stdout}")
        (at / "m").unlink(missing_ok=True)
    script = 'mount -t tmpfs none full && exec "$0" --quiet --export full --metrics m'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, mini.program], cwd=at, capture_output=True, text=True, timeout=scaled_timeout(30))
    require(done.returncode == 2 and "cannot export to 'full': the directory cannot be replaced" in done.stderr, done.stderr)
    require(not (at / "m").exists() and not (at / "full.part").exists(), "found late, or something is left")


def at_the_end(mini, args):
    """What fails after the last step all the same: the weights are where the message says."""
    at = mini.folder
    mini.run(0, "", "--quiet", "--export", "right", "--steps", 300)
    right = (at / "right" / "model.safetensors").read_bytes()
    slow = {"MINI_RENAME_MS": "1500"}
    run = mini.start("--quiet", "--export", "x", "--steps", 300, set=slow)
    config = at / "x.part" / "config.json"
    mini.wait_for(run, lambda: config.exists() and config.read_bytes()[:1] == b"{", "a whole export that has not its name yet")
    (at / "x").mkdir()
    (at / "x" / "mine").write_text("")
    said = run.communicate(timeout=scaled_timeout(30))[1]
    require(run.returncode == 1 and "cannot rename to 'x': Directory not empty; the complete weights are in 'x.part'\n" in said, said)
    require((at / "x.part" / "model.safetensors").read_bytes() == right, "other weights")
    (at / "gone").mkdir()
    run = mini.start("--quiet", "--export", "gone/y", "--metrics", "m", mini="2 1 0 4 600 -1")
    mini.wait_for_lines(run, "m", 20)
    subprocess.run(["rm", "-rf", "gone"], cwd=at, check=True)
    said = run.communicate(timeout=scaled_timeout(60))[1]
    named = re.search(r"step 600 \(.*\): cannot .*; the newest checkpoint is (\./burst-rescued-\w+/step-00000600.burst)\n", said)
    require(run.returncode == 1 and named, said)
    mini.run(0, "", "--quiet", "--resume", named[1], "--steps", 600, "--export", "z", mini="2 1 0 4 600 -1")
    mini.run(0, "", "--quiet", "--export", "whole", mini="2 1 0 4 600 -1")
    require((at / "z" / "model.safetensors").read_bytes() == (at / "whole" / "model.safetensors").read_bytes(), "the rescued state has other weights")
    mini.run(1, "cannot write '/dev/full': No space left on device", "--quiet", "--metrics", "/dev/full", "--steps", 1, "--checkpoint", "ck", "--export", "v")
    require((at / "ck" / "step-00000001.burst").exists() and (at / "v" / "config.json").exists(), "a last line that cannot be written lost the state")


def half_lines(mini, args):
    """What a killed run has left of a line goes; what is whole stays."""
    at = mini.folder
    mini.run(0, "", *TRAINED, "--metrics", "m")
    whole = (at / "m").read_text()
    last = whole.splitlines()[-1]
    cases = [(whole + last[:n], whole) for n in (1, 5, 9, 40, len(last) - 1)] + [(whole[:-1], whole), (last[:20], ""), ("", ""), ("my notes", "my notes\n")]
    for text, stays in cases:
        (at / "m").write_text(text)
        mini.run(0, "", *TRAINED[:-1], 12, "--metrics", "m", "--resume", "ck/step-00000010.burst", "--fresh")
        now = (at / "m").read_text()
        require(now.startswith(stays) and now.endswith("\n"), f"after {text[-60:]!r}: {now[-500:]!r}")
        steps = [json.loads(line)["step"] for line in now[len(stays):].splitlines()]
        require(steps == [11, 12], f"after {text[-60:]!r}: steps {steps}")
    subprocess.run(["rm", "-rf", "ck"], cwd=at, check=True)
    limit = 250000  # more than the memory that ranks share needs; a line ends in the middle of it
    run = mini.start("--quiet", "--metrics", "cut", mini="2 1 0 4 100000 -1", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    said = run.communicate(timeout=scaled_timeout(60))[1]
    text = (at / "cut").read_text()
    require(run.returncode == 1 and "cannot write 'cut': File too large" in said and text.endswith("}\n"), f"{said}: {text[-300:]!r}")


def resumed_lines(mini, args):
    """After a restart the metrics are those of a run that nothing happened to: an evaluation that was due is made once, no step is there twice."""
    at, m = mini.folder, mini.folder / "m"
    (at / "v").write_bytes(bytes(i * i % 23 for i in range(900)))
    evaluated = {"MINI_EVALUATE": "v 5"}

    def lines():
        return [re.sub(r'"(tokens_per_second|seconds|mfu|matmul_share|evaluation_seconds)": [^,}]*', "", line) for line in m.read_text().splitlines()]

    def resume(steps, *more, resume=["--resume"]):
        said = mini.run(0, "", "--checkpoint", "ck", *resume, "--steps", steps, "--metrics", "m", *more, set=evaluated)
        return said.count("evaluation after step")

    mini.run(0, "", *TRAINED, "--metrics", "m", set=evaluated)
    text, ten = m.read_text().splitlines(keepends=True), lines()
    require([json.loads(line)["step"] for line in text if "evaluation_loss" in line] == [5, 10], "evaluations")
    require(resume(10) == 0 and lines() == ten, "what was evaluated is evaluated again, or lines have changed")
    for steps in (10, 12):  # killed after the checkpoint and before the evaluation
        m.write_text("".join(text[:-1]))
        require(resume(steps) == 1 + (steps == 12), f"--steps {steps}: evaluations")
        require(lines()[:12] == ten, f"--steps {steps}: the evaluation after step 10 is not there once: {lines()}")
    twelve, whole = lines(), m.read_text()
    (at / "ck" / "step-00000012.burst").unlink()
    require(resume(12) == 1 and lines() == twelve, f"steps that were trained again are there twice: {lines()}")
    m.write_text(whole + "my notes\n")
    (at / "ck" / "step-00000012.burst").unlink()
    require(resume(12) == 1 and lines() == twelve + ["my notes"] + twelve[12:], "somebody's lines are gone")
    m.write_text(whole)
    require(resume(12, "--fresh", resume=["--resume", "ck/step-00000010.burst"]) == 1 and lines() == twelve + twelve[12:], "a comparison of two runs has lost lines")
    m.write_text(whole)
    (at / "ck" / "step-00000012.burst").unlink()
    require(resume(0, "--evaluate") == 1 and lines() == twelve, f"--steps 0 has changed lines: {lines()}")
    require(resume(12, "--evaluate") == 2 and lines() == twelve, f"an equal evaluation is there twice: {lines()}")
    m.unlink()
    require(resume(12) == 1 and len(lines()) == 1, "without metrics it is not evaluated")


def exported_again(mini, args):
    """A run that goes on moves its own earlier export aside once it has written another."""
    at = mini.folder

    def weights(name):
        return (at / name / "model.safetensors").read_bytes()

    def resume(code, text, steps, *more):
        mini.run(code, text, "--quiet", "--checkpoint", "ck", "--resume", "--steps", steps, "--export", "x", *more)

    mini.run(0, "", "--quiet", "--steps", 10, "--checkpoint", "ck", "--export", "x")
    mini.run(0, "", "--quiet", "--steps", 12, "--export", "whole")
    ten = weights("x")
    (at / "x" / "mine").write_text("notes")
    (at / "x").chmod(0o750)
    resume(0, "burst: moved the earlier export 'x' to '", 12)
    require(weights("x") == weights("whole") and not (at / "x" / "mine").exists(), "other weights")
    require(weights("x.earlier-1") == ten and (at / "x.earlier-1" / "mine").exists(), "the earlier export is lost")
    require((at / "x").stat().st_mode & 0o777 == 0o750, "the folder's permissions")
    resume(0, "moved the earlier export", 12, "--export-dtype", "f32")
    require(weights("x.earlier-2") == weights("whole") and len(weights("x")) > len(ten), "the dtype is another")
    mini.run(2, "the directory is not empty", "--quiet", "--steps", 12, "--export", "x")
    mini.run(2, "the directory is not empty", "--quiet", "--checkpoint", "new", "--steps", 12, "--export", "x")
    for name, text in (("model.safetensors", b"not ours"), ("config.json", b"{}")):
        (at / "other").mkdir(exist_ok=True)
        (at / "other" / name).write_bytes(text)
        mini.run(2, "the directory is not empty", "--quiet", "--checkpoint", "ck", "--resume", "--steps", 14, "--export", "other")


def writes(process, path):
    """Whether the process or one of its ranks has `path` open."""
    opened = [fd for pid in (process.pid, *children(process)) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    return str(path) in map(os.path.realpath, opened)


def readers(mini, args):
    """Whoever reads metrics or lines may go: metrics of a FIFO go on with the next reader, and training in any case."""
    at, long = mini.folder, {"mini": "2 1 0 4 1500 -1"}
    os.mkfifo(at / "fifo")
    run = mini.start("--quiet", "--metrics", "fifo", "--checkpoint", "ck", **long)
    for first in (1, 2):  # the second reader gets whole lines, of later steps
        with open(at / "fifo") as reader:
            require(writes(run, at / "fifo"), "nobody has the FIFO open")
            lines = [json.loads(reader.readline()) for _ in range(3)]
        require([line["step"] - lines[0]["step"] for line in lines] == [0, 1, 2] and lines[0]["step"] >= first, f"lines {lines}")
        mini.wait_for(run, lambda: not writes(run, at / "fifo"), "the end of writing to the FIFO")
    (at / "fifo").unlink()
    (at / "fifo").write_text("mine")
    said = run.communicate(timeout=scaled_timeout(60))[1]
    require((at / "fifo").read_text() == "mine", "a file that took the FIFO's place was written")
    require(run.returncode == 0 and (at / "ck" / "step-00001500.burst").exists(), f"the training ended with its reader: {said}")
    require(set(said.splitlines()) == {"burst: nobody reads 'fifo' any more; training continues, and metrics are written again when it is read"}, said)
    run = mini.start("--progress", 1, "--checkpoint", "more", "--every", 1, **long)
    run.stdout.readline()
    run.stdout.close()
    run.stdout = None
    said = run.communicate(timeout=scaled_timeout(60))[1]
    saved = re.search(r"cannot write to standard output: Broken pipe; the newest checkpoint is (\S+)\n", said)
    require(run.returncode == 1 and saved and (at / saved[1]).exists(), f"{run.returncode}: {said}")


if __name__ == "__main__":
    main([compared, begun, tried, at_the_end, half_lines, resumed_lines, exported_again, readers], __doc__)
