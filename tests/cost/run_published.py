#!/usr/bin/env python3
"""The table of docs/cost.md under "Against published figures" is what burstc gives for the texts there.

    run_published.py BURSTC COST.MD
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402


def predicted(burstc, folder, model):
    (folder / "loongtrain.burst").write_text(model)
    command = [burstc, "loongtrain.topo", "loongtrain.burst", "--emit=cost"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return sum(float(ms.replace(",", "")) for ms in re.findall(r"^  attention (?:forward|backward), .*? +\d+ +([\d.,]+) ", run.stdout, re.M))


def main():
    burstc, page = map(pathlib.Path, runner.words(__doc__, "burstc", "page"))
    burstc, page = burstc.resolve(), page.read_text()
    section = re.search(r"^## Against published figures$(.*?)^## ", page, re.M | re.S)[1]
    topo, model = (re.search(rf"```{kind}\n(.*?)```", section, re.S)[1] for kind in ("topo", "burst"))
    shapes = [words.split(" x ") for words in re.search(r"^\| TOKENS, KEY_HEADS \| (.*) \|$", section, re.M)[1].split(" | ")]
    rows = re.findall(r"^\| (\w+), (\d+) " + r"\| ([\d.]+) \([\d.]+\) " * len(shapes) + r"\|$", section, re.M)
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "loongtrain.topo").write_text(topo)
        for tokens, heads, *stated in rows:
            times = {}
            for (outer, inner), ms in zip(shapes, stated):
                filled = model.replace("TOKENS", tokens).replace("KEY_HEADS", heads).replace("OUTER", outer).replace("INNER", inner)
                times[inner] = predicted(burstc, folder, filled)
                if abs(times[inner] - float(ms)) > 0.0501:
                    print(f"{tokens}, {heads} key heads, {outer} x {inner}: the page says {ms} ms, burstc {times[inner]:.3f}")
                    wrong += 1
            if heads == "32" and tokens in ("128Ki", "256Ki") and not times["4"] < min(times["2"], times["8"]):
                print(f"{tokens}: inner rings of 4 are not the best: {times}")
                wrong += 1
    print(f"{len(rows)} rows, {wrong} figures wrong")
    return 1 if wrong or len(rows) < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
