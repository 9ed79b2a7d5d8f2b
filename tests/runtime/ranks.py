#!/usr/bin/env python3
"""ranks.py [--hosts N] [--through AGENT] [--as torchrun|srun] [--hangs RANK] [--set NAME=VALUE[,VALUE...]] ...
         WORLD PROGRAM [ARGUMENT ...]

Starts WORLD processes as torchrun or srun would, and ends as they do: with the first failure's exit code; whoever has not
ended 2 s later (more on a busy machine) is killed, and named. --hosts keeps ranks apart as on N hosts: by BURST_HOSTID,
or because AGENT NUMBER PROGRAM ARGUMENTS starts each on the host of this number (from 1). --set: a variable for all
ranks, or as many values as ranks; "-" unsets it. --hangs: this rank never ends; it is killed once the others have ended.
"""
import argparse, os, pathlib, signal, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from timeouts import scaled_timeout  # noqa: E402

PATIENCE = 2  # seconds, on an idle machine

def split(options, rank):
    """Number of the host, number on it, ranks on each."""
    per_host = -(-options.world // options.hosts)
    return rank // per_host, rank % per_host, per_host

def variables(launcher, world, rank, local, per_host):
    if launcher == "srun":
        place = {"SLURM_JOB_ID": os.getppid(), "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": local,
                 "SLURM_NTASKS": world, "SLURM_STEP_NUM_TASKS": world, "SLURM_STEP_NODELIST": "127.0.0.[1,7]",
                 "SLURM_STEP_NUM_NODES": -(-world // per_host)}
    else:
        place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": min(per_host, world),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 20000 + os.getppid() % 1000 * 10}
    return {name: str(value) for name, value in place.items()}

def environment(options, rank):
    env = dict(os.environ)
    host, local, per_host = split(options, rank)
    env.update(variables(options.launcher, options.world, rank, local, per_host))
    if options.hosts > 1 and not options.through:
        env["BURST_HOSTID"] = f"host {host}"
    for one in options.set:
        name, values = one.split("=", 1)
        each = values.split(",")
        value = each[rank] if len(each) == options.world else values
        env.pop(name, None)
        if value != "-":
            env[name] = value
    return env

def start(options, rank):
    agent = [options.through, str(split(options, rank)[0] + 1)] if options.through else []
    return subprocess.Popen(agent + options.command, env=environment(options, rank))

def exit_code(process):
    return 128 - process.returncode if process.returncode < 0 else process.returncode

def wait(processes, hangs):
    failed_at, first = None, 0
    others = [p for i, p in enumerate(processes) if i != hangs]
    while None in [p.poll() for p in processes]:
        bad = [exit_code(p) for p in processes if p.returncode]
        if bad and failed_at is None:
            failed_at, first = time.monotonic(), bad[0]
        alone = hangs is not None and None not in [p.poll() for p in others]
        if failed_at is not None and (alone or time.monotonic() - failed_at > scaled_timeout(PATIENCE)):
            late = [i for i, p in enumerate(processes) if p.poll() is None]
            print("ranks.py: killed, having not ended:", *late, file=sys.stderr)
            for i in late:
                processes[i].send_signal(signal.SIGKILL)
                processes[i].wait()
        time.sleep(0.01)
    return first or next((exit_code(p) for p in processes if p.returncode), 0)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--through")
    parser.add_argument("--as", dest="launcher", choices=["torchrun", "srun"], default="torchrun")
    parser.add_argument("--hangs", type=int)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("world", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.exit(wait([start(options, i) for i in range(options.world)], options.hangs))

main()
