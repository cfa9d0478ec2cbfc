"""`scripts/demo`, which `make demo` runs after the build, with fewer steps: its table and its files."""

import json
import os
import re
import subprocess

import harness
from training import TrainingTest

ROWS = ("step time on the cluster, simulated", "synchronisation share there",
        "step time here, predicted", "step time here, measured",
        "prediction against measurement", "synchronisation share here",
        "bytes over rack-uplink per step", "final accuracy")


class Demo(TrainingTest):
    def run_demo(self):
        environment = {**os.environ, "RACKRAIL_COMMAND": str(harness.COMMAND),
                       "RACKRAIL_DEMO_STEPS": "20"}
        script = harness.SOURCE / "scripts" / "demo"
        done = subprocess.run(["sh", str(script), str(self.folder / "out")], env=environment,
                              capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_twice_with_the_same_end(self):
        for _ in range(2):
            printed = self.run_demo()
            for row in ROWS:
                found = re.search(rf"(?m)^{re.escape(row)}(( +\S+( \S+)?){{3}})$", printed)
                self.assertIsNotNone(found, f"no row '{row}' of three plans")
                self.assertNotIn("-", found.group(1).split())
            for name in ("chosen.json", "chosen.trace.json"):
                self.assertIn(str(self.folder / "out" / name), printed)
                json.loads((self.folder / "out" / name).read_text())
            self.assertIn("</html>", (self.folder / "out" / "report.html").read_text())


if __name__ == "__main__":
    harness.main()
