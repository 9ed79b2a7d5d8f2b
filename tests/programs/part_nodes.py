"""Two "nodes" of two GPUs, or of one where there are but two, on one machine: processes started by hand, NCCL told by
NCCL_HOSTID that they are two hosts.

Right: programs of the numerics part, run that way. Waiting: attention alone with its transfers and without them
(time_attention.cu); the difference is what the simulation calls exposed. The simulation gets this machine's rates, from the same
process: links from the hops by themselves, kernels from the run without transfers.
"""
import os
import re
import socket
import subprocess
import time

import machine
import part_numerics
import part_scale

LIMIT = 0.20
NODES = 2
TOKENS, KV_HEADS = 65536, 8
WAITING = {2: [("burst", "keys"), ("burst", "queries"), ("ring", "keys")], 1: [("ring", "keys"), ("ring", "queries")]}
NOT_MEASURED = 391  # GB/s, where nothing moves
FORWARD, BACKWARD = 4, 10  # operations a pair and column


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lanes_of(m):
    return m.gpus // NODES


def as_nodes(m, command, name, env=None, timeout=200, check=False):
    """One process a rank, with torchrun's variables; (worst exit code, all output)."""
    ranks, port = NODES * lanes_of(m), free_port()
    processes = []
    for rank in range(ranks):
        place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, "NCCL_HOSTID": f"node{rank // lanes_of(m)}", "NCCL_NVLS_ENABLE": 0, **(env or {})}
        log = open(m.logs / f"{name}.rank{rank}.log", "w+", encoding="utf-8", errors="replace")
        environment = dict(os.environ, **{k: str(v) for k, v in place.items()})
        processes.append((subprocess.Popen([str(w) for w in command], stdout=log, stderr=subprocess.STDOUT,
                                           start_new_session=True, env=environment), log))
    deadline, code = time.monotonic() + timeout, 0
    for process, _ in processes:
        try:
            code = process.wait(max(0.1, deadline - time.monotonic())) or code
        except subprocess.TimeoutExpired:
            code = "timeout"
            os.killpg(process.pid, 9)
            process.wait()
    text = ""
    for _, log in processes:
        log.seek(0)
        text += log.read()
        log.close()
    if check and code != 0:
        raise machine.Failed(f"{name}: ended with {code}\n    {machine.tail(text)}")
    return code, text


# ---- right ----

def check_numerics(m):
    ranks = NODES * lanes_of(m)
    points = [p for p in part_numerics.POINTS if (p.nodes, p.lanes) == (NODES, lanes_of(m))]
    points += [p for p in part_numerics.POINTS if (p.nodes, p.lanes, p.schedule) == (1, ranks, "ulysses")][:1]
    programs, answers = part_numerics.prepare(m, points)
    for point, program in programs.items():
        for way in ("nccl", "auto"):
            name = f"nodes_{point.name()}.{way}"
            try:
                found = part_numerics.measure(m, program, answers[point.shape()], name, {"BURST_TRANSPORT": way},
                                              lambda command, n, env: as_nodes(m, command, n, env))
            except machine.Failed as error:
                found = error
            part_numerics.add_row(m, "nodes", f"{point.name()} {way}", found)


# ---- waiting ----

def topology(lanes, rates, forward, backward):
    """This machine as two nodes: its own links and kernels."""
    inside, between = (1e-9 * rate for rate in rates)
    device = (f"device mine {{ arch sm_90a; memory 141 GB; hbm 4.8 TB/s; matmul bf16 790 TFLOP/s; "
              f"attention forward {forward:.3f} TFLOP/s; attention backward {backward:.3f} TFLOP/s; }}\n")
    link = f"link pair {{ bandwidth {inside or NOT_MEASURED:.3f} GB/s; latency 10 us; }}"
    nic = f"bandwidth {between or NOT_MEASURED:.4f} GB/s; latency 30 us;"
    return device + machine.gpu_topology(NODES, lanes, link, "mine", nic)


def exposed(m, case, topo):
    text = m.cost(f"predicted_{case.name()}", topo, part_scale.model_text(case))
    rows = [re.search(rf"attention {d}, causal\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)", text) for d in ("forward", "backward")]
    return [float(row[1]) for row in rows]


def check_waiting(m, schedule, travel):
    lanes = lanes_of(m)
    case = part_scale.Case(schedule, travel, "zigzag", NODES, lanes, KV_HEADS, TOKENS)
    program = part_scale.build(m, case, topology(lanes, (0, 0), 370, 320))
    _, text = as_nodes(m, [program], case.name(), {"BURST_TRANSPORT": "nccl"}, 150, check=True)
    times = part_scale.read_times(text, case.name())
    work = TOKENS * (TOKENS + 1) / 2 * part_scale.HEADS * part_scale.HEAD_DIM / (NODES * lanes) / 1e12
    forward, backward = FORWARD * work / times["forward_silent"], BACKWARD * work / times["backward_silent"]
    for i, direction in enumerate(("forward", "backward")):
        rates = times[direction + "_rates"]
        should = exposed(m, case, topology(lanes, rates, forward, backward))[i]
        is_ = 1e3 * (times[direction] - times[direction + "_silent"])
        apart = is_ / should - 1 if should > 0 else float(is_ > 0.05 * 1e3 * times[direction])
        m.add("nodes", f"{schedule} {travel} {direction}",
              f"waits {is_:.2f} ms of {1e3 * times[direction]:.2f} ms, predicted {should:.2f} ms ({100 * apart:+.0f} %); "
              f"hops alone {1e-9 * rates[0]:.1f} GB/s inside, {1e-9 * rates[1]:.2f} between nodes",
              f"within {100 * LIMIT:.0f} %", abs(apart) <= LIMIT)


def check_all_waiting(m):
    for schedule, travel in WAITING[lanes_of(m)]:
        try:
            check_waiting(m, schedule, travel)
        except machine.Failed as error:
            m.failed("nodes", f"{schedule} {travel}", error)


def run(m):
    if lanes_of(m) not in WAITING:
        m.add("nodes", "not run", "made for two nodes of one or two GPUs")
        return
    if not m.share:
        check_all_waiting(m)
    check_numerics(m)
