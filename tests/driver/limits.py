#!/usr/bin/env python3
"""limits.py SECONDS MEGABYTES command...: runs the command within processor time and peak memory. Machines are noisy, so the best
of three runs counts."""
import os
import sys


def measure(command):
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    seconds, megabytes, command = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    for _ in range(3):
        status, seconds_taken, peak = measure(command)
        print(f"{seconds_taken:.2f} s, {peak:.0f} MB")
        if status:
            return status
        if seconds_taken <= seconds and peak <= megabytes:
            return 0
    print(f"more than {seconds} s or {megabytes} MB: {' '.join(command)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
