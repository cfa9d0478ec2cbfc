"""What the tests of the rackrail command share.

A test file has classes derived from CommandTest and ends with `harness.main()`, which prints the
reason of each skip and, last, 'N passed, N failed, N skipped', as scripts/run-tests reads it.
A test runs the command of this build ($RACKRAIL_COMMAND) in an empty folder of its own and without
the variables that launchers set; nothing outside that folder is written.

    ctest --test-dir build/dev -R command_ --output-on-failure
    RACKRAIL_COMMAND=build/dev/bin/rackrail python3 tests/integration/command/help_test.py -v Help

Tests that take long are marked @harness.slow; $RACKRAIL_TESTS says which are run (fast, slow or, if it
is not set, all). What measures times asks skip_if_busy() first.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

SOURCE = Path(os.environ.get("RACKRAIL_SOURCE_DIR", Path(__file__).resolve().parents[3]))
COMMAND = str(Path(os.environ.get("RACKRAIL_COMMAND", SOURCE / "build/dev/bin/rackrail")).resolve())
SHARED = Path(os.environ.get("RACKRAIL_SHARED", SOURCE / ".." / "shared"))
CONFIGS = SOURCE / "configs"
SHIPPED_CLUSTERS = ("a100-8x8", "fat-tree-128-2to1", "h100-32x8-rail", "two-racks-40g")

TIMEOUT = 600  # seconds for one command that should end by itself
OTHERS_MAY_TAKE = 0.15  # of the machine's cores, where a test measures times
MARK = "RACKRAIL_TEST_MARK"

LAUNCHER_VARIABLES = re.compile(
    r"^(RACKRAIL_(?!COMMAND$|SHARED$|SOURCE_DIR$|CONFIGS$)|OMPI_|PMIX?_|PRTE_|SLURM_|MASTER_"
    r"|TF_CONFIG$|RANK$|WORLD_SIZE$|LOCAL_RANK$|LOCAL_WORLD_SIZE$)")


# A line about long work, which only a slow machine needs.
PROGRESS = re.compile(r"(?m)^[a-z][\w' ]*: \d+ (?:% after \d+ s|s so far)[^\n]*\n")


def slow(test):
    """Marks a test (a method or a class) as one of `make test-slow`."""
    test.is_slow = True
    return test


def busy_core_seconds():
    """What all cores together have worked since the machine started, for others' machines too; but for
    interrupts, in which an emulated network works (base/other_load.cpp)."""
    times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _, _, _, _, stolen = times
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")


def own_core_seconds():
    """What this process and its ended children have worked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Others:
    """The share of the cores that others take from here to share()."""

    def __init__(self):
        self.start = (time.monotonic(), busy_core_seconds(), own_core_seconds())

    def share(self):
        wall = time.monotonic() - self.start[0]
        others = (busy_core_seconds() - self.start[1]) - (own_core_seconds() - self.start[2])
        return max(0.0, others) / (wall * os.cpu_count())


class Result:
    """What a command left: exit status, stdout, stderr without progress, seconds."""

    def __init__(self, arguments, status, out, err, seconds):
        self.arguments = arguments
        self.status = status
        self.out = out
        self.err = PROGRESS.sub("", err)
        self.seconds = seconds

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        """The parts of an error that was printed with --json."""
        return json.loads(self.err)["error"]

    def __str__(self):
        return (f"rackrail {' '.join(self.arguments)}\n  status {self.status} after "
                f"{self.seconds:.1f} s\n  stdout: {self.out[-2000:]}\n  stderr: {self.err[-2000:]}")


def calibration(additions="1 GB/s", encoding="1 GB/s"):
    """What `rackrail calibrate` writes, as of a machine with two cores."""
    rate = {"encode": encoding, "decode": encoding}
    return {"cores": 2, "core_bandwidth": "1 GB/s", "message_overhead": "1 us", "latency": "1 us",
            "codecs": {"fp16": rate, "int8": rate, "topk": rate}, "reduce": additions,
            "launch": "0 s", "transport": "ucx", "load": 0}


class CommandTest(unittest.TestCase):
    """A test case with an empty folder, `self.folder`, in which its commands run."""

    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rackrail-command-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.others = Others()
        self.mark = uuid.uuid4().hex
        self.addCleanup(self._end_what_is_left)

    def environment(self, **variables):
        """This process's environment without any launcher's, with a mark to find processes by."""
        kept = {k: v for k, v in os.environ.items() if not LAUNCHER_VARIABLES.match(k)}
        return {**kept, MARK: self.mark, **variables}

    def start(self, *arguments, program=(COMMAND,), variables=None):
        """Starts a command and returns its process, with pipes as stdout and stderr."""
        return subprocess.Popen(
            [*program, *map(str, arguments)], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.environment(**(variables or {})))

    def finish(self, process, timeout=TIMEOUT):
        """Waits for a started command; one that does not end is a failure."""
        start = time.monotonic()
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"did not end in {timeout} s: {process.args}\nstdout: {out}\nstderr: {err}")
        return Result(process.args[1:], process.returncode, out, err, time.monotonic() - start)

    def run_any(self, *arguments, variables=None, timeout=TIMEOUT):
        """Runs a command to its end, whatever its exit status is."""
        return self.finish(self.start(*arguments, variables=variables), timeout)

    def rackrail(self, *arguments, status=0, **options):
        """Runs a command whose exit status must be `status`."""
        result = self.run_any(*arguments, **options)
        self.assertEqual(result.status, status, str(result))
        return result

    def rackrail_json(self, *arguments, **options):
        """The object that a command prints with --json; stderr must stay empty."""
        result = self.rackrail(*arguments, "--json", **options)
        self.assertEqual(result.err, "", str(result))
        return result.json

    def write(self, name, content):
        """A file in the folder; returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
        return path

    def contents(self):
        """All files in the folder with their bytes: to see that nothing was changed or left."""
        return {str(p.relative_to(self.folder)): p.read_bytes()
                for p in sorted(self.folder.rglob("*")) if p.is_file()}

    def assert_bad_input(self, *arguments, file=None, where=None, found=None, expected=None,
                         variables=None):
        """The command refuses: exit status 2, nothing on stdout, one line on stderr with each part
        given here, nothing written; and with --json the same parts under their keys."""
        before = self.contents()
        result = self.run_any(*arguments, variables=variables)
        parts = {"file": file, "where": where, "found": found, "expected": expected}
        self.assertEqual(result.status, 2, str(result))
        self.assertEqual(result.out, "", str(result))
        self.assertRegex(result.err, r"\Arackrail: [^\n]+\n\Z")
        self.assertLess(len(result.err), 2000)
        for part in filter(None, parts.values()):
            self.assertIn(str(part), result.err)

        machine = self.run_any(*arguments, "--json", variables=variables)
        self.assertEqual(machine.status, 2, str(machine))
        self.assertEqual(machine.out, "", str(machine))
        self.assertEqual(machine.err.count("\n"), 1, str(machine))
        self.assertEqual(set(machine.error), {"file", "where", "found", "expected", "message"})
        self.assertEqual("rackrail: " + machine.error["message"] + "\n", result.err)
        for key, part in parts.items():
            self.assertIsInstance(machine.error[key], str)
            if part is not None:
                self.assertIn(str(part), machine.error[key], f"{key} of {machine.err}")
        self.assertNotEqual(machine.error["found"], "", machine.err)
        self.assertNotEqual(machine.error["expected"], "", machine.err)
        self.assertEqual(self.contents(), before, "files were changed or left behind")
        return machine

    def skip_if_busy(self):
        """Skips a test that measures times where others use this machine just now."""
        others = Others()
        time.sleep(1)
        if others.share() > OTHERS_MAY_TAKE:
            self.skipTest(f"it measures times, and others take {100 * others.share():.0f} % of the cores")

    def assert_time_below(self, measured, limit, shown=None):
        """A time, or an error of one, that was measured. Skips the test where it is not below, and others took
        so much of this machine since the test began that times do not count."""
        others = self.others.share()
        if measured >= limit and others > OTHERS_MAY_TAKE:
            self.skipTest(f"{measured:.2f} is not below {limit:.2f}, and others took {100 * others:.0f} % of "
                          "the cores")
        self.assertLess(measured, limit, shown)

    def processes(self):
        """Ids of the live processes that this test's commands started, at any depth."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0") and (
                        process_state(entry.name) != "Z"):
                    found.append(int(entry.name))
            except OSError:  # it has ended, or is another user's
                continue
        return sorted(found)

    def assert_no_processes_left(self):
        # A killed child may take a moment to be gone.
        wait_until(lambda: not self.processes(), 2)
        left = {pid: command_line(pid) for pid in self.processes()}
        self.assertEqual(left, {}, "processes were left behind")

    def _end_what_is_left(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def process_state(pid):
    # The name before the state is in brackets and may hold anything.
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


def command_line(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(w.decode(errors="replace") for w in words if w)


def variable_of(pid, name):
    """An environment variable that a process was started with; None if it was not."""
    for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        key, is_set, value = setting.decode(errors="replace").partition("=")
        if is_set and key == name:
            return value
    return None


def wait_until(condition, seconds):
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def free_ports(count):
    """`count` neighbouring TCP ports that nobody listens on just now, of those that the system gives
    to nobody by itself; the first of them."""
    for _ in range(100):
        port = random.randrange(10_000, 32_000)
        try:
            for neighbour in range(port, port + count):
                with socket.socket() as trial:
                    trial.bind(("", neighbour))
            return port
        except OSError:
            continue
    raise RuntimeError("no free ports")


class ChosenTests(unittest.TestLoader):
    """The tests that $RACKRAIL_TESTS asks for."""

    def getTestCaseNames(self, case):  # the name is unittest's
        names = super().getTestCaseNames(case)
        chosen = os.environ.get("RACKRAIL_TESTS", "all")

        def is_slow(name):
            return getattr(case, "is_slow", False) or getattr(getattr(case, name), "is_slow", False)

        return [name for name in names if chosen == "all" or is_slow(name) == (chosen == "slow")]


class CountingResult(unittest.TextTestResult):
    """Counts what passed: whole tests, however many parts they have. Says how long each took."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed = 0
        self.start = 0.0

    def addSuccess(self, test):  # the name is unittest's
        super().addSuccess(test)
        self.passed += 1

    def startTest(self, test):  # the name is unittest's
        super().startTest(test)
        self.start = time.monotonic()

    def stopTest(self, test):  # the name is unittest's
        super().stopTest(test)
        print(f"TOOK: {name_of(test)}: {time.monotonic() - self.start:.2f}", flush=True)


def name_of(test):
    """Class and method; the parts of one test have its name."""
    name = test.id().replace("__main__.", "")
    return name if name.startswith("setUp") else name.partition(" ")[0]


def main():
    """Runs the tests of the calling file; arguments are those of unittest."""
    if not os.access(COMMAND, os.X_OK):
        print(f"no rackrail command at {COMMAND}; set RACKRAIL_COMMAND")
        sys.exit(1)
    runner = unittest.TextTestRunner(stream=sys.stdout, resultclass=CountingResult)
    result = unittest.main(exit=False, testRunner=runner, testLoader=ChosenTests()).result
    failed = {}
    for test, traceback in result.failures + result.errors:
        failed.setdefault(name_of(test), traceback.rstrip().splitlines()[-1])
    for name, why in failed.items():
        print(f"FAILED: {name}: {why}")
    for test, reason in result.skipped:
        print(f"SKIPPED: {name_of(test)}: {reason}")
    print(f"{result.passed} passed, {len(failed)} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed or not (result.passed or result.skipped) else 0)
