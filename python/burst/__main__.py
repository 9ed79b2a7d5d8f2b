"""The command `burst`."""
import argparse
import signal
import sys

from . import plot, tokens
from .command import Wrong


def stop(number, frame):
    raise KeyboardInterrupt(number)


def main():
    parser = argparse.ArgumentParser(prog="burst", description="Tools around plans of burstc.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    tokens.add_parser(commands)
    plot.add_parser(commands)
    words = sys.argv[1:]
    if words[:1] == ["help"]:  # as burstc has it
        words = words[1:2] + ["--help"]
    args = parser.parse_args(words)
    signal.signal(signal.SIGTERM, stop)  # what is half-written is removed then too
    try:
        args.run(args)
    except (Wrong, OSError) as error:
        named = isinstance(error, OSError) and error.filename is not None
        print(f"burst: {f'{error.filename}: {error.strerror}' if named else error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        number = stopped.args[0] if stopped.args else signal.SIGINT
        print(f"burst: stopped by signal {int(number)}, {signal.strsignal(number)}", file=sys.stderr)
        return 128 + number
    return 0


if __name__ == "__main__":
    sys.exit(main())
