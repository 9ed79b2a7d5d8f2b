"""What the drivers written in Python share: commands, options, a folder to work in, cases some at a time, parts one after the other."""
import argparse
import concurrent.futures
import contextlib
import difflib
import importlib.util
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback

from timeouts import scaled_timeout


os.environ["BURSTC_PROGRESS"] = "no"  # a line of a slow search is no part of what a test compares


class Failed(Exception):
    """What a test found; or a command that should have succeeded did not, and the text says which and how."""


def milliseconds(text):
    """Of "393.680 ms", or "1,053.986 s"."""
    number, unit = text.split()
    return float(number.replace(",", "")) * {"ms": 1, "s": 1e3}[unit]


def require(condition, what):
    if not condition:
        raise Failed(what)


def run(command, timeout, env=None, check=True, status=0, **more):
    """Runs a command and returns it as completed; raises Failed where it ends with another status (unless check is off) or hangs.
    timeout: seconds that it would have on an idle machine."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=scaled_timeout(timeout), env=env, **more)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)}\n  hung for {error.timeout:.0f} s\n"
                     f"{error.stdout or ''}{error.stderr or ''}") from None
    if check and done.returncode != status:
        raise Failed(f"{' '.join(command)}\n  ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def lacks(*modules):
    """Whether a module is not installed here; says so."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    print("".join(f"{name} is not installed\n" for name in missing), end="")
    return bool(missing)


def words(description, *names, more=None):
    """What a driver is called with, by name, a flag with its dashes; more: the name of any further words. --help prints the description."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        parser.add_argument(name, **({"action": "store_true"} if name.startswith("--") else {}))
    if more:
        parser.add_argument(more, nargs="*")
    found = vars(parser.parse_intermixed_args())  # whose order is that of parsing
    return [found[name.lstrip("-").replace("-", "_")] for name in (*names, *([more] if more else []))]


def options(description, *required, parts=()):
    """A parser with what every driver takes, and the options of these names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in required:
        parser.add_argument(name, required=True)
    parser.add_argument("--work", type=pathlib.Path, help="folder to work in, which is kept; a temporary one otherwise")
    parser.add_argument("--only", action="append", default=[], help="regular expression on a case's name; repeats")
    parser.add_argument("--all", action="store_true", default=os.environ.get("BURST_TEST_ALL") == "1",
                        help="all cases instead of a sample; BURST_TEST_ALL=1 says so too")
    if parts:
        parser.add_argument("--part", choices=parts, action="append", help="all parts otherwise; repeats")
    return parser


@contextlib.contextmanager
def folder(work=None):
    """The folder of --work, or one that goes away."""
    with tempfile.TemporaryDirectory(prefix="burst_test_") as temporary:
        path = (work or pathlib.Path(temporary)).resolve()
        path.mkdir(parents=True, exist_ok=True)
        yield path


def chosen(cases, only):
    """Those whose names have every expression of --only."""
    return [case for case in cases if all(re.search(word, case.name()) for word in only)]


def of_the_day(cases, everything, parts):
    """One of that many parts of the cases, another each day; with --all every case. Parts are drawn: in a product of lists, each has of all."""
    drawn = random.Random(parts).sample(range(len(cases)), len(cases))
    return cases if everything else [cases[i] for i in sorted(drawn[int(time.time() // 86400) % parts::parts])]


def check_all(check, cases, jobs=2):
    """[(case, what check returned)] of those that hold, in their order. Others are printed as they fail; the last value counts them."""
    found, failures = {}, 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(check, case): case for case in cases}
        for future in concurrent.futures.as_completed(futures):
            try:
                found[future] = futures[future], future.result()
            except Failed as failure:
                failures += 1
                print(f"FAILED: {futures[future]}: {failure}", flush=True)
    return [found[future] for future in futures if future in found], failures


def run_parts(parts):
    """Calls each of {name: function}, and goes on after one that fails; how many did."""
    failures = 0
    for name, part in parts.items():
        begin = time.monotonic()
        try:
            part()
        except ModuleNotFoundError:
            raise
        except Exception as failure:
            failures += 1
            print(f"FAILED: {name}: {failure if isinstance(failure, Failed) else traceback.format_exc()}"[:6000], flush=True)
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    return failures


COUNTED = "ranks|tokens|layers|heads|devices|nodes|steps|processes|groups|chunks|operations|slots|shares"
ONE_OF_MANY = re.compile(rf"(?<!rank )\b1 (?:{COUNTED})\b")


def counts_agree(name, text):
    """Whether no noun that follows the count 1 is a plural. `rank 1 tokens 200` counts no tokens."""
    wrong = [line for line in text.splitlines() if ONE_OF_MANY.search(line)]
    print("".join(f"{name}: {line}\n" for line in wrong), end="")
    return not wrong


def same(name, wanted, got):
    """Whether two texts are equal; prints how they differ."""
    if wanted != got:
        print("\n".join(difflib.unified_diff(wanted.splitlines(), got.splitlines(), f"{name}, held", "printed", lineterm="")))
    return wanted == got


def end(main):
    """Ends the driver with main's status: 1 after a failure, 77 where a module is missing."""
    try:
        sys.exit(main())
    except ModuleNotFoundError as missing:
        print(f"not tested: {missing}")
        sys.exit(77)
    except Failed as failure:
        sys.exit(str(failure))
