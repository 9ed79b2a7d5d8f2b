"""The tokens of keys that ranks must have of others', at least: for each rank the tiles of other ranks' chunks of which its queries keep a
key. Shares nothing with the compiler.

    python3 least.py TOKENS RANKS PARTITION MASK [NUMBER ...]     prints tokens, all ranks together
"""
import sys

TILE = 64


def chunks(tokens, ranks, partition):
    """Positions of each rank, as ranges that are whole tiles."""
    if partition == "contiguous":
        return [[(tokens * r // ranks, tokens * (r + 1) // ranks)] for r in range(ranks)]
    half = tokens // ranks // 2  # zigzag: one from the front, one from the back
    return [[(half * r, half * (r + 1)), (tokens - half * (r + 1), tokens - half * r)] for r in range(ranks)]


def tiles(pieces):
    return [(at, at + TILE - 1) for begin, end in pieces for at in range(begin, end, TILE)]


def keeper(name, n):
    """Whether any query of a run of positions (first, last) may keep any key of another; of tiles, whether one does."""
    def causal(q, k):
        return k[0] <= q[1]
    def window(q, k):
        return causal(q, k) and k[1] > q[0] - n[0]
    return {"causal": causal, "window": window,
            "window_sink": lambda q, k: window(q, k) or (causal(q, k) and k[0] < n[1]),
            "prefix_lm": lambda q, k: causal(q, k) or k[0] < n[0]}[name]


def any_keeps(keep, queries, key):
    """Whether one of these tiles of queries keeps any of the key tile: none where not even all of them together might."""
    if not keep((queries[0][0], queries[-1][1]), key):
        return False
    middle = len(queries) // 2
    return middle == 0 or any_keeps(keep, queries[:middle], key) or any_keeps(keep, queries[middle:], key)


def main():
    tokens, ranks, partition, name, *numbers = sys.argv[1:]
    keep = keeper(name, [int(n) for n in numbers])
    of = [tiles(pieces) for pieces in chunks(int(tokens), int(ranks), partition)]
    needed = 0
    for mine in range(len(of)):
        for theirs in range(len(of)):
            if theirs != mine:
                needed += sum(any_keeps(keep, of[mine], k) for k in of[theirs])
    print(needed * TILE)


main()
