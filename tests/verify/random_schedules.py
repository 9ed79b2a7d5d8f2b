"""Random schedule texts: what burstc accepts, an executor of the language accepts, and the other way round.

    python3 random_schedules.py --judge JUDGE --root SOURCE [--texts 20000] [--seed N]

The texts are made by schedule_make.py, and some are shipped ones, changed; judge.c says what burstc's passes make of each direction of
them; schedule_run.py runs the text by itself, for all ranks, as the documentation has it. What burstc refuses is wrong, or is one of the
restrictions below, each with the sentence of docs/ that says so. Without --seed it is that of the day.
"""
import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import schedule_make
import schedule_run
import schedule_text

# Messages of burstc for what is right and refused, and the sentence of docs/ that says so.
RESTRICTIONS = [
    (r"nothing reads", "a pass of a chunk that nothing at the receiver reads"),
    (r"is already there", "that is there already"),
    (r"to the rank that (holds|sends) it", "or that leads to the rank itself"),
    (r"nothing to send", "a pass or `return` of sums that are all at their owners"),
    (r"only powers of 2|exponent must be", "`2 ^ k` for k from 0 to 20"),
    (r"pieces are numbered", "the number is a constant or an expression of loop variables, the same on all ranks"),
    (r"requires \d+ streams", "more transfers than the runtime has streams"),
    (r"an output that travels in a direction that exchanges", "outputs that travel in one"),
    (r"loop variables in one schedule", "more than 12 names of loop variables in a schedule"),
    (r"queries have no pieces", "a direction with pieces is mirrored by forward alone"),
]
FEATURES = {"exchanges": r"exchange", "pieces": r"pieces", "gathers": r"gather", "scatters": r"scatter", "strides": r"\* x|\+ [23]\b",
            "doubling": r"2 \^ k", "uses": r"use \w+ over", "mirrors": r"mirrors", "returns": r"return", "both travel": r"pass Q(?s:.*)pass KV"}
MOST_SHOWN = 10


class Judge:
    def __init__(self, program, folder):
        self.process = subprocess.Popen([pathlib.Path(program).resolve()], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self, sizes, text):
        """{direction: "accepted" or the message}; {"text": message} where the text as such is refused."""
        self.process.stdin.write(f"{' '.join(map(str, sizes))} 0 {len(text.encode())}\n{text}")
        self.process.stdin.flush()
        verdicts = {}
        while (line := self.process.stdout.readline()) != ".\n":
            if not line:
                sys.exit(f"the judge ended with status {self.process.wait()} at\n{text}")
            name, _, verdict = line.rstrip("\n").partition(": ")
            verdicts[name] = verdict
        return verdicts


def shipped(root):
    texts = []
    for path in sorted((root / "schedules").glob("*.sched")):
        lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
        texts.append([line for line in lines if line and not line.startswith("require")])
    return texts


def next_text(rng, stock):
    if rng.random() < 0.1:
        lines = list(rng.choice(stock))
        head = lines[0][lines[0].index("("):lines[0].index(")")]
        sizes = schedule_make.random_sizes(rng, head.count(" of "))
    else:
        sizes, lines = schedule_make.make(rng)
    if rng.random() < 0.6:
        for _ in range(rng.choice([1, 1, 2, 3])):
            schedule_make.change(rng, lines)
    return sizes, "\n".join(lines) + "\n"


def library(texts):
    """{name: schedule} of those that `use` knows; each may use those before it, as in burstc."""
    known = {}
    for lines in texts:
        schedule = schedule_text.read_schedule("\n".join(lines), known)
        known[schedule.name] = schedule
    return known


def ran(sizes, text, known):
    """{direction: None or what is wrong}; {"text": why} where it cannot be read."""
    try:
        schedule = schedule_text.read_schedule(text, known)
        return {name: schedule_run.execute(schedule, sizes, name) for name in schedule.directions}
    except schedule_text.Wrong as wrong:
        return {"text": str(wrong)}


class Trial:
    def __init__(self, known):
        self.known = known
        self.counts, self.restricted, self.faults = collections.Counter(), collections.Counter(), 0

    def fault(self, sizes, text, name, says, wrong):
        self.faults += 1
        if self.faults <= MOST_SHOWN:
            print(f"---- {name} on {sizes}: burstc: {says}; executor: {wrong or 'right'}\n{text}")

    def compare(self, sizes, text, name, says, wrong):
        accepted = says == "accepted"
        self.counts["directions"] += 1
        self.counts["accepted" if accepted else "wrong and refused" if wrong else "restricted"] += 1
        if accepted:
            for feature, pattern in FEATURES.items():
                self.counts[feature] += bool(re.search(pattern, text))
        if accepted and not wrong or not accepted and wrong and not says.startswith("accepted"):
            return
        known = [message for message, _ in RESTRICTIONS if re.search(message, says)]
        if known:
            self.restricted[known[0]] += 1
        else:
            self.fault(sizes, text, name, says, wrong)

    def one(self, judge, sizes, text):
        says, wrong = judge.says(sizes, text), ran(sizes, text, self.known)
        if "text" in says or "text" in wrong:
            reasons = [w for w in wrong.values() if w]
            self.compare(sizes, text, "text", says.get("text", "accepted"), reasons[0] if reasons else None)
            return
        for name in says:
            self.compare(sizes, text, name, says[name], wrong[name])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    args = parser.parse_args()
    docs = " ".join(" ".join((args.root / "docs" / f"{name}.md").read_text().split()) for name in ("schedules", "language"))
    for message, sentence in RESTRICTIONS:
        if sentence not in docs:
            sys.exit(f"docs/ does not say {sentence!r}")
    rng, stock = random.Random(args.seed), shipped(args.root)
    trial = Trial(library(stock))
    with tempfile.TemporaryDirectory(prefix="burst_schedules_") as folder:
        judge = Judge(args.judge, folder)
        for _ in range(args.texts):
            trial.one(judge, *next_text(rng, stock))
        judge.process.stdin.close()
        status = judge.process.wait()
    print(f"seed {args.seed}, {args.texts} texts:", dict(trial.counts), "right and refused:", dict(trial.restricted))
    few = [f for f in FEATURES if args.texts >= 200 and trial.counts[f] < args.texts // 100]
    if few:
        print("too few with", few)
    return 1 if trial.faults or status or few else 0


if __name__ == "__main__":
    sys.exit(main())
