"""The folder of plans that are kept. Their code is loaded, so none that another user has put there is taken."""
import os
import pathlib
import stat
import tempfile

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("BURST_CACHE") or pathlib.Path(base) / "burst")


def check_folder(base):
    """Nobody else can rename what is in it."""
    s = base.stat()
    if s.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"plans are kept in {base}, which belongs to another user ({s.st_uid}): set BURST_CACHE to a folder of your own")
    if s.st_mode & stat.S_IWOTH and not s.st_mode & stat.S_ISVTX:
        raise PermissionError(f"plans are kept in {base}, where every user can replace them: set BURST_CACHE to a folder of your own, "
                              f"or run `chmod o-w {base}`")


def check_owned(path, is_kind):
    """Nobody else can have written it."""
    s = path.lstat()
    if not is_kind(s.st_mode) or s.st_uid != os.geteuid() or s.st_mode & OTHERS_WRITE:
        raise PermissionError(f"{path} is not loaded: it is a link, or another user ({s.st_uid}) owns it or can write there; remove it, "
                              "or set BURST_CACHE to a folder of your own")


def kept(name, make, file="plan.so"):
    """The folder `name` of the cache, with the file. Where it is missing, make(folder) makes it; it is whole or not there."""
    base = cache_folder()
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(base)
    folder = base / name
    plan = folder / file
    if not os.path.lexists(plan):
        with tempfile.TemporaryDirectory(dir=base) as work:
            made = pathlib.Path(work) / "plan"
            made.mkdir(mode=0o700)
            make(made)
            new = made / file
            new.chmod(new.stat().st_mode & ~OTHERS_WRITE)
            try:
                made.rename(folder)
            except OSError:  # another process was first
                if not os.path.lexists(plan):
                    raise
    check_owned(folder, stat.S_ISDIR)
    check_owned(plan, stat.S_ISREG)
    return folder
