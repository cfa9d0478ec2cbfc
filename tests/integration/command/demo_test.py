"""`scripts/demo`, which `make demo` runs after the build, with fewer steps: its table and its files."""

import json
import os
import re
import subprocess
import unittest

import emulation
import harness
from training import TrainingTest

MOST_LINES = 60
PLANS = ("naive", "uncompressed", "chosen")
# predicted, measured, error, speed-up, over uplinks, accuracy; three of them may not count
CELLS = r" +[\d.]+ ms +(?:[\d.]+ ms +[-+][\d.]+ % +[\d.]+ x|- +- +-) +([\d.]+) MB +([\d.]+) %"


class Demo(TrainingTest):
    def demo(self, *prefix):
        """What it prints; `prefix` is what runs it."""
        environment = {**os.environ, "RACKRAIL_COMMAND": str(harness.COMMAND), "RACKRAIL_DEMO_STEPS": "20"}
        done = subprocess.run([*prefix, str(harness.SOURCE / "scripts" / "demo"), str(self.folder / "out")],
                              env=environment, capture_output=True, text=True, timeout=harness.TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check(self, printed):
        """That all is there; returns bytes over uplinks by plan."""
        self.assertLessEqual(printed.count("\n"), MOST_LINES)
        for what in ("lower bound", "naive", "chosen"):
            self.assertRegex(printed, rf"(?m)^  {what} +[\d.]+ ms  ")
        over_uplinks = {}
        for name in PLANS:
            found = re.search(rf"(?m)^  {name}{CELLS}$", printed)
            self.assertIsNotNone(found, f"no row of '{name}':\n{printed}")
            over_uplinks[name] = float(found.group(1))
            run = json.loads((self.folder / "out" / f"{name}.run.json").read_text())
            self.assertEqual(run["steps"], 20)
            self.assertTrue(run["parameters_agree"])
        rows = re.findall(r"(?m)^  \w+ +[\d.]+ ms +- ", printed)
        self.assertEqual(len(rows) == len(PLANS), "Measured times do not count" in printed, printed)
        self.assertIn("== Next", printed)
        self.assertIn("</html>", (self.folder / "out" / "report.html").read_text())
        return over_uplinks

    def test_without_root_it_trains_on_this_machine(self):
        printed = self.demo(*emulation.WITHOUT_ROOT)
        self.check(printed)
        self.assertIn("As root the same runs in two emulated racks", printed)

    @unittest.skipIf(emulation.why_not(), emulation.why_not())
    def test_as_root_it_trains_in_racks_twice_with_the_same_end(self):
        emulation.only_one(self)
        for _ in range(2):
            over_uplinks = self.check(printed := self.demo())
            self.assertIn("two emulated racks", printed)
            self.assertLess(over_uplinks["chosen"], over_uplinks["naive"] / 2)


if __name__ == "__main__":
    harness.main()
