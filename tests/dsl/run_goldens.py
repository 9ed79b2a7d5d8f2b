#!/usr/bin/env python3
"""Golden tests of the three languages: bad/x.* must be refused with exactly x.err, warned/x.* accepted with exactly the
warnings of x.err, good/x.* accepted without a word and print x.ast.

    run_goldens.py DSLCHECK STOCK [--update]
"""
import difflib
import pathlib
import subprocess
import sys


def run(check, stock, options, path):
    result = subprocess.run([check, stock, ".", *options, str(path)], capture_output=True)
    result.stdout = result.stdout.replace(stock.encode(), b"STOCK")
    return result


def compare(path, golden, status, got, wanted_status, update):
    if status != wanted_status:
        print(f"{path}: exit status {status}, not {wanted_status}")
        return False
    if update:
        golden.write_bytes(got)
    wanted = golden.read_bytes() if golden.exists() else b""
    if got == wanted and got:
        return True
    lines = [text.decode("utf-8", "backslashreplace").splitlines() for text in (wanted, got)]
    print("\n".join(difflib.unified_diff(*lines, str(golden), "printed", lineterm="")))
    return False


def check_bad(check, stock, path, update):
    result = run(check, stock, [], path)
    if b"error: " not in result.stdout or result.stderr:
        print(f"{path}: no error, or something else was printed:", result.stderr.decode(errors="replace"))
        return False
    return compare(path, path.with_suffix(".err"), result.returncode, result.stdout, 1, update)


def check_warned(check, stock, path, update):
    result = run(check, stock, [], path)
    if b"warning: " not in result.stdout or b"error: " in result.stdout or result.stderr:
        print(f"{path}: no warning, or something else was printed:", result.stderr.decode(errors="replace"))
        return False
    return compare(path, path.with_suffix(".err"), result.returncode, result.stdout, 0, update)


def check_good(check, stock, path, update):
    result = run(check, stock, [], path)
    if result.returncode or result.stdout or result.stderr:
        print(f"{path}: refused:", (result.stdout + result.stderr).decode(errors="replace"))
        return False
    result = run(check, stock, ["--ast"], path)
    return compare(path, path.with_suffix(".ast"), result.returncode, result.stdout, 0, update)


def inputs(folder):
    return sorted(p for p in pathlib.Path(folder).iterdir() if p.suffix in (".topo", ".burst", ".sched"))


def main():
    check, stock, update = sys.argv[1], sys.argv[2], "--update" in sys.argv[3:]
    bad, warned, good = inputs("bad"), inputs("warned"), inputs("good")
    results = [check_bad(check, stock, p, update) for p in bad] + [check_good(check, stock, p, update) for p in good]
    results += [check_warned(check, stock, p, update) for p in warned]
    messages = {line for p in bad for line in p.with_suffix(".err").read_bytes().split(b"\n") if b"error: " in line}
    print(f"{len(bad)} wrong, {len(warned)} doubtful and {len(good)} right inputs, {results.count(False)} failed; {len(messages)} error lines")
    return 0 if all(results) and len(bad) >= 44 and len(warned) >= 2 and len(good) >= 8 else 1


if __name__ == "__main__":
    sys.exit(main())
