"""Token files of a retrieval task: passages, and then all of them again in another order.

    python3 benchmarks/passages.py OUT.tok TOPICS SEQUENCES both|first|second [SEED]

A topic has 64 words of its own, 4096 in all. A passage is a random order of its topic's words, followed by the same
order from a random word on: 128 tokens. A sequence has a passage of each of TOPICS topics (drawn from the 64), in random
order, and then all of these passages again, in another order: 256 TOPICS tokens. A model that retrieves the passage from the
first half predicts all words of the second half except the first of each passage and of its repetition; one that does not
predicts only those of the repetition. Loss weights: `first` counts the repetitions in the first half, `second` the whole
second half, of which two words in 128 cannot be predicted, and `both` counts what either does.
"""
import struct
import sys

import numpy

WORDS, TOPICS, PASSAGE = 64, 64, 128


def sequence(topics, rng):
    which = rng.permutation(TOPICS)[:topics]
    order = numpy.argsort(rng.random((topics, WORDS)), axis=1)
    turn = (numpy.arange(WORDS) + rng.integers(WORDS, size=(topics, 1))) % WORDS
    again = numpy.take_along_axis(order, turn, axis=1)
    passages = numpy.concatenate([order, again], axis=1) + WORDS * which[:, None]
    return numpy.concatenate([passages[rng.permutation(topics)] for _ in range(2)]).reshape(-1)


def weights(topics, counts):
    """Of the tokens as labels: whether each counts."""
    half = numpy.zeros((topics, PASSAGE), dtype=numpy.uint8)
    half[:, WORDS + 1:] = counts != "second"
    rest = numpy.full((topics, PASSAGE), counts != "first", dtype=numpy.uint8)
    return numpy.concatenate([half, rest]).reshape(-1)


def main():
    path, topics, count, counts, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int((sys.argv[5:] + ["1"])[0])
    if not 1 <= topics <= TOPICS or counts not in ("both", "first", "second"):
        sys.exit(__doc__)
    rng = numpy.random.default_rng(seed)
    tokens = count * 2 * PASSAGE * topics + 1
    with open(path, "xb") as out:
        out.write(b"BURSTTOK" + struct.pack("<IIQIIQ", 2, 2, tokens, 1, 0, 0))
        for _ in range(count):
            out.write(sequence(topics, rng).astype("<u2").tobytes())
        out.write(b"\0\0")  # the last label
        out.write(bytes(-out.tell() % 8))
        out.write(numpy.tile(weights(topics, counts), count).tobytes() + b"\0")


main()
