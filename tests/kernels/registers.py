#!/usr/bin/env python3
"""registers.py CC SOURCE...: sums of vectors stay in registers on processors with AVX-512, with AVX2 and with neither.

Vectors wider than a processor's registers are compiled too, to code that stores and loads each result. So the inner loops of these
functions, as the disassembler shows them, must not use the stack.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

FUNCTIONS = r"burst_sum_squares"
LINE = re.compile(r"^ *([0-9a-f]+):\s+(\S+)\s*(.*)$")


def functions(listing):
    """{name: [(address, instruction, operands)]} of those that are looked at."""
    found, now = {}, None
    for line in listing.splitlines():
        head, code = re.match(r"^[0-9a-f]+ <(.+)>:$", line), LINE.match(line)
        if head:
            now = found.setdefault(head.group(1), []) if re.fullmatch(FUNCTIONS, head.group(1)) else None
        elif code and now is not None:
            now.append((int(code.group(1), 16), code.group(2), code.group(3)))
    return found


def inner_loops(code):
    """Runs of instructions that end with a conditional jump back and have no other jump in them."""
    loops = []
    for at, name, operands in code:
        to = re.match(r"([0-9a-f]+) ", operands) if name.startswith("j") and name != "jmp" else None
        loop = [c for c in code if to and int(to.group(1), 16) <= c[0] <= at]
        if loop and not any(c[1].startswith("j") for c in loop[:-1]):
            loops.append(loop)
    return [loop for loop in loops if any(re.match(r"v?(fn?m|mulp|addp)", c[1]) for c in loop)]


def main():
    cc, sources = runner.words(__doc__, "cc", more="source")
    failures = seen = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            for march in ("x86-64", "x86-64-v3", "x86-64-v4"):
                words = source.split()
                subprocess.run([*cc.split(), "-std=gnu17", "-O3", f"-march={march}", "-D_GNU_SOURCE", *words[1:], "-c", words[0],
                                "-o", f"{folder}/o"], check=True)
                listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"{folder}/o"], check=True, capture_output=True, text=True).stdout
                for name, code in functions(listing).items():
                    loops = inner_loops(code)
                    seen += len(loops)
                    for loop in loops:
                        through = [c for c in loop if re.search(r"%[xyz]mm", c[2]) and re.search(r"\(%r[sb]p", c[2])]
                        if through:
                            failures += 1
                            print(f"{name} for {march} goes through memory: {through[0][1]} {through[0][2]}")
    print(f"{seen} loops")
    return failures > 0 or seen < 3


if __name__ == "__main__":
    sys.exit(main())
