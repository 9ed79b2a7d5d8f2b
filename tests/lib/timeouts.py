"""Wall-clock limits of tests. check.h and check.sh of tests/runtime have the same for C and for shell."""
import os
import pathlib


def scaled_timeout(seconds):
    """The wall-clock limit for something that takes less than this many seconds on an idle machine. It grows with the
    load: four times the number of processes that want each processor."""
    words = pathlib.Path("/proc/loadavg").read_text().split()
    load = max(float(words[0]), float(words[3].split("/")[0]))  # of the last minute, or of right now
    return seconds * max(1, 4 * load / os.cpu_count())
