#!/usr/bin/env python3
"""Tests of run_lines.py: topic files that are wrong or require nothing are refused, and a burstc that prints other lines is found.

    run_topics.py BURSTC
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import runner  # noqa: E402
import run_lines  # noqa: E402

RIGHT = "case a\n# Why.\n  # cpu1.topo c\n  sequence 1;\nast: file\nfigures: 1\n"
# A topic file, and why it is refused.
WRONG = [
    ("ast: file\n" + RIGHT, ":1: neither a case nor a part of one: ast: file"),
    (RIGHT + "stray\n", ":7: neither a case nor a part of one: stray"),
    (RIGHT + " ast: file\n", ":7: neither a case nor a part of one"),
    (RIGHT + "ast? file\n", ":7: neither a case nor a part of one"),
    (RIGHT + "ast:\n", ":7: nothing is required"),
    (RIGHT + "ast|\n", ":7: nothing is required"),
    (RIGHT.replace("# Why.\n", ""), "a case has a model, and a reason why it is here"),
    (RIGHT.replace("  # cpu1.topo c\n  sequence 1;\n", ""), "a case has a model, and a reason why it is here"),
    (RIGHT.replace("ast: file\n", ""), "nothing is required"),
    (RIGHT.replace("ast:", "ast!"), "nothing is required"),
]
# A case, what burstc would print for it where it changed, by sed, and whether that is found.
CHANGED = [("c_document", change, differs) for change, differs in (
    ("", False), ("s/PLAN_TABLES 1/PLAN_TABLES 2/", True), ("s/^ *s->heads = plan_chunk_heads/ &/", True), ("/chunk ? x_mid : x, x_mid/d", True),
    ("s/^pairs 28862$/pairs 28863/", True), ("s/^memory of a rank: 1/&1/", True))]
CHANGED += [("c_own_schedule", "", False), ("c_own_schedule", "$a _home", True)]


def refused(folder):
    """Topic files that are not refused, or for another reason."""
    path, wrong = folder / "t.txt", []
    for text, why in [*WRONG, (RIGHT, None)]:
        path.write_text(text)
        try:
            run_lines.read_topic(path)
            wrong += [f"accepted, though {why}:\n{text}"] if why else []
        except runner.Failed as failure:
            wrong += [] if why and why in str(failure) else [f"refused by '{failure}' instead of '{why}':\n{text}"]
    return wrong


def found(folder, burstc):
    """Changes of what burstc prints that run_lines.py does not find."""
    wrong, other = [], folder / "burstc"
    for case, change, differs in CHANGED:
        other.write_text(f"#!/bin/bash\nset -o pipefail\n{burstc} \"$@\" | sed '{change}'\n")
        other.chmod(0o755)
        done = runner.run([sys.executable, HERE / "run_lines.py", other, case], 100, check=False)
        if done.returncode != differs or "1 cases" not in done.stdout:
            wrong.append(f"{case}, {change}: run_lines.py ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return wrong


def main():
    burstc, = runner.words(__doc__, "burstc")
    with runner.folder() as folder:
        wrong = refused(folder) + found(folder, pathlib.Path(burstc).resolve())
    print(*wrong, f"{len(WRONG)} topic files and {len(CHANGED)} changes, {len(wrong)} not refused", sep="\n")
    return bool(wrong)


runner.end(main)
