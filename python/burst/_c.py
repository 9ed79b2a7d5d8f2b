"""libburst by ctypes: burst.h as it stands."""
import ctypes
import functools
import os
import pathlib

SUCCESS = 0
BALANCED, CONTIGUOUS, REPLICATED = range(3)
WORKSPACE, BATCH_MEMORY, HOST_MEMORY, PEER_MEMORY = range(4)

AllGather = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Group(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("size", ctypes.c_int), ("all_gather", AllGather), ("context", ctypes.c_void_p)]


class Info(ctypes.Structure):
    _fields_ = [("ranks", ctypes.c_int), ("heads", ctypes.c_int), ("kv_heads", ctypes.c_int), ("head_dim", ctypes.c_int),
                ("value_dim", ctypes.c_int),
                ("tokens", ctypes.c_int64), ("masks", ctypes.c_int), ("tables", ctypes.c_int),
                ("mask_name", ctypes.POINTER(ctypes.c_char_p)), ("table_name", ctypes.POINTER(ctypes.c_char_p)),
                ("element_bytes", ctypes.c_size_t), ("align", ctypes.c_size_t), ("target", ctypes.c_char_p), ("layout", ctypes.c_char_p), ("hash", ctypes.c_uint64)]


pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
SIGNATURES = {  # name: result, arguments
    "burst_plan_open": (integer, [ctypes.c_char_p, ctypes.POINTER(Group), ctypes.POINTER(pointer)]),
    "burst_plan_close": (None, [pointer]),
    "burst_plan_abort": (None, [pointer, ctypes.c_char_p]),
    "burst_plan_info": (ctypes.POINTER(Info), [pointer]),
    "burst_plan_bytes": (size, [pointer, integer]),
    "burst_batch_make": (integer, [pointer, pointer, integer, ctypes.POINTER(pointer), ctypes.POINTER(pointer)]),
    "burst_batch_load": (integer, [pointer, pointer, pointer]),
    "burst_batch_close": (None, [pointer]),
    "burst_batch_rows": (ctypes.c_int64, [pointer, integer, pointer, pointer]),
    "burst_attention_forward": (integer, [pointer, integer, pointer, pointer, pointer, pointer, ctypes.c_float, pointer, pointer,
                                          pointer, pointer]),
    "burst_attention_backward": (integer, [pointer, integer, pointer, pointer, pointer, pointer, ctypes.c_float, pointer, pointer,
                                           pointer, pointer, pointer, pointer, pointer, pointer, pointer, pointer]),
    "burst_move": (integer, [pointer, integer, integer, pointer, pointer, size, pointer]),
    "burst_error": (ctypes.c_char_p, [pointer]),
}


def home():
    """The folder that has bin/burstc and lib/libburst.so: the wheel's, or that of BURST_HOME."""
    return pathlib.Path(os.environ.get("BURST_HOME") or pathlib.Path(__file__).parent / "native").resolve()


@functools.cache
def library():
    path = home() / "lib/libburst.so"
    if not path.exists():
        raise ImportError(f"{path} is missing: install the wheel, or set BURST_HOME to a build or an installation of burstc")
    lib = ctypes.CDLL(str(path))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class BurstError(RuntimeError):
    """A call failed, on this rank or another one: the text says where and why."""


def check(status, plan=None):
    if status != SUCCESS:
        raise BurstError(library().burst_error(plan).decode(errors="replace"))
