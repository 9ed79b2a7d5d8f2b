"""run_layers.py ROOT: the folders of the compiler include what stands before them in ORDER, and nothing after.

In quotes or angles, by the name that the compiler looks up or by one relative to the file. What programs are made of
(runtime, templates) includes nothing of dsl and compiler. Also that compiler/ itself holds main.c and pipeline.c alone, and
how many files a folder has. The check is tried on text with includes that lead upward: they must be found.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

ORDER = ["runtime", "base", "ir", "dsl", "mask", "shard", "attention", "step", "import", "step/passes", "step/memory", "step/verify", "cost",
         "layout", "proof", "search", "emit", "tools", "."]
LAYER = {"tools/pictures": "tools", "layout/settings": "layout"} # folders that are a part of a layer
MOST_FILES = {"dsl": 30}
TOPS = ("compiler", "dsl", "runtime", "templates")
BASES = ("compiler", "dsl", "runtime", "runtime/include", "templates") # that names are looked up in
SUFFIXES = {".c", ".h", ".l", ".y", ".cu", ".cuh"}
TOP = {"main.c", "pipeline.c", "CMakeLists.txt"}
root = pathlib.Path(*runner.words(__doc__, "root")).resolve()


def folder_of(path):
    """The layer of a file: its folder in compiler/, or dsl, or runtime for what programs are made of."""
    top, *rest = path.relative_to(root).parts[:-1]
    if top != "compiler":
        return "dsl" if top == "dsl" else "runtime"
    folder = "/".join(rest) or "."
    return LAYER.get(folder, folder)


def layer_of(header, path):
    """Of the file that `path` means by it; None: a system's, or generated."""
    for base in (path.parent, *(root / base for base in BASES)):
        found = pathlib.Path(os.path.normpath(base / header))
        if found.is_file() and found.is_relative_to(root) and found.relative_to(root).parts[0] in TOPS:
            return folder_of(found)
    return None


def faults_of(path, text):
    faults, folder = [], folder_of(path)
    if folder not in ORDER:
        return [f"{path.relative_to(root)}: {folder} is in no place of ORDER"]
    for n, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        layer = layer_of(m[1], path) if m else None
        if layer and ORDER.index(layer) > ORDER.index(folder):
            faults.append(f"{path.relative_to(root)}:{n}: {folder} includes {m[1]} of {layer}, which stands after it")
    return faults


def probe():
    """Includes that must be found, and some that must not."""
    wrong = [("compiler/mask/probe.c", '#include "search/search.h"'), ("compiler/mask/probe.c", '#include "../search/search.h"'),
             ("compiler/mask/probe.c", "# include <search/search.h>"), ("dsl/sched/probe.c", '#include "../../compiler/mask/mask.h"'),
             ("runtime/core/probe.c", '#include "ir/choice.h"'), ("templates/host/probe.h", '#include "dsl.h"'),
             ("compiler/layout/settings/probe.c", '#include "proof/proof.h"')]
    right = [("compiler/search/probe.c", '#include "mask/mask.h"'), ("compiler/emit/probe.c", '#include "internal.h"'),
             ("compiler/pipeline.c", '#include "tools/tools.h"'), ("runtime/core/probe.c", "#include <stdlib.h>")]
    return [f"the check itself judges {line} in {name} wrongly" for kind in (wrong, right) for name, line in kind
            if bool(faults_of(root / name, line)) != (kind is wrong)]


def main():
    faults = probe()
    for top in TOPS:
        for path in sorted(p for p in (root / top).rglob("*") if p.suffix in SUFFIXES):
            faults += faults_of(path, path.read_text())
    faults += [f"compiler/{path.name}: only {', '.join(sorted(TOP))} may lie in compiler/ itself"
               for path in (root / "compiler").iterdir() if path.is_file() and path.name not in TOP]
    for top in TOPS:
        for folder in [root / top, *(p for p in (root / top).rglob("*") if p.is_dir())]:
            count = sum(p.is_file() for p in folder.iterdir())
            if count > MOST_FILES.get(top, 20):
                faults.append(f"{folder.relative_to(root)}: {count} files in one folder")
    print("\n".join(faults) or "every include leads down")
    return bool(faults)


sys.exit(main())
