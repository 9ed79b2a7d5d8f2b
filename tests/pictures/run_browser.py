#!/usr/bin/env python3
"""run_browser.py BURSTC: the page of `burstc explore`, worked in headless Chromium by browser.js at two widths in both themes.

What a script does to the table is compared with the rows sorted and filtered here. 77: there is no Chromium.
"""
import html
import json
import pathlib
import re
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TOPO = """device small { arch sm_90a; memory 12 GB; hbm 3.3 TB/s; matmul bf16 690 TFLOP/s; attention forward 600 TFLOP/s; }
nic card { bandwidth 400 Gb/s; latency 5 us; }
cluster two { nodes 2 { gpus 2 of small; nics 2 of card; } }
"""
MODEL = """import "masks";
mask mine(w) = k <= q and (q - k < w or k mod 512 < 16);
mask unused = k <= q and k / 100 mod 2 == 0;
model demo { layers 8; hidden 2048; heads 16; kv_heads 4; head_dim 128; ffn swiglu 8192; vocab 32000; }
attention { default causal; layers 1, 3: mine(4Ki); }
sequence 128Ki;
layout { data 1; partition auto; }
"""
# A schedule of four rings: its sizes and the orders of their axes make more than a thousand layouts of sixteen ranks.
FOUR = """schedule four over (a of A, b of B, c of C, d of D) {
  backward keys {
    for x in 0 .. A - 1 {
      if x < A - 1 { pass KV[a - x, b, c, d] to (a + 1, b, c, d); }
      use three_level over (b, c, d) with KV[a - x, b, c, d];
    }
    return dKV;
  }
  backward queries mirrors keys;
  forward mirrors keys;
}
"""
MANY = """model demo { layers 2; hidden 2048; heads 16; kv_heads 4; head_dim 128; ffn swiglu 8192; vocab 32000; }
attention { default causal; }
sequence 16Ki;
layout { data auto; partition auto; schedule four; placement auto; }
train { batch 2; }
"""
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def opened(page, folder, width, dark):
    """What browser.js found."""
    test = folder / "test.html"
    test.write_text(page.replace("<script>", "<script>window.errors = []; window.onerror = text => { window.errors.push(text); };</script>\n<script>")
                    .replace("</body>", f"<script>{(HERE / 'browser.js').read_text()}</script></body>"))
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = runner.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", f"--window-size={width},2000",
                       *theme, "--virtual-time-budget=20000", "--dump-dom", test.as_uri()], 200)
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S).group(1)))


def number(text):
    match = re.match(r"(-?[\d.]+)(?: (\w+))?", text)
    return float(match.group(1)) * UNITS.get(match.group(2), 1) if match else None


def check_sorted(column):
    """Numbers and sizes by value, before them nothing; other texts by letters."""
    assert column["focused"] and column["says"] == "ascending" and column["then"] == "descending" and column["others"] == 0, column
    values = [number(text) for text in column["up"]]
    numbers = [v for v in values if v is not None]
    assert values[:len(numbers)] == sorted(numbers), column
    assert sorted(column["up"]) == sorted(column["down"]) and len(column["up"]) > 10
    down = [number(text) for text in column["down"]]
    assert down[len(down) - len(numbers):] == sorted(numbers, reverse=True), column


def check_filtered(results):
    for result in results:
        words = result["text"].lower().split()
        assert all(all(w in row.lower() for w in words) for row in result["shown"])
        assert not any(all(w in row.lower() for w in words) for row in result["hidden"])
        assert result["says"] == f"{len(result['shown'])} of {len(result['shown']) + len(result['hidden'])} rows"


def check_many(folder, burstc):
    """A thousand candidates and more: the page's size, and its table at work."""
    (folder / "many.topo").write_text(TOPO.replace("nodes 2 { gpus 2", "nodes 4 { gpus 4"))
    (folder / "many.burst").write_text(MANY)
    (folder / "four.sched").write_text(FOUR)
    emitted.burstc(burstc, folder, "explore", "many.burst", "many.topo", "--schedule", "four.sched", "-o", "many.html")
    page = (folder / "many.html").read_text()
    rows = len(re.findall(r"^<tr.*</tr>$", page, re.M))
    assert rows >= 1000 and len(page.encode()) < 400_000, (rows, len(page.encode()))
    found = opened(page, folder, 1200, False)
    assert not found["errors"] and not found["cut"] and found["page"] <= 1200, found["cut"]
    for column in found["sorted"]:
        check_sorted(column)
    check_filtered(found["filtered"])
    return rows, len(page.encode())


def check(found, page, width):
    assert not found["errors"] and found["width"] == width, (found["errors"], found["width"])
    assert found["page"] <= width and found["opened"] <= width and not found["cut"] and not found["drawn"], (width, found["cut"], found["page"], found["opened"])
    assert not found["broken"], (width, set(found["broken"]))
    for column in found["sorted"]:
        check_sorted(column)
    steps = next(c for c in found["sorted"] if c["head"] == "step (ms)")["up"]
    assert len(set(steps)) > 5
    check_filtered(found["filtered"])
    assert [bool(r["shown"]) for r in found["filtered"]] == [True, True, False, True]
    assert found["folded"] and all(not d["open"] and d["rows"] and "do not fit" in d["what"] for d in found["folded"]), found["folded"]
    masks, layouts = found["two"]
    assert masks["names"] == ["causal", "mine(4096)", "unused"] and masks["titles"] == ["mask causal", "mask unused"], masks
    assert len(layouts["names"]) == len(steps) and not layouts["hidden"] and layouts["titles"][0].startswith("step "), layouts
    assert all(masks["first"] + layouts["first"]), (masks, layouts) # two pictures each, before anything is chosen
    for (name, one, other), mark in zip(layouts["lines"], layouts["marked"], strict=True):
        assert mark == ("more" if one != other else "") and name, (name, one, other)
    assert any(layouts["marked"])


def main():
    (burstc,) = runner.words(__doc__, "burstc")
    if not BROWSER:
        print("no Chromium")
        return 77
    with runner.folder() as folder:
        (folder / "c.topo").write_text(TOPO)
        (folder / "m.burst").write_text(MODEL)
        emitted.burstc(burstc, folder, "explore", "m.burst", "c.topo", "-o", "page.html")
        page = (folder / "page.html").read_text()
        colours = []
        for width, dark in ((1200, False), (800, True)):
            found = opened(page, folder, width, dark)
            check(found, page, width)
            colours.append(found["colours"])
        (light, ink), (dark, pale) = ([sum(map(int, re.findall(r"\d+", c)[:3])) for c in pair] for pair in colours)
        assert light > 600 > 200 > ink and dark < 200 < 600 < pale, colours
        rows, size = check_many(folder, burstc)
        print(f"{rows} rows: {size / 1000:.0f} KB")
    return 0


runner.end(main)
