"""Prints random_masks.h: X(id, text in the model file, reads documents, the same predicate in C), from a fixed seed.

    python3 random_masks.py --count 50 --seed 1 > random_masks.h

Expressions are drawn as trees and printed twice: for the model file with as few parentheses as the usual precedences
need, for C with every operation as a call or in parentheses. Trees that keep less than 4 % or more than 96 % of the
pairs of a short sequence are thrown away, but for a few, and so are those that combine a value with itself.
"""
import argparse
import random

PRECEDENCE = {"or": 1, "and": 2, "not": 3, "compare": 4, "+": 5, "-": 5, "*": 6, "/": 6, "mod": 6, "leaf": 7}
COMPARE = ["<", "<=", ">", ">=", "==", "!="]
SAMPLE = 40  # tokens of the short sequence
TRIVIAL_ALLOWED = 3


def leaf(rng):
    if rng.random() < 0.65:
        return (rng.choice("qk"),)
    return ("doc", rng.choice("qk")) if rng.random() < 0.12 else ("number", rng.randint(0, 40))


def two_sides(rng, op, depth, other_depth):
    """Both sides differ, so that nothing is trivially q - q or k == k."""
    a = b = integer(rng, depth)
    while a == b:
        b = integer(rng, other_depth)
    return (op, a, b)


def integer(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        return leaf(rng)
    op = rng.choice(["+", "-", "-", "-", "*", "/", "/", "mod", "mod", "min", "max", "abs", "hash"])
    if op == "abs":
        return (op, two_sides(rng, "-", 0, depth - 1))
    if op == "hash":
        return ("mod", two_sides(rng, op, 1, 0), ("number", rng.randint(2, 9)))
    if op in ("/", "mod"):
        return (op, two_sides(rng, rng.choice("+--"), 0, 0) if rng.random() < 0.4 else leaf(rng),
                ("number", rng.randint(2, 24)))
    return two_sides(rng, op, depth - 1, depth - 1)


def boolean(rng, depth):
    if depth == 0 or rng.random() < 0.25:
        return two_sides(rng, rng.choice(COMPARE), 2, rng.randint(0, 2))
    op = rng.choice(["and", "or", "or", "not"])
    if op == "not":
        return (op, boolean(rng, depth - 1))
    return (op, boolean(rng, depth - 1), boolean(rng, depth - 1))


def level(e):
    return PRECEDENCE["compare"] if e[0] in COMPARE else PRECEDENCE.get(e[0], PRECEDENCE["leaf"])


def model_text(e):
    """As the model file has it. Both sides of + - * / mod: the right one needs a higher level."""
    op = e[0]
    if op in ("q", "k"):
        return op
    if op == "number":
        return str(e[1])
    if op == "doc":
        return f"doc[{e[1]}]"
    if op in ("min", "max", "abs", "hash"):
        return f"{op}({', '.join(model_text(x) for x in e[1:])})"
    if op == "not":
        return f"not ({model_text(e[1])})"
    strict = op in ("-", "/", "mod", "*")
    sides = [model_text(x) if level(x) >= level(e) + (i and strict) else f"({model_text(x)})"
             for i, x in enumerate(e[1:])]
    return f"{sides[0]} {op} {sides[1]}"


def c_text(e):
    op, args = e[0], e[1:]
    if op in ("q", "k"):
        return op
    if op == "number":
        return f"INT64_C({args[0]})"
    if op == "doc":
        return f"(int64_t)doc[{args[0]}]"
    if op == "not":
        return f"!{c_text(args[0])}"
    calls = {"/": "floor_quotient", "mod": "floor_rest", "min": "least", "max": "greatest", "abs": "magnitude",
             "hash": "murmur"}
    if op in calls:
        return f"{calls[op]}({', '.join(c_text(x) for x in args)})"
    return f"({c_text(args[0])} { {'and': '&&', 'or': '||'}.get(op, op)} {c_text(args[1])})"


def python_text(e):
    op, args = e[0], [python_text(x) if isinstance(x, tuple) else x for x in e[1:]]
    if op in ("q", "k"):
        return op
    if op == "number":
        return str(args[0])
    if op == "doc":
        return f"({args[0]} // 7)"
    if op in ("min", "max", "abs", "hash"):
        return f"{op}({', '.join(args)})"
    if op == "not":
        return f"(not {args[0]})"
    return f"({args[0]} { {'/': '//', 'mod': '%'}.get(op, op)} {args[1]})"


def reach(e):
    """The greatest magnitude of the value or any sub-value: the language allows 2^62 on the sequence."""
    op, args = e[0], [reach(x) for x in e[1:] if isinstance(x, tuple)]
    leaves = {"q": 512, "k": 512, "doc": 2**31}
    if op in leaves or op == "number":
        return leaves.get(op) or e[1]
    within = {"+": sum, "-": sum, "*": lambda a: a[0] * a[1]}.get(op, max)(args)
    return max(within, *args)


def density(e):
    keep = eval(f"lambda q, k: {python_text(e)}", {"hash": lambda a, b: (a * 40503 + b * 30011) % 1009})  # some hash
    return sum(bool(keep(q, k)) for q in range(SAMPLE) for k in range(SAMPLE)) / SAMPLE**2


def reads_documents(e):
    return e[0] == "doc" or any(isinstance(x, tuple) and reads_documents(x) for x in e[1:])


def draw(rng, count):
    found, texts, trivial = [], set(), 0
    while len(found) < count:
        e = boolean(rng, rng.randint(0, 3))
        is_trivial = not 0.04 <= density(e) <= 0.96
        if reach(e) > 2**62 or model_text(e) in texts or (is_trivial and trivial == TRIVIAL_ALLOWED):
            continue
        trivial += is_trivial
        texts.add(model_text(e))
        found.append(e)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("/* made by random_masks.py */\n#define RANDOM_MASKS(X) \\")
    rows = [f'    X(random{i}, "{model_text(e)}", {str(reads_documents(e)).lower()}, {c_text(e)})'
            for i, e in enumerate(draw(random.Random(args.seed), args.count))]
    print(" \\\n".join(rows))


if __name__ == "__main__":
    main()
