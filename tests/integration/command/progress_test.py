"""Progress bars: on a terminal, on stderr, and gone at the end; elsewhere a line every 10 s."""

import os
import pty
import re
import select
import subprocess
import threading
import time

import harness
from training import TrainingTest

BAR = re.compile(r"\r(?P<title>[^\r\[]+) \[#*\.*\] +(?P<percent>\d+) % (?P<what>[^\r]*)\x1b\[K")
SIGN = re.compile(r"\r(?P<title>[a-z ]+) (\[|\d+ s)")  # a bar, or how long it has taken where nobody knows more
ERASED = "\r\x1b[K"
PATIENCE = 2  # seconds until somebody wants a sign

# A ring is not symmetric when one host is far: every message is simulated.
CLUSTER = "source,target,bandwidth,latency\n" + "".join(
    f"host{host},switch,{100 if host else 90} Gbit/s,2 us\n" for host in range(48))


class Progress(TrainingTest):
    def setUp(self):
        super().setUp()
        self.write("many.csv", CLUSTER)

    def run_on_terminal(self, *arguments):
        """Runs a command whose stderr is a terminal; returns (stdout, what the terminal got)."""
        master, slave = pty.openpty()
        received = []

        def read():
            try:
                while data := os.read(master, 65536):
                    received.append(data)
            except OSError:  # the other end is closed
                pass

        reader = threading.Thread(target=read)
        try:
            process = subprocess.Popen(
                [harness.COMMAND, *map(str, arguments)], cwd=self.folder, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
                env=self.environment())
            os.close(slave)
            reader.start()
            out, _ = process.communicate(timeout=harness.TIMEOUT)
            reader.join(timeout=10)
        finally:
            os.close(master)
        terminal = b"".join(received).decode()
        self.assertEqual(process.returncode, 0, terminal)
        return out, terminal

    def assert_draws(self, *arguments, title, stages=()):
        """A bar that only grows and is erased at the end; none where stderr is no terminal."""
        out, terminal = self.run_on_terminal(*arguments)
        self.assertNotIn("\x1b", out)
        drawn = list(BAR.finditer(terminal))
        self.assertGreater(len(drawn), 0, repr(terminal))
        self.assertEqual({bar["title"] for bar in drawn}, {title})
        percents = [int(bar["percent"]) for bar in drawn]
        self.assertEqual(percents, sorted(percents))
        self.assertLessEqual(percents[-1], 100)
        for stage in stages:
            self.assertTrue(any(stage in bar["what"] for bar in drawn), (stage, terminal))
        # Whatever else there is comes after the bar is gone.
        self.assertTrue(terminal[drawn[-1].end():].startswith(ERASED), repr(terminal[-200:]))

        silent = self.rackrail(*arguments)
        self.assertNotIn("\x1b", silent.err + silent.out)
        self.assertNotIn("\r", silent.err + silent.out)
        self.assertNotIn(title + " [", silent.err)
        return percents

    def test_simulating_a_collective(self):
        percents = self.assert_draws(
            "simulate", "many.csv", "--collective", "all-reduce", "--schedule", "parameter-server",
            "--bytes", "1GiB", "--slice", "64KiB", title="simulating")
        self.assertGreater(percents[-1], percents[0])  # how often depends on the machine's speed

    def test_simulating_a_plan_and_its_report(self):
        self.rackrail("plan", "fat-tree-128-2to1", "bert-large", "--naive", "-o", "plan.json")
        self.assert_draws("simulate", "plan.json", title="simulating")
        self.assert_draws("report", "plan.json", "-o", "report.html", title="simulating",
                          stages=("this plan",))

    def test_calibrating(self):
        percents = self.assert_draws("calibrate", "--workers", "2", "-o", "machine.json",
                                     "--workload-output", "here.yaml", title="measuring")
        self.assertGreater(percents[-1], 0)

    def test_bounds(self):
        self.assert_draws("topology", "bounds", "h100-32x8-rail", title="bounds",
                          stages=("all-gather",))

    def test_planning_and_training(self):
        self.assert_draws("plan", "two-hosts.csv", "digits.yaml", "--local-batch", "32", "-o",
                          "plan.json", title="planning")
        percents = self.assert_draws("plan", "two-racks-40g", "resnet-50", "--compare",
                                     title="planning")
        self.assertGreater(percents[-1], 50)  # the comparison
        self.assert_draws("train", "plan.json", "--workers", "2", "--steps", "5", "--cluster",
                          "two-hosts.csv", title="training")

    def first_sign(self, *arguments):
        """Seconds until progress is on the terminal, or the command is over."""
        master, slave = pty.openpty()
        start = time.monotonic()
        process = subprocess.Popen([harness.COMMAND, *map(str, arguments)], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave,
                                   env=self.environment())
        os.close(slave)
        seen = b""
        try:
            while True:
                if select.select([master], [], [], 1)[0]:
                    try:
                        seen += os.read(master, 65536)
                    except OSError:  # the other end is closed
                        self.assertEqual(process.wait(30), 0, seen.decode())
                        return time.monotonic() - start
                seconds = time.monotonic() - start
                if SIGN.search(seen.decode(errors="replace")) or seconds > 10 * PATIENCE:
                    return seconds
        finally:
            process.kill()
            process.wait()
            os.close(master)

    def test_every_long_command_shows_progress_within_two_seconds(self):
        self.write("hosts.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch{host % 200},100 Gbit/s,2 us\n" for host in range(20000)) + "".join(
            f"switch{switch},core,400 Gbit/s,2 us\n" for switch in range(200)))
        self.write("sweep.yaml", "cluster: fat-tree-128-2to1\n"
                                 "vary: {workload: [bert-large, gpt2-124m, vgg-16]}\n")
        self.rackrail("plan", "fat-tree-128-2to1", "bert-large", "--naive", "-o", "naive.json")
        for arguments in (
                ("plan", "h100-32x8-rail", "bert-large"),
                ("plan", "a100-8x8", "gpt2-124m", "--search", "thorough"),
                ("plan", "a100-8x8", "gpt2-124m", "--compare"),
                ("plan", "a100-8x8", "gpt2-124m", "--explain"),
                ("schedules", "fat-tree-128-2to1"),
                ("simulate", "naive.json", "--steps", "5"),
                ("simulate", "h100-32x8-rail", "--collective", "all-reduce", "--bytes", "1GiB",
                 "--schedule", "best"),
                ("explain", "naive.json"),
                ("sweep", "sweep.yaml", "-o", "rows.csv"),
                ("tune", "fat-tree-128-2to1", "bert-large", "-o", "tuned.json"),
                ("replan", "naive.json", "--lost-link", "tor0->spine0.1", "-o", "new.json"),
                ("place", "hosts.csv", "--hosts", "100", "-o", "hostfile"),
                ("topology", "bounds", "hosts.csv"),
                ("topology", "show", "hosts.csv"),
                ("verify", "naive.json"),
                ("report", "naive.json", "-o", "report.html")):
            with self.subTest(command=" ".join(arguments)):
                self.assert_time_below(self.first_sign(*arguments), PATIENCE)

    def test_elsewhere_long_work_leaves_lines(self):
        # Minutes, as each packet is simulated.
        process = self.start("simulate", "many.csv", "--collective", "all-reduce", "--bytes",
                             "32GiB", "--network", "packet")
        try:
            for least in (10, 20):
                line = process.stderr.readline()
                self.assertRegex(line, r"\Asimulating: (\d+ % after \d+ s|\d+ s so far)")
                self.assertGreaterEqual(int(re.search(r"(\d+) s", line)[1]), least)
        finally:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    harness.main()
