"""A .sched text read from docs/language.md alone, sharing nothing with burstc: statements as tuples, expressions as functions.

Expressions are (evaluate(names) -> int, names read, text). What the language does not know is Wrong.
"""
import collections
import re

TOKEN = re.compile(r"\s+|#[^\n]*|(\d+|[A-Za-z_]\w*|\.\.|->|<=|>=|==|!=|[-+*/^<>=,;(){}\[\].])")
COPIES, SUMS = ("Q", "KV"), ("O", "dQ", "dKV")
KEYS = ("KV", "dKV")
KNOWN = {"forward": ("Q", "KV", "O"), "backward": ("Q", "KV", "dQ", "dKV")}
WORDS = {"for", "in", "if", "attend", "grad", "with", "pass", "to", "return", "exchange", "gather", "scatter", "and", "or", "not", "mod",
         "over", "of", "schedule", "pieces", "forward", "backward"}

Expr = collections.namedtuple("Expr", "value reads own")  # own: coordinates added once, and not in any other way
Ref = collections.namedtuple("Ref", "tensor index piece")  # index None: none is written; an entry None: *
Schedule = collections.namedtuple("Schedule", "coords sizes pieces directions")  # directions: {"backward keys": statements}


class Wrong(Exception):
    """What a schedule does wrong."""


def expect(condition, why):
    if not condition:
        raise Wrong(why)


def power(base, exponent):
    expect(base == 2 and 0 <= exponent <= 20, "2 ^ k is for k from 0 to 20")
    return base ** exponent


# Each level of binding, the loosest first.
LEVELS = [{"or": lambda a, b: a or b}, {"and": lambda a, b: a and b}, None,
          {"<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
           "==": lambda a, b: a == b, "!=": lambda a, b: a != b},
          {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
          {"*": lambda a, b: a * b, "/": lambda a, b: a // b, "mod": lambda a, b: a % b}]
CALLS = {"min": (2, min), "max": (2, max), "abs": (1, abs)}


class Reader:
    def __init__(self, text):
        self.tokens, at = [], 0
        while at < len(text):
            found = TOKEN.match(text, at)
            expect(found, f"no word: {text[at:at + 10]!r}")
            at = found.end()
            if found.group(1):
                self.tokens.append(found.group(1))
        self.at = 0

    def next(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted=None):
        token = self.next()
        expect(token and (wanted is None or token == wanted), f"expected {wanted!r}, saw {token!r}")
        self.at += 1
        return token

    def took(self, token):
        if self.next() != token:
            return False
        self.at += 1
        return True

    def name(self):
        token = self.take()
        expect(re.match(r"[A-Za-z_]", token) and token not in WORDS, f"{token!r} is no name")
        return token

    def listed(self, item):
        items = [item()]
        while self.took(","):
            items.append(item())
        return items

    # ---- expressions ----

    def expression(self, level=0):
        if level == len(LEVELS):
            return self.signed()
        if level == 2:
            if not self.took("not"):
                return self.expression(3)
            a = self.expression(2)
            return Expr(lambda names: not a.value(names), a.reads, set())
        a, chained = self.expression(level + 1), False
        while self.next() in LEVELS[level]:
            expect(not chained, "comparisons do not chain")
            word = self.take()
            a, chained = self.combined(word, LEVELS[level][word], a, self.expression(level + 1)), level == 3
        return a

    def combined(self, word, apply, a, b):
        own = (a.own - b.reads) | (b.own - a.reads) if word == "+" else a.own - b.reads if word == "-" else set()
        return Expr(lambda names: apply(a.value(names), b.value(names)), a.reads | b.reads, own)

    def signed(self):
        if not self.took("-"):
            return self.raised()
        a = self.signed()
        return Expr(lambda names: -a.value(names), a.reads, set())

    def raised(self):
        a = self.primary()
        return self.combined("^", power, a, self.signed()) if self.took("^") else a

    def primary(self):
        if self.took("("):
            a = self.expression()
            self.take(")")
            return a
        if self.next().isdigit():
            number = int(self.take())
            return Expr(lambda names: number, set(), set())
        name = self.name()
        if not self.took("("):
            return Expr(lambda names: names[name], {name}, {name})
        expect(name in CALLS, f"no function {name}")
        count, apply = CALLS[name]
        args = self.listed(self.expression)
        self.take(")")
        expect(len(args) == count, f"{name} takes {count}")
        return Expr(lambda names: apply(*[a.value(names) for a in args]), set().union(*[a.reads for a in args]), set())

    # ---- statements ----

    def block(self):
        self.take("{")
        statements = []
        while not self.took("}"):
            statements.append(self.statement())
        return statements

    def statement(self):
        word = self.take()
        read = getattr(self, "read_" + word, None) if word in WORDS else None
        expect(read, f"no statement: {word!r}")
        return (word, *read())

    def read_for(self):
        name = self.name()
        self.take("in")
        first = self.expression()
        self.take("..")
        return name, first, self.expression(), self.block()

    def read_if(self):
        return self.expression(), self.block()

    def read_attend(self):
        q = self.ref()
        self.take("with")
        kv = self.ref()
        self.take(";")
        return q, kv

    read_grad = read_attend

    def read_pass(self):
        refs = self.listed(self.ref)
        self.take("to")
        self.take("(")
        to = self.listed(self.expression)
        self.take(")")
        self.take(";")
        return refs, to

    def read_return(self):
        refs = self.listed(self.ref)
        self.take(";")
        return (refs,)

    def read_gather(self):
        refs = self.listed(self.ref)
        over = self.name() if self.took("over") else None
        self.take(";")
        return refs, over

    read_scatter = read_gather

    def read_exchange(self):
        refs, way, over = self.listed(self.ref), None, None
        if self.next() in ("tokens", "heads"):
            way = self.take()
            self.take("->")
            expect({way, self.take()} == {"tokens", "heads"}, "tokens -> heads, or heads -> tokens")
        if self.took("over"):
            over = self.name()
        expect(way or over, "over which coordinate?")
        self.take(";")
        return refs, way, over

    def ref(self):
        tensor, index, piece = self.take(), None, None
        expect(tensor in COPIES + SUMS, f"no tensor {tensor!r}")
        if self.took("["):
            index = self.listed(lambda: None if self.took("*") else self.expression())
            self.take("]")
            piece = self.primary() if self.took(".") else None
        return Ref(tensor, index, piece)

    # ---- the whole ----

    def coordinate(self):
        words = [self.name()]
        while not self.took("of"):
            words.append(self.name())
        return words[-1], self.name()

    def schedule(self):
        self.take("schedule")
        self.take()
        self.take("over")
        self.take("(")
        coords = self.listed(self.coordinate)
        self.take(")")
        pieces = int(self.take()) if self.took("pieces") else 1
        directions = {}
        self.take("{")
        while not self.took("}"):
            self.direction(directions)
        return Schedule([c for c, size in coords], [size for c, size in coords], pieces, directions)

    def direction(self, directions):
        word = self.take()
        if word == "require":
            self.expression()
            self.take(";")
            return
        expect(word in ("forward", "backward"), f"no direction {word!r}")
        only = self.take() if self.next() in ("keys", "queries") else None
        body = self.block()
        for name in [word] if word == "forward" else [f"backward {t}" for t in ("keys", "queries") if only in (None, t)]:
            expect(name not in directions, f"{name} is given twice")
            directions[name] = body


def read_schedule(text):
    reader = Reader(text)
    schedule = reader.schedule()
    expect(not reader.next(), "a file has one schedule")
    return schedule
