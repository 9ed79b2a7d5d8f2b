"""Topic files: many small inputs in one file, each with the messages that it must print in comments beside its lines.

    # A comment may open the file.
      sequence 1Ki;                     lines before the first case begin every case

    case zigzig                         a case; its name is the file's and its own: layout_zigzig
      layout { partition zigzig; }
    #                    ^~~~~~ error: 'partition' cannot be 'zigzig'; expected contiguous
    #                    zigzag

    case twice whole                    `whole`: without the lines that begin the others
      sequence 1Ki;
    # ^~~~~~~~ 2 note: first here
      sequence 1Ki;
    # ^~~~~~~~ 1 error: 'sequence' is set twice

The first two columns tell what a line is:

    two spaces  a line of the input
    \\ and space a line of the input with escapes (\\t \\0 \\xff \\\\); \\c at its end leaves out the newline; \\ alone is an empty line
    # and space a message of the line above: the underline in its place, then the text; below it the hint, if there is one.
                Messages are printed in the order of the file, or of their numbers
    #=          a line that is printed after the message above (before all, where there is none), as it is: of other
                files, of the whole program, or where the line is not shown as it is written

A message stands for all that is printed: FILE:LINE:COLUMN: error: TEXT, the line, the underline and the hint.
"""
import re

from runner import counts_agree, require, same

MESSAGE = re.compile(r"# ( *)(\^~*)(?: (\d+))? ((?:error|warning|note): \S.*)")
HEADER = re.compile(r"(?:(?P<path>\S+):(?P<line>\d+):(?P<column>\d+)|burstc): (?P<text>(?:error|warning|note): .*)")
ESCAPES = {b"t": b"\t", b"0": b"\0", b"\\": b"\\", b"c": b""}


def input_line(line):
    """The bytes of a line of the input."""
    if not line.startswith("\\"):
        return line[2:].encode() + b"\n"
    def decode(match):
        return bytes.fromhex(match[1][1:].decode()) if match[1][:1] == b"x" else ESCAPES[match[1]]
    blob = line[2:].encode()
    require(not re.sub(rb"\\(x[0-9a-f]{2}|[t0\\]|c$)", b"", blob).count(b"\\"), f"unknown escape: {line}")
    return re.sub(rb"\\(x..|.)", decode, blob) + (b"" if line.endswith("\\c") else b"\n")


class Case:
    """A case as it is written."""

    def __init__(self, topic, name, at, start):
        self.topic, self.short, self.at, self.start = topic, name, at, start
        self.path = f"{topic.parent.name}/{topic.stem}_{name}{topic.suffix}"  # by this name messages call it
        self.lines = []  # inputs and messages, without those of `start`

    def __str__(self):
        return f"{self.topic.name}:{self.at}: {self.name()}"

    def name(self):
        return f"{self.topic.stem}_{self.short}"

    def require(self, condition, what):
        require(condition, f"{self}: {what}")

    def inputs(self):
        return [line for line in self.start + self.lines if not line.startswith("#")]

    def text(self):
        """The input's bytes."""
        return b"".join(map(input_line, self.inputs()))

    def source(self, number):
        """A line of the input as messages show it, unless it is long or has tabs or bytes that are no text."""
        return input_line(self.inputs()[number - 1]).decode("utf-8", "replace").rstrip("\n")

    def said(self):
        """What is printed according to the comments."""
        messages, number, hintless = [["", None]], len(self.start), False  # the first: what is printed before all messages beside lines
        for line in self.lines:
            match = MESSAGE.fullmatch(line)
            if match:
                self.require(number > len(self.start), f"no line of this case is above: {line}")
                header = f"{self.path}:{number}:{len(match[1]) + 1}: {match[4]}"
                messages.append([f"{header}\n{self.source(number)}\n{match[1]}{match[2]}\n", match[3]])
            elif line.startswith("#"):
                self.require(line.startswith("#=") or hintless and re.match("#  *[^ ]", line), f"neither a message nor its hint: {line}")
                messages[-1][0] += line[2:] + "\n"
            else:
                number += 1
            hintless = bool(match)
        numbers = [number for _, number in messages[1:]]
        if any(numbers):
            self.require(set(numbers) == {str(n + 1) for n in range(len(numbers))}, f"messages are numbered {numbers}")
            messages[1:] = sorted(messages[1:], key=lambda message: int(message[1]))
        return "".join(text for text, _ in messages)

    def check(self, word):
        """A case without input, or without a message that holds the word, tests nothing."""
        self.require(any(not line.startswith("#") for line in self.lines), "no input")
        self.require(word in self.said(), f"no message has '{word.strip()}'")

    def rewrite(self, said):
        """Replaces its comments by what was printed."""
        inputs = [line for line in self.lines if not line.startswith("#")]
        blocks = split_messages(said)
        beside = [self.line_beside(block) for block in blocks]
        known = [line for line in beside if line]
        at, number, comments = self.first_line(blocks, known), 0, {}  # comments by the line that they are below
        for block, line in zip(blocks, beside):
            if not line:
                comments.setdefault(at, []).extend("#=" + text for text in block)
                continue
            at, number = line, number + 1
            mark = "" if known == sorted(known) else f"{number} "
            text = HEADER.fullmatch(block[0])["text"]
            comments.setdefault(at, []).extend([f"# {block[2]} {mark}{text}", *(f"# {hint}" for hint in block[3:])])
        self.lines = comments.get(0, [])[:]
        for i, line in enumerate(inputs, len(self.start) + 1):
            self.lines += [line, *comments.get(i, [])]
        self.require(self.said() == said, f"what it prints cannot be written as messages:\n{said}")

    def holds(self, status, said, wanted_status, word, update):
        """Whether a program ended and printed as it must; prints how not. update: what was printed is what it must print."""
        if status != wanted_status or word not in said:
            print(f"{self}: exit status {status}; {wanted_status} and '{word.strip()}' are expected, and printed is\n{said}")
            return False
        if update:
            self.rewrite(said)
        return counts_agree(self, "".join(line for line in said.splitlines(True) if ": " in line)) and same(self, self.said(), said)

    def line_beside(self, block):
        """The line that a message stands beside; 0 where it is held as it is printed."""
        header = HEADER.fullmatch(block[0])
        if header["path"] != self.path or len(block) not in (3, 4):
            return 0
        line, column = int(header["line"]), int(header["column"])
        own = len(self.start) < line <= len(self.inputs())
        shown = own and block[1] == self.source(line) and re.fullmatch(r" *\^~*", block[2]) and block[2].index("^") == column - 1
        return line if shown and all(hint.strip() for hint in block[3:]) else 0

    def first_line(self, blocks, known):
        """The line below which stands what is printed before all messages beside lines; 0: the case's first."""
        header = HEADER.fullmatch(blocks[0][0])
        line = int(header["line"]) if header["path"] == self.path else 0
        return line if len(self.start) < line <= min([len(self.inputs()), *known]) else 0


def split_messages(said):
    """The lines of each message."""
    blocks = []
    for line in said.splitlines():
        if HEADER.fullmatch(line):
            blocks.append([])
        require(blocks, f"not a message: {line}")
        blocks[-1].append(line)
    require(blocks, "nothing is printed")
    return blocks


class Topic:
    """A topic file: what comes before the first case, and the cases."""

    def __init__(self, path):
        self.path, self.head, self.cases = path, [], []
        start, text = [], path.read_text(encoding="utf-8")
        require(text.endswith("\n"), f"{path.name}: the last line does not end")
        for at, line in enumerate(text[:-1].split("\n"), 1):
            named = re.fullmatch(r"case (\w+)( whole)?", line)
            if named:
                self.cases.append(Case(path, named[1], at, [] if named[2] else start))
            elif line.startswith(("  ", "\\ ", "#")) or line == "\\":
                (self.cases[-1].lines if self.cases else self.head).append(line)
            else:
                require(not line, f"{path.name}:{at}: neither a case, an input nor a message: {line}")
            if not self.cases and not line.startswith("#") and line:
                start.append(line)
        require(self.cases, f"{path.name}: no case")
        self.start = start

    def write(self):
        parts = [self.head] if self.head else []
        for case in self.cases:
            parts.append([f"case {case.short}" + (" whole" if self.start and not case.start else ""), *case.lines])
        self.path.write_text("\n\n".join("\n".join(part) for part in parts) + "\n", encoding="utf-8")


def read_topics(folder, suffixes, word):
    """The topic files of a folder, which has no other; each case has a message that holds the word."""
    stray = sorted(path.name for path in folder.iterdir() if path.suffix not in (*suffixes, ".txt"))
    require(not stray, f"{folder.name}: neither a topic file nor a .txt that a case reads: {', '.join(stray)}")
    topics, seen = [Topic(path) for path in sorted(folder.iterdir()) if path.suffix in suffixes], {}
    for case in (case for topic in topics for case in topic.cases):
        case.check(word)
        for what in (case.path, (case.topic.suffix, case.text())):
            case.require(what not in seen, f"the same as {seen.get(what)}")
            seen[what] = case
    return topics
