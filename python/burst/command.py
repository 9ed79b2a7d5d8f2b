"""What the commands of `burst` share: their errors and their options."""
import argparse


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


def counted(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"
