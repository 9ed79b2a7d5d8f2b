#!/usr/bin/env python3
"""progress.py [--out] COMMAND...: runs it with standard error (--out: output) on a terminal; prints what stays on the screen, then the lines
that came and went."""
import os
import pty
import re
import sys

out = sys.argv[1] == "--out"
pid, terminal = pty.fork()
if pid == 0:
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2 if out else 1)
    os.execvp(sys.argv[1 + out], sys.argv[1 + out:])
written = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:  # Linux's answer once nobody has the other end
        break
    if not part:
        break
    written += part
os.waitpid(pid, 0)
stays, went = [""], []
for piece in re.split(r"(\r\033\[K|\r?\n)", written.decode()):
    if piece == "\r\033[K":
        went += [stays[-1]] * bool(stays[-1])
        stays[-1] = ""
    elif piece.endswith("\n"):
        stays.append("")
    else:
        assert "\033" not in piece and "\r" not in piece, repr(piece)
        stays[-1] += piece
print("stays:", "\n".join(stays).strip() or "nothing")
print("".join(f"went: {line}\n" for line in dict.fromkeys(went)), end="")
