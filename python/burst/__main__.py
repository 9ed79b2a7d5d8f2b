"""The command `burst`."""
import signal
import sys

from . import generate, plot, tokens
from .command import Parser, Wrong, shown

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop(number, frame):
    """What is half-written is removed then, which no further signal interrupts."""
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def main():
    parser = Parser(prog="burst", description="Tools around plans of burstc.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    tokens.add_parser(commands)
    plot.add_parser(commands)
    generate.add_parser(commands)
    words = sys.argv[1:]
    if words[:1] == ["help"]:  # as burstc has it
        words = words[1:2] + ["--help"]
    args = parser.parse_args(words)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as of a job in the background
            signal.signal(number, stop)
    try:
        args.run(args)
    except (Wrong, OSError) as error:
        named = isinstance(error, OSError) and error.filename is not None
        print(f"burst: {shown(f'{error.filename}: {error.strerror}' if named else error)}", file=sys.stderr)
        return 1
    except MemoryError:
        print("burst: out of memory", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        (number,) = stopped.args
        print(f"burst: stopped by signal {int(number)}, {signal.strsignal(number)}", file=sys.stderr)
        return 128 + number
    return 0


if __name__ == "__main__":
    sys.exit(main())
