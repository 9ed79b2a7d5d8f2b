"""fork_ranks.py RANKS MODULES SCRIPT [ARGUMENT ...]: SCRIPT on so many ranks of this host, with torchrun's variables.

Unlike torchrun, it imports MODULES (a list with commas) once and forks the ranks: an import of PyTorch takes 3 s of processor
time, one of transformers more, and most ranks here compute for less. The module torch must not have started a thread before:
importing it does not. After a rank that fails, the others are killed.
"""
import importlib
import os
import pathlib
import runpy
import signal
import socket
import sys
import traceback


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def become(rank, ranks, port, script, arguments):
    """In the child."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [script, *arguments]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main():
    ranks, modules, script, arguments = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], sys.argv[4:]
    for name in modules:
        importlib.import_module(name)
    port, running = free_port(), {}
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            become(rank, ranks, port, script, arguments)
        running[child] = rank
    failed = 0
    while running:
        child, status = os.wait()
        rank = running.pop(child, None)
        if rank is not None and status and not failed:
            failed = 1
            print(f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
            for other in running:
                os.kill(other, signal.SIGKILL)
    return failed


sys.exit(main())
