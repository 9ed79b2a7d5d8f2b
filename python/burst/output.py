"""Files that commands write: none replaces an input, a device or a FIFO, and none is seen half-written."""
import os

from .command import Wrong


def check_output(path, inputs):
    """Before hours of work. inputs: (what, path) of each."""
    to = os.path.realpath(path)
    if not path or os.path.isdir(to):
        raise Wrong(f"cannot write to '{path}': expected the name of a file")
    if os.path.exists(to) and not os.path.isfile(to):
        raise Wrong(f"cannot write to '{path}': it is not a regular file")
    if not os.path.isdir(os.path.dirname(to)):
        raise Wrong(f"cannot write to '{path}': there is no folder '{os.path.dirname(to)}'")
    for what, other in inputs:
        if os.path.exists(to) and os.path.exists(other) and os.path.samefile(other, to):
            raise Wrong(f"cannot write to '{path}': it is {what}")


class Output:
    """A file that gets its name when it is complete."""

    def __init__(self, path):
        self.path = os.path.realpath(path)  # of a link, what it names
        self.part = f"{self.path}.part-{os.getpid()}"
        self.file = open(self.part, "wb")

    def finish(self):
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.part, self.path)

    def drop(self):
        """Removes what is not complete."""
        self.file.close()
        if os.path.exists(self.part):
            os.unlink(self.part)
