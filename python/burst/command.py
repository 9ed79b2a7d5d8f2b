"""What the commands of `burst` share: their errors and their options."""
import argparse
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
    def error(self, message):
        super().error(shown(message))


def counted(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"


def shown(text):
    """Text from outside without what a terminal obeys instead of showing it (controls, marks of direction): their bytes as \\xNN."""
    def of(character):
        if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            return character
        return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"))
    return "".join(map(of, str(text)))
