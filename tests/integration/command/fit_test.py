"""Step times and noise fitted to measurements; batch policies of plans."""

import math
import unittest

import harness

MEASURED = harness.SHARED / "measured" / "pollux"
NEEDS = unittest.skipUnless(MEASURED.is_dir(), f"no measurements in {MEASURED}")
STEPS = ("placements.csv", "scalability.csv")


def mean_error(cases):
    return sum(abs(case["predicted_s"] / case["measured_s"] - 1) for case in cases) / len(cases)


class Fit(harness.CommandTest):
    @NEEDS
    def test_held_out_steps_are_predicted(self):
        for model in ("bert", "cifar10"):
            files = [MEASURED / model / name for name in STEPS]
            rows = sum(len(file.read_text().splitlines()) - 1 for file in files)
            for what, most in (("rows", 0.06), ("placements", 0.12)):
                with self.subTest(model=model, what=what):
                    result = self.rackrail_json("fit", "steps", *files, "--hold-out", what)
                    cases = result["predictions"]
                    self.assertEqual(result["rows_known"] + len(cases), rows)
                    self.assertLess(mean_error(cases), most)
                    ours, seven = (result["forms"][name]["predicted"]["mean_relative_error"]
                                   for name in ("per node count", "seven parameters"))
                    self.assertAlmostEqual(ours, mean_error(cases), places=9)
                    self.assertLess(ours, seven)

    def test_rows_of_another_file_are_predicted(self):
        known = "num_nodes,num_replicas,local_bsz,step_time\n"
        asked = known
        for nodes in (1, 2, 4):
            for batch in range(1, 9):
                row = f"{nodes},{nodes},{batch},{0.01 + 0.002 * batch + 0.03 * (nodes > 1)}\n"
                if batch == 5:
                    asked += row
                else:
                    known += row
        self.write("known.csv", known)
        self.write("asked.csv", asked)
        result = self.rackrail_json("fit", "steps", "known.csv", "--predict", "asked.csv")
        self.assertEqual([case["placement"] for case in result["predictions"]],
                         ["1n1", "2n2", "4n4"])
        self.assertLess(mean_error(result["predictions"]), 0.02)
        self.assertIn("2n2", self.rackrail("fit", "steps", "known.csv", "--predict",
                                           "asked.csv").out)

    @NEEDS
    def test_the_noise_path_predicts_the_steps_of_another_batch(self):
        files = sorted((MEASURED / "cifar10").glob("validation-*.csv"))
        result = self.rackrail_json("fit", "noise", *files)
        self.assertEqual(result["base_batch"], 128)
        for run in result["runs"]:
            with self.subTest(batch=run["batch"]):
                self.assertLess(abs(run["steps_by_others_noise"] / run["steps"] - 1), 0.1)
                # The path itself: between batches within a fifth, beyond them within two fifths.
                is_between = 128 < run["batch"] < 4096
                self.assertLess(run["median_log_error_of_others_noise"],
                                math.log(1.2 if is_between else 1.4))

    def test_bad_input_is_named(self):
        self.write("short.csv", "num_nodes,num_replicas,local_bsz,step_time\n1,1,4,0.5\n")
        self.assertIn("1 rows", self.rackrail("fit", "steps", "short.csv", status=2).err)
        self.write("odd.csv", "placement,local_bsz,step_time\n12,4,soon\n")
        error = self.rackrail("fit", "steps", "odd.csv", "--json", status=2).error
        self.assertEqual((error["where"], error["found"]), ("line 2, step_time", "'soon'"))
        self.rackrail("fit", "noise", "odd.csv", status=2)


class BatchOfAPlan(harness.CommandTest):
    def setUp(self):
        super().setUp()
        model = (harness.SOURCE / "configs/models/resnet-50.yaml").read_text(encoding="utf-8")
        self.write("noisy.yaml", "noise_scale: 3000\n" + model)

    def goodput(self, plan):
        return plan["global_batch"] / plan["step_time_s"] / (3000 + plan["global_batch"])

    def test_policies_and_learning_rates(self):
        plans = {policy: self.rackrail_json("plan", "two-racks-40g", "noisy.yaml",
                                            "--batch-policy", policy)
                 for policy in ("goodput", "latency", "fixed")}
        self.assertEqual(plans["fixed"]["global_batch"], 4 * 32)
        for policy in ("latency", "fixed"):
            self.assertGreaterEqual(self.goodput(plans["goodput"]),
                                    self.goodput(plans[policy]) * (1 - 1e-9))
        for rule, word in (("linear", "linear"), ("sqrt", "square root"),
                           ("adascale", "AdaScale")):
            text = self.rackrail("plan", "two-racks-40g", "noisy.yaml", "--learning-rate-rule",
                                 rule).out
            self.assertRegex(text, rf"(?m)^learning rate +{word}: ")

    def test_hosts_are_compared(self):
        points = self.rackrail_json("plan", "two-racks-40g", "noisy.yaml",
                                    "--compare-hosts")["goodput_by_hosts"]
        self.assertEqual([point["hosts"] for point in points], [2, 4])

    def test_what_does_not_exist_or_has_no_noise_is_refused(self):
        for options in (("--batch-policy", "luck"), ("--learning-rate-rule", "cubic")):
            self.assertIn(options[0], self.rackrail("plan", "two-racks-40g", "noisy.yaml",
                                                    *options, status=2).err)
        self.assertIn("noise scale", self.rackrail("plan", "two-racks-40g", "resnet-50",
                                                   "--learning-rate-rule", "adascale",
                                                   status=2).err)


if __name__ == "__main__":
    harness.main()
