"""Steps of scripts/gpu-check: programs with limits to their time, whose processes end with them."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ASK_LIMIT = 20    # seconds for a question to the machine
LEAST_TIME = 5    # with less no step is begun
END_LIMIT = 5     # for a process that was killed to be gone
PR_SET_PDEATHSIG = 1        # prctl(2)
LIBC = ctypes.CDLL(None)    # loaded before there is a child, which could wait for the loader's lock
SHOWN = 4000      # characters of the output of a step that failed


def execute(command, limit, errors=subprocess.STDOUT):
    """Status and output of a program, None for the status where it was killed at the limit.

    Its errors are part of the output, or go to the file `errors`.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=errors, text=True, errors="replace", preexec_fn=begin_group)
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        try:  # its own processes may still hold the pipe
            output, _ = process.communicate(timeout=END_LIMIT)
        except subprocess.TimeoutExpired:
            output = error.stdout or b""
        return None, output if isinstance(output, str) else output.decode(errors="replace")
    finally:
        kill_group(process)


def begin_group():
    """In the child: a group, so that one signal ends all of it; and an end with its parent's."""
    os.setpgrp()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group(process):
    """What a step has started must not stay on the GPU of the next one."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Steps:
    """The steps of one check."""

    def __init__(self, seconds, save=lambda: None):
        self.deadline = time.monotonic() + seconds
        self.end = self.deadline  # of the part under way
        self.steps = []
        self.save = save
        self.is_unsaved = False

    def changed(self):
        """Saves the report; where that fails, what is printed is all that stays, and the check goes on."""
        try:
            self.save()
        except OSError as error:
            if not self.is_unsaved:
                print(f"gpu-check: the report cannot be written: {error}", file=sys.stderr, flush=True)
            self.is_unsaved = True

    def skip(self, name, reason):
        """Notes a step that is not done."""
        self.steps.append({"name": name, "required": False, "seconds": 0.0,
                           "outcome": f"skipped: {reason}"})
        print(f"{name}: skipped: {reason}", flush=True)
        self.changed()

    def asked(self, command, limit=ASK_LIMIT, shows_errors=False):
        """What a program of the machine says, with its errors if wanted; else nothing where it fails."""
        try:
            status, output = execute(command, max(1, min(limit, self.end - time.monotonic())),
                                     subprocess.STDOUT if shows_errors else subprocess.DEVNULL)
        except OSError as error:
            return str(error) if shows_errors else ""
        return output if status == 0 or shows_errors else ""

    def fail(self, why):
        """The last step has ended well, but what it found is wrong."""
        self.steps[-1]["outcome"] = why
        print(f"{self.steps[-1]['name']}: {why}", flush=True)

    def part(self, name, act, *arguments, left_for_others=0):
        """Carries out some steps; what goes wrong in between is one of its own."""
        self.end = self.deadline - left_for_others
        try:
            return act(self, *arguments)
        except Exception as error:  # whatever it is, what was found and what comes next counts more
            self.steps.append({"name": name, "required": True, "seconds": 0.0,
                               "outcome": f"given up: {type(error).__name__}: {error}"})
            print(f"{name}: {self.steps[-1]['outcome']}", flush=True)
            self.changed()
            return None

    def read(self, output, parse):
        """What `parse` makes of a step's output; None, and a failed step, where it cannot be read."""
        if not output:
            return None
        try:
            return parse(output)
        except (ValueError, LookupError, TypeError) as error:
            self.steps[-1].update(outcome=f"output that cannot be read: {error}",
                                  output=output[-SHOWN:])
            print(f"{self.steps[-1]['name']}: {self.steps[-1]['outcome']}", flush=True)
            return None

    def step(self, name, command, limit, required=True, refusal=None):
        """Runs a step; its output, or None where it failed or there was no time.

        With `refusal` the program has to fail, and to say that.
        """
        left = min(limit, self.end - time.monotonic())
        entry = {"name": name, "command": command, "required": required, "seconds": 0.0}
        self.steps.append(entry)
        entry["outcome"] = "no time left"
        if left < LEAST_TIME:
            print(f"{name}: no time left", flush=True)
            self.changed()
            return None
        start = time.monotonic()
        output = ""
        entry["outcome"] = "under way"
        self.changed()
        try:
            status, output = execute(command, left)
            entry["outcome"] = (f"stopped after {left:.0f} s" if status is None
                                else f"does not say '{refusal}'" if refusal and refusal not in output
                                else "good" if (status == 0) != bool(refusal) else f"exit status {status}")
        except OSError as error:
            entry["outcome"] = str(error)
        entry["seconds"] = round(time.monotonic() - start, 1)
        print(f"{name}: {entry['outcome']} ({entry['seconds']} s)", flush=True)
        if entry["outcome"] != "good":
            entry["output"] = output[-SHOWN:]
            print(entry["output"], flush=True)
            output = None
        self.changed()
        return output


class MpsDaemon:
    """NVIDIA's Multi-Process Service, for those that are started with these words in front."""

    def __init__(self, control):
        self.control = control
        self.folder = Path(tempfile.mkdtemp(prefix="gpu-check-mps-"))
        self.variables = {f"CUDA_MPS_{what.upper()}_DIRECTORY": str(self.folder / what) for what in ("pipe", "log")}
        self.words = ["env", *(f"{name}={value}" for name, value in self.variables.items())]
        self.daemon = None

    def __enter__(self):
        for place in self.variables.values():
            Path(place).mkdir()
        # In the foreground, so that it ends with this process.
        self.daemon = subprocess.Popen([self.control, "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, preexec_fn=begin_group, env=self.environment())
        pipe = self.folder / "pipe" / "control"
        end = time.monotonic() + ASK_LIMIT
        while not pipe.exists() and self.daemon.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        try:
            subprocess.run([self.control], input="quit\n", text=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=ASK_LIMIT, env=self.environment(), check=False)
            self.daemon.wait(END_LIMIT)
        except (OSError, subprocess.TimeoutExpired):
            pass  # it is killed instead
        kill_group(self.daemon)
        self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self):
        return {**os.environ, **self.variables}
