"""What the commands of `burst` share: their errors and their options."""
import argparse
import difflib
import itertools
import sys
import unicodedata


class Wrong(Exception):
    """What is wrong with an input or an option, for the user."""


class Once(argparse.Action):
    """An option with one value, which is an error where it is given twice."""

    def __call__(self, parser, namespace, value, option_string=None):
        given = namespace.__dict__.setdefault("given", set())
        if self.dest in given:
            parser.error(f"{option_string} was given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, value)


class Parser(argparse.ArgumentParser):
    def parse_known_args(self, args=None, namespace=None):
        """An unknown option is told before what is missing, with the nearest one."""
        words = sys.argv[1:] if args is None else list(args)
        has_commands = self._subparsers is not None  # options after the command are its own
        for word in itertools.takewhile(lambda w: w.startswith("-"), words) if has_commands else itertools.takewhile(lambda w: w != "--", words):
            name = word.split("=")[0]
            if name.startswith("--") and len(name) > 2 and name not in self._option_string_actions:
                self.error(f"unknown option {name}{nearest(name, self._option_string_actions)}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            self.error(f"unknown command '{value}'{nearest(value, action.choices) or '; known are ' + ', '.join(action.choices)}")

    def error(self, message):
        super().error(shown(message))


def nearest(word, names):
    near = difflib.get_close_matches(word, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def counted(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"


def shown(text):
    """Text from outside without what a terminal obeys instead of showing it (controls, marks of direction): their bytes as \\xNN."""
    def of(character):
        if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            return character
        return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"))
    return "".join(map(of, str(text)))
