"""Attention of emitted programs against the float64 oracle: every schedule, partition, rank count and ratio of heads.

    python3 run_matrix.py --toolchain toolchain.json --oracle numerics_oracle --harness harness.o [--only WORD ...]

One emitted program has a layer for every test mask, so it covers all masks, forward and backward, at one point of the
matrix. Points take sequence lengths in turn. The oracle's answers depend on shape and length alone and are made once.
Then the harness itself is tested: with each output spoiled, most cases must fail. Some points have peaked rows instead (peaked.c):
one high score among up to 65536 low ones, causal, with the same tolerance.
"""
import collections
import itertools
import math
import pathlib
import random
import re
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import Failed, run  # noqa: E402

SCHEDULES = [("ring", "keys"), ("ring", "queries"), ("burst", "keys"), ("burst", "queries"), ("ulysses", "keys")]
PARTITIONS = ["contiguous", "zigzag", "striped", "blocks(8)"]
RATIOS = [(8, 8), (8, 2), (8, 1)]
LENGTHS = [61, 97, 131]
TINY, LONG, LONGER = 9, 301, 1100  # ranks without a token; several tiles a rank; so many that a mask leaves gaps between those that are read
CLUSTERS = {  # (nodes, lanes): flat schedules see the ranks only
    "ring": [(1, 1), (1, 2), (1, 3), (2, 2), (1, 7), (2, 4)],
    "burst": [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2), (3, 2), (1, 7), (2, 4)],
    "ulysses": [(1, 1), (1, 2), (1, 3), (2, 2), (1, 7), (2, 4)],
}
MESHES = [(4,), (7,), (2, 2), (2, 4), (3, 2), (2, 2, 2), (2, 3, 2)]  # sizes of the coordinates that a layout gives
MESHED = {1: ["near", "doubling", "biring", "gather", "bidirectional", "halo"], 2: ["double_ring", "mesh", "stride"], 3: ["three_level"]}  # schedules of so many coordinates
KEYS_ONLY = ("doubling", "gather", "bidirectional", "halo")
SHARED = [(1, 2), (2, 1), (2, 2), (3, 2), (2, 3), (2, 4), (4, 2), (3, 3), (1, 7), (7, 1)]  # usp: of rings, and of ranks that share heads
TEXTS = {  # what a user would write: usp with a double ring inside, with heads outermost, each direction by a strategy of its own; pieces
    "usp_double": ([(2, 2, 2), (2, 3, 2), (3, 2, 1)], """schedule usp_double over (o of O, i of I, h of H) {
  forward {
    exchange Q, KV over h;
    for x in 0 .. O - 1 {
      if x < O - 1 { pass KV[o - x, i, *] to (o + 1, i, h); }
      for y in 0 .. I - 1 {
        if y < I - 1 { pass KV[o - x, i - y, *] to (o, i + 1, h); }
        attend Q[o, i, *] with KV[o - x, i - y, *];
      }
    }
    exchange O over h;
  }
  backward keys {
    exchange Q, KV over h;
    for x in 0 .. O - 1 {
      if x < O - 1 { pass KV[o - x, i, *] to (o + 1, i, h); }
      for y in 0 .. I - 1 {
        if y < I - 1 { pass KV[o - x, i - y, *] to (o, i + 1, h); }
        grad Q[o, i, *] with KV[o - x, i - y, *];
        if x > 0 or y > 0 { pass dKV[o - x, i - y, *] to (o - x, i - y, h); }
      }
    }
    exchange dQ, dKV over h;
  }
}
"""),
    "usp_context_first": ([(2, 2), (3, 2), (2, 3)], """schedule usp_context_first over (h of H, r of R) {
  forward {
    exchange KV over h;
    exchange Q over h;
    attend Q[*, r] with KV[*, r];
    for s in 1 .. R - 1 { pass KV[*, r] to (h, r + s); attend Q[*, r] with KV[*, r - s]; }
    exchange O over h;
  }
  backward {
    exchange Q, KV over h;
    for s in 0 .. R - 1 {
      if s < R - 1 { pass KV[*, r - s] to (h, r + 1); }
      grad Q[*, r] with KV[*, r - s];
      if s > 0 { pass dKV[*, r - s] to (h, r - s); }
    }
    exchange dKV over h;
    exchange dQ over h;
  }
}
"""),
    "usp_ring": ([(2,), (3,), (7,)], """schedule usp_ring over (r of G) {
  forward { exchange Q, KV over r; attend Q with KV; exchange O over r; }
  backward {
    for s in 0 .. G - 1 {
      if s < G - 1 { pass KV[r - s] to (r + 1); }
      grad Q[r] with KV[r - s];
      if s > 0 and s < G - 1 { pass dKV[r - s] to (r + 1); }
    }
    return dKV;
  }
}
"""),
    "thirds": ([(4,), (7,)], """schedule thirds over (r of G) pieces 3 {
  forward {
    for s in 0 .. G - 1 {
      if s < G - 1 { pass KV[r - s].0, KV[r - s].1 to (r + 1); pass KV[r + s].2 to (r - 1); }
      for p in 0 .. 1 { attend Q[r] with KV[r - s].p; }
      attend Q[r] with KV[r + s].2;
    }
  }
  backward queries {
    for s in 0 .. G - 1 {
      if s < G - 1 { pass Q[r - s] to (r + 1); }
      grad Q[r - s] with KV[r];
      if s > 0 { pass dQ[r - s] to (r - s); }
    }
  }
  backward keys {
    gather KV;
    for s in 0 .. G - 1 { grad Q[r] with KV[r - s]; }
    scatter dKV;
  }
}
"""),
    "halves": ([(2, 2), (2, 3)], """schedule halves over (a of A, b of B) pieces 2 {
  forward {
    for x in 0 .. A - 1 {
      if x < A - 1 { pass KV[a - x, b] to (a + 1, b); }
      for y in 0 .. B - 1 {
        if y < B - 1 { pass KV[a - x, b - y].0 to (a, b + 1); pass KV[a - x, b + y].1 to (a, b - 1); }
        attend Q[a, b] with KV[a - x, b - y].0;
        attend Q[a, b] with KV[a - x, b + y].1;
      }
    }
  }
  backward {
    for x in 0 .. A - 1 {
      for y in 0 .. B - 1 {
        for p in 0 .. 1 {
          if x + y > 0 { pass KV[a, b].p to (a + x, b + y); }
          grad Q[a, b] with KV[a - x, b - y].p;
          if p == 0 { pass dKV[a - x, b - y].p to (a - x, b - y); }
        }
      }
    }
    return dKV;
  }
}
"""),
    "one_text": ([(4,), (7,)], """schedule one_text over (r of G) {
  backward keys {
    for s in 0 .. G - 1 {
      if s < G - 1 { pass KV[r - s] to (r + 1); }
      grad Q[r] with KV[r - s];
      if s > 0 { pass dKV[r - s] to (r - s); }
    }
  }
  backward queries mirrors keys;
  forward mirrors keys;
}
"""),
    "used": ([(2, 2), (2, 3), (3, 2)], """schedule used over (o of O, i of I) {
  forward mirrors queries;
  backward keys {
    for s in 0 .. O - 1 {
      if s < O - 1 { pass KV[o - s, i] to (o + 1, i); }
      use biring over (i of I) with KV[o - s, i];
    }
    return dKV;
  }
  backward queries mirrors keys;
}
"""),
    "usp_used": ([(2, 2), (3, 2)], """schedule usp_used over (r of R, h of H) {
  forward { exchange Q, KV over h; use gather over (r); exchange O over h; }
  backward keys { exchange Q, KV over h; use ring over (r); return dKV; exchange dQ, dKV over h; }
  backward queries mirrors keys;
}
"""),
    "used_in_pieces": ([(2, 2), (3, 2)], """schedule used_in_pieces over (o of O, i of I) pieces 2 {
  forward mirrors keys;
  backward keys {
    gather KV over o;
    for s in 0 .. O - 1 { use bidirectional over (i) with KV[o - s, i]; }
    return dKV;
  }
  backward queries { for s in 0 .. O - 1 { gather Q[o - s, i] over i; if s < O - 1 { pass Q[o - s, i] to (o + 1, i); } for t in 0 .. I - 1 { grad Q[o - s, i - t] with KV[o, i]; } } return dQ; }
}
"""),
    "tree": ([(2, 4), (3, 3)], """schedule tree over (a of A, b of B) {
  forward mirrors keys;
  backward queries mirrors keys;
  backward keys {
    for k in 0 .. 20 {
      if 2 ^ k < B {
        for j in 0 .. min(2 ^ k, B - 2 ^ k) - 1 { pass Q[a, b - j] to (a, b + 2 ^ k); }
      }
    }
    for x in 0 .. A - 1 {
      if x < A - 1 { pass KV[a - x, b] to (a + 1, b); }
      for y in 0 .. B - 1 { grad Q[a, b - y] with KV[a - x, b]; }
      if x > 0 { pass dKV[a - x, b] to (a - x, b); }
    }
    for k in 0 .. 20 {
      if 2 ^ (20 - k) < B {
        for j in 0 .. min(2 ^ (20 - k), B - 2 ^ (20 - k)) - 1 { pass dQ[a, b - j - 2 ^ (20 - k)] to (a, b - 2 ^ (20 - k)); }
      }
    }
  }
}
"""),
    "tree_mesh": ([(2, 3), (3, 2)], """schedule tree_mesh over (a of A, b of B) pieces 2 {
  require A > 1;
  forward {
    for k in 0 .. 20 {
      if 2 ^ k < B {
        for j in 0 .. min(2 ^ k, B - 2 ^ k) - 1 { pass Q[a, b - j] to (a, b + 2 ^ k); }
      }
    }
    for s in 0 .. A - 1 {
      if s < A - 1 {
        pass KV[a - s, b].0 to (a + 1, b);
        pass KV[a + s, b].1 to (a - 1, b);
      }
      for j in 0 .. B - 1 {
        attend Q[a, b - j] with KV[a - s, b].0;
        attend Q[a, b - j] with KV[a + s, b].1;
      }
    }
    return O;
  }
  backward keys {
    for k in 0 .. 20 {
      if 2 ^ k < B {
        for j in 0 .. min(2 ^ k, B - 2 ^ k) - 1 { pass Q[a, b - j] to (a, b + 2 ^ k); }
      }
    }
    for s in 0 .. A - 1 {
      if s < A - 1 {
        pass KV[a - s, b].0 to (a + 1, b);
        pass KV[a + s, b].1 to (a - 1, b);
      }
      for j in 0 .. B - 1 {
        grad Q[a, b - j] with KV[a - s, b].0;
        grad Q[a, b - j] with KV[a + s, b].1;
      }
      if s > 0 and s < A - 1 {
        pass dKV[a - s, b].0 to (a + 1, b);
        pass dKV[a + s, b].1 to (a - 1, b);
      }
    }
    return dQ;
    return dKV;
  }
}
"""),
    "usp_back": ([(2, 2), (3, 2)], """schedule usp_back over (r of R, h of H) {
  forward {
    for x in 0 .. R - 1 {
      if x < R - 1 { pass KV[r - x, h] to (r + 1, h); }
      for y in 0 .. H - 1 {
        if y < H - 1 { pass KV[r - x, h - y] to (r, h + 1); }
        attend Q[r, h] with KV[r - x, h - y];
      }
    }
  }
  backward {
    exchange Q, KV over h;
    for s in 0 .. R - 1 { if s < R - 1 { pass Q[r - s, *] to (r + 1, h); } grad Q[r - s, *] with KV[r, *]; }
    return dQ;
    exchange dQ, dKV over h;
  }
}
"""),
}
RANGED = [("ring", "keys", (4,)), ("ring", "queries", (3,)), ("burst", "queries", (2, 2)), ("near", "keys", (7,)), ("halo", "keys", (2,)), ("bidirectional", "keys", (4,)),
          ("doubling", "keys", (5,)), ("gather", "keys", (4,)), ("biring", "keys", (4,)), ("double_ring", "keys", (2, 2)),
          ("mesh", "keys", (2, 2)), ("stride", "keys", (3, 2)), ("three_level", "keys", (2, 2, 2)), ('"thirds.sched"', "keys", (4,)), ('"halves.sched"', "keys", (2, 2))]
SEVERAL = [("near", "keys", "contiguous", (2,)), ("near", "keys", "zigzag", (3,)), ("ring", "keys", "blocks(8)", (2,)), ("double_ring", "keys", "contiguous", (2, 2)),
           ("ring", "queries", "contiguous", (2,)), ("burst", "queries", "zigzag", (2, 2)), ("mesh", "keys", "contiguous", (2, 2)), ("biring", "queries", "zigzag", (3,))]
PEAKED = [  # one high score among thousands of low ones
    ("ring", "keys", "zigzag", 1, 2, 1, 1, 64, 1 << 16),
    ("ring", "queries", "striped", 1, 7, 4, 1, 64, 8191),
    ("burst", "keys", "contiguous", 2, 2, 2, 2, 64, 8191),
    ("ulysses", "keys", "zigzag", 1, 2, 2, 1, 128, 8191),
]
LAYERED = [  # layers of some masks by a schedule of their own
    ("near for test1, burst for test2, biring for test4, ring", "keys for test0, queries for test1, keys for test4, queries", "zigzag"),
    ("gather for test0, near for test3, doubling for test5, burst", "queries for test3, keys", "contiguous"),
]
OUTPUTS = ["o", "lse", "dq", "dk", "dv"]
PATTERN_SIDE = 12  # of the pattern file; stock_masks.h has the formula again


class Point(typing.NamedTuple):
    schedule: str
    travel: str
    partition: str
    nodes: int
    lanes: int
    heads: int
    kv_heads: int
    head_dim: int
    length: int
    data: int = 1  # groups with the same sequence
    peaked: bool = False  # one mask, inputs and answers of peaked.c
    mesh: tuple = ()  # sizes of coordinates, where the layout gives them
    softcap: int = 0  # of scores; 0: none
    ranges: str = ""  # what the layout says of them; yes: bytes that are sent are compared with the plan's

    def name(self):
        words = f"{self.schedule}_{self.travel}_{self.partition}_{self.nodes}x{self.lanes}_h{self.heads}_{self.kv_heads}"
        return re.sub(r'[()", ]', "", words) + f"_d{self.head_dim}_n{self.length}" + (f"_data{self.data}" if self.data > 1 else "") + \
            ("_peaked" if self.peaked else "") + ("_" + "x".join(map(str, self.mesh)) if self.mesh else "") + \
            (f"_softcap{self.softcap}" if self.softcap else "") + (self.ranges and f"_ranges_{self.ranges}")

    def answers(self):
        option = ["--peaked"] if self.peaked else ["--softcap", self.softcap] if self.softcap else []
        return *option, self.heads, self.kv_heads, self.head_dim, self.length


def points():
    turn = itertools.count()
    for (schedule, travel), partition in itertools.product(SCHEDULES, PARTITIONS):
        for (nodes, lanes), (heads, kv_heads) in itertools.product(CLUSTERS[schedule], RATIOS):
            if nodes * lanes == 1 and partition != "zigzag":
                continue  # one rank owns all, in order or in two pieces
            at = next(turn)
            length = LENGTHS[(at + at // len(RATIOS)) % len(LENGTHS)]  # not in step with the ratios
            yield Point(schedule, travel, partition, nodes, lanes, heads, kv_heads, 8, length)
        yield Point(schedule, travel, partition, 2, 4, 8, 2, 8, TINY)
    for schedule, travel in SCHEDULES:
        yield Point(schedule, travel, "zigzag", 2, 2, 8, 2, 8, LONG)
        yield Point(schedule, travel, "zigzag", 2, 2, 8, 2, 8, LENGTHS[1], softcap=2)
        for head_dim, partition in ((16, "zigzag"), (32, "striped"), (64, "blocks(8)"), (128, "contiguous")):
            yield Point(schedule, travel, partition, 2, 2, 4, 2, head_dim, 61)
    for mesh, travel in itertools.product(MESHES, ("keys", "queries")):
        for schedule in MESHED[len(mesh)]:
            if travel == "queries" and schedule in KEYS_ONLY:
                continue
            at = next(turn)
            heads, kv_heads = RATIOS[at % len(RATIOS)]
            length = LENGTHS[(at + at // len(RATIOS)) % len(LENGTHS)]
            yield Point(schedule, travel, PARTITIONS[at % len(PARTITIONS)], 1, math.prod(mesh), heads, kv_heads, 8, length, mesh=mesh)
    shared = [("usp", mesh, travel) for mesh, travel in itertools.product(SHARED, ("keys", "queries"))]
    shared += [(f'"{name}.sched"', mesh, travel) for name, (meshes, text) in TEXTS.items() for mesh in meshes
               for travel in (("keys", "queries") if "mirrors" in text else ("keys",))]
    for schedule, mesh, travel in shared:
        at = next(turn)
        heads, kv_heads = RATIOS[at % len(RATIOS)]
        length = (LENGTHS + [TINY])[(at + at // len(RATIOS)) % 4]
        yield Point(schedule, travel, PARTITIONS[at % len(PARTITIONS)], 1, math.prod(mesh), heads, kv_heads, 8, length, mesh=mesh)
    for schedule, travel, mesh in RANGED:
        at = next(turn)
        yield Point(schedule, travel, PARTITIONS[at % len(PARTITIONS)], 1, math.prod(mesh), 8, 2, 8, LONG, mesh=mesh, ranges="yes")
    for schedule, partition in (("gather", "zigzag"), ("near", "striped")):  # more chunks than a launch of a GPU takes
        yield Point(schedule, "keys", partition, 1, 16, 8, 2, 8, LENGTHS[1], mesh=(16,))
    for partition in PARTITIONS:
        yield Point("near", "keys", partition, 1, 3, 8, 2, 8, LONG, mesh=(3,), ranges="yes")
    for schedule, travel, partition, mesh in SEVERAL:
        yield Point(schedule, travel, partition, 1, math.prod(mesh), 2, 1, 8, LONGER, mesh=mesh, ranges="yes")
    for schedule, travel, partition in LAYERED:
        yield Point(schedule, travel, partition, 2, 2, 8, 2, 8, LENGTHS[0], ranges="yes")
    for words in PEAKED:
        yield Point(*words, peaked=True)
    for schedule in ("ring", "ulysses"):
        yield Point(schedule, "keys", "zigzag", 2, 2, 8, 2, 8, LENGTHS[0], 2)


KINDS = [("schedule", "travel"), ("schedule", "partition"), ("schedule", "heads", "kv_heads"), ("partition", "length"),
         ("nodes", "lanes"), ("mesh",), ("head_dim",), ("data",), ("peaked",), ("softcap",), ("ranges",)]


def kinds(point):
    return {(fields, *(getattr(point, field) for field in fields)) for fields in KINDS}


def sample(all_points, day):
    """Few points that have every kind of a third of all: in an order drawn for the day each that brings a new kind, and of
    these no point whose kinds the others have."""
    taken, seen = [], collections.Counter()
    for point in random.Random(day).sample(all_points, len(all_points) // 3):
        if not kinds(point) <= seen.keys():
            taken.append(point)
            seen.update(kinds(point))
    for point in taken[::-1]:
        if all(seen[kind] > 1 for kind in kinds(point)):
            taken.remove(point)
            seen.subtract(kinds(point))
    return taken


def model_text(point, masks):
    lines = ['import "masks";', "",
             f"model test {{ layers {len(masks)}; hidden 8; heads {point.heads}; kv_heads {point.kv_heads}; "
             f"head_dim {point.head_dim}; ffn swiglu 8; norm rmsnorm 1e-5; rope 10000; vocab 32; tied yes; }}"]
    lines += [f"mask test{i} = {text};" for i, text in enumerate(masks)]
    lines += ["attention {", "  default test0;", *([f"  softcap {point.softcap};"] if point.softcap else [])] + [f"  layers {i}: test{i};" for i in range(1, len(masks))] + ["}"]
    lines += [f"sequence {point.length};", f"train {{ batch {point.data}; }}",
              emitted.layout(point.data, point.nodes * point.lanes // point.data, point.schedule, point.travel, point.partition,
                             mesh=point.mesh, ranges=point.ranges)]
    return "\n".join(lines)


class Matrix:
    def __init__(self, args):
        self.args = args
        self.tools = emitted.Toolchain(args.toolchain)
        self.masks = run([args.oracle, "--list"], timeout=60).stdout.splitlines()
        self.environment = emitted.quiet_environment()

    def prepare(self, folder, shapes):
        """The pattern file and the oracle's answers, one file a shape."""
        self.folder = folder
        rows = ["".join(str(int((row * 7 + col * 3) % 5 < 2)) for col in range(PATTERN_SIDE)) for row in range(PATTERN_SIDE)]
        (self.folder / "pattern.txt").write_text("\n".join(rows) + "\n")
        for name, (_, text) in TEXTS.items():
            (self.folder / f"{name}.sched").write_text(text)
        runner.check_all(self.solve, shapes, self.args.jobs)

    def answers(self, shape):
        return self.folder / ("answers_" + "_".join(map(str, shape)))

    def solve(self, shape):
        run([self.args.oracle, *shape, self.answers(shape)], timeout=300)

    def masks_of(self, point):
        return ["causal"] if point.peaked else self.masks

    def build(self, point):
        topo = emitted.topology(point.nodes, point.lanes)
        source = self.tools.emit(self.folder, point.name(), topo, model_text(point, self.masks_of(point)))
        # With as many masks, optimising takes longer than it spares in running, but of long sequences.
        return self.tools.link(source, self.args.harness, "-O1" if point.length > LONG else "-O0")

    def check_sent(self, program, point, text):
        """What all ranks sent under each mask is what the plan says, and with documents, of which the plan knows nothing, at most that."""
        plan = run([self.tools.burstc, f"{program}.topo", f"{program}.burst", "--emit=plan"], 60).stdout
        planned = [int(n) for n in re.findall(r"^(?:for|back)ward of a layer .* sends (\d+) bytes, whole", plan, re.M)]
        sent = re.findall(r"^sent mask (\d+) table \d+ forward (\d+) backward (\d+)$", text, re.M)
        for mask, *directions in sent:
            for want, is_sent in zip(planned[2 * int(mask):], map(int, directions)):
                documents = "doc" in self.masks[int(mask)]
                if is_sent > want or (is_sent < want and not documents):
                    raise Failed(f"{program}: {self.masks[int(mask)]} sends {is_sent} bytes, planned {want}")
        if len(planned) != 2 * len(self.masks) or not sent:
            raise Failed(f"{program}: {len(planned)} figures in the plan, {len(sent)} of the run")

    def measure(self, program, point, *more):
        """(output text, cases, failed, worst error of each output)."""
        done = run([program, self.answers(point.answers()), *more], 300, self.environment, check=False)
        last = re.search(r"^cases (\d+) failed (\d+) worst (.*)$", done.stdout, re.M)
        if not last or (done.returncode != 0) != (int(last[2]) != 0):
            raise Failed(f"{program} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        worst = [float(word.split("=")[1]) for word in last[3].split()]
        return done.stdout, int(last[1]), int(last[2]), worst

    def run_point(self, point):
        program = self.build(point)
        try:
            found = self.measure(program, point, *(["--sent"] if point.ranges == "yes" else []))
            if point.ranges == "yes":
                self.check_sent(program, point, found[0])
            return found
        finally:
            if not self.args.keep:
                for path in self.folder.glob(f"{point.name()}*"):
                    path.unlink()

    def test_harness(self, point):
        """With an output off by 1e-4 at least 80 % of the cases must fail (a mask with no or one key a row has nothing, or
        no dQ and dK, to spoil), and the worst by just that."""
        program = self.build(point)
        for output in OUTPUTS:
            _, cases, failed, worst = self.measure(program, point, "--spoil", output)
            if failed < 0.8 * cases:
                raise Failed(f"{program}: with {output} spoiled only {failed} of {cases} cases fail")
            if abs(worst[OUTPUTS.index(output)] - 1e-4) > 2e-6:
                raise Failed(f"{program}: {output}, spoiled by 1e-4, is said to be off by {worst[OUTPUTS.index(output)]}")

    def explain(self, point, text):
        """The failed cases with their masks' texts, a few of them."""
        lines = [line for line in text.splitlines() if line.startswith("FAILED")]
        with_masks = [f"{line}  # {self.masks_of(point)[int(line.split()[2])]}" for line in lines[:8]]
        return f"{point.name()}: {len(lines)} cases off\n  " + "\n  ".join(with_masks)


def report(matrix, found):
    """Prints the cases that are off and each output's worst error; how many programs have such cases."""
    bad = [(point, text) for point, (text, _, failed, _) in found if failed]
    for point, text in bad:
        print(matrix.explain(point, text))
    for i, output in enumerate(OUTPUTS):
        error, name = max((errors[i], point.name()) for point, (*_, errors) in found)
        print(f"  worst relative L2 of {output}: {error:.2e} ({name})")
    return len(bad)


def main():
    parser = runner.options(__doc__, "--toolchain", "--oracle")
    parser.add_argument("--harness", required=True, nargs="+", help="object files")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1, help="run every shards-th point only")
    parser.add_argument("--sample", action="store_true", help="a few points with every kind of a third of them, others each day; all with --all")
    parser.add_argument("--day", type=int, default=int(time.time() // 86400), help="whose sample")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="leave texts and programs in the work folder")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    chosen = runner.chosen(points(), args.only)[args.shard::args.shards]
    if args.sample and not args.all:
        chosen = sample(chosen, args.day)
        print(f"{len(chosen)} points (--sample --day {args.day})")
    if args.list:
        print("\n".join(p.name() for p in chosen))
        return 0
    begin = time.monotonic()
    matrix = Matrix(args)
    with runner.folder(args.work) as folder:
        matrix.prepare(folder, sorted({p.answers() for p in chosen}, key=str))
        found, failures = runner.check_all(matrix.run_point, chosen, args.jobs)
        failures += report(matrix, found) if found else 1
        telling = [p for p in chosen if p.length in LENGTHS]
        if telling and not failures:
            matrix.test_harness(min(telling, key=lambda p: (-p.data, p.nodes * p.lanes == 1, p.nodes * p.lanes)))
    print(f"{len(chosen)} programs, {len(matrix.masks)} masks, {sum(cases for _, (_, cases, _, _) in found)} cases forward and backward, "
          f"{failures} programs failed, {time.monotonic() - begin:.0f} s")
    return failures > 0


runner.end(main)
