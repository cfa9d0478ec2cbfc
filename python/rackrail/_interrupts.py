"""Ctrl-C while the library waits for other ranks.

Python runs a signal's handler on its main thread, and not before a call of C has returned: while ranks
wait for one that does not come, Ctrl-C would do nothing. The time to make every call on another thread is
that of a small sum. So init() alone is called so, and for the others a thread hears of signals by Python's
wakeup descriptor: where Ctrl-C will raise KeyboardInterrupt, and a call of the library keeps the main thread
from it, that call is ended, be it the main thread's or one of the hook's that backward() waits for."""

import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

_PATIENCE = 0.5  # seconds in which a call may end by itself


def on_another_thread(call):
    """call()'s result. A handler's exception ends the waiting for it, not the call."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), name="rackrail init",
                              daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_PATIENCE)  # not longer, should the system give another thread the signal
    return results[0]


class Watch:
    """Calls `interrupt` on a thread of its own, for each Ctrl-C that cannot be heard otherwise."""

    def __init__(self, interrupt):
        self._interrupt = interrupt
        self._calls = {}  # under way, by thread: (when it began, itself)
        self._has_begun = False

    @contextmanager
    def call(self):
        """Around a call that waits for other ranks, on any thread."""
        thread = threading.get_ident()
        try:
            self._calls[thread] = (time.time_ns(), object())
            yield
        finally:
            self._calls.pop(thread, None)  # a handler may have made another

    def begin(self):
        """On the main thread; elsewhere, or where the program itself has a wakeup descriptor, nothing
        is watched."""
        if self._has_begun or threading.current_thread() is not threading.main_thread():
            return
        try:
            reading, writing = _fifo()
        except OSError:
            return
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1 and _put_back(before):
            os.close(reading)
            os.close(writing)
            return
        self._has_begun = True
        # Signals of a process that is forked are its own.
        os.register_at_fork(after_in_child=lambda: _forget(writing))
        threading.Thread(target=self._work, args=(reading,), name="rackrail signals",
                         daemon=True).start()

    def _work(self, reading):
        while True:
            if (signal.SIGINT in os.read(reading, 4096)
                    and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
                # The handler may have run before this thread did: a later call is not what Ctrl-C was for.
                # Times of files may be some milliseconds early, never late.
                at = os.fstat(reading).st_mtime_ns
                before, calls = self._state(at)
                threading.Event().wait(_PATIENCE)
                now, calls_now = self._state(at)
                # Had the main thread taken note, it would be elsewhere.
                if before == now and calls & calls_now:
                    self._interrupt()

    def _state(self, latest):
        """Where the main thread is, and the calls under way that began before a time."""
        frame = sys._current_frames().get(threading.main_thread().ident)
        return ((frame, frame and frame.f_lasti),
                {call for began, call in self._calls.copy().values() if began < latest})


def _fifo():
    """The ends of a pipe that, other than one without a name, keeps when it was last written to."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "signals")
        os.mkfifo(path)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(reading, True)
    return reading, writing


def _put_back(descriptor):
    """Whether the program's own could be: it may have closed it."""
    try:
        signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    except (OSError, ValueError):
        return False
    return True


def _forget(descriptor):
    current = signal.set_wakeup_fd(-1)
    if current not in (-1, descriptor):
        signal.set_wakeup_fd(current)
