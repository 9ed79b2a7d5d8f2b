"""Multi-head latent attention whose keys and values travel as latents: gradients of every weight against the float64 oracle, and bytes.

    python3 run_latents.py --toolchain toolchain.json --gradients OBJECT ... [--only REGEX]

With latents a program sends as many bytes as with keys, but of a token a latent and what heads share instead of keys and values of all
heads, and so many less as the predictions of both differ by.
"""
import pathlib
import re
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

HEADS, HEAD_DIM, VALUE_DIM, SHARED, LATENT = 4, 12, 6, 4, 10
TURNS = 2  # sequences, of gradients.c
ROUNDED = 0.02  # kB: two figures inside nodes and two between them, each of two decimals


class Point(typing.NamedTuple):
    nodes: int
    lanes: int
    schedule: str
    more: str = ""
    mask: str = "causal"
    sequence: int = 48
    query_latent: int = 8
    tensor: int = 1
    alike: bool = True  # ranks have as many tokens and send as much: what is predicted of one is so of each

    def layout(self, travel):
        return f"data 1; schedule {self.schedule}; {self.more} tensor {self.tensor}; travel {travel};"


POINTS = {
    "two": Point(1, 2, "ring", "context 2; partition zigzag; recompute none;"),
    "ring": Point(1, 4, "ring", "context 4; partition zigzag; recompute selective;", sequence=45, query_latent=0, alike=False),
    "full": Point(1, 3, "ring", "context 3; partition striped; recompute full;", "full"),
    "burst": Point(2, 2, "burst", "context 4; partition zigzag; recompute none;"),
    "biring": Point(1, 4, "biring", "context 4; partition zigzag; recompute ffn;"),
    "double_ring": Point(1, 4, "double_ring", "context 2 x 2; partition contiguous; recompute none;", "full"),
    "gather": Point(1, 3, "gather", "context 3; partition contiguous; recompute none;", alike=False),
    "doubling": Point(1, 4, "doubling", "context 4; partition zigzag; recompute none;"),
    "window": Point(1, 4, "ring", "context 4; partition contiguous; recompute none;", "window(17)", alike=False),
    "short": Point(1, 4, "ring", "context 4; partition zigzag; recompute none;", sequence=5, alike=False),  # ranks with one token, and with two
    "tensor": Point(2, 2, "ring", "context 2; partition zigzag; recompute selective;", tensor=2),
    "chunks": Point(1, 2, "ring", "context 2; partition zigzag; recompute full; token chunks 3; offload activations;"),
    "save": Point(1, 2, "ring", "context 2; partition zigzag; recompute save(kv_low, q); weights zero1;"),
}


def model(p, travel):
    query = f"query_latent {p.query_latent}; " if p.query_latent else ""
    return f"""import "masks";
model test {{ layers 2; hidden 32; heads {HEADS}; head_dim {HEAD_DIM}; value_dim {VALUE_DIM}; rotary {SHARED}; latent {LATENT}; {query}ffn swiglu 24;
  vocab 17; norm rmsnorm 1e-5; rope 10000; }}
attention {{ default {p.mask}; }}
sequence {p.sequence};
layout {{ {p.layout(travel)} }}
train {{ batch {TURNS}; }}
"""


def main():
    options = runner.options(__doc__, "--toolchain")
    options.add_argument("--gradients", nargs="+", required=True, help="objects and libraries of gradients.c")
    args = options.parse_args()
    tools = emitted.Toolchain(args.toolchain)
    with runner.folder(args.work) as folder:
        def check(name, p, travel):
            """Bytes that the program sent, and those that a rank of its plan sends, in kB."""
            source = tools.emit(folder, f"{name}_{travel}", emitted.topology(p.nodes, p.lanes), model(p, travel))
            require(("#define PLAN_LATENTS" in source.read_text()) == (travel == "latents"), f"{name}: {travel} do not travel")
            done = run([tools.link(source, args.gradients), p.mask, p.mask], 60, emitted.quiet_environment(), check=False)
            match = re.fullmatch(r"loss (\S+) worst (\S+) (\S+) tensors \d+ sent (\d+)\n", done.stdout)
            require(match and done.returncode == 0, f"{name}, {travel}:\n{done.stdout}{done.stderr}")
            cost = run([tools.burstc, source.with_suffix(".topo"), source.with_suffix(".burst"), "--emit=cost"], 60).stdout
            units = {"B": 1e-3, "kB": 1, "MB": 1e3}
            planned = [float(number) * units[unit] for number, unit in re.findall(r"(\S+) (\S?B) (?:inside|between) nodes", cost)]
            print(f"{name}, {travel}: loss {match[1]}, worst gradient {match[2]} ({match[3]}), {match[4]} bytes", flush=True)
            return int(match[4]), sum(planned)

        for name, p in POINTS.items():
            if not all(re.search(word, name) for word in args.only):
                continue
            (keys, of_keys), (latents, of_latents) = (check(name, p, travel) for travel in ("keys", "latents"))
            heads = HEADS // p.tensor
            require(keys > 0 and latents * heads * (HEAD_DIM + VALUE_DIM) == keys * (LATENT + SHARED), f"{name}: {latents} bytes, with keys {keys}")
            saved, planned = (keys - latents) / 1000, (of_keys - of_latents) * p.nodes * p.lanes
            require(not p.alike or abs(saved - planned) <= ROUNDED * p.nodes * p.lanes, f"{name}: latents spare {saved} kB, planned {planned}")


if __name__ == "__main__":
    runner.end(main)
