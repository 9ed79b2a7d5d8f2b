"""What a schedule does, by docs/language.md and docs/schedules.md: all ranks, one statement after the other, with sets of pairs.

Copies are sets of chunks that a rank holds; a sum of a chunk is a set of bits, one for each chunk that it was computed with, and where
a bit would be there twice a pair is counted twice. Chunks of keys are numbered piece * ranks + rank. In a direction that exchanges, a
rank's number stands for its row with its own share of the heads, so that bits of different shares are different bits.
"""
import itertools

from schedule_text import COPIES, KEYS, KNOWN, SUMS, Wrong, expect

MOST_TURNS = 1 << 16


class Run:
    def __init__(self, schedule, sizes, direction):
        self.schedule, self.sizes, self.word = schedule, sizes, direction.split()[0]
        self.body = schedule.directions[direction]
        self.places = list(itertools.product(*map(range, sizes)))
        self.ranks, self.pieces = len(self.places), schedule.pieces
        self.names = dict(zip(schedule.sizes, sizes), **{c: 0 for c in schedule.coords})
        self.names_taken = len(set(schedule.coords + schedule.sizes)) < 2 * len(sizes)
        self.moved, self.turns = {}, 0
        exchanges = [s for s in self.body if s[0] == "exchange"]
        over = {self.axis(s[3]) for s in exchanges}
        expect(len(over) <= 1, "exchanges over two coordinates")
        self.heads = over.pop() if over else None
        own = [{self.key(r, p) for p in range(self.pieces)} for r in range(self.ranks)]
        self.held = {"Q": [{r} for r in range(self.ranks)], "KV": own}
        self.sums = {t: [{} for _ in range(self.ranks)] for t in SUMS}
        self.exchanged = set()

    def key(self, rank, piece):
        return piece * self.ranks + rank

    def owner(self, chunk):
        return chunk % self.ranks

    def pieces_of(self, tensor):
        return self.pieces if tensor in KEYS else 1

    def axis(self, name):
        if name is None:
            expect(len(self.sizes) == 1, "over which coordinate?")
            return 0
        expect(name in self.schedule.coords, f"{name} is no coordinate")
        return self.schedule.coords.index(name)

    # ---- what is wrong whether it runs or not ----

    def check(self, statements, loops=(), nested=False):
        for i, s in enumerate(statements):
            word = s[0]
            if word == "for":
                expect(s[1] not in self.names and s[1] not in loops, f"{s[1]} is taken")
                self.check_common(s[2], loops)
                self.check_common(s[3], loops)
                self.check(s[4], (*loops, s[1]), True)
            elif word == "if":
                self.check_common(s[1], loops)
                self.check(s[2], loops, True)
            elif word in ("attend", "grad"):
                expect((word == "grad") == (self.word == "backward"), f"{word} in {self.word}")
                expect((s[1].tensor, s[2].tensor) == ("Q", "KV"), "Q with KV")
            elif word in ("return", "exchange"):
                after = [x[0] for x in statements[i + 1:]]
                expect(not nested, f"{word} in a loop or condition")
                expect(word == "exchange" or set(after) <= {"return", "exchange"}, "something follows a return")
            for ref in s[1] if word in ("pass", "gather", "scatter", "return", "exchange") else s[1:] if word in ("attend", "grad") else []:
                self.check_ref(ref, loops, word)
            if word == "pass":
                self.check_place(s[2], loops, False)

    def check_common(self, e, loops):
        expect(e.reads <= set(self.schedule.sizes) | set(loops), "unknown, or a coordinate")

    def check_ref(self, ref, loops, word):
        expect(ref.tensor in KNOWN[self.word], f"no {ref.tensor} in {self.word}")
        if ref.index is None:
            short = word in ("attend", "grad") and self.heads is not None and len(self.sizes) == 1
            expect(word in ("return", "exchange", "gather", "scatter") or short, "which chunk?")
        else:
            expect(word not in ("return", "exchange"), f"{word} takes no index")
            self.check_place(ref.index, loops, True)
        expect(ref.piece is None or (ref.tensor in KEYS and self.pieces > 1), "no pieces")
        if ref.piece:
            self.check_common(ref.piece, loops)
        if word in ("gather", "scatter", "exchange", "return"):
            copies = word == "gather" or (word == "exchange" and ref.tensor in COPIES)
            expect((ref.tensor in COPIES) == copies, f"{word} of {ref.tensor}")

    def check_place(self, index, loops, stars):
        expect(len(index) == len(self.sizes), "as many coordinates as the schedule has")
        for axis, (e, own) in enumerate(zip(index, self.schedule.coords)):
            if e is None:
                expect(stars and axis == self.heads, "no * here")
                continue
            expect(own in e.own and e.reads - {own} <= set(self.schedule.sizes) | set(loops), "own coordinate, plus what all ranks know")
            expect(not stars or axis != self.heads, "* is needed here")

    # ---- where things are ----

    def offsets(self, index):
        """Of each axis, how far from the own place. None in it: the own."""
        return tuple(0 if e is None else e.value(self.names) % n for e, n in zip(index, self.sizes))

    def shifted(self, offsets):
        """For each rank the one that is so far away."""
        if offsets not in self.moved:
            at = {place: r for r, place in enumerate(self.places)}
            self.moved[offsets] = [at[tuple((x + o) % n for x, o, n in zip(p, offsets, self.sizes))] for p in self.places]
        return self.moved[offsets]

    def chunks(self, ref):
        """Lists with a chunk for each rank; of keys without a piece as many as there are pieces."""
        ranks = self.shifted(self.offsets(ref.index) if ref.index is not None else (0,) * len(self.sizes))
        if ref.piece is not None:
            piece = ref.piece.value(self.names)
            expect(0 <= piece < self.pieces, "no such piece")
            return [[self.key(r, piece) for r in ranks]]
        return [[self.key(r, p) for r in ranks] for p in range(self.pieces_of(ref.tensor))]

    def laid_out(self, tensor):
        if self.heads is not None:
            expect((tensor in COPIES) == (tensor in self.exchanged), f"{tensor} is not laid out by heads")

    # ---- statements ----

    def compute(self, q_ref, kv_ref):
        for tensor in ("Q", "KV") + (("dQ", "dKV") if self.word == "backward" else ("O",)):
            self.laid_out(tensor)
        for q_of, kv_of in itertools.product(self.chunks(q_ref), self.chunks(kv_ref)):
            for r, (q, kv) in enumerate(zip(q_of, kv_of)):
                expect(q in self.held["Q"][r] and kv in self.held["KV"][r], "a chunk that is computed with is not here")
                if self.word == "forward":
                    self.add("O", r, q, 1 << kv)
                else:
                    self.add("dQ", r, q, 1 << kv)
                    self.add("dKV", r, kv, 1 << q)

    def add(self, tensor, rank, chunk, pairs):
        here = self.sums[tensor][rank].get(chunk, 0)
        expect(not here & pairs, "a pair is counted twice")
        self.sums[tensor][rank][chunk] = here | pairs

    def send(self, tensor, chunk_of, to):
        """At the same time at all ranks."""
        self.laid_out(tensor)
        coming = []
        for r, (chunk, there) in enumerate(zip(chunk_of, to)):
            if tensor in COPIES:
                expect(chunk in self.held[tensor][r], "a chunk that is passed is not here")
                coming.append((there, chunk))
            elif self.owner(chunk) != r:
                expect(chunk in self.sums[tensor][r], "a sum that is passed is not here")
                coming.append((there, chunk, self.sums[tensor][r].pop(chunk)))
        for there, chunk, *pairs in coming:
            if pairs:
                self.add(tensor, there, chunk, pairs[0])
            else:
                self.held[tensor][there].add(chunk)

    def run_pass(self, ref, to):
        offsets = self.offsets(to)
        expect(self.heads is None or offsets[self.heads] == 0, "passes stay at their own place of what is exchanged")
        for chunk_of in self.chunks(ref):
            self.send(ref.tensor, chunk_of, self.shifted(offsets))

    def run_collective(self, word, ref, over):
        axis = self.axis(over)
        expect(axis != self.heads, "over what is exchanged")
        index = self.offsets(ref.index) if ref.index is not None else (0,) * len(self.sizes)
        for d in range(1, self.sizes[axis]):
            hop = tuple(d if i == axis else 0 for i in range(len(self.sizes)))
            at = self.shifted(tuple((x + h * (word == "scatter")) % n for x, h, n in zip(index, hop, self.sizes)))
            pieces = range(self.pieces_of(ref.tensor)) if ref.piece is None else [ref.piece.value(self.names)]
            for p in pieces:
                expect(p < self.pieces, "no such piece")
                self.send(ref.tensor, [self.key(r, p) for r in at], self.shifted(hop))

    def run_return(self, tensor):
        self.laid_out(tensor)
        for r, sums in enumerate(self.sums[tensor]):
            for chunk in [c for c in sums if self.owner(c) != r]:
                self.add(tensor, self.owner(chunk), chunk, sums.pop(chunk))

    def run_exchange(self, tensor, way):
        expect(way is None or (way == "tokens") == (tensor in COPIES), "the other way")
        expect(tensor not in self.exchanged, f"{tensor} is exchanged twice")
        expect(self.pieces == 1, "pieces are not exchanged")
        self.exchanged.add(tensor)
        if tensor in COPIES:
            return
        row = [tuple(x for i, x in enumerate(p) if i != self.heads) for p in self.places]
        parts = [sums.pop(r, 0) for r, sums in enumerate(self.sums[tensor])]
        for r, part in enumerate(parts):
            for owner in range(self.ranks):
                if row[owner] == row[r]:
                    self.add(tensor, owner, owner, part)

    def run_all(self, statements):
        for s in self.ordered(statements):
            word = s[0]
            if word == "for":
                self.run_for(*s[1:])
            elif word == "if":
                if s[1].value(self.names):
                    self.run_all(s[2])
            elif word in ("attend", "grad"):
                self.compute(s[1], s[2])
            elif word == "pass":
                self.run_pass(s[1][0], s[2])
            else:
                for ref in s[1]:
                    if word == "return":
                        self.run_return(ref.tensor)
                    elif word == "exchange":
                        self.run_exchange(ref.tensor, s[2])
                    else:
                        self.run_collective(word, ref, s[2])

    def run_for(self, name, first, last, body):
        for value in range(first.value(self.names), last.value(self.names) + 1):
            self.turns += 1
            expect(self.turns < MOST_TURNS, "it turns too often")
            self.names[name] = value
            self.run_all(body)
        self.names.pop(name, None)

    def ordered(self, statements):
        """Each tensor of a pass by itself; passes of copies before the computing just before them."""
        order = []
        for s in statements:
            for one in [("pass", [ref], s[2]) for ref in s[1]] if s[0] == "pass" else [s]:
                at = len(order)
                while passes_copies(one) and at and order[at - 1][0] in ("attend", "grad"):
                    at -= 1
                order.insert(at, one)
        return order

    # ---- the end ----

    def finish(self):
        for tensor in ("O",) if self.word == "forward" else ("dQ", "dKV"):
            expect(self.heads is None or tensor in self.exchanged, f"{tensor} stays by heads")
            others = self.ranks * (1 if tensor == "dKV" else self.pieces)
            for r, sums in enumerate(self.sums[tensor]):
                expect(all(self.owner(c) == r for c in sums), f"a part of {tensor} is not at home")
                for p in range(self.pieces_of(tensor)):
                    expect(sums.get(self.key(r, p), 0) == (1 << others) - 1, f"a part of {tensor} is missing")


def passes_copies(s):
    if s[0] == "if":
        return all(passes_copies(x) for x in s[2])
    return s[0] == "pass" and all(ref.tensor in COPIES for ref in s[1])


def execute(schedule, sizes, direction):
    """None where every rank ends with what it should, else why not."""
    try:
        run = Run(schedule, sizes, direction)
        expect(not run.names_taken, "a name is given twice")
        run.check(run.body)
        run.run_all(run.body)
        run.finish()
        return None
    except Wrong as wrong:
        return str(wrong)
