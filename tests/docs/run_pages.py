#!/usr/bin/env python3
"""The examples of a page are what their commands print, character by character.

    run_pages.py BURSTC PAGE.md ... [--update] [--needs MODULE]

In a page a block ```LANGUAGE NAME holds the file NAME. A block ```console begins with `$ COMMAND`; what
follows, up to the next `$ `, is what the command prints on either stream, where `…` stands for any text of a
line, and a line of only `…` for any lines. Commands are run by bash in a folder with the page's files, where
`burstc` is BURSTC, `python3` is this interpreter and `burst` the Python package. --update writes what they print
into the page, for commands whose text there is not what they print.
"""
import argparse
import os
import pathlib
import re
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def commands(folder):
    """`python3` and `burst` as an installation would have them, in a folder for PATH."""
    python = shlex.quote(sys.executable)
    for name, text in (("python3", f'exec {python} "$@"'),
                       ("burst", f'PYTHONPATH={shlex.quote(str(ROOT / "python"))} exec {python} -m burst "$@"')):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def printed(command, path, folder):
    env = dict(os.environ, PATH=f"{path}:{os.environ['PATH']}", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    return runner.run(["bash", "-c", f"exec 2>&1\n{command}"], 100, env=env, check=False, cwd=folder).stdout


def agrees(wanted, got):
    """Whether a text is what a page shows, with its `…`."""
    pattern = re.escape(wanted)
    pattern = re.sub(r"^…\\\n", "(?:.*\n)*", pattern, flags=re.M).replace("…", ".*")
    return re.fullmatch(pattern, got) is not None


def now(block, path, folder):
    """A console block as its commands print it; what agrees stays as it is shown."""
    text = ""
    for shown in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, wanted = shown.split("\n", 1)
        got = printed(command, path, folder)
        text += f"$ {command}\n{wanted if agrees(wanted, got) else got}"
    return text


def check(page, burstc, update):
    """The number of examples, and of those that differ."""
    text, examples, bad = page.read_text(), 0, 0
    with runner.folder() as folder, runner.folder() as tools:
        path = f"{commands(tools)}:{burstc.parent}"
        for language, name, block in BLOCK.findall(text):
            if name:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(block)
            if language != "console":
                continue
            examples += 1
            runner.require(block.startswith("$ "), f"{page.name}: a console block without a command: {block}")
            got = now(block, path, folder)
            # Such as a program that an earlier command should have made: --update would write that into the page.
            runner.require(not re.search("^bash: ", got, re.M), f"{page.name}: a command cannot run: {got}")
            if update:
                text = text.replace(f"```console\n{block}```\n", f"```console\n{got}```\n")
            else:
                bad += not runner.same(f"{page.name}, example {examples}", block, got)
    if update:
        page.write_text(text)
    runner.require(examples, f"{page.name} has no example")
    return examples, bad


def undocumented(page, burstc):
    """Forms that burstc completes and the page has no section of."""
    forms = runner.run([burstc, "--complete", "a.topo", "--emit", "=", ""], 10).stdout.split()
    runner.require("step" in forms, "burstc --complete lists no forms")
    sections = re.findall(r"^## (.*)$", page.read_text(), re.M)
    return [form for form in forms if not any(re.search(rf"\b{form}\b", title) for title in sections)]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("burstc", type=lambda name: pathlib.Path(name).resolve())
    options.add_argument("page", type=pathlib.Path, nargs="+")
    options.add_argument("--update", action="store_true")
    options.add_argument("--needs", action="append", default=[], help="a Python module of the pages; 77 without it")
    o = options.parse_args()
    if runner.lacks(*o.needs):
        return 77
    failed = 0
    for page in o.page:
        examples, bad = check(page, o.burstc, o.update)
        print(f"{page.name}: {examples} examples, {bad} differ")
        missing = undocumented(page, o.burstc) if page.name == "forms.md" else []
        print("".join(f"{page.name}: no section of --emit={form}\n" for form in missing), end="")
        failed += bad + len(missing)
    return failed > 0


runner.end(main)
