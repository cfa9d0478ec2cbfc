"""The HTML report: one file, with nothing from outside, and robust against odd results."""

import json
import re

import harness
from training import TrainingTest


class Report(TrainingTest):
    def test_plan_and_runs_in_one_page(self):
        plan = self.make_plan("plan.json")
        for name in ("first", "second"):
            run = self.rackrail("train", plan, "--workers", "4", "--steps", "6", "--json")
            self.write(f"{name}.run.json", run.out)
        printed = self.rackrail("report", plan, "--workload", "digits.yaml", "--run",
                                "first.run.json", "--run", "second.run.json", "-o", "r.html").out
        for word in ("first", "second", "step time here, measured",
                     "bytes over rack-uplink per step", "final accuracy", "wrote r.html"):
            self.assertIn(word, printed)
        page = (self.folder / "r.html").read_text()
        # Whoever compares is told that the network was another.
        elsewhere = "first, second: measured on one machine, without the cluster"
        self.assertIn(elsewhere, printed)
        self.assertIn(elsewhere, page)
        emulated = json.loads(run.out)
        self.assertEqual(emulated["network"], "this machine")
        self.write("emulated.json", json.dumps({**emulated, "network": "emulated"}))
        self.assertNotIn("on one machine", self.rackrail(
            "report", plan, "--workload", "digits.yaml", "--run", "emulated.json").out)
        self.assertIn("digits-mlp on two-racks-40g", page)
        self.assertNotRegex(page, r"<script|<link|<iframe|https?:|src=|@import|url\((?!#)")
        self.assertNotRegex(page, r'href="(?!#)')
        for tag in ("table", "svg", "section", "div"):
            self.assertEqual(len(re.findall(rf"<{tag}\b", page)), page.count(f"</{tag}>"))

    def test_without_runs(self):
        self.make_plan("plan.json")
        result = self.rackrail_json("report", "plan.json", "--workload", "digits.yaml")
        self.assertEqual(result["output"], "report.html")
        self.assertEqual(result["bytes"], (self.folder / "report.html").stat().st_size)

    def test_what_a_run_lacks_is_a_dash(self):
        self.make_plan("plan.json")
        self.write("run.json", json.dumps({"command": "train", "step_time_s": 0.01,
                                           "final_loss": None, "losses": [None, 1.0]}))
        printed = self.rackrail("report", "plan.json", "--workload", "digits.yaml", "--run",
                                "run.json").out
        self.assertRegex(printed, r"(?m)^final accuracy +-$")

    def test_a_run_that_had_no_step_left_is_dashes(self):
        plan = self.make_plan("plan.json")
        train = ("train", plan, "--workers", "4", "--steps", "2", "--checkpoints", "saved")
        self.rackrail(*train)
        run = self.rackrail(*train, "--resume", "--json")
        self.assertIsNone(run.json["step_time_s"])
        self.write("run.json", run.out)
        printed = self.rackrail("report", plan, "--workload", "digits.yaml", "--run",
                                "run.json").out
        self.assertRegex(printed, r"(?m)^step time here, measured +-$")
        self.assertRegex(self.rackrail(*train, "--resume").out, r"(?m)^final loss +-$")


if __name__ == "__main__":
    harness.main()
