#!/usr/bin/env python3
"""archives.py ARCHIVE...: the device code in static libraries: each object's kernels for sm_80 and sm_90a, and as PTX of compute_80, which the
driver compiles for later devices.

Read from the fat binaries themselves (as cuobjdump --list-elf and --list-ptx list them): a header of 16 bytes with a magic number, then
entries with their kind, the bytes of their header and of their code, and their architecture.
"""
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

MAGIC, PTX, ELF = struct.pack("<I", 0xBA55ED50), 1, 2
WANTED = {(ELF, 80), (ELF, 90), (PTX, 80)}


def fat_binaries(data):
    """What each of a file's fat binaries has: (kind, architecture)."""
    at = data.find(MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        entry, end, found = at + header, at + header + size, set()
        while entry < end:
            kind, _, head, length = struct.unpack_from("<HHIQ", data, entry)
            found.add((kind, struct.unpack_from("<I", data, entry + 28)[0]))
            if not head:
                sys.exit("a fat binary of another form")
            entry += head + length
        yield found
        at = data.find(MAGIC, max(end, at + 4))


def main():
    bad, (paths,) = 0, runner.words(__doc__, more="archive")
    for path in paths:
        found = list(fat_binaries(pathlib.Path(path).read_bytes()))
        wrong = [has for has in found if has != WANTED]
        print(f"{path}: {len(found)} fat binaries, {len(wrong)} without PTX of compute_80 beside sm_80 and sm_90a", *wrong[:3])
        bad += bool(wrong) or not found
    return bad > 0 or not paths


sys.exit(main())
