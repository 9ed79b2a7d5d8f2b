#!/usr/bin/env python3
"""run_plot.py: `burst plot`: event files are read back by TensorBoard's own reader, the picture's lines by matplotlib.

77: neither matplotlib nor tensorboard is there; what is refused is tested all the same.
"""
import argparse
import importlib.util
import json
import pathlib
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import runner  # noqa: E402

# Without the package's __init__, which needs PyTorch.
package = types.ModuleType("burst")
package.__path__ = [str(HERE.parent.parent / "python" / "burst")]
sys.modules["burst"] = package
from burst import command, plot  # noqa: E402


def line(step, loss, **more):
    return json.dumps({"step": step, "loss": loss, "tokens": 64, "tokens_per_second": 1000.0 + step, "mfu": 0.25, **more}) + "\n"


def write(folder):
    """A run that was resumed after step 2, evaluated, and killed in a line; and one without prediction."""
    (folder / "a.jsonl").write_text(line(1, 5.5) + line(2, 5.0) + line(3, 4.9) + line(3, 4.5) + line(4, 4.25)
                                    + json.dumps({"step": 4, "evaluation_loss": 4.75, "perplexity": 115.6}) + "\n" + '{"step": 5, "lo')
    (folder / "b.jsonl").write_text("".join(line(n, 6.0 - n / 2, mfu=0, expert_loads=[None, 2.0, 1.0 + n]) for n in (1, 2, 3)))
    return [str(folder / name) for name in ("a.jsonl", "b.jsonl")]


def run(*words):
    parser = argparse.ArgumentParser()
    plot.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["plot", *map(str, words)])
    args.run(args)


def refused(expected, *words):
    try:
        run(*words)
    except command.Wrong as error:
        assert expected in str(error), error
    else:
        raise AssertionError(f"{words} was accepted")


def test_refused(folder, paths):
    refused("nothing to write", *paths)
    refused("a picture ends in", *paths, "-o", folder / "a.gif")
    refused("given twice", paths[0], paths[0], "-o", folder / "a.png")
    (folder / "bad.jsonl").write_text(line(1, 2.0) + "[]\n")
    refused("bad.jsonl:2: not a line of --metrics", folder / "bad.jsonl", "-o", folder / "a.png")
    (folder / "bytes.jsonl").write_bytes(b"\xff\n")
    refused("bytes.jsonl:1: not a line of --metrics", folder / "bytes.jsonl", "-o", folder / "a.png")
    for text, expected in (('{"step": 1e400, "loss": 1}', "not a line of --metrics"), ('{"step": 1.5, "loss": 1}', "not a line of --metrics"),
                           ('{"step": "1", "loss": 1}', "not a line of --metrics"), ('{"step": true, "loss": 1}', "not a line of --metrics"),
                           ('{"step": ' + "1" * 5000 + "}", "not a line of --metrics"), ('{"step": 99999999999999999999}', "not a line of --metrics"),
                           ("[" * 100000, "not a line of --metrics"), (" " * (1 << 20), "not a line of --metrics"),
                           ('{"step": 2, "loss": 1e400}', "'loss' is no finite number"), ('{"step": 2, "loss": NaN}', "'loss' is no finite number"),
                           ('{"step": 2, "loss": 1' + "0" * 400 + "}", "'loss' is no finite number")):
        (folder / "hostile.jsonl").write_text(line(1, 2.0) + text + "\n")
        refused(f"hostile.jsonl:2: {expected}", folder / "hostile.jsonl", "-o", folder / "a.png")
    refused("/dev/zero: neither a file nor a pipe", "/dev/zero", "-o", folder / "a.png")
    (folder / "run.svg").write_text(line(1, 2.0))
    refused("it is one of the inputs", folder / "run.svg", "-o", folder / "run.svg")
    refused("there is no folder", *paths, "-o", folder / "absent" / "a.png")
    assert (folder / "run.svg").read_text() == line(1, 2.0)
    (folder / "none.jsonl").write_text("")
    refused("no step in it", folder / "none.jsonl", "-o", folder / "a.png")
    for module, option in (("matplotlib", ["-o", folder / "a.png"]), ("tensorboard.compat.proto", ["--tensorboard", folder / "t"])):
        kept = sys.modules.get(module)
        sys.modules[module] = None  # as if it were not installed
        try:
            refused(f"install it with pip install {module.split('.')[0]}", *paths, *option)
        finally:
            sys.modules.pop(module) if kept is None else sys.modules.update({module: kept})


def test_names(folder):
    """Event files are below the folder, wherever the runs' files are."""
    f = str(folder)
    for paths, expected in (([f"{f}/x/a.jsonl", f"{f}/y/b.jsonl"], ["a", "b"]), ([f"{f}/x/a.jsonl", f"{f}/y/a.jsonl"], ["x/a", "y/a"]),
                            (["/p/a.jsonl", "../a.jsonl", "a.jsonl"], None), ([f"{f}/a.jsonl", f"{f}/a.json"], ["a.jsonl", "a.json"])):
        found = plot.names_of(paths)
        assert len(set(found)) == len(paths) and not any(name.startswith("/") or ".." in name for name in found), found
        assert expected in (None, found), found


def test_events(folder, paths):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    run(*paths, "--tensorboard", folder / "events")
    found = EventAccumulator(str(folder / "events" / "a")).Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(1, 5.5), (2, 5.0), (3, 4.5), (4, 4.25)]
    assert [(e.step, e.value) for e in found.Scalars("evaluation_loss")] == [(4, 4.75)]
    other = EventAccumulator(str(folder / "events" / "b")).Reload()
    assert [e.value for e in other.Scalars("tokens_per_second")] == [1001.0, 1002.0, 1003.0]
    loads = {name: [e.value for e in other.Scalars(f"expert_loads{name}")] for name in ("", "/1", "/2")}
    assert loads == {"": [2.0, 3.0, 4.0], "/1": [2.0] * 3, "/2": [2.0, 3.0, 4.0]}, loads
    assert "expert_loads/0" not in other.Tags()["scalars"]
    refused("the folder is not empty", *paths, "--tensorboard", folder / "events")
    (folder / "large.jsonl").write_text(line(1, 1e300))
    refused("'loss' of step 1 is 1e+300, and event files have fp32", folder / "large.jsonl", "--tensorboard", folder / "large")


def test_picture(folder, paths):
    from matplotlib import figure
    lines, save = {}, figure.Figure.savefig

    def look(self, *words, **more):
        lines.update({(ax.get_ylabel(), one.get_label()): (list(one.get_xdata()), list(one.get_ydata())) for ax in self.axes for one in ax.lines})
        return save(self, *words, **more)
    figure.Figure.savefig = look
    run(*paths, "-o", folder / "two.png")
    figure.Figure.savefig = save
    assert (folder / "two.png").read_bytes().startswith(b"\x89PNG")
    assert lines[("loss", "a")] == ([1, 2, 3, 4], [5.5, 5.0, 4.5, 4.25]) and lines[("loss", "b")][1] == [5.5, 5.0, 4.5]
    assert lines[("loss", "a, evaluation")] == ([4], [4.75])
    assert lines[("largest expert / mean", "b")] == ([1, 2, 3], [2.0, 3.0, 4.0]) and ("largest expert / mean", "a") not in lines
    assert lines[("tokens/s", "b")] == ([1, 2, 3], [1001.0, 1002.0, 1003.0])
    assert lines[("MFU (%)", "a")][1] == [25.0] * 4 and ("MFU (%)", "b") not in lines, list(lines)
    (folder / "other.jsonl").write_text('{"step": 1, "lr": 0.5}\n')
    refused("no loss, rate or MFU to draw in other", folder / "other.jsonl", "-o", folder / "other.png")
    for name in ("_$x^$", "a\x1b[31m"):  # neither hidden, nor a formula
        (folder / f"{name}.jsonl").write_text(line(1, 2.0))
        run(folder / f"{name}.jsonl", "-o", folder / "odd.svg")
    assert not list(folder.glob("*.part-*")), "a part is left"


def main():
    runner.words(__doc__)
    there = {name for name in ("matplotlib", "tensorboard") if importlib.util.find_spec(name)}
    with runner.folder() as folder:
        paths = write(folder)
        test_refused(folder, paths)
        test_names(folder)
        if "tensorboard" in there:
            test_events(folder, paths)
        if "matplotlib" in there:
            test_picture(folder, paths)
    print("tested with", ", ".join(sorted(there)) or "neither library")
    return 0 if there else 77


runner.end(main)
