#!/usr/bin/env python3
"""run_pictures.py BURSTC SOURCE: pictures against masks that are evaluated pair by pair here, and against the text forms.

Nothing of burstc is shared: cells of a mask are counted one pair at a time, owners are taken from --emit=partition, times from
--emit=cost and --explain.
"""
import functools
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
import svg  # noqa: E402
from page import Page  # noqa: E402

BURSTC, SOURCE, CHOSEN = runner.words(__doc__, "burstc", "source", more="test")
run, SOURCE = functools.partial(emitted.burstc, BURSTC), pathlib.Path(SOURCE)
TILE = 64

TOPO = """cluster few {{ nodes {nodes} {{ gpus {gpus} of core; nics 1 of loop; }} link nvlink {{ bandwidth 8 GB/s; latency 2 us; }} }}
device core {{ arch cpu; memory 4 GiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; attention forward 40 GFLOP/s; attention backward 35 GFLOP/s; }}
nic loop {{ bandwidth 80 Gb/s; latency 5 us; }}
host {{ memory 64 GiB; pcie 8 GB/s; cores 8; }}
"""
MODEL = """mask odd(w) = k <= q and (q - k < w or k mod 7 == 3);
mask both = (q - k) * (q - k) < 90000;
mask nothing_seen(n) = k < n and q >= n;
mask unused = k <= q and k / 100 mod 2 == 0;
model m {{ layers 4; hidden 32; heads 4; kv_heads 2; head_dim 8; ffn swiglu 48; vocab 256; }}
attention {{ default causal; layers 1: odd(150); layers 2: both; }}
sequence {tokens};
layout {{ {layout} }}
"""
MASKS = {  # as Python has them, for text of --emit=mask
    "causal": lambda q, k: k <= q,
    "odd(150)": lambda q, k: k <= q and (q - k < 150 or k % 7 == 3),
    "both": lambda q, k: (q - k) ** 2 < 90000,
    "unused": lambda q, k: k <= q and k // 100 % 2 == 0,
}
LAYERS = ["causal", "odd(150)", "both", "causal"]


def write(folder, layout, nodes=2, gpus=2, tokens=1000):
    (folder / "c.topo").write_text(TOPO.format(nodes=nodes, gpus=gpus))
    (folder / "m.burst").write_text(MODEL.format(tokens=tokens, layout=layout))


def drawn(folder, name):
    run(folder, "c.topo", "m.burst", f"--emit={name}", "-o", f"{name}.svg")
    return (folder / f"{name}.svg").read_text()


def form(folder, name):
    return run(folder, "c.topo", "m.burst", f"--emit={name}"), drawn(folder, name)


def find(lines, pattern):
    for line in lines:
        match = re.fullmatch(pattern, line)
        if match:
            return match.groups()
    raise AssertionError(f"no text {pattern} in {lines}")


def near(x, y, unit):
    assert abs(float(x) - float(y)) <= unit * 1.01, (x, y, unit)


# ---- masks ----

def level(kept, whole, partial_tiles):
    if kept == 0:
        return 0
    return 5 if kept == whole else 1 + min(3, 4 * kept // whole)


def check_mask(panel, keeps, n, shown):
    rows = [[keeps(q, k) for k in range(n)] for q in range(n)]
    (_, _, cells), = svg.grids(panel)
    edges = list(range(0, n, TILE)) + [n]
    full = partial = pairs = 0
    for i in range(len(edges) - 1):
        for j in range(len(edges) - 1):
            kept = sum(sum(row[edges[j]:edges[j + 1]]) for row in rows[edges[i]:edges[i + 1]])
            whole = (edges[i + 1] - edges[i]) * (edges[j + 1] - edges[j])
            assert cells.get((i, j), 0) == level(kept, whole, 0), (shown, i, j, kept, whole, cells.get((i, j)))
            full, partial, pairs = full + (kept == whole), partial + (0 < kept < whole), pairs + kept
    lines = svg.texts(panel)
    density, count = find(lines, r"density (\S+), (\d+) pairs")
    assert int(count) == pairs and density == f"{pairs / n / n:.6g}", (shown, density, count, pairs)
    tiles = find(lines, r"tiles of 64 x 64: (\d+) full, (\d+) partial, (\d+) empty")
    assert list(map(int, tiles)) == [full, partial, (len(edges) - 1) ** 2 - full - partial], (shown, tiles)


def test_mask(folder):
    write(folder, "schedule ring; partition zigzag;")
    text, picture = form(folder, "mask")
    found = svg.panels(picture)
    assert [title for title, _ in found] == ["mask causal", "mask odd(150)", "mask both"]
    for title, panel in found:
        check_mask(panel, MASKS[title.removeprefix("mask ")], 1000, title)
    for key, pattern in (("pairs", r"density \S+, (\d+) pairs"), ("density", r"density (\S+), \d+ pairs"),
                         ("tiles_full", r"tiles of 64 x 64: (\d+) full.*"), ("tiles_partial", r".* (\d+) partial.*")):
        assert re.findall(rf"^{key} (\S+)$", text, re.M) == [find(svg.texts(panel), pattern)[0] for _, panel in found], key


def test_mask_of_any_table(folder):
    """What depends on the batch's documents is partial however many pairs it may keep."""
    write(folder, "")
    text = (folder / "m.burst").read_text()
    (folder / "m.burst").write_text(text.replace("mask both = ", "mask both = doc[q] == doc[k]; mask other = "))
    title, panel = svg.panels(drawn(folder, "mask"))[2]
    (_, _, cells), = svg.grids(panel)
    assert title == "mask both" and set(cells.values()) == {4} and len(cells) == 16 ** 2, set(cells.values())


# ---- partitions ----

def owners(text):
    """Position -> rank, from --emit=partition."""
    owner = {}
    for rank, pieces in re.findall(r"^rank (\d+) tokens \d+(.*)$", text, re.M):
        for start, run_, stride, count in re.findall(r"\[start (\d+) run (\d+)(?: stride (\d+) count (\d+))?\]", pieces):
            for j in range(int(count or 1)):
                for t in range(int(run_)):
                    owner[int(start) + j * int(stride or 0) + t] = int(rank)
    return owner


def test_partition(folder):
    for partition in ("contiguous", "zigzag", "striped", "blocks(96)"):
        write(folder, f"data 1; schedule ring; partition {partition};")
        text, picture = form(folder, "partition")
        owner, n, ranks = owners(text), 1000, 4
        assert sorted(owner) == list(range(n))
        (title, panel), (_, balance) = svg.panels(picture)
        assert title == f"partition {partition}, 4 ranks"
        (_, _, cells), = svg.grids(panel)
        for c in range(128):
            column = range(c * n // 128, (c + 1) * n // 128)
            for r in range(ranks):
                own = sum(owner[x] == r for x in column)
                want = 0 if own == 0 else 5 if own == len(column) else 1 + 4 * own // len(column)
                assert cells.get((r, c), 0) == want, (partition, r, c)
        check_balance(svg.texts(balance), owner, n, ranks)
        explained = run(folder, "c.topo", "m.burst", "--explain")
        near(find(svg.texts(balance)[-6:], r"balance (\S+)")[0], re.search(r"(\S+) balance.* chosen$", explained, re.M).group(1), 0.005)


def check_balance(lines, owner, n, ranks):
    pairs = {name: [0] * ranks for name in MASKS}
    for name in set(LAYERS):
        keeps = MASKS[name]
        for q in range(n):
            pairs[name][owner[q]] += sum(keeps(q, k) for k in range(n))
    pairs["all layers"] = [sum(pairs[name][r] for name in LAYERS) for r in range(ranks)]
    for name in (*dict.fromkeys(LAYERS), "all layers"):
        shown, = re.fullmatch(r"balance (\S+)", lines[lines.index(name) + 1]).groups()
        assert shown == f"{max(pairs[name]) * ranks / sum(pairs[name]):.3f}", (name, shown, pairs[name])


# ---- schedules and times ----

def table(text):
    """(direction, mask) -> takes, compute: milliseconds of --emit=cost."""
    rows = re.findall(r"^  attention (forward|backward), (.{1,17}?) +\d+ +(\S+) +(\S+) +\S+$", text, re.M)
    return {(direction, mask): (float(takes), float(compute)) for direction, mask, takes, compute in rows}


def kind(title):
    return re.fullmatch(r"\w+, attention (forward|backward): [\w, ()]+, mask (.*)", title).groups()


def test_schedule(folder):
    for schedule, travel in (("ring", "keys"), ("burst", "queries")):
        write(folder, f"data 1; schedule {schedule}; partition zigzag; travel {travel}; recompute none;")
        picture = drawn(folder, "schedule")
        times = table(run(folder, "c.topo", "m.burst", "--emit=cost"))
        found = svg.panels(picture)
        assert [kind(title) for title, _ in found] == [(d, m) for m in dict.fromkeys(LAYERS) for d in ("forward", "backward")]
        for title, panel in found:
            busy, partners = [0.0] * 4, [set() for _ in range(4)]
            for rank, _, side, chunk, ms in re.findall(r"rank (\d+), step (\d+), ([qk])(\d+): (\S+) ms", "\n".join(svg.titles(panel))):
                busy[int(rank)] += float(ms)
                partners[int(rank)].add((side, int(chunk)))
            assert all({chunk for _, chunk in p} == {0, 1, 2, 3} for p in partners), "every rank attends with every chunk"
            near(max(busy), times[kind(title)][1], 0.0005)


def test_cost(folder):
    for layout in ("data 1; schedule ring; partition zigzag; recompute full;", "data 1; schedule ulysses;", "data 4;"):
        write(folder, layout)
        text, picture = form(folder, "cost")
        (_, step), *attentions = svg.panels(picture)
        lines, times = svg.texts(step), table(text)
        takes, compute, exposed, critical = re.search(r"^step (\S+ m?s): compute (\S+ m?s), exposed (\S+ m?s); most waited for: (.*)$",
                                                      text, re.M).groups()
        assert lines[:2] == [f"step {takes}", f"compute {compute}, exposed {exposed}; most waited for: {critical}"]
        beside, inside = 0, 0
        for name, shown in zip(lines[2::2], lines[3::2]):
            ms = float(re.fullmatch(r"(\S+) ms, \S+ %", shown).group(1))
            inside += 0 if name.endswith("(overlapped)") else ms
        near(inside, runner.milliseconds(takes), 0.0005 * len(lines))
        assert len(attentions) == 6
        for title, panel in attentions:
            want = times[kind(title)]
            assert find(svg.texts(panel), r"takes (\S+) ms; .*")[0] == f"{want[0]:.3f}"
            busy = [float(ms) for ms in re.findall(r"rank \d+: computes (\S+) ms", "\n".join(svg.titles(panel)))]
            near(max(busy), want[1], 0.0005)
            check_spans(panel, busy, want[0])


def check_spans(panel, busy, takes):
    """What is drawn of computing, in pixels, is what the titles say (bars have half a pixel of room behind them)."""
    drawn = {}
    for path in panel.iter():
        if svg.tag(path) == "path" and path.get("class") == "p5":
            for y, w in re.findall(r"M\S+ (\S+)h([\d.]+)v10", path.get("d")):
                drawn.setdefault(float(y), []).append(float(w))
    tops = [float(e.get("y")) for e in panel.iter() if svg.tag(e) == "rect" and e.get("class") == "ex"]
    assert len(tops) == len(busy)
    for top, ms in zip(tops, busy):
        got = drawn.pop(top + 2, [])
        near(sum(got), ms / takes * 576, 0.8 * len(got) + 576 * 0.0005 / takes * 2)
    assert not drawn, "bars of no rank"


# ---- memory ----

SIZE = r"\d+(?:\.\d+)? (?:bytes|[KMGT]iB)"


def bytes_of(text):
    number, unit = text.split()
    return float(number) * {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def stacked(panel):
    """Pixels of every use at each column of the picture, by its middle."""
    high = {}
    for path in panel.iter():
        if svg.tag(path) == "path" and path.get("d"):
            for x, _, w, h, back, turn in re.findall(r"M(\S+) (\S+?)h([\d.]+)v([\d.]+)h-([\d.]+)(z)", path.get("d")):
                for column in range(280):
                    if float(x) <= 64 + (column + 0.5) * 2 < float(x) + float(w):
                        high[column] = high.get(column, 0) + float(h)
    return high


def test_memory(folder):
    """What is drawn of memory is what the text says: the figures of bars, and the height of the stack at its peak."""
    for layout in ("data 1; schedule ring; recompute none;", "data 2; recompute full;"):
        write(folder, layout)
        text, picture = form(folder, "memory")
        (space, over), (alive, bars), (others, choices) = svg.panels(picture)
        needs, arena, peak = re.search(rf"needs ({SIZE}),[^\n]*\n +({SIZE})  arena .* peak at ({SIZE})", text).groups()
        assert (space, alive, others) == (f"device: a rank needs {needs}", "alive at the peak", "with one setting changed")
        assert find(svg.texts(over), rf"of {SIZE}; arena of the step's values ({SIZE}), live bytes ({SIZE}) at most, in (.*)") == \
            (arena, peak, re.search(r"at the peak, in (.*):\n", text).group(1))
        near(max(stacked(over).values()), bytes_of(peak) / bytes_of(arena) / 1.06 * 260, 3)
        rows = re.findall(rf"^ +({SIZE})  (\w+ \[.*?)(?: \((\d+)\))?: ", text, re.M)
        shown = svg.texts(bars)[2:]
        assert list(zip(shown[::2], shown[1::2])) == [(what, f"{size} ({n})" if n else size) for size, what, n in rows][:24]
        rows = re.findall(rf"^  (\S.*?)  +({SIZE}) .* (\S+ m?s)(?: |$)", text[text.index("with one setting"):], re.M)
        shown = svg.texts(choices)[2:]
        assert list(zip(shown[::2], shown[1::2])) == [(what, f"{size}, {ms}") for what, size, ms in rows] and len(rows) > 4


# ---- all ----

def test_same_bytes(folder):
    write(folder, "")
    other = folder / "other"
    other.mkdir()
    write(other, "")
    for name in ("mask", "partition", "schedule", "cost", "memory"):
        assert drawn(folder, name) == drawn(other, name) == drawn(folder, name), name


def test_names(folder):
    """A name too long for its place is cut, and that is said."""
    write(folder, "data 1; schedule ring;", tokens=256)
    text = (folder / "m.burst").read_text()
    (folder / "m.burst").write_text(text.replace("both", "b" * 300))
    for name in ("mask", "partition", "schedule", "cost"):
        lines = [line for _, panel in svg.panels(drawn(folder, name)) for line in svg.texts(panel)]
        assert any("b\u2026 (300 characters)" in line for line in lines) and not any("b" * 61 in line for line in lines), name


def test_many_ranks(folder):
    """1Mi tokens on 1024 ranks: less than 300 KB each, and what stands for what is said."""
    (folder / "c.topo").write_text("cluster g { nodes 128 { gpus 8 of h200; nics 8 of ndr; } }\n")
    (folder / "m.burst").write_text("""model m { layers 4; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; vocab 128256; }
attention { default causal; layers 1: window_sink(32Ki, 4); }
sequence 1Mi;
layout { data 1; schedule burst; partition zigzag; travel keys; recompute none; ranges yes; }
""")
    said = {"mask": r"a cell: 16Ki x 16Ki tokens, 65536 kernel tiles", "partition": r"a row is 16 ranks",
            "schedule": r".*64 of 1024 ranks; a cell is the mean of 1 x 16 .*", "cost": r".* of 1024 ranks simulated; a row is .*", "memory": r"of .*; arena of the step's values .*"}
    for name, pattern in said.items():
        picture = drawn(folder, name)
        assert len(picture.encode()) < 300_000, (name, len(picture))
        find([line for _, panel in svg.panels(picture) for line in svg.texts(panel)], pattern)


# ---- the page ----

def page_of(folder, *cluster, name="page.html"):
    run(folder, "explore", "m.burst", *cluster, "-o", name)
    return Page((folder / name).read_text())


def check_candidates(rows, explained):
    """The rows of the page are those of --explain, figure by figure."""
    rows = [(kind, cells) for kind, cells in rows if len(cells) > 1]
    (_, head), *rows = rows
    header = next(n for n, line in enumerate(explained.splitlines()) if line.endswith(" step"))
    lines = explained.splitlines()[header + 1:header + 1 + len(rows)]
    explained = explained.splitlines()[header]
    assert len(lines) == len(rows) > 4 and head[-7:-1] == ["step (ms)", "exposed (%)", "balance", "memory (GiB)", "inside nodes", "between nodes"]
    for (kind, cells), line in zip(rows, lines):
        assert kind == ("best" if line.endswith("  chosen") else None)
        figures = re.search(r"(\S+) ms +(\S+) % exposed +(\S+) balance +(\S+) GiB  (.*)$", line)
        names = cells[:len(head) - 7]
        assert line.split()[:len(" ".join(names).split())] == " ".join(names).split() and head[:len(names)] == explained.split()[:len(names)], (names, line)
        if figures:
            step, exposed, balance, memory, verdict = figures.groups()
            assert cells[-7:-3] == [step, exposed, balance, memory] and cells[-1] == verdict, (cells, line)
        else:
            assert line.endswith(cells[-1]), (cells, line)


def test_page(folder):
    write(folder, "data 1;")
    page = page_of(folder, "c.topo")
    check_candidates(page.rows, run(folder, "c.topo", "m.burst", "--explain"))
    best = next(cells for kind, cells in page.rows if kind == "best")
    cost = run(folder, "c.topo", "m.burst", "--emit=cost")
    sent = re.search(r"^sent by a rank: (.*) inside nodes, (.*) between nodes$", cost, re.M).groups()
    assert tuple(best[-3:-1]) == sent, (best, sent)
    found = {svg.texts(p)[0]: p for p in page.pictures}
    for name, keeps in MASKS.items():
        check_mask(found[f"mask {name}"], keeps, 1000, name)
    assert [name for name in found if name.startswith("mask ")] == [f"mask {name}" for name in MASKS] and list(found)[0].startswith("step ")
    assert "no layer uses it" in page.text and "2 of 4 layers" in page.text and "k <= q and k / 100 mod 2 == 0" in page.text
    assert any(line.endswith("no layer uses them: nothing_seen") for line in page.text), page.text
    for partition in ("contiguous", "zigzag", "striped", "blocks(256)"):
        write(folder, f"data 1; schedule ring; partition {partition};")
        owner = owners(run(folder, "c.topo", "m.burst", "--emit=partition"))
        check_balance(svg.texts(found[f"pairs of each rank, partition {partition}"]), owner, 1000, 4)
    times = table(cost)
    shown = [(kind(title), find(svg.texts(p), r"takes (\S+) ms; .*")[0]) for title, p in found.items() if title.startswith("timeline")]
    for which, takes in shown[:4]:
        assert takes == f"{times[which][0]:.3f}", (which, takes)
    steps = [re.fullmatch(r"step (\S+) ms", title).group(1) for title in found if title.startswith("step")]
    of_schedule = {cells[0]: min(float(c[-7]) for _, c in page.rows[1:] if c[0] == cells[0] and len(c) == len(best)) for _, cells in page.rows[1:]}
    assert steps[0] == best[-7] and sorted(map(float, steps[1:])) == sorted(t for n, t in of_schedule.items() if n != best[0])[:2], steps


def test_page_times(folder):
    """What a layer takes with a mask, on the page: what the chosen layout takes if all layers have the mask."""
    write(folder, "data 1;")
    page_of(folder, "c.topo")
    layout = re.search(r"^layout { (.*) }$", run(folder, "c.topo", "m.burst", "--emit=cost"), re.M)[1]
    shown = re.findall(r'data-name="([^"]*)">(?:(?!</figure>).)*in the chosen layout: forward (\S+) ms, backward (\S+) ms',
                       (folder / "page.html").read_text(), re.S)
    assert [name for name, *_ in shown] == list(MASKS), shown
    for name, *milliseconds in shown:
        (folder / "m.burst").write_text(re.sub("attention {.*?}", f"attention {{ default {name}; }}", MODEL.format(tokens=1000, layout=layout)))
        times = table(run(folder, "c.topo", "m.burst", "--emit=cost"))
        found = [f"{times[direction, name][0]:.3f}" for direction in ("forward", "backward")]
        assert found == milliseconds, (name, found, milliseconds)


def test_page_alone(folder):
    """Without a cluster: the same masks, partitions for 8 ranks or as many as the layout has, nothing of times."""
    for layout, ranks in (("", 8), ("context 4; data 16;", 4), ("heads 2;", 2)):
        write(folder, layout)
        page = page_of(folder)
        assert page.text.count("No cluster was given") == 0 and any("No cluster was given" in line for line in page.text)
        titles = [svg.texts(p)[0] for p in page.pictures]
        assert titles[:4] == [f"mask {name}" for name in MASKS] and f"partition zigzag, {ranks} ranks" in titles
        assert not page.rows and not [t for t in titles if t.startswith(("timeline", "step", "work"))]


def test_page_same(folder):
    """The same bytes again, from another folder, with the operands in the other order; onto standard output too."""
    write(folder, "")
    other = folder / "other"
    other.mkdir()
    write(other, "")
    page_of(folder, "c.topo")
    text = (folder / "page.html").read_text()
    run(other, "explore", "c.topo", "m.burst", "-o", "p.html")
    assert (other / "p.html").read_text() == text == run(folder, "explore", "m.burst", "c.topo", "-o", "-")


def test_page_drawn(folder):
    """Three layouts are drawn where there are as many, of several schedules or of one; each picture is there once, under its row's settings."""
    for layout in ("data 1;", "data 1; schedule burst;", "data 1; schedule ring; partition zigzag; travel keys;"):
        write(folder, layout)
        page_of(folder, "c.topo")
        text = (folder / "page.html").read_text()
        table = text[text.index('id="layouts"'):]
        rows = re.findall(r"<tr([^>]*)>", table[table.index("<tbody"):table.index("</tbody")])
        drawn = re.findall(r'data-drawn="layout-(\d)"', " ".join(rows))
        assert "layout-0" in rows[0] and len(drawn) == min(3, len(rows)) and drawn == [str(i) for i in range(len(drawn))], (layout, rows)
        assert re.findall(r'<div id="layout-(\d)">', text) == drawn, (layout, drawn)
        schedules = re.findall(r'<div id="layout-\d"><p><code>layout \{.*? schedule (\w+)', text)
        assert len(schedules) == len(drawn) and (schedules == ["burst"] * len(drawn) if "burst" in layout else True), (layout, schedules)


def test_page_sizes(folder):
    """1Mi tokens: less than 300 KB on 16, 64 and 1024 ranks; 64Ki tokens on 8 ranks: in less than 5 s of processor time."""
    masks = "".join(f"mask n{i} = k <= q and (q - k < 4Ki or hash(q / {8192 + 512 * i}, k / 8Ki) mod {3 + i} == 0);\n" for i in range(6))
    (folder / "m.burst").write_text(masks + """model m { layers 4; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; vocab 128256; }
attention { default causal; layers 1: n1; }
sequence 1Mi;
""")
    text = (folder / "m.burst").read_text()
    # The ranges of a transfer are searched on 16 ranks alone: on more that takes half of the time, and pages are no larger.
    for nodes, ranges in ((2, ""), (8, "ranges no; "), (128, "ranges no; ")):
        (folder / "m.burst").write_text(f"{text}layout {{ data 1; travel keys; partition zigzag; {ranges}}}\n")
        (folder / "c.topo").write_text(f"cluster g {{ nodes {nodes} {{ gpus 8 of h200; nics 8 of ndr; }} }}\n")
        page = page_of(folder, "c.topo")
        assert (folder / "page.html").stat().st_size < 300_000, (nodes, (folder / "page.html").stat().st_size)
        assert nodes == 2 or any(f"of {8 * nodes} ranks simulated" in line for line in page.text)
    (folder / "m.burst").write_text(text.replace("sequence 1Mi", "sequence 64Ki"))
    (folder / "c.topo").write_text("cluster g { nodes 1 { gpus 8 of h200; } }\n")
    before = os.times()
    page_of(folder, "c.topo")
    after = os.times()
    assert after.children_user - before.children_user < 5, "64Ki tokens on 8 ranks"


def test_page_refused(folder):
    write(folder, "")
    said = {("m.burst",): "explore requires an output page: give -o FILE.html",
            ("m.burst", "-o", "x.svg"): "explore requires an output page: give -o FILE.html",
            ("c.topo", "-o", "x.html"): "explore requires a model (.burst)",
            ("m.burst", "c.topo", "n.burst", "-o", "x.html"): "expected one model and one cluster (a file that ends in .topo); unexpected 'n.burst'",
            ("m.burst", "--emit=mask", "-o", "x.html"): "explore writes a page, which has no --emit",
            ("m.burst", "--explain", "-o", "x.html"): "explore writes a page, which has no --explain"}
    for arguments, text in said.items():
        error = run(folder, "explore", *arguments, status=2)
        assert f"burstc: error: {text}\n" in error, error
    error = run(folder, "c.topo", "m.burst", "-o", "x.html", status=2)
    assert "'x.html' is an HTML page, which only `burstc explore` can write" in error, error
    assert "cannot read 'no.burst'" in run(folder, "explore", "no.burst", "-o", "x.html", status=1)
    run(folder, "explore", "m.burst", "c.topo", "-o", "c.topo/x.html", status=1)
    (folder / "link.html").symlink_to("m.burst")
    assert "it is an input" in run(folder, "explore", "m.burst", "-o", "link.html", status=1)
    (folder / "m.burst").write_text((folder / "m.burst").read_text().replace("mask unused = k <= q", "mask unused = k <= w"))
    error = run(folder, "explore", "m.burst", "-o", "x.html", status=1)
    assert "m.burst:4:20: error:" in error and "w" in error, error
    assert not (folder / "x.html").exists()


def test_docs(folder):
    """The picture of docs/explore.md is what its command draws."""
    run(SOURCE, "examples/cpu8.topo", "examples/demo.burst", "--emit=mask", "-o", folder / "mask.svg")
    assert (folder / "mask.svg").read_text() == (SOURCE / "docs/mask.svg").read_text()


def test_refused(folder):
    write(folder, "")
    for arguments in (["--emit=plan", "-o", "x.svg"], ["-o", "x.svg"], ["--emit=c", "-o", "x.svg"]):
        error = run(folder, "c.topo", "m.burst", *arguments, status=2)
        assert "'x.svg' is a picture, which only --emit=mask, partition, schedule, cost or memory can write" in error, error
        assert not list(folder.glob("x.svg*"))
    (folder / "old.svg").write_text("precious")
    (folder / "m.burst").write_text("model m {")
    run(folder, "c.topo", "m.burst", "--emit=mask", "-o", "old.svg", status=1)
    assert (folder / "old.svg").read_text() == "precious"


def alone(test):
    with runner.folder() as folder:
        test(folder)


tests = {name: test for name, test in globals().items() if name.startswith("test_") and name in (CHOSEN or [name])}
sys.exit(runner.run_parts({name: lambda test=test: alone(test) for name, test in tests.items()}) > 0)
