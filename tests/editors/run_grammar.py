"""The grammars of editors/ on every example, stock file and schedule: each character has a scope, and the right one.

What is right is said by a lexer of its own, a dozen lines below; where vim is installed, its file is tried too.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]
PLAIN = [("comment", r"#.*"), ("string", r'"[^"]*"'), ("number", r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), ("word", r"[A-Za-z_]\w*"),
         ("space", r"\s+"), ("other", r".")]
TOKEN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in PLAIN))


def scopes(grammar, line):
    """TextMate's rule for flat grammars: the match that begins first, of those the first pattern's."""
    out, at = [""] * len(line), 0
    patterns = [(re.compile(p["match"]), p) for p in grammar["patterns"]]
    while at < len(line):
        found = [(m.start(), i, m) for i, (regex, p) in enumerate(patterns) if (m := regex.search(line, at)) and m.end() > at]
        if not found:
            break
        _, i, m = min(found)
        p = patterns[i][1]
        for c in range(m.start(), m.end()):
            out[c] = p.get("name", "punctuation")
        for group, value in p.get("captures", {}).items():
            for c in range(*m.span(int(group))):
                out[c] = value["name"]
        at = m.end()
    return out


def wrong(grammar, text):
    """Lines, columns and words whose scope is another than the lexer's; the word that begins a statement is a keyword."""
    begins = True
    for number, line in enumerate(text.split("\n"), 1):
        given = scopes(grammar, line)
        for token in TOKEN.finditer(line):
            kind, scope = token.lastgroup, given[token.start()]
            expected = {"comment": "comment", "string": "string", "number": "constant.numeric"}.get(kind, "")
            if kind == "word" and begins and token[0] not in ("and", "or", "not"):
                expected = "keyword.control"
            if kind != "space" and (not scope or not scope.startswith(expected)):
                yield f"{number}:{token.start() + 1}: '{token[0]}' is {scope or 'nothing'}, not {expected or 'something'}"
            if kind not in ("space", "comment"):
                begins = token[0] in ";{}"


def vim_words(path, line, column):
    """The name of vim's group there."""
    script = f"echo synIDattr(synID({line},{column},1),'name')"
    done = subprocess.run(["vim", "-e", "-s", "-u", "NONE", "-c", f"set rtp^={root}/editors/vim", "-c", "filetype on", "-c", "syntax on",
                           "-c", f"edit {path}", "-c", "redir! > /dev/stdout", "-c", script, "-c", "qa!"], capture_output=True, text=True)
    return done.stdout.strip()


def main():
    runner.words(__doc__)
    grammar = json.loads((root / "editors/vscode/syntaxes/burst.tmLanguage.json").read_text())
    package = json.loads((root / "editors/vscode/package.json").read_text())
    files = [*root.glob("examples/*.*"), *root.glob("schedules/*.sched"), *root.glob("dsl/*.burst"), *root.glob("dsl/*.topo")]
    files = [f for f in files if f.suffix in package["contributes"]["languages"][0]["extensions"]]
    failed = [f"{f.relative_to(root)}:{w}" for f in files for w in wrong(grammar, f.read_text())]
    if len(files) < 20:
        failed.append(f"only {len(files)} files were found")
    if not list(wrong(grammar, 'model "open { 3; }')):
        failed.append("an open string is no fault: this test sees nothing")
    if shutil.which("vim"):
        tiny = root / "examples/tiny.burst"
        for line, column, group in [(1, 1, "Statement"), (1, 9, "String"), (3, 3, "Comment"), (5, 3, "Statement"), (5, 10, "Number")]:
            if vim_words(tiny, line, column) != f"burst{group}":
                failed.append(f"vim: {line}:{column} is '{vim_words(tiny, line, column)}', not burst{group}")
    print(*failed[:40], sep="\n")
    print(f"{len(files)} files, {len(failed)} faults")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
