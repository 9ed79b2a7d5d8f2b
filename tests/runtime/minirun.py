"""What run_folders.py and run_ends.py share: starting the miniature plan, and reading checkpoints without the runtime."""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import Failed, require, scaled_timeout  # noqa: E402

PAGE, PREFIX, KINDS = 4096, 16, 3


class Mini:
    """mini_main in a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder, self.started = program, pathlib.Path(folder), []

    def end(self):
        """What a failed test has left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def start(self, *options, mini="2 1 0 4 12 -1", **more):
        environment = dict(os.environ, MINI=mini, **more.pop("set", {}))
        self.started.append(subprocess.Popen([self.program, *map(str, options)], env=environment, cwd=self.folder, text=True,
                                             **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}))
        return self.started[-1]

    def run(self, code, text, *options, **more):
        """Runs to the end: this exit code, and the text on stderr or stdout."""
        process = self.start(*options, **more)
        try:
            out, error = process.communicate(timeout=scaled_timeout(30))
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"{options}: hangs; expected '{text}'") from None
        said = (error or "") + (out or "")
        require(process.returncode == code, f"{options}: code {process.returncode}: {said}")
        require(text in said, f"{options}: expected '{text}' in: {said}")
        return said

    def wait_for(self, process, happened, what):
        deadline = time.monotonic() + scaled_timeout(30)
        while not happened():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise Failed(f"{what}: did not come: {process.communicate()}")
            time.sleep(0.005)

    def wait_for_lines(self, process, name, lines):
        path = self.folder / name
        self.wait_for(process, lambda: path.exists() and path.read_text().count("\n") >= lines, f"line {lines} of {name}")


def children(process):
    return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


# ---- checkpoints, by docs/runtime.md ----

def data_at(json_bytes):
    return (PREFIX + json_bytes + PAGE - 1) // PAGE * PAGE


def read_checkpoint(path):
    """The header's facts of a whole checkpoint; anything else is Failed."""
    blob = pathlib.Path(path).read_bytes()
    require(blob[:8] == b"BURSTCKP" and blob[-8:] == b"BURSTEND", f"{path}: no begin, or no end")
    version, length = struct.unpack("<II", blob[8:16])
    facts = json.loads(blob[PREFIX:PREFIX + length])
    require(version == 1 and facts["step"] == int(re.fullmatch(r"step-(\d{8,})\.burst", path.name)[1]), f"{path}: {facts}")
    sizes = [4 * u["elements"] for u in facts["units"] for _ in range(u["repeat"] * KINDS)]
    footer = len(blob) - 8 - 4 * (len(sizes) + 1)
    require(footer == data_at(length) + sum(sizes), f"{path}: {len(blob)} bytes")
    sums = struct.unpack(f"<{len(sizes) + 1}I", blob[footer:-8])
    begin = data_at(length)
    require(sums[-1] == zlib.crc32(blob[:begin]), f"{path}: the header's sum")
    for size, crc in zip(sizes, sums):
        require(crc == zlib.crc32(blob[begin:begin + size]), f"{path}: a section's sum")
        begin += size
    return facts


def write_header(source, target, text):
    """A copy of a whole checkpoint with another header, its sum right."""
    blob = pathlib.Path(source).read_bytes()
    begin = data_at(struct.unpack("<I", blob[12:16])[0])
    header = (blob[:12] + struct.pack("<I", len(text)) + text).ljust(data_at(len(text)), b"\0")
    pathlib.Path(target).write_bytes(header + blob[begin:-12] + struct.pack("<I", zlib.crc32(header)) + blob[-8:])


def header_of(path):
    blob = pathlib.Path(path).read_bytes()
    return blob[PREFIX:PREFIX + struct.unpack("<I", blob[12:16])[0]]


def main(parts, description, add_options=lambda parser: None):
    """Runs all parts, each in a folder of its own; the functions get a Mini and the options."""
    parser = runner.options(description, parts=[p.__name__ for p in parts])
    parser.add_argument("program", help="mini_main", type=os.path.abspath)
    add_options(parser)
    args = parser.parse_args()

    def alone(part):
        with runner.folder() as folder:
            mini = Mini(args.program, folder)
            try:
                part(mini, args)
            finally:
                mini.end()

    named = {part.__name__: lambda part=part: alone(part) for part in parts}
    sys.exit(runner.run_parts({name: part for name, part in named.items() if name in (args.part or named)}) > 0)
