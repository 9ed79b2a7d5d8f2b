"""run_layers.py ROOT: the folders of the compiler include what stands before them in ORDER, and nothing after.

Also that compiler/ itself holds main.c and pipeline.c alone, and how many files a folder has. The check is tried on text
with an include that leads upward: it must be found.
"""
import pathlib
import re
import sys

ORDER = ["runtime", "base", "ir", "dsl", "mask", "shard", "attention", "step", "import", "step/passes", "step/memory", "step/verify", "cost",
         "layout", "proof", "search", "emit", "tools", "."]
LAYER = {"tools/pictures": "tools", "layout/settings": "layout", "dsl/sched": "dsl"} # folders that are a part of a layer
MOST_FILES = {"dsl": 30}
TOP = {"main.c", "pipeline.c", "CMakeLists.txt"}
root = pathlib.Path(sys.argv[1])


def layer_of(header):
    """The folder that an included header lies in; None: a system's, or generated."""
    name = pathlib.PurePosixPath(header)
    folder = str(name.parent)
    if (root / "compiler" / name).is_file() and folder != ".":
        return LAYER.get(folder, folder)
    if (root / "dsl" / name).is_file():
        return "dsl"
    if (root / "runtime" / name).is_file() or (root / "runtime/include" / name).is_file():
        return "runtime"
    return None


def faults_of(folder, text, where):
    faults = []
    for n, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        layer = layer_of(m[1]) if m else None
        if layer and ORDER.index(layer) > ORDER.index(folder):
            faults.append(f"{where}:{n}: {folder} includes {m[1]} of {layer}, which stands after it")
    return faults


def main():
    faults = []
    for path in sorted([*(root / "compiler").rglob("*.[ch]"), *(root / "dsl").rglob("*.[chly]")]):
        folder = "dsl" if path.is_relative_to(root / "dsl") else str(path.relative_to(root / "compiler").parent)
        folder = LAYER.get(folder, folder)
        if folder not in ORDER:
            faults.append(f"{path}: {folder} is in no place of ORDER")
            continue
        faults += faults_of(folder, path.read_text(), path.relative_to(root))
    faults += [f"compiler/{path.name}: only {', '.join(sorted(TOP))} may lie in compiler/ itself"
               for path in (root / "compiler").iterdir() if path.is_file() and path.name not in TOP]
    for top in ("compiler", "dsl", "runtime", "templates"):
        for folder in [root / top, *(p for p in (root / top).rglob("*") if p.is_dir())]:
            count = sum(p.is_file() for p in folder.iterdir())
            if count > MOST_FILES.get(top, 20):
                faults.append(f"{folder.relative_to(root)}: {count} files in one folder")
    if not faults_of("mask", '#include "search/search.h"\n', "probe") or faults_of("search", '#include "mask/mask.h"\n', "probe"):
        faults.append("the check itself finds no include that leads upward, or refuses one that leads down")
    print("\n".join(faults) or "every include leads down")
    return bool(faults)


sys.exit(main())
