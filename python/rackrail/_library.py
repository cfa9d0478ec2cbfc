"""librackrail.so: where it is, whether it is the right one, and its functions (rackrail.h)."""

import ctypes
import os
from pathlib import Path

VERSION = "0.1.0"
INTERFACE = 4

OK, FAILED, BAD_INPUT, PEER_LOST = range(4)
FLOAT32 = 0
HOST, CUDA = 0, 1
SUM, MEAN = 0, 1


class Buffer(ctypes.Structure):
    """struct rackrail_buffer."""

    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p),
                ("elements", ctypes.c_int64), ("type", ctypes.c_int32),
                ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("stream", ctypes.c_void_p)]


ON_LISTENING = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


class Config(ctypes.Structure):
    """struct rackrail_config."""

    _fields_ = [("size", ctypes.c_size_t), ("world_size", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("coordinator", ctypes.c_char_p),
                ("token_file", ctypes.c_char_p), ("cluster", ctypes.c_char_p),
                ("codecs", ctypes.c_char_p), ("transport", ctypes.c_char_p),
                ("timeout_milliseconds", ctypes.c_int64), ("plan", ctypes.c_char_p),
                ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("token", ctypes.c_char_p), ("is_network_private", ctypes.c_int32),
                ("on_listening", ON_LISTENING), ("on_listening_argument", ctypes.c_void_p)]


_CONTEXT = ctypes.c_void_p
_FUNCTIONS = {  # name: result, arguments
    "rackrail_unavailable": (ctypes.c_char_p, ()),
    "rackrail_last_error": (ctypes.c_char_p, ()),
    "rackrail_init": (ctypes.c_int, (ctypes.POINTER(Config), ctypes.POINTER(_CONTEXT))),
    "rackrail_rank": (ctypes.c_int32, (_CONTEXT,)),
    "rackrail_world_size": (ctypes.c_int32, (_CONTEXT,)),
    "rackrail_all_reduce": (ctypes.c_int, (_CONTEXT, ctypes.POINTER(Buffer), ctypes.c_int32)),
    "rackrail_plan": (ctypes.c_int, (_CONTEXT, ctypes.POINTER(ctypes.c_int64),
                                     ctypes.POINTER(ctypes.c_int64), ctypes.c_int32,
                                     ctypes.POINTER(ctypes.c_int32))),
    "rackrail_start": (ctypes.c_int, (_CONTEXT, ctypes.c_int32, ctypes.POINTER(Buffer),
                                      ctypes.c_int32)),
    "rackrail_wait": (ctypes.c_int, (_CONTEXT, ctypes.c_int32)),
    "rackrail_forget_errors": (ctypes.c_int, (_CONTEXT,)),
    "rackrail_describe": (ctypes.c_size_t, (_CONTEXT, ctypes.c_char_p, ctypes.c_size_t)),
    "rackrail_finish": (ctypes.c_int, (_CONTEXT,)),
    "rackrail_abort": (None, (_CONTEXT, ctypes.c_char_p)),
    "rackrail_destroy": (None, (_CONTEXT,)),
}


def candidates():
    """Where the library may be, in the order in which they are tried."""
    named = os.environ.get("RACKRAIL_LIBRARY")
    if named:  # dlopen() looks for a name without a slash elsewhere
        return [str(Path(named).resolve()) if Path(named).is_file() else named]
    package = Path(__file__).resolve().parent
    builds = [package.parents[1] / "build" / preset / "lib" for preset in ("release", "dev")]
    beside = [folder / "librackrail.so" for folder in (package, *builds)]
    return [str(path) for path in beside if path.exists()] + ["librackrail.so"]


# TensorFlow has its own protobuf, of another version, and shows it to whatever is loaded after it.
_NAMES_OF_OTHERS = ("_ZTIN6google8protobuf11MessageLiteE", "_ZTIN6google8protobuf7MessageE", "grpc_init")


def loading_mode():
    """How to load the library: where others have put names into the process that its own libraries
    have as well, its own come first. Not always: an allocator that is preloaded would be passed by."""
    everybody = ctypes.CDLL(None)
    is_crowded = any(hasattr(everybody, name) for name in _NAMES_OF_OTHERS)
    return ctypes.DEFAULT_MODE | (getattr(os, "RTLD_DEEPBIND", 0) if is_crowded else 0)


def load():
    """The library, checked. Raises ImportError with one sentence."""
    tried = candidates()
    try:
        library = ctypes.CDLL(tried[0], mode=loading_mode())
    except OSError as error:
        raise ImportError(f"rackrail: its library cannot be loaded: {error}; build it ('make build'),"
                          " then install this package again, or set RACKRAIL_LIBRARY to the"
                          " build/release/lib/librackrail.so that was built") from None
    try:
        library.rackrail_version.restype = ctypes.c_char_p
        version = library.rackrail_version().decode()
        interface = library.rackrail_interface()
    except AttributeError:
        raise ImportError(f"rackrail: {tried[0]} is no library of rackrail") from None
    if (version, interface) != (VERSION, INTERFACE):
        raise ImportError(f"rackrail: {tried[0]} is version {version} (interface {interface}), this"
                          f" package needs {VERSION} (interface {INTERFACE})")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"rackrail: {tried[0]} says that it is version {version}, and has no"
                              f" {name}")
        function.restype = result
        function.argtypes = arguments
    unavailable = library.rackrail_unavailable()
    if unavailable:
        raise ImportError(f"rackrail: {tried[0]}: {unavailable.decode()}")
    return library
