"""`burst plot`: what `--metrics` wrote, as a picture and as TensorBoard's event files. docs/python.md.

A step that was trained again after a restart appears twice in a file; the last one counts (docs/runtime.md).
"""
import json
import math
import os
import pathlib
import stat

from .command import Once, Wrong, shown
from .output import Output, check_output

CURVES = (("loss", "loss"), ("balance", "balance loss"), ("expert_loads", "largest expert / mean"), ("tokens_per_second", "tokens/s"),
          ("mfu", "MFU (%)"))
EVALUATED = "evaluation_loss"
LONGEST, MOST = 1 << 20, 1 << 52  # bytes of a line; a step
FLOAT32 = 2.0 ** 128  # beyond what an event file holds


def lines_of(path):
    """(number, line); a device, which may have no end, is none of these files."""
    if not any(kind(os.stat(path).st_mode) for kind in (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISDIR)):
        raise Wrong(f"{path}: neither a file nor a pipe")
    with open(path, "rb") as file:
        number, line = 1, file.readline(LONGEST)
        while line.endswith(b"\n") or len(line) == LONGEST:  # otherwise a run is writing it, or was killed there
            yield number, line
            number, line = number + 1, file.readline(LONGEST)


def record_of(place, line):
    try:
        record = json.loads(line)
        step = record["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        step = None
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= MOST:
        raise Wrong(f"{place}: not a line of --metrics, which is an object with a step")
    return step, record


def number_of(place, name, value):
    try:
        if math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise Wrong(f"{place}: '{name}' is no finite number")


def numbers_of(name, value):
    """(name, number); of a list, which has one for each layer, the largest, and "name/layer" of each."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value
    if isinstance(value, list):
        of_layers = [(f"{name}/{layer}", x) for layer, x in enumerate(value) if isinstance(x, (int, float)) and not isinstance(x, bool)]
        yield from of_layers
        yield from [(name, max(x for _, x in of_layers))] if of_layers else []


def read(path):
    """{name: {step: value}} of a file; steps count from 1, those of evaluations are the steps before them."""
    curves = {}
    for number, line in lines_of(path):
        place = f"{path}:{number}"
        step, record = record_of(place, line)
        for name, value in ((n, x) for key, value in record.items() if key != "step" for n, x in numbers_of(key, value)):
            curves.setdefault(name, {})[step] = number_of(place, name, value)
    if not curves:
        raise Wrong(f"{path}: no step in it")
    return curves


def names_of(paths):
    """The parts of the paths that differ, which are folders of their own below any folder."""
    whole = [pathlib.Path(os.path.abspath(path)) for path in paths]
    if len(set(whole)) < len(whole):
        raise Wrong("a file is given twice")
    common = os.path.commonpath([path.parent for path in whole])
    below = [path.relative_to(common) for path in whole]
    for names in ([path.stem for path in whole], [path.with_suffix("") for path in below], below):
        if len(set(names)) == len(names):
            break
    return list(map(str, names))


def runs_of(paths):
    """(name, curves) of each file."""
    return list(zip(names_of(paths), map(read, paths)))


def sorted_points(curve, scale=1.0):
    steps = sorted(curve)
    return steps, [curve[step] * scale for step in steps]


def label_of(run):
    """As matplotlib shows it: `$` would begin a formula, and `_` hides a line in the legend."""
    text = shown(run).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def draw(runs, path):
    """One panel a curve, every run a line; evaluations are dots on the losses. A curve of zeros is not known (docs/runtime.md)."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise Wrong(f"{path}: a picture requires matplotlib; install it with pip install matplotlib") from None
    known = [(name, title) for name, title in CURVES if any(any(curves.get(name, {}).values()) for _, curves in runs)]
    if any(EVALUATED in curves for _, curves in runs) and ("loss", "loss") not in known:
        known.insert(0, ("loss", "loss"))
    if not known:
        raise Wrong(f"{path}: no loss, rate or MFU to draw in {' or '.join(run for run, _ in runs)}")
    figure, axes = pyplot.subplots(len(known), 1, sharex=True, squeeze=False, figsize=(9, 3 * len(known)), layout="constrained")
    for (name, title), (ax,) in zip(known, axes):
        for n, (run, curves) in enumerate(runs):
            if any(curves.get(name, {}).values()):
                ax.plot(*sorted_points(curves[name], 100 if name == "mfu" else 1), label=label_of(run), color=f"C{n}")
            if name == "loss" and EVALUATED in curves:
                ax.plot(*sorted_points(curves[EVALUATED]), "o", label=f"{label_of(run)}, evaluation", color=f"C{n}", markersize=4)
        ax.set_ylabel(title)
        ax.grid(alpha=0.3)
        ax.legend()
    axes[-1][0].set_xlabel("step")
    save(figure, path)
    pyplot.close(figure)


def save(figure, path):
    out = Output(path)
    try:
        figure.savefig(out.file, format=pathlib.Path(path).suffix[1:], dpi=120)
        out.finish()
    except BaseException:
        out.drop()
        raise


def write_events(runs, folder):
    """FOLDER/RUN with everything that the run's file has, under the file's names."""
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise Wrong(f"{folder}: event files require tensorboard; install it with pip install tensorboard") from None
    for run, curves in runs:
        at = pathlib.Path(folder) / run
        if at.exists() and any(at.iterdir()):
            raise Wrong(f"{at}: the folder is not empty, and TensorBoard would show both runs as one; remove it or name another")
        writer = EventFileWriter(str(at))
        for name in sorted(curves):
            for step, value in zip(*sorted_points(curves[name])):
                if abs(value) >= FLOAT32:
                    raise Wrong(f"{at}: '{name}' of step {step} is {value:g}, and event files have fp32")
                value = summary_pb2.Summary.Value(tag=name, simple_value=value)
                writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value])))
        writer.close()


def add_parser(commands):
    p = commands.add_parser("plot", allow_abbrev=False, help="curves of runs, as a picture or for TensorBoard",
                            description="Draws loss, tokens/s and MFU of files that --metrics wrote, several runs in one picture.")
    p.add_argument("metrics", nargs="+", help="files of --metrics")
    p.add_argument("-o", "--output", action=Once, metavar="FILE.png", help="the picture")
    p.add_argument("--tensorboard", action=Once, metavar="FOLDER", help="event files, a folder a run")
    p.set_defaults(run=run)


def run(args):
    if not args.output and not args.tensorboard:
        raise Wrong("nothing to write: give -o FILE.png or --tensorboard FOLDER")
    if args.output and pathlib.Path(args.output).suffix not in (".png", ".svg", ".pdf"):
        raise Wrong(f"{args.output}: a picture ends in .png, .svg or .pdf")
    if args.output:
        check_output(args.output, [("one of the inputs", path) for path in args.metrics])
    runs = runs_of(args.metrics)
    if args.output:
        draw(runs, args.output)
    if args.tensorboard:
        write_events(runs, args.tensorboard)
