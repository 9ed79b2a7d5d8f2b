"""gradients.c on the host backend: the same loss and gradients from one rank and from three, whose shards are uneven, and the
right ones where they are known: with all weights zero but the norms', the loss is log(vocab) and every gradient is zero.

    python3 test_gradients.py --toolchain toolchain.json --main gradients.o
"""
import array
import json
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402

VOCAB, TOKENS = 19, 29
MODEL = f"""import "masks";
model small {{ layers 2; hidden 24; heads 4; kv_heads 2; head_dim 8; ffn swiglu 20; vocab {VOCAB}; tied no; }}
attention {{ default causal; }}
sequence {TOKENS};
"""


def write(path, kind, numbers):
    path.write_bytes(array.array(kind, numbers).tobytes())


def read(path):
    numbers = array.array("f")
    numbers.frombytes(path.read_bytes())
    return numbers


def tensors(tables):
    """(name, first element, elements) of all of them, and how many elements there are."""
    out, begin = [], 0
    for unit in tables:
        for repeat in range(unit["repeat"]):
            out += [(f"{unit['name']}.{repeat}.{t['name']}", begin + t["offset"], t["rows"] * t["cols"])
                    for t in unit["tensors"]]
            begin += unit["elements"]
    return out, begin


def run(program, folder, weights, name):
    write(folder / "weights", "f", weights)
    done = runner.run([program, folder / "weights", folder / "tokens", folder / name], 60, emitted.quiet_environment())
    return json.loads(done.stdout)["loss"], read(folder / name)


def check_known(program, folder, table, count):
    """All zero but norms of one: no logit differs, so the loss is log(vocab); x is zero, so are all gradients."""
    weights = [0.0] * count
    for name, first, elements in table:
        if "norm" in name:
            weights[first:first + elements] = [1.0] * elements
    loss, gradients = run(program, folder, weights, "known")
    assert abs(loss / math.log(VOCAB) - 1) < 1e-6, loss
    assert len(gradients) == count and not any(gradients), "a gradient of nothing"


def relative(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b))


def main():
    args = runner.options(__doc__, "--toolchain", "--main").parse_args()
    tools, draw = emitted.Toolchain(args.toolchain), random.Random(4)
    with runner.folder(args.work) as folder:
        texts = {n: MODEL + emitted.layout(1, n, "ring", "keys", "zigzag") for n in (1, 3)}
        programs = [tools.link(tools.emit(folder, f"ranks{n}", emitted.topology(1, n), texts[n]), [args.main]) for n in texts]
        table, count = tensors(json.loads(runner.run([programs[0], "--tables"], 20).stdout))
        token = [draw.randrange(VOCAB) for _ in range(TOKENS)]
        write(folder / "tokens", "i", token + token[1:] + [-1])
        check_known(programs[1], folder, table, count)
        weights = [draw.gauss(0, 0.3) for _ in range(count)]
        (one, right), (three, gradients) = [run(p, folder, weights, f"g{i}") for i, p in enumerate(programs)]
        assert abs(one / three - 1) < 1e-6, (one, three)
        for name, first, elements in table:
            apart = relative(gradients[first:first + elements], right[first:first + elements])
            assert apart < 1e-5, (name, apart)
        print(f"{len(table)} tensors, loss {one:.6f}")


runner.end(main)
