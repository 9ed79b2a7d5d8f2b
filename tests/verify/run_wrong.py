#!/usr/bin/env python3
"""Schedules with a mistake that a person makes: burstc refuses each case of wrong/*.sched with exactly the messages beside its lines
(tests/lib/cases.py has the form of these files).

    run_wrong.py BURSTC [--update]
"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import cases  # noqa: E402
import runner  # noqa: E402

CLUSTER = """cluster c {{ nodes {nodes} link nvlink {{ bandwidth 8 GB/s; latency 2 us; }} }}
device core {{ arch cpu; memory 1 GiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; attention forward 40 GFLOP/s; attention backward 35 GFLOP/s; }}
nic loop {{ bandwidth 80 Gb/s; latency 5 us; }}
host {{ memory 8 GiB; pcie 8 GB/s; cores 1; }}
"""
MODEL = """import "masks";
model small {{ layers 2; hidden 32; heads 4; kv_heads 2; head_dim 8; ffn swiglu 48; vocab 64; }}
attention {{ default causal; }}
sequence 384;
layout {{ schedule {schedule}; {layout}; recompute none; }}
"""
ONE, TWO = "1 { gpus 4 of core; }", "2 { gpus 3 of core; nics 1 of loop; }"
TOPICS = {"ring": (ONE, "travel queries; partition zigzag"),  # of each topic the nodes, and settings of the layout
          "nodes": (TWO, "travel queries; partition zigzag"),
          "used": (ONE, "travel queries; context 2 x 2; partition zigzag"),
          "mixed": (ONE, "partition contiguous")}


def run(burstc, case, folder):
    (folder / "wrong").mkdir(exist_ok=True)
    (folder / case.path).write_bytes(case.text())
    nodes, layout = TOPICS[case.topic.stem]
    (folder / "c.topo").write_text(CLUSTER.format(nodes=nodes))
    schedule = re.search(rb"^schedule (\w+)", case.text(), re.M)[1].decode()
    (folder / "model.burst").write_text(MODEL.format(schedule=schedule, layout=layout))
    command = [burstc, "c.topo", "model.burst", "--schedule", case.path, "--emit=plan"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, re.sub(r"\S*/(?=schedules/)", "", done.stdout)


def main():
    burstc, update = runner.words(__doc__, "burstc", "--update")
    burstc, word = os.path.abspath(burstc), "error: "
    topics = cases.read_topics(HERE / "wrong", (".sched",), "" if update else word)
    with runner.folder() as folder:
        results = [case.holds(*run(burstc, case, folder), 1, word, update) for topic in topics for case in topic.cases]
    for topic in topics if update else []:
        topic.write()
    print(f"{len(results)} wrong schedules, {results.count(False)} failed")
    return results.count(False) > 0


runner.end(main)
