#!/usr/bin/env python3
"""The examples of a page are what their commands print, character by character.

    run_pages.py BURSTC PAGE.md ... [--update]

In a page a block ```LANGUAGE NAME holds the file NAME. A block ```console begins with `$ COMMAND`; what
follows, up to the next `$ `, is what the command prints on either stream. Commands are run by bash in a folder
with the page's files, where `burstc` is BURSTC. --update writes what they print into the page.
"""
import argparse
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def printed(command, burstc, folder):
    env = dict(os.environ, PATH=f"{burstc.parent}:{os.environ['PATH']}")
    return runner.run(["bash", "-c", f"exec 2>&1\n{command}"], 100, env=env, check=False, cwd=folder).stdout


def now(block, burstc, folder):
    """A console block as its commands print it."""
    commands = [text.split("\n", 1)[0] for text in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return "".join(f"$ {command}\n{printed(command, burstc, folder)}" for command in commands)


def check(page, burstc, update):
    """The number of examples, and of those that differ."""
    text, examples, bad = page.read_text(), 0, 0
    with runner.folder() as folder:
        for language, name, block in BLOCK.findall(text):
            if name:
                (folder / name).write_text(block)
            if language != "console":
                continue
            examples += 1
            runner.require(block.startswith("$ "), f"{page.name}: a console block without a command: {block}")
            got = now(block, burstc, folder)
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
    o = options.parse_args()
    failed = 0
    for page in o.page:
        examples, bad = check(page, o.burstc, o.update)
        print(f"{page.name}: {examples} examples, {bad} differ")
        missing = undocumented(page, o.burstc) if page.name == "forms.md" else []
        print("".join(f"{page.name}: no section of --emit={form}\n" for form in missing), end="")
        failed += bad + len(missing)
    return failed > 0


runner.end(main)
