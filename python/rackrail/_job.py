"""This process's place in its job: one per process, made when it is first needed."""

import atexit
import ctypes
import json
import os
import sys
import threading

from . import _library
from ._interrupts import Watch, on_another_thread

_lib = _library.load()
_lock = threading.RLock()
joining = _lock
_alive = threading.Lock()  # keeps the context while it is interrupted
_context = None
_process = None  # that has the context: a child that was forked has not
_ended = None  # why there is no job any more
_failure = None  # the exception that ends this process, if one does
_has_said_lost = False  # PeerLost was raised


class Error(RuntimeError):
    """Something that rackrail could not do; one line."""

    __module__ = "rackrail"  # where programs find it


class InputError(Error, ValueError):
    """An argument, an environment variable or a file is at fault."""

    __module__ = "rackrail"  # where programs find it


class PeerLost(Error):
    """Another rank is gone or has failed, and with it the job."""

    __module__ = "rackrail"  # where programs find it


_FORKED = ("the job is that of the process which this one was forked from: start ranks, not forks of one"
           " (in multiprocessing: the start method 'spawn')")
_DEVICES = {"cpu": _library.HOST, "cuda": _library.CUDA}
_ERRORS = {_library.BAD_INPUT: InputError, _library.PEER_LOST: PeerLost}


def _call(function, *arguments):
    """A function of the library: its status, and the line that this thread has of it."""
    status = function(*arguments)
    return status, _lib.rackrail_last_error().decode(errors="replace") if status else ""


def _check(status, line):
    global _has_said_lost
    if status != _library.OK:
        _has_said_lost = _has_said_lost or status == _library.PEER_LOST
        raise _ERRORS.get(status, Error)(line)


def _wait_for(function, *arguments):
    """_call() of one that waits for other ranks."""
    with _watch.call():
        return _call(function, *arguments)


def _interrupt():
    """Ctrl-C while a call waits, which ends then; the others would wait for this rank in vain."""
    global _ended
    with _alive:
        if is_initialized():
            _ended = "the job was interrupted"
            _lib.rackrail_abort(_context, b"interrupted")


_watch = Watch(_interrupt)


def _text(value):
    return None if value is None else str(value).encode()


def init(*, rank=None, world_size=None, coordinator=None, token_file=None, cluster=None,
         codecs=None, transport=None, timeout=None, plan=None, device=None, device_id=0):
    """Joins the job; blocks until all ranks have come (at most `timeout` seconds, 300).

    What is not given comes from the launcher (torchrun, mpirun, srun, TF_CONFIG) and from
    RACKRAIL_COORDINATOR, RACKRAIL_JOB_TOKEN, RACKRAIL_CLUSTER, RACKRAIL_CODECS, RACKRAIL_PLAN and
    RACKRAIL_TRANSPORT; see README.md. device="cuda" makes sums on GPU `device_id` of this process,
    which buckets of PyTorch's DDP may then lie on; "cpu" is the default [RACKRAIL_DEVICE]. Without
    a launcher the job is this process alone. Other functions call it when nobody has. A process has
    one job in its life: a second call is an error, also after shutdown() or an interrupted init()."""
    join(rank=rank, world_size=world_size, coordinator=coordinator, token_file=token_file,
         cluster=cluster, codecs=codecs, transport=transport, timeout=timeout, plan=plan,
         device=device, device_id=device_id)


def join(*, rank, world_size, coordinator, token_file=None, cluster=None, codecs=None,
         transport=None, timeout=None, plan=None, device=None, device_id=0, token=None,
         is_network_private=False, on_listening=None):
    """init(), also for ranks that meet in another way (torch/meeting.py): on_listening(addresses) is
    called on rank 0 when it listens, from another thread."""
    global _context, _process, _ended
    if (rank is None) != (world_size is None):
        raise InputError("rank and world_size: found one of them, expected both or none")
    if device not in (None, *_DEVICES):
        raise InputError(f"device: found {device!r}, expected one of {', '.join(_DEVICES)}")
    with _lock:
        if _context is not None and _process != os.getpid():
            raise InputError(_FORKED)
        if _context is not None or _ended is not None:
            raise InputError(_ended or "rackrail.init() was called before")
        config = _library.Config(
            size=ctypes.sizeof(_library.Config), world_size=world_size or 0, rank=rank or 0,
            coordinator=_text(coordinator), token_file=_text(token_file), cluster=_text(cluster),
            codecs=_text(codecs), transport=_text(transport),
            timeout_milliseconds=0 if timeout is None else max(1, int(timeout * 1000)),
            plan=_text(plan), device=_DEVICES.get(device, _library.HOST), device_id=device_id,
            token=_text(token), is_network_private=is_network_private)
        if on_listening is not None:
            config.on_listening = _library.ON_LISTENING(
                lambda addresses, _: on_listening(addresses.decode()))
        context = ctypes.c_void_p()
        try:
            _check(*on_another_thread(lambda: _join(config, context)))
        except Error:
            raise
        except BaseException:  # Ctrl-C, or what else a signal's handler raises
            _ended = "rackrail.init() was interrupted"
            _leave(context)
            raise
        _context, _process = context, os.getpid()
        _watch.begin()
        _watch_for_failure()
        at_end_of_process(_at_exit)


def at_end_of_process(function):
    """atexit.register(); also where multiprocessing has started the process, which skips that."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize
        Finalize(None, _after_exception, (function,), exitpriority=100)
    else:
        atexit.register(function)


def _after_exception(function):
    """For multiprocessing, which ends a process in an exception's handler, if one has ended its work, and
    so shows it to no excepthook."""
    global _failure
    error = sys.exc_info()[1]
    if _failure is None and error is not None and not (
            isinstance(error, SystemExit) and error.code in (None, 0)):
        _failure = f"{type(error).__name__}: {error}".splitlines()[0]
    function()


def _join(config, context):
    result = _call(_lib.rackrail_init, ctypes.byref(config), ctypes.byref(context))
    if _ended is not None:  # nobody waits for it any more
        _leave(context)
    return result


def _leave(context):
    if context:
        _lib.rackrail_abort(context, b"interrupted")


def join_on_gpu(number):
    """Makes this process a rank, if it is none yet, whose sums are made on that GPU."""
    with _lock:
        if not is_initialized():
            init(device="cuda", device_id=number)


def _running():
    with _lock:
        if _ended is not None:
            raise Error(_ended)
        if _context is not None and _process != os.getpid():
            raise Error(_FORKED)
        if _context is None:
            init()
        return _context


def was_joined():
    """Whether it is, or was; also in the process that this one was forked from."""
    return _context is not None or _ended is not None


def is_initialized():
    """Whether this process is in a job."""
    return _context is not None and _ended is None and _process == os.getpid()


def rank():
    """Of this process, from 0."""
    return _lib.rackrail_rank(_running())


def world_size():
    """Number of ranks of the job."""
    return _lib.rackrail_world_size(_running())


def forget_errors():
    """Forgets what lossy codecs left out of earlier steps, which error feedback adds to the next ones:
    for a program that loads other parameters or skips a step. Each rank for itself, between steps."""
    if is_initialized():
        _check(*_call(_lib.rackrail_forget_errors, _context))


def describe():
    """What was planned: a list of dictionaries with elements, schedule and codec of each bucket, and
    the relative error that codecs leave in one of its sums, by their model."""
    context = _running()
    size = _lib.rackrail_describe(context, None, 0) + 1
    text = ctypes.create_string_buffer(size)
    _lib.rackrail_describe(context, text, size)
    return json.loads(text.value.decode())


def shutdown():
    """Orderly end, to be called by all ranks; also done when a process exits by itself. Waits up to
    30 s for the others."""
    global _ended
    with _lock:
        if not is_initialized():
            return
        status, line = _wait_for(_lib.rackrail_finish, _context)
        if status != _library.BAD_INPUT:  # then something is under way, and the job goes on
            _ended = "the job was ended by rackrail.shutdown()"
    _check(status, line)
    with _alive:
        _lib.rackrail_destroy(_context)


def abort(reason):
    """Ends the job for all ranks: their calls raise PeerLost with the reason."""
    if is_initialized():
        _lib.rackrail_abort(_context, _text(reason))


def abort_if_failed():
    """Where an exception that nobody caught ends this process: the others hear of it now."""
    if _failure is not None:
        abort(_failure)


def _watch_for_failure():
    """Remembers an exception that nobody catches, so that the others hear why this rank ends."""
    before = sys.excepthook

    def hook(kind, value, trace):
        global _failure
        _failure = f"{kind.__name__}: {value}".splitlines()[0]
        before(kind, value, trace)

    sys.excepthook = hook


def _at_exit():
    if _failure is not None:
        abort_if_failed()
        return
    if _has_said_lost:
        return  # there is nothing to end in order
    try:
        shutdown()
    except Error as error:
        print(f"rackrail: at exit: {error}", file=sys.stderr)


def buffer_of(pointer, elements, device=_library.HOST, device_id=0, stream=None):
    """A rackrail_buffer of 32-bit floats."""
    return _library.Buffer(size=ctypes.sizeof(_library.Buffer), data=pointer, elements=elements,
                           type=_library.FLOAT32, device=device, device_id=device_id, stream=stream)


def all_reduce(buffer, operation):
    """rackrail_all_reduce()."""
    _check(*_wait_for(_lib.rackrail_all_reduce, _running(), ctypes.byref(buffer), operation))


def plan(elements, ready_nanoseconds=None):
    """rackrail_plan(): the number of the first bucket."""
    first = ctypes.c_int32()
    count = len(elements)
    times = (ctypes.c_int64 * count)(*ready_nanoseconds) if ready_nanoseconds else None
    _check(*_wait_for(_lib.rackrail_plan, _running(), (ctypes.c_int64 * count)(*elements), times,
                      count, ctypes.byref(first)))
    return first.value


def start(bucket, buffer, operation):
    """rackrail_start()."""
    _check(*_call(_lib.rackrail_start, _running(), bucket, ctypes.byref(buffer), operation))


def wait(bucket):
    """rackrail_wait()."""
    _check(*_wait_for(_lib.rackrail_wait, _running(), bucket))
