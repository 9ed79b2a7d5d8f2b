#!/usr/bin/env python3
"""Tests of the tests: topic files that are wrong or test nothing are refused, and run_goldens.py finds every difference from what a case must print.

    run_cases.py DSLCHECK STOCK
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import cases  # noqa: E402
import runner  # noqa: E402
from runner import require  # noqa: E402

RIGHT = "case a\n  sequence 1;\n#          ^ error: too short\n"
# A topic file, and why it is refused.
WRONG = [
    ("", "the last line does not end"),
    ("# nothing\n", "no case"),
    ("sequence 1;\n" + RIGHT, ":1: neither a case, an input nor a message: sequence 1;"),
    (RIGHT + "note: stray\n", ":4: neither a case, an input nor a message: note: stray"),
    (RIGHT + " # one space\n", ":4: neither a case, an input nor a message"),
    (RIGHT + "\tsequence 1;\n", ":4: neither a case, an input nor a message"),
    (RIGHT + "case b wholly\n", ":4: neither a case, an input nor a message: case b wholly"),
    (RIGHT + "case a\n  sequence 2;\n#          ^ error: x\n", "the same as t.burst:1: t_a"),
    (RIGHT + RIGHT.replace("case a", "case b"), "the same as t.burst:1: t_a"),
    (RIGHT + "case b\n", "no input"),
    ("  model m { }\n" + RIGHT + "case b\n#= error: x\n", "no input"),
    (RIGHT + "case b\n  sequence 2;\n", "no message has 'error:'"),
    (RIGHT + "case b\n  sequence 2;\n#          ^ warning: x\n", "no message has 'error:'"),
    (RIGHT + "case b\n#          ^ error: x\n  sequence 2;\n", "no line of this case is above"),
    ("  model m { }\n" + RIGHT + "case b\n#          ^ error: x\n  sequence 2;\n", "no line of this case is above"),
    (RIGHT + "case b\n  sequence 2;\n#          ^ eror: x\n", "neither a message nor its hint"),
    (RIGHT + "case b\n  sequence 2;\n# error: x\n", "neither a message nor its hint"),
    (RIGHT + "case b\n  sequence 2;\n#          ^ error: x\n#          3\n#          4\n", "neither a message nor its hint"),
    (RIGHT + "case b\n  sequence 2;\n#          ^ error: x\n# \n", "neither a message nor its hint"),
    (RIGHT + "case b\n  sequence 2;\n#          ^ 2 error: x\n", "messages are numbered ['2']"),
    (RIGHT + "case b\n  sequence 2;\n#          ^ 1 error: x\n# ^~~~~~~~ error: y\n", "messages are numbered ['1', None]"),
    (RIGHT + "case b\n\\ sequence \\q;\n#          ^ error: x\n", "unknown escape"),
]
# What burstc would print where it changed: a program of sed after dslcheck, or what follows it, and whether that is found.
CHANGED = [("", False), ("s/:3:20:/:3:21:/", True), ("s/:3:20:/:4:20:/", True), ("s/^ *^~/ &/", True), ("s/~$//", True), ("s/error/warning/", True),
           ("s/'zigzig'/'zagzig'/", True), ("s/ or auto//", True), ("s/^ *zigzag$/zigzag/", True), ("/^ *zigzag$/d", True), ("s/^layout/ &/", True),
           ("$a note: more", True), ("1,$d", True), ("; status=0", True), ("; status=2", True)]


def refused(folder):
    """Topic files that are not refused, or for another reason."""
    path, wrong = folder / "t.burst", []
    for text, why in WRONG:
        path.write_text(text)
        try:
            cases.read_topics(folder, (".burst",), "error: ")
            wrong.append(f"accepted, though {why}:\n{text}")
        except runner.Failed as failure:
            wrong += [] if why in str(failure) else [f"refused by '{failure}' instead of '{why}':\n{text}"]
    path.write_text(RIGHT)
    require(cases.read_topics(folder, (".burst",), "error: ")[0].cases[0].said() == "%s/t_a.burst:1:10: error: too short\nsequence 1;\n         ^\n" % folder.name,
            "a right topic file is read in another way")
    (folder / "t.err").write_text("")
    try:
        cases.read_topics(folder, (".burst",), "error: ")
        wrong.append("a stray file is accepted")
    except runner.Failed:
        pass
    return wrong


def found(folder, program, stock):
    """Differences that run_goldens.py does not find."""
    wrong, other = [], folder / "dslcheck"
    for change, differs in CHANGED:
        sed, status = ("", change) if change.startswith(";") else (change, "")
        other.write_text(f"#!/bin/bash\nprinted=$({program} \"$@\"); status=$?{status}\nsed '{sed}' <<<\"$printed\"\nexit $status\n")
        other.chmod(0o755)
        done = runner.run([sys.executable, HERE / "run_goldens.py", "--check", other, "--stock", stock, "--only", "layout_partition"], 60, check=False)
        if done.returncode != differs or "1 inputs" not in done.stdout:
            wrong.append(f"{change}: run_goldens.py ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return wrong


def main():
    program, stock = (pathlib.Path(word).resolve() for word in runner.words(__doc__, "dslcheck", "stock"))
    with runner.folder() as folder:
        (folder / "topics").mkdir()
        wrong = refused(folder / "topics") + found(folder, program, stock)
    print(*wrong, f"{len(WRONG)} topic files and {len(CHANGED)} changes, {len(wrong)} not refused", sep="\n")
    return bool(wrong)


runner.end(main)
