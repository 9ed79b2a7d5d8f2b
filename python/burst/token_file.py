"""Writes a token file of version 2 (docs/runtime.md, Token files)."""
import shutil
import struct
import tempfile

from .output import Output

MAGIC = b"BURSTTOK"


def is_token_file(path):
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class TokenFile(Output):
    def __init__(self, path, width):
        super().__init__(path)
        self.file.write(bytes(40))
        self.width, self.weights, self.starts = width, tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.tokens = self.documents = self.counted = 0
        self.weighted = False

    def add(self, blob, weights, lengths, weighted):
        self.file.write(blob)
        self.weights.write(weights)
        for n in lengths:
            self.starts.write(struct.pack("<Q", self.tokens))
            self.tokens += n
        self.documents += len(lengths)
        self.counted += sum(weights)
        self.weighted |= weighted

    def append(self, column):
        self.file.write(bytes(-self.file.tell() % 8))
        column.seek(0)
        shutil.copyfileobj(column, self.file, 1 << 20)

    def finish(self):
        if self.weighted:
            self.append(self.weights)
        self.append(self.starts)
        self.file.seek(0)
        self.file.write(MAGIC + struct.pack("<IIQIIQ", 2, self.width, self.tokens, int(self.weighted), 0, self.documents))
        super().finish()
