"""Plans: compiled once for all ranks, cached by all that goes into them, opened by each."""
import ctypes
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile
import weakref

import torch

from . import _c, ops  # noqa: F401: a plan's calls are operators of torch, registered by ops
from .batch import Batch
from .group import broadcast_bytes, c_group, gather_bytes, host_sizes, process_group, rank_of, size_of
from .model import TABLE, cluster_text, model_text


class CompileError(ValueError):
    """burstc refused the masks, the sizes or the layout: its own words."""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("BURST_CACHE") or pathlib.Path(base) / "burst")


def run_burstc(folder, *options):
    command = [str(_c.home() / "bin/burstc"), "cluster.topo", "attention.burst", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(done.stderr.strip() or f"burstc ended with {done.returncode}")
    return done.stdout


def compiler_files():
    """burstc, what its texts include, and what plans link."""
    share = _c.home() / "share/burstc"
    yield _c.home() / "bin/burstc"
    yield from sorted((share / "include").iterdir())
    for links in sorted(share.glob("link_library*.txt")):
        yield links
        for line in links.read_text().split():
            if not line.startswith("-") and (share / line).exists():  # a build may lack that of GPUs
                yield share / line


def fingerprint(topo, model):
    """Of what a plan is made of: the texts, and the compiler with what it links."""
    h = hashlib.sha256()
    for path in compiler_files():
        h.update(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    h.update(f"{os.environ.get('CC', '')}\n{topo}\n{model}".encode())
    return h.hexdigest()[:32]


def compiled(topo, model):
    """The plan's folder: cluster.topo, attention.burst, plan.so, plan.so.c. Whole or not there."""
    folder = cache_folder() / fingerprint(topo, model)
    if (folder / "plan.so").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = pathlib.Path(work) / "plan"
        made.mkdir()
        (made / "cluster.topo").write_text(topo)
        (made / "attention.burst").write_text(model)
        run_burstc(made, "-o", "plan.so")
        try:
            made.rename(folder)
        except OSError:  # another process was first
            if not (folder / "plan.so").exists():
                raise
    return folder


def check_alike(group, topo, model):
    """All ranks compile the same plan: the first one's would be everyone's."""
    size = hashlib.sha256().digest_size
    every = gather_bytes(group, hashlib.sha256(f"{topo}\n{model}".encode()).digest())
    differ = [r for r in range(size_of(group)) if every[r * size:(r + 1) * size] != every[:size]]
    if differ:
        own = f"; this is rank {rank_of(group)}, which compiles:\n{model}"
        raise ValueError(f"rank {differ[0]} compiles another plan than rank 0: masks, sizes and layout must be the same{own}")


def for_all(group, topo, model):
    """The path of plan.so, and its folder on the first rank: made there, and sent to ranks that may not see its files."""
    if size_of(group) > 1:
        check_alike(group, topo, model)
    folder, answer = None, None
    if rank_of(group) == 0:
        try:
            folder = compiled(topo, model)
            answer = b"+" + (folder / "plan.so").read_bytes()
        except (CompileError, OSError) as e:
            answer = b"-" + str(e).encode()
    answer = broadcast_bytes(group, answer)
    if answer[:1] != b"+":
        raise CompileError(answer[1:].decode())
    if folder is not None:
        return folder / "plan.so", folder
    path = cache_folder() / "sent" / (hashlib.sha256(answer).hexdigest()[:32] + ".so")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            f.write(answer[1:])
        os.replace(f.name, path)
    return path, None


class Plan:
    """Attention of some masks over the ranks of a group. Made by burst.compile."""

    def __init__(self, path, folder, group, texts):
        lib, opened = _c.library(), ctypes.c_void_p()
        self.group, self.folder, self.texts = group, folder, texts
        given = c_group(group)
        _c.check(lib.burst_plan_open(os.fsencode(path), ctypes.byref(given), ctypes.byref(opened)))
        self.handle = opened.value
        self._closes = weakref.finalize(self, lib.burst_plan_close, self.handle)
        info = lib.burst_plan_info(self.handle).contents
        self.heads, self.kv_heads, self.head_dim, self.value_dim = info.heads, info.kv_heads, info.head_dim, info.value_dim
        self.tokens = info.tokens
        self.masks = [info.mask_name[i].decode() for i in range(info.masks)]
        self.tables = [info.table_name[i].decode() for i in range(info.tables)]
        self.layout, self.ranks, self.rank = info.layout.decode(), info.ranks, rank_of(group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if info.target == b"cuda" else torch.device("cpu")
        self.dtype = torch.bfloat16 if info.element_bytes == 2 else torch.float32
        self.workspace_bytes = lib.burst_plan_bytes(self.handle, _c.WORKSPACE)
        self._batches = weakref.WeakSet()
        self.is_cuda = self.device.type == "cuda"
        # The plan's calls come one after the other, so that one is enough. workspace: its address.
        self._workspace = torch.empty(self.workspace_bytes + 256, dtype=torch.uint8, device=self.device)
        self.workspace = (self._workspace.data_ptr() + 255) // 256 * 256

    def batch(self, cu_seqlens=None, tables=None):
        """Documents packed without padding, the same on all ranks. tables: values by token, by the table's name."""
        return Batch(self, cu_seqlens, tables or {})

    def mask_index(self, mask):
        if isinstance(mask, str):
            if mask not in self.masks:
                raise ValueError(f"the plan has no mask '{mask}'; it has {', '.join(self.masks)}")
            return self.masks.index(mask)
        return int(mask)

    def _in_folder(self, *options):
        if self.folder is None:
            raise _c.BurstError("the plan was compiled by the first rank, which alone has its texts")
        return run_burstc(self.folder, *options)

    def explain(self):
        """Every layout that was considered, and how much slower than the chosen one it is predicted to be. First rank only."""
        return self._in_folder("--explain")

    @property
    def source(self):
        """The emitted text. First rank only."""
        self._in_folder("--print-build")
        return next(self.folder.glob("plan.so.c*")).read_text()

    def close(self):
        """With its batches, of which nothing may be under way."""
        for batch in list(self._batches):
            batch.close()
        self._closes()


def compile(masks, *, heads, head_dim, tokens, kv_heads=None, value_dim=None, tables=None, group=None, cluster="auto", schedule="auto",
            partition="auto", softcap=0.0, device=None, **layout):
    """Plans attention under the masks (an expression, or a dictionary of them by name) over the ranks of the group. Collective.

    tokens: of a batch, on all ranks together. value_dim: of v and o, head_dim if None. tables: those that masks read, if None. cluster: "auto", the path of a .topo file, or its text. device: "cpu" or "cuda";
    None: as the group's backend. Further arguments are settings of the layout: travel="keys".
    """
    masks = {"main": masks} if isinstance(masks, str) else dict(masks)
    if tables is None:
        tables = sorted({name for mask in masks.values() for name in TABLE.findall(mask)})
    group = process_group(group)
    model = model_text(masks, tables, heads, kv_heads or heads, head_dim, value_dim or head_dim, tokens, schedule, partition, softcap, layout)
    if device is None:
        device = "cuda" if group is not None and torch.distributed.get_backend(group) == "nccl" else "cpu"
    if cluster == "auto":
        cluster = cluster_text(host_sizes(group), torch.cuda.get_device_name() if torch.device(device).type == "cuda" else None)
    elif "{" not in cluster:
        cluster = pathlib.Path(cluster).read_text()
    path, folder = for_all(group, cluster, model)
    plan = Plan(path, folder, group, (cluster, model))
    if plan.ranks != size_of(group):
        raise ValueError(f"the cluster has {plan.ranks} devices, but the group {size_of(group)} ranks")
    return plan
