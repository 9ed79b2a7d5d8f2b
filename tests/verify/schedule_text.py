"""A .sched text read from docs/language.md alone, sharing nothing with burstc: statements as tuples, expressions as functions.
`use` and `mirrors` are replaced by the statements that they stand for.

Expressions are (evaluate(names) -> int, names read, text). What the language does not know is Wrong.
"""
import collections
import re

TOKEN = re.compile(r"\s+|#[^\n]*|(\d+|[A-Za-z_]\w*|\.\.|->|<=|>=|==|!=|[-+*/^<>=,;(){}\[\].])")
COPIES, SUMS = ("Q", "KV"), ("O", "dQ", "dKV")
KEYS = ("KV", "dKV")
KNOWN = {"forward": ("Q", "KV", "O"), "backward": ("Q", "KV", "dQ", "dKV")}
WORDS = {"use", "for", "in", "if", "attend", "grad", "with", "pass", "to", "return", "exchange", "gather", "scatter", "and", "or", "not", "mod",
         "over", "of", "schedule", "pieces", "forward", "backward"}

Expr = collections.namedtuple("Expr", "value reads own")  # own: coordinates added once, and not in any other way
Ref = collections.namedtuple("Ref", "tensor index piece")  # index None: none is written; an entry None: *
Schedule = collections.namedtuple("Schedule", "name coords sizes pieces directions")  # directions: {"backward keys": statements}


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

    def read_use(self):
        schedule, bases = self.take(), []
        self.take("over")
        self.take("(")
        over = self.listed(lambda: (self.name(), self.name() if self.took("of") else None))
        self.take(")")
        if self.took("with"):
            bases = self.listed(self.ref)
        self.take(";")
        return schedule, over, bases

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
        name = self.take()
        self.take("over")
        self.take("(")
        coords = self.listed(self.coordinate)
        self.take(")")
        pieces = int(self.take()) if self.took("pieces") else 1
        directions, mirrors = {}, []
        self.take("{")
        while not self.took("}"):
            self.direction(directions, mirrors)
        return Schedule(name, [c for c, size in coords], [size for c, size in coords], pieces, directions), mirrors

    def direction(self, directions, mirrors):
        word = self.take()
        if word == "require":
            self.expression()
            self.take(";")
            return
        expect(word in ("forward", "backward"), f"no direction {word!r}")
        only = self.take() if self.next() in ("keys", "queries") else None
        if self.took("mirrors"):
            expect((only is None) == (word == "forward"), "which direction mirrors?")
            mirrors.append((f"{word} {only}" if only else word, f"backward {self.take()}"))
            self.take(";")
            return
        body = self.block()
        for name in [word] if word == "forward" else [f"backward {t}" for t in ("keys", "queries") if only in (None, t)]:
            expect(name not in directions, f"{name} is given twice")
            directions[name] = body


# ---- what stands for other statements: `use` and `mirrors` ----

MIRRORS = {"backward": {"Q": "KV", "KV": "Q", "dQ": "dKV", "dKV": "dQ"}, "forward": {"Q": "Q", "KV": "KV", "dQ": "O", "dKV": None}}


def mirrored(statements, names):
    """The same with other tensors; without those that have none."""
    result = []
    for word, *rest in statements:
        if word in ("for", "if"):
            body = mirrored(rest[-1], names)
            result += [(word, *rest[:-1], body)] if body else []
        elif word in ("attend", "grad"):
            expect((rest[0].tensor, rest[1].tensor) == ("Q", "KV"), "Q with KV")
            q, kv = (ref._replace(tensor=names[ref.tensor]) for ref in rest)
            result.append(("grad", kv, q) if names["Q"] == "KV" else ("attend", q, kv))
        else:
            expect(all(ref.tensor in KNOWN["backward"] for ref in rest[0]), "no such tensor in backward")
            refs = [ref._replace(tensor=names[ref.tensor]) for ref in rest[0] if names.get(ref.tensor)]
            result += [(word, refs, *rest[1:])] if refs else []
    return result


class Renamed:
    """The values of names of a schedule that is used, from those of the one that uses it."""

    def __init__(self, names, to):
        self.names, self.to = names, to

    def __getitem__(self, name):
        return 0 if self.to[name] is None else self.names[self.to[name]]


class User:
    """Writes statements of one direction of another schedule as statements here."""

    def __init__(self, here, there, over, bases, heads):
        self.here, self.there = here, there
        self.axes = [here.coords.index(name) for name in over]
        own = [None if name == heads else Expr(lambda names: 0, {name}, {name}) for name in here.coords]
        self.base = {"Q": own, "KV": own, **{ref.tensor: ref.index for ref in bases}}
        self.own = own
        self.to = {**{name: None for name in there.coords}, **{n: here.sizes[i] for n, i in zip(there.sizes, self.axes)}}

    def expression(self, e):
        if e is None:
            return None
        to = dict(self.to)
        return Expr(lambda names: e.value(Renamed(names, to)), {to[n] for n in e.reads if to[n] is not None}, set())

    def place(self, index, base):
        full = list(base)
        for e, axis in zip(index if index is not None else [None] * len(self.axes), self.axes):
            full[axis] = self.moved(base[axis], self.expression(e))
        return full

    @staticmethod
    def moved(base, e):
        return base if e is None else Expr(lambda names: base.value(names) + e.value(names), base.reads | e.reads, base.own)

    def ref(self, ref):
        return Ref(ref.tensor, self.place(ref.index, self.base["KV" if ref.tensor in KEYS else "Q"]), self.expression(ref.piece))

    def statements(self, body):
        return [self.statement(*s) for s in body if s[0] != "return"]

    def statement(self, word, *rest):
        if word == "for":
            name, first, last, body = rest
            first, last = self.expression(first), self.expression(last)
            self.to[name] = f"{name}'{id(body)}"
            return "for", self.to[name], first, last, self.statements(body)
        if word == "if":
            return "if", self.expression(rest[0]), self.statements(rest[1])
        if word in ("attend", "grad"):
            return word, self.ref(rest[0]), self.ref(rest[1])
        refs = [self.ref(r) for r in rest[0]]
        if word == "pass":
            return word, refs, self.place(rest[1], [e or Expr(lambda names: 0, {c}, {c}) for e, c in zip(self.own, self.here.coords)])
        over = self.there.coords.index(rest[1]) if rest[1] else 0
        return word, refs, self.here.coords[self.axes[over]]


def used(here, direction, heads, library, name, over, bases):
    expect(name in library, f"no schedule {name!r}")
    there = library[name]
    bodies = [there.directions.get(d) for d in direction]
    expect(bodies[0] is not None and all(body is bodies[0] for body in bodies), f"no such direction of {name}")
    expect(all(s[0] != "exchange" for s in bodies[0]), f"{name} exchanges")
    expect(there.pieces in (1, here.pieces), f"pieces of {name}")
    names = [c for c, size in over]
    expect(len(names) == len(there.coords) == len(set(names)) and set(names) <= set(here.coords), f"coordinates of {name}")
    expect(all(size in (None, here.sizes[here.coords.index(c)]) for c, size in over), "another size")
    expect(heads not in names, "over what is exchanged")
    expect(len({ref.tensor for ref in bases}) == len(bases), "twice")
    for ref in bases:
        expect(ref.tensor in COPIES and ref.index is not None and ref.piece is None and len(ref.index) == len(here.coords), "Q[...] and KV[...]")
        expect(all((e is None) == (c == heads) for e, c in zip(ref.index, here.coords)), "* for what is exchanged, and only there")
        expect(all(e is None or c in e.own for e, c in zip(ref.index, here.coords)), "own coordinate")
    return User(here, there, names, bases, heads).statements(bodies[0])


def expanded(here, direction, heads, library, statements):
    result = []
    for s in statements:
        if s[0] == "use":
            result += used(here, direction, heads, library, *s[1:])
        else:
            result.append((*s[:-1], expanded(here, direction, heads, library, s[-1])) if s[0] in ("for", "if") else s)
    return result


def derive(schedule, mirrors, library):
    """In place: statements for every `use`, then directions for every `mirrors`."""
    written = {}
    for name, body in schedule.directions.items():
        written.setdefault(id(body), (body, []))[1].append(name)
    for body, names in written.values():
        over = [s[3] or schedule.coords[0] for s in body if s[0] == "exchange"]
        full = expanded(schedule, names, over[0] if over else None, library, body)
        schedule.directions.update(dict.fromkeys(names, full))
    for name, source in sorted(mirrors):  # backwards first
        expect(source in schedule.directions and name not in schedule.directions, f"{name} cannot mirror {source}")
        schedule.directions[name] = mirrored(schedule.directions[source], MIRRORS[name.split()[0]])
    expect("forward" in schedule.directions and len(schedule.directions) > 1, "a forward and a backward")


def read_schedule(text, library=None):
    reader = Reader(text)
    schedule, mirrors = reader.schedule()
    expect(not reader.next(), "a file has one schedule")
    derive(schedule, mirrors, library or {})
    return schedule
