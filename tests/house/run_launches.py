"""How many kernels each operation of the step launches on a GPU, counted in the runtime's sources, is what its row says.

    python3 run_launches.py SOURCE_DIR [--print]

The count of a function is the most of its branches; a loop counts once. A call of a library (cublasLt, cub) is one launch, and so are a
memset and a copy on the device. Calls of emitted functions (plan_...) are not counted.
"""
import argparse
import functools
import math
import pathlib
import re
import sys

TOKEN = re.compile(r"<<<|>>>|[A-Za-z_]\w*|\d[\w.]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\S")
LAUNCHES = {"<<<", "gpu_launch", "cublasLtMatmul", "cudaMemsetAsync", "cudaMemcpyAsync", "cudaLaunchKernelEx", "cudaLaunchKernelExC", "SortPairs"}
NEVER = -math.inf
CLOSING = {"(": ")", "{": "}", "[": "]"}


def close(tokens, at):
    """The index behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i] in CLOSING) - (tokens[i] in CLOSING.values())
        if depth == 0:
            return i + 1
    raise ValueError(" ".join(tokens[at:at + 20]))


def definitions(folder):
    """Bodies of functions that run on the host: {name: [(path, tokens)]}."""
    bodies = {}
    for path in sorted(folder.rglob("*.cu*")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(), flags=re.S)
        tokens = TOKEN.findall(re.sub(r"(?m)^\s*#(?:.*\\\n)*.*$", " ", text))
        i = begin = 0
        while i < len(tokens):
            if tokens[i] in (";", "}"):
                begin = i + 1
            if tokens[i] != "{":
                i = close(tokens, i) if tokens[i] == "(" else i + 1
                continue
            end, head = close(tokens, i), tokens[begin:i]
            if head and head[-1] == ")" and "__global__" not in head and "__device__" not in head:
                name = head[next(k for k in range(len(head)) if head[k] == "(" and close(head, k) == len(head)) - 1]
                bodies.setdefault(name, []).append((path, tokens[i + 1:end - 1]))
            inside = head[:1] in (["namespace"], ["extern"], ["struct"], ["template"]) and (not head or head[-1] != ")")
            i = begin = i + 1 if inside else end
    return bodies


class Counter:
    def __init__(self, folder):
        self.bodies, self.path = definitions(folder), None

    @functools.lru_cache(None)
    def of(self, name, path=None):
        """As a file calls it: its own function of the name, or a header's, or another file's."""
        found = self.bodies.get(name, [])
        for choice in (lambda p: p == path, lambda p: p.suffix == ".cuh", lambda p: True):
            bodies = [(p, body) for p, body in found if choice(p)]
            if bodies:
                return max(self.counted(*b) for b in bodies)
        return 0

    def counted(self, path, body):
        before, self.path = self.path, path
        count = max(self.block(body))
        self.path = before
        return count

    def expression(self, tokens):
        depth, parts, question = 0, [], None
        for i, t in enumerate(tokens):
            depth += (t in CLOSING) - (t in CLOSING.values())
            if depth == 0 and t == "?" and question is None:
                question = i
            if depth == 0 and t == ":" and question is not None:
                parts = [tokens[:question], tokens[question + 1:i], tokens[i + 1:]]
                return self.expression(parts[0]) + max(map(self.expression, parts[1:]))
        count, i = 0, 0
        while i < len(tokens):
            t = tokens[i]
            if t in LAUNCHES:
                count += 1
            elif t == "SCAN_CALL":
                count += self.of(tokens[tokens.index(",", i) + 1], self.path)
            elif self.called(tokens, i):
                count += self.of(t, self.path)
            if t in CLOSING:
                end = close(tokens, i)
                count += self.expression(tokens[i + 1:end - 1])
                i = end - 1
            i += 1
        return count

    def called(self, tokens, i):
        """With template arguments or without."""
        if tokens[i] not in self.bodies:
            return False
        return re.match(r"\w+ (?:< [\w ,:+*]* > )?\( ", " ".join(tokens[i:i + 16]) + " ") is not None

    def statement(self, tokens, i):
        """The most launches of paths that go on behind it, and of paths that return (NEVER: there are none); where it ends."""
        t = tokens[i]
        if t == "{":
            end = close(tokens, i)
            return *self.block(tokens[i + 1:end - 1]), end
        if t in ("if", "for", "while", "switch"):
            begin = i + 1 + (tokens[i + 1] == "constexpr")
            end = close(tokens, begin)
            head = self.expression(tokens[begin:end])
            if t == "switch":
                last = close(tokens, end)
                paths, end = self.cases(tokens[end + 1:last - 1]), last
            else:
                *body, end = self.statement(tokens, end)
                other = [0, NEVER]  # what is not entered
                if t == "if" and tokens[end:end + 1] == ["else"]:
                    *other, end = self.statement(tokens, end + 1)
                paths = [max(a, b) for a, b in zip(body, other)]
            return head + paths[0], head + paths[1], end
        end = i
        while tokens[end] != ";":
            end = close(tokens, end) if tokens[end] in CLOSING else end + 1
        count = self.expression(tokens[i:end])
        return *((NEVER, count) if t == "return" else (count, NEVER)), end + 1

    def block(self, tokens):
        goes_on, returns, i = 0, NEVER, 0
        while i < len(tokens):
            behind, back, i = self.statement(tokens, i)
            goes_on, returns = goes_on + behind, max(returns, goes_on + back)
        return goes_on, returns

    def cases(self, tokens):
        parts = re.split(r"(?:case [^:]*|default) :", " ".join(tokens))
        paths = [self.block([t for t in p.split(" ") if t and t != "break"]) for p in parts if p.strip(" ;")]
        return [max(path[k] for path in paths) for k in (0, 1)]


def rows(source):
    """{name: (functions, launches)} of step/operations.def."""
    text = re.sub(r"/\*.*?\*/", " ", (source / "compiler/step/operations.def").read_text(), flags=re.S)
    of = {}
    for row in re.split(r"\nOPERATION\(", text)[1:]:
        said = re.search(r"\.launches = (\d+)", row)
        of[re.search(r'"(\w+)"', row)[1]] = (re.findall(r'"(burst_op_\w+)\(', row) if "COMPUTE" in row and "WORK_NONE" not in row else [], int(said[1]) if said else 1)
    return of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, metavar="SOURCE_DIR")
    parser.add_argument("--print", action="store_true", help="print each operation's count")
    args = parser.parse_args()
    source = args.source
    counter, wrong, counted = Counter(source / "runtime/cuda"), 0, 0
    for name, (functions, said) in rows(source).items():
        if not functions:
            continue
        found = max(counter.of(f) for f in functions)
        counted += 1
        if args.print:
            print(name, found, {f: counter.of(f) for f in functions})
        if found != said:
            print(f"compiler/step/operations.def: {name} launches {found} kernels ({', '.join(functions)}), and its row says {said}")
            wrong += 1
    print(f"{counted} operations, {wrong} of which launch another number than their rows say")
    return wrong > 0 or counted < 50


if __name__ == "__main__":
    sys.exit(main())
