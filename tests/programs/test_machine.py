"""machine.py ends what it started: also processes that have a session of their own, as torchrun's workers have, when a command's
time is over and when a signal ends the run."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import machine  # noqa: E402

# starts a worker in a session of its own, and a second process below that one; says their numbers
AGENT = """import os, subprocess, sys, time
worker = "import os, subprocess, sys; print(os.getpid(), subprocess.Popen(['sleep', '600']).pid, flush=True); " \\
         "import time; time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", worker], stdout=open(sys.argv[1], "w"), start_new_session=True)
time.sleep(600)
"""
RUN = """import pathlib, signal, sys
sys.path[:0] = [sys.argv[3]]
import machine
signal.signal(signal.SIGTERM, machine.end_commands)
m = object.__new__(machine.Machine)
m.out = m.logs = pathlib.Path(sys.argv[2])
try:
    m.run([sys.executable, "-c", pathlib.Path(sys.argv[1]).read_text(), m.out / "workers"], "agent", float(sys.argv[4]), check=False)
except machine.Failed:
    pass
"""


def alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def workers(folder):
    deadline = time.monotonic() + 120
    path = folder / "workers"
    while time.monotonic() < deadline:
        words = path.read_text().split() if path.exists() else []
        if len(words) == 2:
            return [int(word) for word in words]
        time.sleep(0.05)
    sys.exit("the workers did not start")


def gone(processes):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(alive, processes)):
        time.sleep(0.05)
    return not any(map(alive, processes))


def check(name, seconds, end):
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        (folder / "agent.py").write_text(AGENT)
        run = subprocess.Popen([sys.executable, "-c", RUN, folder / "agent.py", folder, HERE, str(seconds)],
                               stdout=subprocess.DEVNULL)
        started = workers(folder)
        if end:
            run.send_signal(signal.SIGTERM)
        run.wait(timeout=120)
        left = [one for one in started if not gone([one])]
        for one in left:
            os.kill(one, signal.SIGKILL)
        if left:
            sys.exit(f"{name}: processes are left: {left}")


check("time over", 15, False)
check("signal", 300, True)
print("ok")
