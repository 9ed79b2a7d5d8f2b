"""run_style.py ROOT: no conditional operator inside another's operand, no line over 110 columns, no file that opens with
another file's name, and no text of a test's own in the root.

A conditional counts as nested where it is a part of another's operand by itself or in brackets; as an argument of a
call, an index or an initializer inside of one it does not. Generated files are left out.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

WIDTH = 110
TOPS = ("compiler", "dsl", "runtime", "templates", "tests")
GENERATED = "/* Made by "
SUFFIXES = {".c", ".h", ".cc", ".cu", ".cuh", ".l", ".y"}
WRITTEN = {".burst", ".topo", ".sched", "probe_sys"} # what tests write where they run
WIDTH_ALONE = {".l", ".y"} # their `?` are no operators
KEYWORDS = {"return", "case", "else", "do"} # an opening bracket after one of these groups; after a name it calls
OPENING = re.compile(r"/\* ([\w/]+\.(?:c|h|cc|cu|cuh|l|y)): ") # the name that a file opens with
TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|\\\n)
  | (?P<text>(?:u8|[uUL])?R?"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<line>\n[ \t]*\#)
  | (?P<name>[A-Za-z_]\w*|\.?\d(?:[eEpP][-+]|'(?=\w)|[\w.])*)
  | (?P<mark>::|.)
""", re.S | re.X)


def tokens_of(text):
    """(text, line) of each token but comments; a preprocessor's line ends what is before it and itself."""
    found, line, at = [], 1, 0
    text = "\n" + text.replace("\\\n", " \\\n")
    directive = False
    while at < len(text):
        m = re.compile(r"\n[ \t]*#").match(text, at) or TOKEN.match(text, at)
        token = m[0]
        if token.startswith("\n") and (directive or token.endswith("#")):
            found.append((";", line))
            directive = token.endswith("#")
            token = m[0] if directive else "\n"
        elif m.re is TOKEN and m.lastgroup in ("name", "mark", "text"):
            found.append((token, line))
        elif m.re is TOKEN and directive and token.isspace() and "\n" in token:
            token = token[:token.index("\n")] or "\n"
        line += token.count("\n")
        at += len(token)
    return [(t, n - 1) for t, n in found]


class Group:
    """What is between two brackets, up to a comma or the like: its conditionals, and those in brackets that group."""

    def __init__(self, groups):
        self.groups, self.lines, self.inner = groups, [], []

    def ends(self):
        """The lines of nested ones; what is left for the group around it: the first conditional, if any."""
        nested = self.lines[1:] + self.inner if self.lines else []
        first = self.lines[:1] or self.inner
        self.lines, self.inner = [], []
        return nested, first


def nested_in(text):
    stack, faults, before = [Group(False)], [], ""
    for token, line in tokens_of(text):
        if token in ("(", "[", "{"):
            groups = token == "(" and (not re.match(r"\w|\)|\]", before) or before in KEYWORDS)
            stack.append(Group(groups))
        elif token in (")", "]", "}") and len(stack) > 1:
            group = stack.pop()
            nested, first = group.ends()
            faults += nested
            if group.groups:
                stack[-1].inner += first
            if token == "}": # a block, or an initializer of something that goes on
                nested, first = stack[-1].ends() if not stack[-1].lines else ([], [])
                faults += nested
        elif token in (",", ";"):
            faults += stack[-1].ends()[0]
        elif token == "?":
            stack[-1].lines.append(line)
        before = token
    return sorted(faults)


def files(root):
    for top in TOPS:
        found = sorted(p for p in (root / top).rglob("*") if p.suffix in SUFFIXES and p.is_file())
        if not found:
            sys.exit(f"{root / top} has no sources")
        yield from found


def misnamed(text, path):
    """The other file's name that a text opens with."""
    opening = OPENING.match(text)
    return opening[1] if opening and not f"/{path}".endswith(f"/{opening[1]}") else None


def probe():
    """What must be found, and what must not."""
    wrong = ["x = a ? b : c ? d : e;", "x = a ? b ? c : d : e;", "x = a ? (b ? c : d) : e;", "return (a ? b : c) ? d : e;",
             "x = a ? 1 + ((b ? c : d)) : e;", "#define X(a) \\\n    (a ? b : c ? d : e)\n"]
    right = ["x = a ? b : c; y = a ? b : c;", "f(a ? b : c, d ? e : f);", "x = a ? f(b ? c : d) : e;", "x = (a ? b : c) + (d ? e : f);",
             "if ((a ? b : c) == 1)\n    x = d ? e : f;", "x = a ? \"b ? c\" : '?'; /* a ? b ? */", "x = a ? b[c ? d : e] : f;",
             "#define X(a) (a ? b : c)\n#define Y(a) (a ? b : c)\n", "case A: return a ? b : c;\ncase B: return a ? b : c;",
             "for (i = a ? b : c; i < (a ? b : c); i++)\n    x = a ? b : c;"]
    names = {"/* b.c: of b */": True, "/* a/c.c: of a */": True, "/* c.c: of c */": False, "/* b/c.c: of b */": False, "/* of c */": False}
    return [f"the check itself judges {text!r} wrongly" for kind in (wrong, right) for text in kind
            if bool(nested_in(text)) != (kind is wrong)] + \
           [f"the check itself judges {text!r} wrongly" for text, wrong in names.items() if bool(misnamed(text, "b/c.c")) != wrong]


def main():
    root = pathlib.Path(*runner.words(__doc__, "root"))
    faults = probe() + [f"{path.name}:1: a test wrote this; remove it" for path in sorted(root.iterdir()) if path.suffix in WRITTEN or path.name in WRITTEN]
    for path in files(root):
        text = path.read_text()
        if text.startswith(GENERATED):
            continue
        where = path.relative_to(root)
        if misnamed(text, where):
            faults.append(f"{where}:1: opens with the name {misnamed(text, where)}")
        if path.suffix not in WIDTH_ALONE:
            faults += [f"{where}:{n}: a conditional operator inside another's operand" for n in nested_in(text)]
        faults += [f"{where}:{n}: {len(line)} columns, and {WIDTH} is the most"
                   for n, line in enumerate(text.splitlines(), 1) if len(line) > WIDTH]
    print("\n".join(faults) or "no nested conditionals, no long lines, no file with another's name and none of a test in the root")
    return bool(faults)


sys.exit(main())
