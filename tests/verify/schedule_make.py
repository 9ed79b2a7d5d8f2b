"""Random schedules, as texts: right ones of many kinds, and changed ones, of which most are wrong."""
import math
import re

COORDS, SIZES = ("a", "b", "c"), ("A", "B", "C")
USED = {  # shipped schedules by what they move and how many coordinates they have
    ("KV", 1): ["ring", "near", "biring", "gather", "doubling", "bidirectional"], ("Q", 1): ["ring", "near", "biring"],
    ("KV", 2): ["burst", "double_ring", "mesh", "stride"], ("Q", 2): ["burst", "double_ring", "mesh", "stride"]}


class Maker:
    """One direction. A ring, a gather, straight passes or doubling along each coordinate, of keys or of queries; or a walk."""

    def __init__(self, rng, sizes, pieces, heads, backward, travel="keys"):
        self.rng, self.sizes, self.pieces, self.heads, self.backward, self.travel = rng, sizes, pieces, heads, backward, travel
        self.n, self.lines = len(sizes), []
        self.style = rng.choice(["whole", "each", "loop"]) if pieces > 1 else "whole"

    def chance(self, percent):
        return self.rng.random() * 100 < percent

    def add(self, text, guards=()):
        guards = [g for g in guards if g]
        self.lines.append(f"if {' and '.join(guards)} {{ {text} }}" if guards else text)

    def open(self, text):
        self.lines.append(text + " {")

    def close(self):
        self.lines.append("}")

    def keys(self, text, guards=()):
        """A statement about keys, with `@` for the piece: whole, or piece by piece."""
        if self.style == "whole":
            self.add(text.replace("@", ""), guards)
        elif self.style == "each":
            for p in range(self.pieces):
                self.add(text.replace("@", f".{p}"), guards)
        else:
            self.open(f"for p in 0 .. {self.pieces - 1}")
            self.add(text.replace("@", ".p"), guards)
            self.close()

    def about(self, tensor, text, guards=()):
        (self.keys if tensor in ("KV", "dKV") else self.add)(text, guards)

    def chunk(self, tensor, offsets, bare=False):
        """offsets: {axis: "- x"}."""
        places = ["*" if i == self.heads and not bare else f"{COORDS[i]} {offsets.get(i, '')}".strip() for i in range(self.n)]
        index = ", ".join(places)
        return index if bare else f"{tensor}[{index}]" + "@" * (tensor in ("KV", "dKV"))

    def result(self, tensor):
        return ("dKV" if tensor == "KV" else "dQ") if self.backward else ("O" if tensor == "Q" else None)

    def stride(self, n):
        near = [d for d in range(1, n + 2) if math.gcd(d, n) == 1] or [1]
        d = self.rng.choice(near) if self.chance(40) else 1
        d = self.rng.randint(1, n + 1) if self.chance(4) else d
        return d if self.chance(70) else -d

    @staticmethod
    def times(d, x):
        return f"{'-' if d > 0 else '+'} {x if abs(d) == 1 else f'{abs(d)} * {x}'}"

    # ---- loops ----

    def loops(self, kinds=("KV", "KV", "Q", "both")):
        axes = [i for i in range(self.n) if i != self.heads]
        self.rng.shuffle(axes)
        kind = self.rng.choice(kinds)
        mover = {i: kind if kind != "both" else self.rng.choice(["Q", "KV"]) for i in axes}
        self.levels = sorted(axes, key=lambda i: mover[i] != "Q")
        self.mover, self.var = mover, {i: f"x{i}" for i in axes}
        self.step = {i: self.stride(self.sizes[i]) for i in axes}
        self.mode = {i: self.rng.choice(["ring", "ring", "straight", "gather", "doubling"]) for i in axes}
        self.home = {t: self.rng.choice(["return", "straight", "carry", "scatter", "halving"]) for t in ("Q", "KV")}
        self.used = self.choose_used(kind)
        self.level(0)
        for tensor in ("Q", "KV"):
            self.bring_home(tensor)

    def moved(self, tensor, before):
        """Offsets of a tensor in the loops of the levels before."""
        return {i: self.times(self.step[i], self.var[i]) for i in self.levels[:before] if self.mover[i] == tensor}

    def visits(self, tensor, at):
        """Where keys move inside of moving queries: only in the first of those loops, or the last."""
        other = [i for i in self.levels if self.mover[i] == "Q"] if tensor == "KV" else []
        return [f"{self.var[i]} == {0 if at == 'first' else f'{SIZES[i]} - 1'}" for i in other]

    def choose_used(self, kind):
        """A schedule for the innermost levels, or none."""
        n = self.rng.randint(1, 2)
        moves = kind if not self.backward else {"keys": "KV", "queries": "Q"}.get(self.travel)
        wrong = self.chance(3)
        if not self.chance(25) or n > len(self.levels) or (kind != moves and not wrong) or (kind == "Q" and not self.backward):
            return None
        names = [name for name in USED.get((moves, n), []) if name != "bidirectional" or self.pieces == 2 or wrong]
        if names and not wrong:
            self.home = {"Q": "return", "KV": "return"}
        return (self.rng.choice(names), n) if names else None

    def use(self, name, n):
        depth = len(self.levels) - n
        bases = [self.chunk(t, moved).replace("@", "") for t in ("Q", "KV") if (moved := self.moved(t, depth)) or self.chance(20)]
        over = ", ".join(COORDS[i] + (f" of {SIZES[i]}" if self.chance(20) else "") for i in self.levels[depth:])
        self.add(f"use {name} over ({over}){' with ' if bases else ''}{', '.join(bases)};")

    def level(self, depth):
        if self.used and depth == len(self.levels) - self.used[1]:
            self.use(*self.used)
            return
        if depth == len(self.levels):
            verb = "grad" if self.backward else "attend"
            self.keys(f"{verb} {self.chunk('Q', self.moved('Q', depth))} with {self.chunk('KV', self.moved('KV', depth))};")
            self.leave("KV", depth)
            return
        axis = self.levels[depth]
        if self.mode[axis] in ("gather", "doubling"):
            getattr(self, self.mode[axis])(axis, depth)
        self.open(f"for {self.var[axis]} in 0 .. {SIZES[axis]} - 1")
        late = self.chance(30) and depth == len(self.levels) - 1
        if not late:
            self.pass_on(axis, depth)
        self.level(depth + 1)
        if late:
            self.pass_on(axis, depth)
        queries = [i for i in self.levels if self.mover[i] == "Q"]
        if queries and axis == queries[-1]:
            self.leave("Q", depth + 1)
        self.close()

    def pass_on(self, axis, depth):
        tensor, d, x = self.mover[axis], self.step[axis], self.var[axis]
        straight = self.mode[axis] == "straight"
        if self.mode[axis] not in ("ring", "straight"):
            return
        hop = f"{'+' if d > 0 else '-'} {abs(d)}" + (f" * ({x} + 1)" if straight else "")
        text = f"pass {self.chunk(tensor, self.moved(tensor, depth if straight else depth + 1))} to ({self.chunk('', {axis: hop}, True)});"
        self.about(tensor, text, [f"{x} < {SIZES[axis]} - 1", *self.visits(tensor, "first")])

    def gather(self, axis, depth):
        tensor = self.mover[axis]
        named = self.moved(tensor, depth) or self.chance(30) or self.heads is not None
        chunk = self.chunk(tensor, self.moved(tensor, depth)) if named else tensor + "@" * (tensor == "KV")
        if not named and self.style != "whole":
            chunk = tensor
        over = f" over {COORDS[axis]}" if self.n > 1 or self.chance(50) else ""
        self.about(tensor, f"gather {chunk}{over};", self.visits(tensor, "first")) if "@" in chunk else \
            self.add(f"gather {chunk}{over};", self.visits(tensor, "first"))

    def doubling(self, axis, depth):
        tensor, size = self.mover[axis], SIZES[axis]
        self.open("for k in 0 .. 20")
        self.open(" and ".join(["if 2 ^ k < " + size, *self.visits(tensor, "first")]))
        self.open(f"for j in 0 .. min(2 ^ k, {size} - 2 ^ k) - 1")
        offsets = {**self.moved(tensor, depth), axis: "- j"}
        self.about(tensor, f"pass {self.chunk(tensor, offsets)} to ({self.chunk('', {axis: '+ 2 ^ k'}, True)});")
        for _ in range(3):
            self.close()

    # ---- sums ----

    def leave(self, tensor, depth):
        """What goes home, or on, right after it was computed."""
        own, result = [i for i in self.levels if self.mover[i] == tensor], self.result(tensor)
        if not own or not result:
            return
        offsets, away = self.moved(tensor, depth), " or ".join(f"{self.var[i]} > 0" for i in own)
        away = f"({away})" if len(own) > 1 else away
        last = self.visits(tensor, "last")
        if self.home[tensor] == "straight":
            to = self.chunk("", offsets, True)
            self.about(result, f"pass {self.chunk(result, offsets)} to ({to});", [away, *last])
        elif self.home[tensor] == "carry" and not last:
            i, d = own[-1], self.step[own[-1]]
            to = self.chunk("", {i: f"{'+' if d > 0 else '-'} {abs(d)}"}, True)
            self.about(result, f"pass {self.chunk(result, offsets)} to ({to});", [away, f"{self.var[i]} < {SIZES[i]} - 1"])

    def bring_home(self, tensor):
        own, result = [i for i in self.levels if self.mover[i] == tensor], self.result(tensor)
        if not own or not result or self.home[tensor] == "straight":
            return
        if self.home[tensor] == "scatter" or (self.home[tensor] == "halving" and len(own) > 1):
            while own:
                self.scatter(result, own)
                own = own[:-1]
        elif self.home[tensor] == "halving":
            self.halving(result, own[0])
        else:
            self.lines.append(f"return {result};")

    def scatter(self, result, own):
        for i in own[:-1]:
            self.open(f"for z{i} in 0 .. {SIZES[i]} - 1")
        chunk = self.chunk(result, {i: f"- z{i}" for i in own[:-1]}) if own[1:] or self.heads is not None or self.chance(50) else result
        self.about(result, f"scatter {chunk} over {COORDS[own[-1]]};") if "@" in chunk else self.add(f"scatter {chunk} over {COORDS[own[-1]]};")
        for i in own[:-1]:
            self.close()

    def halving(self, result, axis):
        size, far = SIZES[axis], "2 ^ (20 - k)"
        self.open("for k in 0 .. 20")
        self.open(f"if {far} < {size}")
        self.open(f"for j in 0 .. min({far}, {size} - {far}) - 1")
        to = self.chunk("", {axis: f"- {far}"}, True)
        self.about(result, f"pass {self.chunk(result, {axis: f'- j - {far}'})} to ({to});")
        for _ in range(3):
            self.close()

    # ---- both ways: each piece its own way round ----

    def both_ways(self):
        size, verb = SIZES[0], "grad" if self.backward else "attend"
        self.open(f"for s in 0 .. {size} - 1")
        steps = [self.stride(self.sizes[0]) for _ in range(self.pieces)]
        for p, d in enumerate(steps):
            chunk, on = f"[a {self.times(d, 's')}].{p}", f"a {'+' if d > 0 else '-'} {abs(d)}"
            self.add(f"pass KV{chunk} to ({on});", [f"s < {size} - 1"])
            self.add(f"{verb} Q[a] with KV{chunk};")
            if self.backward:
                self.add(f"pass dKV{chunk} to ({on});", ["s > 0", f"s < {size} - 1"])
        self.close()
        if self.backward:
            self.lines.append("return dKV;")

    # ---- a rank's own chunk last: computing stands before the pass that brings what it reads ----

    def own_last(self):
        size, verb, d = SIZES[0], "grad" if self.backward else "attend", self.stride(self.sizes[0])
        self.open(f"for s in 1 .. {size} - 1")
        self.keys(f"{verb} Q[a] with KV[a {self.times(d, 's')}]@;")
        self.keys(f"pass KV[a {self.times(d, '(s - 1)')}]@ to (a {'+' if d > 0 else '-'} {abs(d)});")
        self.close()
        self.keys(f"{verb} Q[a] with KV[a]@;")
        if self.backward:
            self.lines.append("return dKV;")

    # ---- a walk: what is legal at each point, one statement after the other ----

    def all_chunks(self, tensor):
        places = [()]
        for n in self.sizes:
            places = [p + (x,) for p in places for x in range(n)]
        return [(p, k) for p in places for k in range(self.pieces if tensor == "KV" else 1)]

    def place(self, offsets):
        return ", ".join(COORDS[i] + (f" + {x}" if x else "") for i, x in enumerate(offsets))

    def at(self, tensor, chunk):
        piece = f".{chunk[1]}" if tensor in ("KV", "dKV") and self.pieces > 1 else ""
        return f"{tensor}[{self.place(chunk[0])}]{piece}"

    def less(self, x, y):
        return tuple((i - j) % n for i, j, n in zip(x, y, self.sizes))

    def walk(self):
        home = (0,) * self.n
        here = {"Q": [(home, 0)], "KV": [(home, p) for p in range(self.pieces)]}
        missing = {k for k in self.all_chunks("KV")}
        sums, verb = {"Q": set(), "KV": set()}, "grad" if self.backward else "attend"
        for _ in range(300):
            if not missing:
                break
            q, kv = self.rng.choice(here["Q"]), self.rng.choice(here["KV"])
            pair = (self.less(kv[0], q[0]), kv[1])
            if pair in missing:
                missing.remove(pair)
                self.lines.append(f"{verb} {self.at('Q', q)} with {self.at('KV', kv)};")
                sums["Q"].add(q)
                sums["KV"].add(kv)
            else:
                self.walk_on(here, sums)
        for tensor in ("Q", "KV"):
            if self.result(tensor) and any(c[0] != home for c in sums[tensor]):
                self.lines.append(f"return {self.result(tensor)};")

    def walk_on(self, here, sums):
        tensor = self.rng.choice(["Q", "KV", "KV"])
        hop = tuple(self.rng.randrange(n) for n in self.sizes)
        if self.chance(25) and self.result(tensor):
            away = sorted(c for c in sums[tensor] if any(c[0]))
            if away:
                chunk = self.rng.choice(away)
                to = chunk[0] if self.chance(50) or not any(hop) else hop
                self.lines.append(f"pass {self.at(self.result(tensor), chunk)} to ({self.place(to)});")
                sums[tensor].discard(chunk)
                sums[tensor].add((self.less(chunk[0], to), chunk[1]))
            return
        chunk = self.rng.choice(here[tensor])
        there = (self.less(chunk[0], hop), chunk[1])
        if there not in here[tensor]:
            self.lines.append(f"pass {self.at(tensor, chunk)} to ({self.place(hop)});")
            here[tensor].append(there)

    # ---- all ----

    def exchanges(self, into):
        inputs = ["Q", "KV"] if into else ["dQ", "dKV"] if self.backward else ["O"]
        over, arrow = f" over {COORDS[self.heads]}", " tokens -> heads" if into else " heads -> tokens"
        texts = [", ".join(inputs)] if self.chance(70) else inputs
        for text in texts:
            self.lines.append(f"exchange {text}{arrow if self.chance(40) else ''}{over};")

    def direction(self):
        if self.heads is not None:
            self.exchanges(True)
            self.loops(["KV"] if not self.backward and self.chance(85) else ["KV", "KV", "Q", "both"])
            self.exchanges(False)
        elif self.n == 1 and self.pieces > 1 and self.chance(40):
            self.both_ways()
        elif self.n == 1 and self.chance(15):
            self.own_last()
        elif math.prod(self.sizes) * self.pieces <= 12 and self.chance(30):
            self.walk()
        else:
            self.loops()
        return self.lines


def random_sizes(rng, n):
    return [1 if rng.random() < 0.04 else rng.choice([2, 2, 3, 3, 4]) for _ in range(n)]


def make(rng):
    """(sizes, lines of a text)."""
    n = rng.choice([1, 1, 2, 2, 3])
    sizes = random_sizes(rng, n)
    heads = rng.randrange(n) if rng.random() < 0.25 else None
    pieces = rng.randint(2, 3) if heads is None and rng.random() < 0.3 else 1
    head = ", ".join(f"{c} of {s}" for c, s in zip(COORDS[:n], SIZES))
    lines = [f"schedule random over ({head})" + (f" pieces {pieces}" if pieces > 1 else "") + " {"]
    travel, mirrors = rng.choice(["keys", "queries", None]), rng.random() < 0.15
    for backward in (False, True):
        here = heads if rng.random() < 0.85 else None
        head = " ".join(["backward", *([travel] if travel else [])]) if backward else "forward"
        if backward or not mirrors or not travel or rng.random() < 0.5:
            lines += [head + " {", *Maker(rng, sizes, pieces, here, backward, travel).direction(), "}"]
        else:
            lines.append(f"forward mirrors {travel};")
    if mirrors and travel:
        lines.append(f"backward {'queries' if travel == 'keys' else 'keys'} mirrors {travel if rng.random() < 0.97 else 'queries'};")
    return sizes, lines + ["}"]


# ---- changes ----

def whole_statements(lines):
    return [i for i, line in enumerate(lines) if ";" in line and line.count("{") == line.count("}")]


def change_token(rng, line, names):
    kinds = [(r"\b\d+\b", lambda t: str(max(0, int(t) + rng.choice([-1, 1])))), (r"(?<![-<>=])[-+](?!>)", lambda t: "+" if t == "-" else "-"),
             (r"<=|>=|==|<|(?<!-)>", lambda t: rng.choice(["<", "<=", ">", ">=", "==", "!="])),
             (r"\b(Q|KV|O|dQ|dKV)\b", lambda t: rng.choice(["Q", "KV", "O", "dQ", "dKV"])), (r"\b[a-z]\d?\b", lambda t: rng.choice(names)),
             (r"\.\d\b", lambda t: ""), (r"\b(and|or)\b", lambda t: "or" if t == "and" else "and"), (r"\b[ABC]\b", lambda t: rng.choice("ABC"))]
    pattern, to = rng.choice(kinds)
    found = list(re.finditer(pattern, line))
    if not found:
        return line
    one = rng.choice(found)
    return line[:one.start()] + to(one.group()) + line[one.end():]


def change(rng, lines):
    """One mistake, or what looks like one."""
    at = whole_statements(lines)
    if not at:
        return
    i, kind = rng.choice(at), rng.choice(["drop", "double", "swap", "move", "token", "token", "token", "bound"])
    names = sorted(set(re.findall(r"\b[a-z]\d?\b", " ".join(lines))))
    if kind == "drop":
        del lines[i]
    elif kind == "double":
        lines.insert(i, lines[i])
    elif kind == "swap" and i + 1 in at:
        lines[i], lines[i + 1] = lines[i + 1], lines[i]
    elif kind == "move":
        line = lines.pop(i)
        lines.insert(rng.randint(2, len(lines) - 2), line)
    elif kind == "bound":
        loops = [j for j, line in enumerate(lines) if line.startswith("for")]
        j = rng.choice(loops) if loops else i
        lines[j] = change_token(rng, lines[j], names)
    else:
        lines[i] = change_token(rng, lines[i], names)
