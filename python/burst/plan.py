"""Plans: compiled once for all ranks, cached by all that goes into them, opened by each."""
import ctypes
import hashlib
import os
import pathlib
import re
import subprocess
import weakref

import torch

from . import _c, ops  # noqa: F401: a plan's calls are operators of torch, registered by ops
from .batch import Batch, Shared
from .cache import kept
from .given import whole
from .group import broadcast_bytes, c_group, gather_bytes, host_sizes, process_group, rank_of, size_of
from .model import cluster_text, model_text, tables_of, with_patterns


class CompileError(ValueError):
    """burstc refused the masks, the sizes or the layout: its own words."""


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


class Texts:
    """What a plan is made of: its cluster, its model, and the pattern files of its masks, by their names in the model."""

    def __init__(self, topo, model, patterns):
        self.topo, self.model, self.patterns = topo, model, patterns

    def digest(self):
        h = hashlib.sha256(f"{self.topo}\n{self.model}".encode())
        for name in sorted(self.patterns):
            h.update(hashlib.sha256(self.patterns[name].text).digest())
        return h

    def name(self):
        """The name of its folder, for this user, this compiler and the libraries that it links."""
        h = self.digest()
        for path in compiler_files():
            h.update(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
        h.update(f"{os.environ.get('CC', '')}\n{os.geteuid()}".encode())
        return h.hexdigest()[:32]

    def make(self, folder):
        """plan.so and plan.so.c, beside cluster.topo, attention.burst and the patterns."""
        (folder / "cluster.topo").write_text(self.topo)
        (folder / "attention.burst").write_text(self.model)
        for name, pattern in self.patterns.items():
            (folder / name).write_bytes(pattern.text)
        try:
            run_burstc(folder, "-o", "plan.so")
        except CompileError as error:
            known = lambda found: self.patterns[found[0]].path if found[0] in self.patterns else found[0]  # noqa: E731
            raise CompileError(re.sub(r"pattern\d+\.txt", known, str(error))) from None


def check_alike(group, digest, texts):
    """All ranks compile the same plan: the first one's would be everyone's."""
    every = gather_bytes(group, digest)
    differ = [r for r in range(size_of(group)) if every[r * len(digest):(r + 1) * len(digest)] != every[:len(digest)]]
    if differ and texts is not None:
        own = f"; this is rank {rank_of(group)}, which compiles:\n{texts.model}"
        raise ValueError(f"rank {differ[0]} compiles another plan than rank 0: masks, sizes and layout must be the same{own}")


def for_all(group, texts):
    """The path of plan.so, and its folder on the first rank: made there, and sent to ranks that may not see its files."""
    folder, answer = None, None
    if rank_of(group) == 0:
        try:
            folder = kept(texts.name(), texts.make)
            answer = b"+" + (folder / "plan.so").read_bytes()
        except (CompileError, OSError) as e:
            answer = b"-" + str(e).encode()
    answer = broadcast_bytes(group, answer)
    if answer[:1] != b"+":
        raise CompileError(answer[1:].decode())
    path, failure = None, None
    try:
        path = (folder or keep_sent(answer[1:])) / "plan.so"
    except OSError as error:
        failure = error
    failed = gather_bytes(group, bytes([failure is not None])) if size_of(group) > 1 else b""
    if failure is not None:
        raise failure
    if any(failed):  # it would be waited for
        raise _c.BurstError(f"rank {failed.index(1)} could not keep the plan in its cache")
    return path, folder


def keep_sent(plan):
    """The folder of a plan that the first rank has sent."""
    name = hashlib.sha256(plan + str(os.geteuid()).encode()).hexdigest()[:32]
    return kept(name, lambda made: (made / "plan.so").write_bytes(plan))


class Plan(Shared):
    """Attention of some masks over the ranks of a group. Made by burst.compile."""

    def __init__(self, path, folder, group, texts):
        lib, opened = _c.library(), ctypes.c_void_p()
        self.group, self.folder, self.texts = group, folder, texts
        given = c_group(group)
        _c.check(lib.burst_plan_open(os.fsencode(path), ctypes.byref(given), ctypes.byref(opened)))
        self._handle = opened.value
        self._closes = weakref.finalize(self, lib.burst_plan_close, self._handle)
        info = lib.burst_plan_info(self.handle).contents
        self.heads, self.kv_heads, self.head_dim, self.value_dim = info.heads, info.kv_heads, info.head_dim, info.value_dim
        self.tokens = info.tokens
        self.bounds = [info.tokens * r // info.ranks for r in range(info.ranks + 1)]  # of contiguous rows
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

    @property
    def closed(self):
        return not self._closes.alive

    @property
    def handle(self):
        if self.closed:
            raise _c.BurstError("the plan is closed")
        return self._handle

    def batch(self, cu_seqlens=None, tables=None):
        """Documents packed without padding, the same on all ranks. tables: values by token, by the table's name."""
        return Batch(self, cu_seqlens, tables or {})

    def mask_index(self, mask):
        if isinstance(mask, str):
            if mask not in self.masks:
                raise ValueError(f"the plan has no mask '{mask}'; it has {', '.join(self.masks)}")
            return self.masks.index(mask)
        return whole(mask, "mask", 0, len(self.masks) - 1)

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
        for state in list(self._batches):
            state.close()
        self._closes()


def compile(masks, *, heads, head_dim, tokens, kv_heads=None, value_dim=None, tables=None, group=None, cluster="auto", schedule="auto",
            partition="auto", softcap=0.0, device=None, **layout):
    """Plans attention under the masks (an expression, or a dictionary of them by name) over the ranks of the group. Collective.

    tokens: of a batch, on all ranks together. value_dim: of v and o, head_dim if None. tables: those that masks read, if None. cluster: "auto", the path of a .topo file, or its text. device: "cpu" or "cuda";
    None: as the group's backend. Further arguments are settings of the layout: travel="keys".
    """
    group = process_group(group)
    hosts = host_sizes(group)
    try:
        texts = texts_of(masks, hosts, cluster, device_of(device, group), tables=tables, heads=heads, head_dim=head_dim, tokens=tokens,
                         kv_heads=kv_heads, value_dim=value_dim, schedule=schedule, partition=partition, softcap=softcap, layout=layout)
    except (OSError, ValueError) as error:
        if size_of(group) > 1:  # the others may have no fault, and would wait
            check_alike(group, hashlib.sha256(repr(error).encode()).digest(), None)
        raise
    if size_of(group) > 1:
        check_alike(group, texts.digest().digest(), texts)
    path, folder = for_all(group, texts)
    plan = Plan(path, folder, group, (texts.topo, texts.model))
    if device is not None and plan.device.type != torch.device(device).type:
        plan.close()
        raise ValueError(f"device is {device}, but the cluster has devices of {plan.device.type}")
    if plan.ranks != size_of(group):
        raise ValueError(f"the cluster has {plan.ranks} devices, but the group {size_of(group)} ranks")
    return plan


def device_of(device, group):
    """"cpu" or "cuda"."""
    if device is None:
        return "cuda" if group is not None and torch.distributed.get_backend(group) == "nccl" else "cpu"
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device is {device}; plans are for cpu and cuda")
    return kind


def texts_of(masks, hosts, cluster, device, *, tables, **sizes):
    named = {"main": masks} if isinstance(masks, str) else masks
    if not hasattr(named, "items"):
        raise ValueError(f"masks is {masks!r}, not an expression such as \"causal\", or a dictionary of them by name")
    masks, patterns = with_patterns(dict(named))
    model = model_text(masks, tables_of(masks) if tables is None else tables, **sizes)
    if cluster == "auto":
        cluster = cluster_text(hosts, torch.cuda.get_device_name() if device == "cuda" else None)
    elif "{" not in cluster:
        cluster = pathlib.Path(cluster).read_text()
    return Texts(cluster, model, patterns)
