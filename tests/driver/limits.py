#!/usr/bin/env python3
"""limits.py SECONDS MEGABYTES command...: runs the command within wall time and peak memory. Machines are noisy, so the best
of three runs counts."""
import os
import sys
import time


def measure(command):
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - start, usage.ru_maxrss / 1024


def main():
    seconds, megabytes, command = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    for _ in range(3):
        status, wall, peak = measure(command)
        print(f"{wall:.2f} s, {peak:.0f} MB")
        if status:
            return status
        if wall <= seconds and peak <= megabytes:
            return 0
    print(f"more than {seconds} s or {megabytes} MB: {' '.join(command)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
