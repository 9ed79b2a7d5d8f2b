"""The ranks that attend together: a ProcessGroup, a DeviceMesh of one dimension, or this process alone."""
import ctypes
import socket
import traceback

import torch
import torch.distributed as dist

from . import _c


def process_group(group):
    """None: one rank."""
    if hasattr(group, "get_group"):  # a DeviceMesh
        return group.get_group()
    if group is None and dist.is_available() and dist.is_initialized():
        return dist.group.WORLD
    return group


def rank_of(group):
    return dist.get_rank(group) if group is not None else 0


def size_of(group):
    return dist.get_world_size(group) if group is not None else 1


def carrier(group):
    """The device whose tensors the group's collectives take."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")


def gather_bytes(group, data):
    """Equally many of each rank, in their order."""
    own = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(carrier(group))
    every = [torch.empty_like(own) for _ in range(size_of(group))]
    dist.all_gather(every, own, group=group)
    return b"".join(bytes(part.cpu().numpy().tobytes()) for part in every)


def broadcast_bytes(group, data):
    """What the first rank has, on all."""
    if size_of(group) == 1:
        return data
    device, first = carrier(group), dist.get_global_rank(group, 0)
    length = torch.tensor([len(data) if data is not None else 0], dtype=torch.int64, device=device)
    dist.broadcast(length, first, group=group)
    body = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device) if data else torch.empty(int(length), dtype=torch.uint8,
                                                                                                    device=device)
    if int(length):
        dist.broadcast(body, first, group=group)
    return bytes(body.cpu().numpy().tobytes())


def host_sizes(group):
    """Ranks of each host, in order; a host whose ranks do not follow each other counts more than once."""
    names = [socket.gethostname()]
    if size_of(group) > 1:
        length = 256
        every = gather_bytes(group, names[0].encode()[:length].ljust(length, b"\0"))
        names = [every[i:i + length] for i in range(0, len(every), length)]
    sizes = []
    for i, name in enumerate(names):
        if i and name == names[i - 1]:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def c_group(group):
    """As burst.h has it; keep the callback alive while a plan is opened."""
    def all_gather(_, given, taken, size):
        try:
            ctypes.memmove(taken, gather_bytes(group, ctypes.string_at(given, size)), size * size_of(group))
            return 0
        except Exception:  # it may not pass through C
            traceback.print_exc()
            return 1

    return _c.Group(rank_of(group), size_of(group), _c.AllGather(all_gather), None)
