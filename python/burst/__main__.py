"""The command `burst`."""
import argparse
import sys

from . import plot, tokens


def main():
    parser = argparse.ArgumentParser(prog="burst", description="Tools around plans of burstc.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    tokens.add_parser(commands)
    plot.add_parser(commands)
    words = sys.argv[1:]
    if words[:1] == ["help"]:  # as burstc has it
        words = words[1:2] + ["--help"]
    args = parser.parse_args(words)
    try:
        args.run(args)
    except (tokens.Wrong, OSError) as error:
        print(f"burst: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
