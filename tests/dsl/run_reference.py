#!/usr/bin/env python3
"""Every fenced ```topo, ```burst and ```sched block of the language reference must be accepted by the front end.

    run_reference.py DSLCHECK STOCK language.md

A block that is a part of a file is completed: a .burst block without a model gets one, one without a sequence too; a
.topo block without a cluster gets one. A block whose first line is "# refused" must be refused.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

MODEL = "model part { layers 32; hidden 64; heads 4; ffn swiglu 128; vocab 256; }\n"
CLUSTER = "cluster part { nodes 2 { gpus 4 of h100; nics 4 of hdr; } }\n"


def completed(kind, text):
    has = lambda word: re.search(rf"^{word}\b", text, re.M)
    if kind == "topo" and not has("cluster"):
        text += CLUSTER
    if kind == "burst" and not has("model"):
        text += MODEL
    if kind == "burst" and not has("sequence"):
        text += "sequence 64Ki;\n"
    return text


def check(program, stock, folder, kind, line, text):
    path = pathlib.Path(folder) / f"line{line}.{kind}"
    path.write_text(completed(kind, text))
    result = subprocess.run([program, stock, ".", str(path)], capture_output=True, text=True)
    refused = text.startswith("# refused")
    if result.returncode == (1 if refused else 0):
        return True
    print(f"block at line {line} is", "accepted" if refused else "refused:", result.stdout, result.stderr)
    return False


def main():
    program, stock, reference = runner.words(__doc__, "dslcheck", "stock", "reference")
    source = pathlib.Path(reference).read_text()
    blocks = [(m[1], source[: m.start()].count("\n") + 1, m[2])
              for m in re.finditer(r"^```(topo|burst|sched)\n(.*?)^```$", source, re.M | re.S)]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "pattern.txt").write_text("100\n110\n111\n")
        (pathlib.Path(folder) / "lengths.txt").write_text("512 30\n2000\n")
        (pathlib.Path(folder) / "mine.burst").write_text("mask near(w) = causal and q - k < w;\n")
        good = [check(program, stock, folder, *block) for block in blocks]
    kinds = {kind: sum(b[0] == kind for b in blocks) for kind in ("topo", "burst", "sched")}
    print(f"{len(blocks)} blocks {kinds}, {good.count(False)} failed")
    return 0 if all(good) and min(kinds.values()) >= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
