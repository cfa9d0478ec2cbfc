"""Jobs that are made to suffer: random faults, by a seed, while `rackrail train --on-loss wait` runs.

Used by soak_test.py (a few dozen faults) and by scripts/soak-faults (a thousand). A fault comes when
the job has done a random number of steps since the one before, and hits it wherever it is then. What
must hold afterwards: the command ends by itself and well, all ranks have the same parameters, these
are to a bit those of a run without faults (everything is summed in FP32, in the same order, however
often workers were replaced; not so where updates are applied as they come, or sums are compressed, or
the job went on with fewer), every step was taken, none that was saved before a fault was taken back by
it, no process is left, and neither descriptors nor memory of the command and of its workers grew, in
all or with every fault.
"""

import array
import dataclasses
import json
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import time
from pathlib import Path

import harness
from emulation import names_of, set_link

WORKERS = 4
STEPS_BETWEEN = (3, 10)  # steps from one fault to the next
SAVED_EVERY = 2  # steps; checkpoints tell how far the job is
PATIENCE = 120  # seconds without a new checkpoint after which a job hangs
MOST_AT_ONCE = 2  # workers that may be hit before there is a new checkpoint, but for all of them
MOST_MORE_DESCRIPTORS = 16
MOST_MORE_MEMORY = 64 << 20  # bytes, per process over its life
# Descriptors and bytes that a process grows by with each: half of the model's gradients.
MOST_PER_FAULT = (0.5, 9 << 18)
# Faults after which a process has all that it keeps for the next ones, arenas of the heap for example,
# and that it must have seen beside these to tell whether it grows.
SETTLED_AFTER, FEWEST_FOR_SLOPE = 8, 10
KINDS = ("kill", "freeze", "thaw", "coordinator", "two", "all")
SAID = {"kill": "a worker killed", "freeze": "a worker stopped",
        "thaw": "a worker stopped for a while", "coordinator": "the command killed, and started again",
        "two": "two workers killed", "all": "all workers killed", "cable": "a cable cut for a while"}
EMULATED_KINDS = ("kill", "freeze", "thaw", "cable", "two", "all")


EXACT = ("--codec", "none")
SERVERS = (*EXACT, "--schedule", "parameter-server")


@dataclasses.dataclass(frozen=True)
class Mode:
    """How the ranks of a job keep in step: options of `train` and of `plan`. Where workers have
    momentum of their own, a lost one takes it along: without, the job still ends with the same
    bits."""

    name: str
    train: tuple = ()
    plan: tuple = EXACT
    has_momentum: bool = True
    is_exact: bool = True
    most_points: float = 0.01  # that the accuracy may be off

    def training(self, text):
        """The text of a training configuration for it."""
        assert "  momentum: 0.9\n" in text
        return text if self.has_momentum else text.replace("  momentum: 0.9\n", "  momentum: 0\n")


MODES = (Mode("sums"),
         Mode("averages", ("--local-steps", "2"), has_momentum=False),
         Mode("servers", ("--mode", "async", "--staleness", "0"), SERVERS, has_momentum=False),
         Mode("asynchronous", ("--mode", "async", "--staleness", "3"), SERVERS, is_exact=False,
              most_points=0.05),
         Mode("synchronous servers", (), SERVERS),
         # A loss takes error feedback along.
         Mode("compressed sums", (), ("--codec", "int8"), is_exact=False, most_points=0.05))


class SoakFailure(Exception):
    pass


def tensors(path):
    """All floats of a safetensors file in the order of the tensors' names."""
    content = path.read_bytes()
    size = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + size])
    values = array.array("f")
    for name in sorted(name for name in header if name != "__metadata__"):
        begin, end = header[name]["data_offsets"]
        values.frombytes(content[8 + size + begin:8 + size + end])
    return values


def latest_step(folder):
    steps = [int(entry.name[len("step-"):]) for entry in folder.glob("step-*")
             if re.fullmatch(r"step-\d+", entry.name)]
    return max(steps, default=0)


def usage(pid):
    """Open descriptors and resident bytes; None when the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return (len(os.listdir(f"/proc/{pid}/fd")),
                int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) << 10)
    except (OSError, AttributeError):
        return None


class Growth:
    """What each process had before each fault since it was seen for the second time, its data read
    and its connections made."""

    def __init__(self):
        self.known = set()
        self.seen = {}

    def look(self, pids):
        for pid in pids:
            if (seen := usage(pid)) is not None and pid in self.known:
                self.seen.setdefault(pid, []).append(seen)
            self.known.add(pid)

    def most(self):
        """Most that any process grew: descriptors, bytes."""
        grown = [[now - first for now, first in zip(seen[-1], seen[0])]
                 for seen in self.seen.values()]
        return tuple(max(column) for column in zip(*grown)) if grown else (0, 0)

    def per_fault(self):
        """Most that any process grew with each fault once it had settled, of those that saw enough of
        them: descriptors, bytes; None where none did. A median of the slopes between any two, so that
        a jump or two are none."""
        slopes = []
        for seen in (all_seen[SETTLED_AFTER:] for all_seen in self.seen.values()):
            if len(seen) >= FEWEST_FOR_SLOPE:
                slopes.append([statistics.median((column[j] - column[i]) / (j - i)
                                                 for j in range(len(column)) for i in range(j))
                               for column in zip(*seen)])
        return tuple(max(column) for column in zip(*slopes)) if slopes else None


class Soak:
    """One job and its faults. `command` starts it and takes it up again; `find_processes` lists the
    process ids of all that it started; `say` gets a line about each fault."""

    def __init__(self, command, folder, environment, find_processes, seed, faults, say,
                 kinds=KINDS, silence=1.2):
        self.command = command
        self.folder = folder
        self.environment = environment
        self.find_processes = find_processes
        self.random = random.Random(seed)
        self.faults = faults
        self.say = say
        self.kinds = kinds
        self.silence = silence
        self.saved = folder / "saved"
        self.growth = Growth()
        self.counts = dict.fromkeys(kinds, 0)
        self.longest_pause = 0.0
        self.hit = set()
        self.saved_at = []  # before each fault: when, and which step was the latest that was saved
        self.process = None
        self.started = []  # process ids of the command

    @staticmethod
    def steps(faults):
        """That a job must have so that all faults come before its end: it goes on while a fault is
        under way, too."""
        return 2 * STEPS_BETWEEN[1] * (faults + 3)

    def start(self):
        self.process = subprocess.Popen(self.command, cwd=self.folder, env=self.environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=(self.folder / "errors").open("a"), text=True)
        self.started.append(self.process.pid)

    def workers(self):
        """Process ids by rank; of two of one rank the later one."""
        found = {}
        for pid in self.find_processes():
            words = harness.command_line(pid).split()
            if "worker" in words and "--rank" in words:
                found[int(words[words.index("--rank") + 1])] = pid
        return found

    def wait_for_step(self, step):
        """Until a checkpoint of this step or a later one is there, or the job is over."""
        begin = time.monotonic()
        before = latest_step(self.saved)
        changed = begin
        while (now := latest_step(self.saved)) < step and self.process.poll() is None:
            if now != before:
                before, changed = now, time.monotonic()
                self.hit.clear()
            if time.monotonic() - changed > PATIENCE:
                raise SoakFailure(f"no step after {now} within {PATIENCE} s; {self.states()}")
            time.sleep(0.01)
        self.longest_pause = max(self.longest_pause, time.monotonic() - begin)

    def states(self):
        return ", ".join(f"rank {rank}: {harness.process_state(pid)}"
                         for rank, pid in sorted(self.workers().items()))

    def victims(self, count):
        alive = [rank for rank in self.workers() if rank not in self.hit]
        count = min(count, MOST_AT_ONCE - len(self.hit), len(alive))
        chosen = self.random.sample(sorted(alive), max(count, 0))
        self.hit.update(chosen)
        return [(rank, self.workers()[rank]) for rank in chosen if rank in self.workers()]

    def victims_of(self, kind):
        if kind == "all":
            found = self.workers()
            self.hit.update(found)
            return sorted(found.items())
        return self.victims(2 if kind == "two" else 1)

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has ended meanwhile

    def fault(self):
        kind = self.random.choice(self.kinds)
        self.counts[kind] += 1
        if kind == "coordinator":
            self.process.kill()
            self.process.communicate()
            time.sleep(self.random.uniform(0, 1))
            self.start()
            self.say(kind)
            return
        hit = self.victims_of(kind)
        if kind == "cable":
            for rank, _ in hit:
                set_link(self.process, f"host{rank}", "down")
            time.sleep(self.random.uniform(0, 2 * self.silence))
            for rank, _ in hit:
                set_link(self.process, f"host{rank}", "up")
            self.say(kind + "".join(f" {rank}" for rank, _ in hit))
            return
        for _, pid in hit:
            self.send(pid, signal.SIGSTOP if kind in ("freeze", "thaw") else signal.SIGKILL)
        if kind == "thaw":
            time.sleep(self.random.uniform(0, 2 * self.silence))
            for _, pid in hit:
                self.send(pid, signal.SIGCONT)
        self.say(kind + "".join(f" {rank}" for rank, _ in hit))

    def run(self):
        """The result that the command printed. Raises SoakFailure."""
        try:
            return self._run()
        finally:
            for pid in self.find_processes():
                self.send(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.communicate()

    def _run(self):
        self.start()
        for _ in range(self.faults):
            self.wait_for_step(latest_step(self.saved) + self.random.randint(*STEPS_BETWEEN))
            if self.process.poll() is not None:
                raise SoakFailure(self.failure("ended before all faults had come"))
            self.growth.look([self.process.pid, *self.workers().values()])
            time.sleep(self.random.uniform(0, 0.05))
            self.saved_at.append((time.time(), latest_step(self.saved)))
            self.fault()
        try:
            out, _ = self.process.communicate(timeout=10 * PATIENCE)
        except subprocess.TimeoutExpired:
            raise SoakFailure("did not end") from None
        result = json.loads(out) if out.strip() else None
        # Links that do not hold their rates on a busy machine are no matter here.
        slow_links = result is not None and not result.get("emulation", {"valid": True})["valid"]
        if result is None or (self.process.returncode != 0 and not slow_links):
            raise SoakFailure(self.failure("failed"))
        if not harness.wait_until(lambda: not self.find_processes(), 5):
            raise SoakFailure("left processes: " + ", ".join(
                harness.command_line(pid) for pid in self.find_processes()))
        self.check(result)
        return result

    def namespaces_left(self):
        return names_of(*self.started)

    def failure(self, what):
        errors = (self.folder / "errors").read_text()
        return f"{what}, status {self.process.returncode}: {errors[-2000:]}"

    def check(self, result):
        if not result["parameters_agree"]:
            raise SoakFailure("ranks have different parameters")
        # Behind a cut cable no replacement can begin.
        if result["workers"] != WORKERS and not self.counts.get("cable"):
            raise SoakFailure(f"{result['workers']} workers at the end")
        if result["steps"] != self.steps(self.faults):
            raise SoakFailure(f"{result['steps']} steps, not {self.steps(self.faults)}")
        for loss in result["losses_of_workers"]:
            saved = max((step for at, step in self.saved_at if at < loss["noticed_at_unix_s"]),
                        default=0)
            if loss["step"] < saved:
                raise SoakFailure(f"went on from step {loss['step']}, though {saved} was saved: "
                                  f"{loss['reason']}")
        per_fault = self.growth.per_fault()
        if per_fault and any(each > most for each, most in zip(per_fault, MOST_PER_FAULT)):
            raise SoakFailure(f"a process grew by {per_fault[0]:.2f} descriptors and "
                              f"{per_fault[1] / 2**20:.2f} MiB with each fault")
        descriptors, memory = self.growth.most()
        if descriptors > MOST_MORE_DESCRIPTORS or memory > MOST_MORE_MEMORY:
            raise SoakFailure(f"a process grew by {descriptors} descriptors, {memory >> 20} MiB")


def had_all(result):
    """Whether every step was one of all workers, so that a run without faults sums as it does."""
    return all(loss["workers"] == WORKERS for loss in result["losses_of_workers"])


def same_parameters(folder, other, steps):
    name = f"step-{steps:08}/model.safetensors"
    return tensors(folder / name) == tensors(other / name)
