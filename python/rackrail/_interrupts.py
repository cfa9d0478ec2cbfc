"""Ctrl-C while the library waits for other ranks.

Python runs a signal's handler on its main thread, and not before a call of C has returned: while ranks
wait for one that does not come, Ctrl-C would do nothing. The time to make every call on another thread is
that of a small sum. So init() alone is called so, and for the others a thread hears of signals by Python's
wakeup descriptor: where Ctrl-C will raise KeyboardInterrupt, and a call of the library keeps the main thread
from it, that call is ended, be it the main thread's or one of the hook's that backward() waits for."""

import os
import signal
import sys
import threading
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
        self._calls = {}  # under way, by thread
        self._has_begun = False

    @contextmanager
    def call(self):
        """Around a call that waits for other ranks, on any thread."""
        thread = threading.get_ident()
        try:
            self._calls[thread] = object()
            yield
        finally:
            self._calls.pop(thread, None)  # a handler may have made another

    def begin(self):
        """On the main thread; elsewhere, or where the program itself has a wakeup descriptor, nothing
        is watched."""
        if self._has_begun or threading.current_thread() is not threading.main_thread():
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
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
                before = self._state()
                threading.Event().wait(_PATIENCE)
                now = self._state()
                # Had the main thread taken note, it would be elsewhere.
                if before[0] == now[0] and before[1] & now[1]:
                    self._interrupt()

    def _state(self):
        """Where the main thread is, and the calls that are under way."""
        frame = sys._current_frames().get(threading.main_thread().ident)
        return (frame, frame and frame.f_lasti), set(self._calls.copy().values())


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
