"""run_layers.py ROOT: the folders of runtime, dsl and compiler include what stands before them in ORDER, and nothing after.

In quotes or angles, by the name that the compiler looks up or by one relative to the file. What programs are made of
(runtime, templates) includes nothing of dsl and compiler. No header includes itself by way of others; and how many sources
read a header that is often changed, whatever includes it for them. Also that compiler/ itself holds main.c and pipeline.c
alone, and how many files a folder has. The check is tried on text with includes that lead upward: they must be found.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

RUNTIME = ["include", "base", "families", "core", "files", "optimizer", "data", "safetensors", "checkpoint", "report", "timeline", "host/ops",
           "host/net", "host/launch", "cuda", "library", "app"]
ORDER = ["runtime/include", "templates", *(f"runtime/{name}" for name in RUNTIME[1:]), "base", "ir", "dsl", "mask", "shard", "attention", "step", "import", "step/passes", "step/memory", "step/verify", "cost",
         "layout", "proof", "search", "emit", "tools", "."]
LAYER = {"tools/pictures": "tools", "layout/settings": "layout"} # folders that are a part of a layer
# Sources of runtime, dsl and compiler that a change of these headers rebuilds, at most. A mask operator changes the first two,
# a member of a plan the third, attention on the host the fourth.
READERS = {("compiler/ir/expr.h", "runtime/include/burst_mask.h"): 60, ("runtime/include/burst_plan.h",): 145,
           ("runtime/include/burst_attend.h",): 200}
MOST_FILES = {"dsl": 30}
TOPS = ("compiler", "dsl", "runtime", "templates")
BASES = ("compiler", "dsl", "runtime", "runtime/include", "templates") # that names are looked up in
SUFFIXES = {".c", ".h", ".l", ".y", ".cu", ".cuh"}
TOP = {"main.c", "pipeline.c", "CMakeLists.txt"}
root = pathlib.Path(*runner.words(__doc__, "root")).resolve()


def folder_of(path):
    """The layer of a file: its folder in compiler/ or runtime/, or dsl, or templates."""
    top, *rest = path.relative_to(root).parts[:-1]
    if top in ("dsl", "templates"):
        return top
    if top == "runtime": # cuda/ops is a part of cuda, host/ops a layer of its own
        return next((name for name in ("/".join(["runtime", *rest[:n]]) for n in (2, 1)) if name in ORDER), f"runtime/{'/'.join(rest)}")
    folder = "/".join(rest) or "."
    return LAYER.get(folder, folder)


def file_of(header, path):
    """The file that `path` means by it; None: a system's, or generated."""
    for base in (path.parent, *(root / base for base in BASES)):
        found = pathlib.Path(os.path.normpath(base / header))
        if found.is_file() and found.is_relative_to(root) and found.relative_to(root).parts[0] in TOPS:
            return found
    return None


def included(text):
    """Line numbers and headers."""
    for n, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if m:
            yield n, m[1]


def faults_of(path, text):
    faults, folder = [], folder_of(path)
    if folder not in ORDER:
        return [f"{path.relative_to(root)}: {folder} is in no place of ORDER"]
    for n, header in included(text):
        found = file_of(header, path)
        layer = folder_of(found) if found else folder
        if layer not in ORDER or ORDER.index(layer) > ORDER.index(folder):
            faults.append(f"{path.relative_to(root)}:{n}: {folder} includes {header} of {layer}, which stands after it")
    return faults


def reached(path, texts, above=()):
    """All files that one includes, by way of others too; raises ValueError where a header includes itself."""
    if path in above:
        raise ValueError(f"{path.relative_to(root)} includes itself, by way of {above[-1].relative_to(root)}")
    if path not in reached.known:
        direct = {found for _, header in included(texts[path]) if (found := file_of(header, path)) in texts}
        reached.known[path] = direct.union(*(reached(found, texts, (*above, path)) for found in direct))
    return reached.known[path]


reached.known = {}


def header_faults(texts):
    faults, sources = [], [path for path in texts if path.suffix in (".c", ".cu", ".y", ".l")]
    try:
        for headers, most in READERS.items():
            wanted = {root / header for header in headers}
            readers = sum(bool(wanted & reached(path, texts)) for path in sources)
            if readers > most or not all(path in texts for path in wanted):
                faults.append(f"{readers} sources read {' or '.join(headers)}, {most} at most")
        for path in texts:
            reached(path, texts)
    except ValueError as fault:
        faults.append(str(fault))
    return faults


def probe():
    """Includes that must be found, and some that must not."""
    wrong = [("compiler/mask/probe.c", '#include "search/search.h"'), ("compiler/mask/probe.c", '#include "../search/search.h"'),
             ("compiler/mask/probe.c", "# include <search/search.h>"), ("dsl/sched/probe.c", '#include "../../compiler/mask/mask.h"'),
             ("runtime/core/probe.c", '#include "ir/choice.h"'), ("runtime/base/probe.c", '#include "core/context.h"'),
             ("runtime/host/net/probe.c", '#include "host/launch/job.h"'), ("runtime/include/probe.h", '#include "core/context.h"'),
             ("templates/host/probe.h", '#include "dsl.h"'),
             ("compiler/layout/settings/probe.c", '#include "proof/proof.h"')]
    right = [("compiler/search/probe.c", '#include "mask/mask.h"'), ("compiler/emit/probe.c", '#include "internal.h"'),
             ("runtime/cuda/ops/probe.cu", '#include "cuda/gpu.h"'), ("compiler/pipeline.c", '#include "tools/tools.h"'), ("runtime/core/probe.c", "#include <stdlib.h>")]
    return [f"the check itself judges {line} in {name} wrongly" for kind in (wrong, right) for name, line in kind
            if bool(faults_of(root / name, line)) != (kind is wrong)]


def main():
    faults = probe()
    texts = {path: path.read_text() for top in TOPS for path in sorted((root / top).rglob("*")) if path.suffix in SUFFIXES}
    for path, text in texts.items():
        faults += faults_of(path, text)
    faults += header_faults(texts)
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
