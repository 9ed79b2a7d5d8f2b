#!/usr/bin/env python3
"""run_lists.py SOURCE: what the languages have, the pages, the grammars and the tests name.

Stock masks (dsl/masks.burst), shipped schedules (schedules/), functions of numbers (EXPR_FUNCTIONS) and settings of a
layout (WORD_SETTINGS, COUNT_SETTINGS): one that was added and forgotten elsewhere is named with the file that lacks it.
Files that CONTRIBUTING.md and docs/architecture.md name are there. In every page, names that are said to be in a file are
in it, options and names with an underscore are somewhere in the sources, and what a guide's text quotes with a number,
such as gate_up(73), is in its examples.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

MASKS_ELSEWHERE = {"document_sink": "tests/training/run_data.py", "prefix_tree": "tests/training/run_data.py"} # of more tables than doc
PLACES = ["", "compiler", "compiler/layout", "runtime", "templates"] # that paths in those pages begin at
ELSEWHERE = {"docs/drop-in.md"} # names functions of other projects
FOREIGN = {"--preset", "--follow", "--stat", "--build-arg", "--rm", "--logdir", "--kill-on-bad-exit", # options and names of
           "NCCL_SOCKET_IFNAME", "compute_metrics", "set_attn_implementation"} # git, CMake, Docker, Slurm, TensorBoard, NCCL, transformers
SUFFIX = r"(?:c|h|cu|cuh|py|md|l|y|burst|topo|sched|test|txt)"


class Lists:
    def __init__(self, source):
        self.source, self.faults = source, []

    def text(self, name):
        return (self.source / name).read_text()

    def require(self, holds, fault):
        if not holds:
            self.faults.append(fault)

    def table(self, page, before):
        """The first cell of each row of the first table after that text."""
        rows = re.search(re.escape(before) + r".*?\n\|[^\n]*\n\|[-|]+\n((?:\|[^\n]*\n)+)", self.text(page), re.S)
        return [row.split("|")[1].strip() for row in rows[1].splitlines()]

    def same(self, made, listed, where):
        for name in made:
            self.require(name in listed, f"{where} has no row for `{name}`")
        for name in listed:
            self.require(name in made, f"{where} has a row for `{name}`, which there is not")

    def masks(self):
        made = re.findall(r"^mask ([^=]+?) =", self.text("dsl/masks.burst"), re.M)
        self.same(made, [cell.strip("`") for cell in self.table("docs/language.md", "**Stock masks**")], "docs/language.md, stock masks,")
        for name in (text.split("(")[0] for text in made):
            page = MASKS_ELSEWHERE.get(name, "tests/numerics/stock_masks.h")
            self.require(re.search(rf'"{name}["(]|default {name}\b|: {name}\b', self.text(page)), f"{page} does not test mask `{name}`")
        return made

    def schedules(self):
        made = sorted(path.stem for path in (self.source / "schedules").glob("*.sched"))
        self.same(made, [cell.strip("`") for cell in self.table("docs/schedules.md", "## Shipped schedules")], "docs/schedules.md, shipped schedules,")
        for page in ("tests/numerics/run_matrix.py", "tests/training/run_training.py"):
            for name in made:
                self.require(f'"{name}"' in self.text(page), f"{page} does not test schedule `{name}`")
        return made

    def functions(self):
        rows = re.search(r"#define EXPR_FUNCTIONS\(X\)((?:.*\\\n)*.*)", self.text("compiler/ir/expr.h"))[1]
        made = re.findall(r"X\(\w+, (\w+)\)", rows)
        operators = " ".join(self.table("docs/language.md", "From loosest to tightest"))
        for name in made:
            self.require(f"`{name}(" in operators, f"docs/language.md, operators of masks, has no `{name}(a, b, ...)`")
            for page in ("editors/vim/syntax/burst.vim", "editors/vscode/syntaxes/burst.tmLanguage.json", "tests/dsl/test_random.c",
                         "tests/dsl/test_masks.c"):
                self.require(re.search(rf"\b{name}\b", self.text(page)), f"{page} does not have `{name}`")
        return made

    def settings(self):
        text, made = self.text("compiler/ir/layout.h"), {}
        for table in ("WORD_SETTINGS", "COUNT_SETTINGS"):
            rows = re.search(rf"#define {table}\(X\) \\\n((?:.*\\\n)*.*)", text)[1]
            for name, otherwise, rest in re.findall(r'X\(\w+, "([\w ]+)", (\w+), ([^\n]*?)\)(?: /\*| \\|$)', rows, re.M):
                made[name] = re.findall(r'"(\w+)"', rest) + ["auto"] * (otherwise != "FIXED")
        page = self.text("docs/language.md")
        for name, words in made.items():
            row = re.search(rf"^\| `{name}` \|([^\n]*)", page, re.M)
            self.require(row, f"docs/language.md, layout, has no row for `{name}`")
            for word in words if row else []:
                self.require(f"`{word}`" in row[1], f"docs/language.md, layout, `{name}`: no `{word}`")
        return list(made)

    def files(self):
        """Paths that the pages for contributors name; NAME, ... and * stand for any."""
        named = []
        for page in ("CONTRIBUTING.md", "docs/architecture.md"):
            for path in re.findall(rf"(?<![\w/.~$])([A-Za-z_][\w.-]*(?:/[\w.*-]+)+\.{SUFFIX})\b", self.text(page)):
                path = re.sub(r"\b[A-Z_]{4,}\b", "*", path)
                found = any(any((self.source / place).glob(path)) for place in PLACES)
                self.require(found, f"{page} names {path}, which is not there")
                named.append(path)
        return named


    def prose(self, page):
        """Without blocks of code."""
        text = re.sub(r"^```.*?^```$", "", self.text(page), flags=re.M | re.S)
        return re.sub(r"^(?:    |RUN).*$", "", text, flags=re.M)

    def pages(self):
        found = sorted(path for path in self.source.glob("docs/**/*.md"))
        return ["README.md", "CONTRIBUTING.md", "SECURITY.md"] + [str(path.relative_to(self.source)) for path in found]

    def pointers(self):
        """`NAME` in `PATH`: whether the file has the name."""
        made = []
        for page in self.pages():
            for name, path in re.findall(rf"`([A-Za-z_]\w*)`\s*(?:in|of|\()\s*`([\w./-]+/[\w.-]+\.{SUFFIX})`", self.prose(page)):
                files = [self.source / place / path for place in PLACES if (self.source / place / path).is_file()]
                self.require(files and re.search(rf"\b{name}\b", files[0].read_text()), f"{page}: `{name}` is not in {path}")
                made.append(name)
        return made

    def names(self):
        """Options and names with an underscore."""
        tracked = subprocess.run(["git", "-C", self.source, "ls-files"], capture_output=True, text=True).stdout.split("\n")[:-1]
        files = [self.source / name for name in tracked] if tracked else [path for path in self.source.rglob("*")
                                                                          if "build" not in path.parts and ".git" not in path.parts]
        for path in files: # names on PyPI that are not this project's
            if path.suffix in (".md", ".py", ".c", ".toml") and path.is_file() and path.name != "run_lists.py":
                found = re.search(r"pip install ['\"`]?burstc?(?![\w/-])", path.read_text(errors="replace"))
                self.require(not found, f"{path.relative_to(self.source)} installs another project from PyPI")
        text = "\n".join(path.read_text(errors="replace") for path in files if path.suffix != ".md" and path.is_file())
        known = set(re.findall(r"\w+|(?<![\w-])--[a-z][\w-]*", text)) | {path.stem for path in files} | FOREIGN
        made = []
        for page in self.pages():
            options = re.findall(r"(?<![\w-])--[a-z][\w-]*", self.text(page))
            quoted = [] if page in ELSEWHERE else re.findall(r"`([^`\n]+)`", self.prose(page))
            words = [word for code in quoted for word in re.findall(r"(?<!-)\b[A-Za-z]\w*_\w*[A-Za-z0-9]\b", code)]
            for name in dict.fromkeys(options + words):
                self.require(name in known, f"{page} names {name}, which the sources do not have")
                made.append(name)
        return made

    def examples(self):
        """What a guide quotes with a number in brackets."""
        made = []
        for page in (page for page in self.pages() if "/guides/" in page):
            blocks = "\n".join(re.findall(r"^```.*?^```$", self.text(page), re.M | re.S))
            for code in re.findall(r"`(\w+\([\w., ]*\d[\w., ]*\))`", self.prose(page)):
                self.require(code in blocks, f"{page}: `{code}` is in no example of the page")
                made.append(code)
        return made


def main():
    lists = Lists(pathlib.Path(*runner.words(__doc__, "source")))
    counts = {part: len(getattr(lists, part)()) for part in ("masks", "schedules", "functions", "settings", "files", "pointers", "names", "examples")}
    enough = dict(masks=15, schedules=10, functions=3, settings=5, files=20, pointers=5, names=200, examples=1) # else the files are no longer read
    faults = lists.faults + [f"only {n} {part} were found" for part, n in counts.items() if n < enough[part]]
    print(*faults, ", ".join(f"{n} {part}" for part, n in counts.items()), sep="\n")
    return bool(faults)


sys.exit(main())
