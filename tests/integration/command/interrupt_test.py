"""Ctrl-C: the best result so far where there is one, else one line; status 130 in both cases.

Each command is told to stop once it shows what the test waits for, and would otherwise go on for
much longer than the signal takes, on any machine.
"""

import json
import os
import pty
import re
import signal
import subprocess
import threading

import harness

STATUS = 130
LARGE = "source,target,bandwidth,latency\n" + "".join(
    f"host{host},switch,{100 if host else 90} Gbit/s,2 us\n" for host in range(32))
# Minutes: each packet is simulated.
ENDLESS = ("simulate", "large.csv", "--collective", "all-reduce", "--bytes", "4GiB", "--network",
           "packet")


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, test, *arguments):
        self.test = test
        self.shown = ""
        self.changed = threading.Condition()
        master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [harness.COMMAND, *map(str, arguments)], cwd=test.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
            env=test.environment(),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        os.close(slave)
        self.reader = threading.Thread(target=self._read, args=(master,))
        self.reader.start()

    def _read(self, master):
        with open(master, "rb", buffering=0) as terminal:
            try:
                while data := terminal.read(65536):
                    with self.changed:
                        self.shown += data.decode(errors="replace")
                        self.changed.notify_all()
            except OSError:  # the other end is closed
                pass
        with self.changed:
            self.changed.notify_all()

    def interrupt_at(self, pattern):
        """Sends SIGINT once the terminal shows that."""
        with self.changed:
            shows = self.changed.wait_for(
                lambda: re.search(pattern, self.shown) or self.process.poll() is not None,
                harness.TIMEOUT)
            self.test.assertTrue(shows and re.search(pattern, self.shown), self.shown)
        self.process.send_signal(signal.SIGINT)

    def finish(self):
        """Returns stdout; the status must be 130."""
        try:
            out, _ = self.process.communicate(timeout=harness.TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, _ = self.process.communicate()
            self.test.fail(f"did not end: {out}\n{self.shown}")
        self.reader.join(timeout=10)
        self.test.assertEqual(self.process.returncode, STATUS, out + self.shown)
        return out


class Interrupt(harness.CommandTest):
    def interrupted(self, pattern, *arguments):
        """(stdout, what the terminal got)"""
        terminal = Terminal(self, *arguments)
        terminal.interrupt_at(pattern)
        return terminal.finish(), terminal.shown

    def test_a_plan_is_the_best_so_far(self):
        plan = ("plan", "fat-tree-128-2to1", "bert-large", "-o", "plan.json")
        out, shown = self.interrupted(r"planning \[", *plan)
        self.assertRegex(out, r"(?m)^stopped by Ctrl-C: the best plan found so far, "
                              r"\d+\.\d % over its bound$")
        self.assertIn("wrote", out)
        self.assertIn("press Ctrl-C again", shown)
        self.rackrail("verify", "plan.json")
        self.assertEqual(list(self.contents()), ["plan.json"])
        out, shown = self.interrupted(r"planning \[", *plan, "--json")
        self.assertTrue(json.loads(out)["interrupted"])
        self.assertNotIn("Ctrl-C", shown)
        self.rackrail("verify", "plan.json")

    def test_where_there_is_no_result_there_is_one_line(self):
        self.write("large.csv", LARGE)
        before = self.contents()
        out, shown = self.interrupted(r"simulating", *ENDLESS, "--links", "links.csv")
        self.assertEqual(out, "")
        self.assertRegex(shown, r"rackrail: stopped by Ctrl-C before there was a result\r\n\Z")
        self.assertEqual(self.contents(), before)
        out, shown = self.interrupted(r"simulating", *ENDLESS, "--json")
        self.assertEqual(out, "")
        error = json.loads(shown.rpartition("\x1b[K")[2])["error"]
        self.assertIn("Ctrl-C", error["message"])

    def test_a_second_one_ends_at_once(self):
        self.write("large.csv", LARGE)
        terminal = Terminal(self, *ENDLESS, "--schedule", "best")
        terminal.interrupt_at(r"simulating")
        terminal.interrupt_at(r"press Ctrl-C again")
        self.assertEqual(terminal.finish(), "")

    def test_the_fastest_schedule_so_far(self):
        simulate = ("simulate", "h100-32x8-rail", "--collective", "all-reduce", "--bytes", "1GiB",
                    "--schedule", "best")
        out, shown = self.interrupted(r"simulating \[#", *simulate)
        self.assertIn("busbw", out)
        self.assertRegex(shown, r"note: stopped by Ctrl-C: the fastest schedule found so far, \d")

    def test_rows_of_schedules_so_far(self):
        out, _ = self.interrupted(r"% (4\.00|8\.00|16\.0|32\.0|64\.0) KiB", "schedules", "a100-8x8", "--all")
        self.assertIn("1.00 KiB", out)
        self.assertNotIn("4.00 GiB", out)
        self.assertRegex(out, r"(?m)^stopped by Ctrl-C: larger sizes are missing$")

    def test_cells_of_a_sweep_so_far(self):
        self.write("uplinks.yaml", """
cluster: two-racks-40g
workload: vgg-16
vary: { plan.local_batch: [""" + ", ".join(map(str, range(1, 33))) + "] }\n")
        out, _ = self.interrupted(r" ([2-9]|1\d) of 32 cells", "sweep", "uplinks.yaml", "--jobs", "1")
        missing = int(re.search(r"stopped by Ctrl-C: (\d+) cells are missing", out)[1])
        rows = (self.folder / "uplinks.jsonl").read_text().splitlines()
        self.assertEqual(len(rows) + missing, 32)
        self.assertGreaterEqual(len(rows), 2)
        for row in rows:
            self.assertIn("step_time_s", row)

    def test_trials_of_tuning_so_far(self):
        out, _ = self.interrupted(r" ([2-9]|1\d) of 50 trials", "tune", "two-racks-40g", "vgg-16", "--jobs",
                                  "1", "-o", "plan.json")
        self.assertRegex(out, r"stopped +by Ctrl-C: the best plan found so far, \d+\.\d % over its "
                              r"bound; \d+ trials are missing")
        self.rackrail("verify", "plan.json")

    def test_changes_of_explain_so_far(self):
        self.rackrail("plan", "two-racks-40g", "vgg-16", "--naive", "-o", "plan.json")
        out, _ = self.interrupted(r" ([2-9]|1\d) of \d+ changes", "explain", "plan.json", "--replan",
                                  "--jobs", "1")
        self.assertIn("critical path", out)
        self.assertRegex(out, r"stopped by Ctrl-C: \d+ changes were not tried")


if __name__ == "__main__":
    harness.main()
