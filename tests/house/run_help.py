"""run_help.py [--all]: `--help` of each driver of tests/ prints help and needs nothing else. A part of them a day; those that import torch
only in --all.

With --all (BURST_TEST_ALL=1) all of them.
"""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "lib"))
import runner  # noqa: E402


def is_driver(text, everything):
    """Whether a program with another name prints its description as help."""
    return "(__doc__" in text and ("import torch" not in text or everything and not runner.lacks("torch"))


def main():
    args = runner.options(__doc__).parse_args()
    drivers = [path for path in sorted(TESTS.glob("*/*.py")) if path.name.startswith("run_") or is_driver(path.read_text(), args.all)]
    drivers = runner.of_the_day(drivers, args.all, 6)
    wrong = []
    for driver in drivers:
        done = runner.run([sys.executable, driver, "--help"], 120, check=False, cwd="/")
        if done.returncode or done.stderr or "usage:" not in done.stdout:
            wrong.append(f"{driver.relative_to(TESTS)} --help ended with {done.returncode}: {done.stderr[-300:]}")
    print(*wrong, f"{len(drivers)} drivers, {len(wrong)} wrong", sep="\n")
    return bool(wrong)


runner.end(main)
