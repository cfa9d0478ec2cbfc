"""Training with a plan on worker processes of this machine."""

import json
import math
import re

import harness
from training import TrainingTest


class Train(TrainingTest):
    def test_what_is_printed_and_what_moved(self):
        self.make_plan("plain.json", "--codec", "none", "--schedule", "ring", "--bucket-size",
                       "25MiB")
        run = self.rackrail_json("train", "plain.json", "--workers", "4", "--steps", "8")
        self.assertLessEqual({"steps", "final_loss", "final_accuracy", "step_time_s",
                              "predicted_step_time_s", "sync_share", "bytes_over_tier",
                              "epochs_of_membership", "rackrail", "command", "seed", "inputs"},
                             set(run))
        self.assertEqual(run["steps"], 8)
        self.assertTrue(run["parameters_agree"])
        self.assertEqual(len(run["losses"]), 8)
        self.assertAlmostEqual(run["losses"][-1], run["final_loss"])
        self.assertLess(run["final_loss"], run["losses"][0])
        self.assertIsNone(run["predicted_step_time_s"])  # no calibration was given
        # A ring of four over two racks: each rank sends 2·3/4 of the gradients, two of the four
        # neighbours are in the other rack.
        gradients = 4 * (10 + 10240 + 1024 + 1048576 + 1024 + 65536)
        bytes_over = run["bytes_over_tier"]
        self.assertAlmostEqual(bytes_over["nic"] / (8 * 4 * 1.5 * gradients), 1, places=4)
        self.assertAlmostEqual(bytes_over["rack-uplink"] / (8 * 2 * 1.5 * gradients), 1, places=4)

    def test_the_step_on_the_cluster_is_told_apart_from_that_here(self):
        # One host may be this machine, two cannot.
        self.write("one.csv", "source,target,bandwidth,latency\ngpu0,switch,10 GB/s,1 us\n"
                              "gpu1,switch,10 GB/s,1 us\n\nvertex,role,kind,host\n"
                              "gpu0,rank,gpu,here\ngpu1,rank,gpu,here\n")
        for cluster, is_said in (("two-hosts.csv", True), ("one.csv", False)):
            plan = self.make_plan("plan.json", cluster=cluster)
            printed = self.rackrail("train", plan, "--workers", "2", "--steps", "2", "--cluster",
                                    cluster).out
            self.assertEqual("on the cluster" in printed, is_said, printed)

    def test_naive_and_chosen_plans_train_any_number_of_workers(self):
        for cluster, workers in (("two-racks-40g", "4"), ("two-hosts.csv", "2")):
            for options in (("--naive",), ()):
                with self.subTest(workers=workers, options=options):
                    plan = self.make_plan("plan.json", *options, cluster=cluster)
                    # So few steps that all of them are measured.
                    run = self.rackrail_json("train", plan, "--workers", workers, "--steps", "3")
                    self.assertGreater(run["step_time_s"], 0)
                    self.assertEqual(run["workers"], int(workers))
                    self.assertTrue(all(map(math.isfinite, run["losses"])), run["losses"])
                    self.assertTrue(run["parameters_agree"])

    def test_a_training_that_diverges_says_from_which_step_on(self):
        plan = json.loads((self.folder / self.make_plan("plan.json", "--codec", "none")).read_text())
        plan["batch"]["learning_rate"] = 1e6
        self.write("diverges.json", json.dumps(plan))
        command = ("train", "diverges.json", "--workers", "4", "--steps", "12")
        result = self.run_any(*command)
        self.assertEqual((result.status, result.err), (1, ""), str(result))
        self.assertRegex(result.out, r"(?m)^diverged +no loss is finite from step \d+ on; a lower learning rate than "
                                     r"1e\+06 may help$")
        result = self.run_any(*command, "--json")
        self.assertEqual(result.status, 1, str(result))
        run = json.loads(result.out)
        step = run["diverged_at_step"]
        self.assertEqual([loss is None for loss in run["losses"]], [i >= step for i in range(12)], run["losses"])
        self.assertLess(step, 12)

    def test_compression_learns_too_and_sends_less(self):
        runs = {}
        for codec in ("none", "int8"):
            plan = self.make_plan(f"{codec}.json", "--codec", codec)
            runs[codec] = self.rackrail_json("train", plan, "--workers", "4", "--steps", "60")
            self.assertTrue(runs[codec]["parameters_agree"])
        self.assertLess(runs["int8"]["bytes_over_tier"]["nic"],
                        0.5 * runs["none"]["bytes_over_tier"]["nic"])
        self.assertGreater(runs["none"]["final_accuracy"], 0.8)
        self.assertAlmostEqual(runs["int8"]["final_accuracy"], runs["none"]["final_accuracy"],
                               delta=0.03)

    def test_each_rank_says_where_its_time_goes(self):
        plan = self.make_plan("int8.json", "--codec", "int8")
        run = self.rackrail_json("train", plan, "--workers", "4", "--steps", "20")
        self.assertEqual([row["rank"] for row in run["ranks"]], [0, 1, 2, 3])
        for row in run["ranks"]:
            for name, seconds in row.items():
                if name not in ("rank", "host", "input_wait_s"):
                    self.assertGreater(seconds, 0, name)
            # Medians, each by itself: what is a part is no more than a bit above the whole.
            self.assertLess(row["encode_s"], row["step_time_s"])
            self.assertLess(row["compute_cpu_s"] + row["progress_cpu_s"],
                            1.5 * row["process_cpu_s"])
            self.assertLess(row["compute_cpu_s"], 1.5 * row["compute_s"])
        self.assertEqual(max(row["step_time_s"] for row in run["ranks"]), run["step_time_s"])

    def test_a_seed_decides_everything(self):
        plan = self.two_host_plan()
        first, again, other = (self.rackrail_json("train", plan, "--workers", "2", "--steps", "5",
                                                  "--seed", seed) for seed in ("3", "3", "4"))
        self.assertEqual(first["losses"], again["losses"])
        self.assertNotEqual(first["losses"], other["losses"])

    def test_the_seed_that_was_used_is_said(self):
        plan = self.two_host_plan()
        run = ("train", plan, "--workers", "2", "--steps", "2")
        shipped = (harness.CONFIGS / "training" / "digits-mlp.yaml").read_text()
        of_file = int(re.search(r"^seed: (\d+)", shipped, re.MULTILINE).group(1))
        self.assertNotEqual(of_file, 0)
        by_default = self.rackrail_json(*run)
        self.assertEqual(by_default["seed"], of_file)
        for seed, is_same in ((of_file, True), (0, False)):
            said = self.rackrail_json(*run, "--seed", seed)
            self.assertEqual(said["seed"], seed)
            self.assertEqual(said["losses"] == by_default["losses"], is_same)

    def test_a_transport_that_finds_no_device_says_so_in_its_own_words(self):
        plan = self.make_plan("plan.json")
        failed = self.rackrail("train", plan, "--workers", "4", "--steps", "3", "--json",
                               variables={"UCX_TLS": "nonsense"}, status=1)
        self.assertEqual(failed.out, "")
        self.assertEqual(failed.err.count("\n"), 1, str(failed))
        self.assertRegex(failed.error["message"], r"transport ucx: .*nonsense")

    def test_messages_go_by_the_transports_of_the_environment(self):
        plan = self.make_plan("plan.json")
        losses = []
        for transports in ("tcp", "sm"):
            run = self.rackrail_json("train", plan, "--workers", "4", "--steps", "3",
                                     variables={"UCX_TLS": transports})
            losses.append(run["losses"])
        self.assertEqual(losses[0], losses[1])
        # Which reaches a process itself, and no other.
        failed = self.rackrail("train", plan, "--workers", "4", "--steps", "3", "--json",
                               variables={"UCX_TLS": "self"}, status=1)
        self.assertEqual(failed.out, "")
        self.assertEqual(failed.err.count("\n"), 1, str(failed))

    def test_trace_and_prediction(self):
        self.rackrail("calibrate", "--workers", "2", "-o", "machine.json", "--workload-output",
                      "here.yaml")
        self.rackrail("plan", "two-hosts.csv", "here.yaml", "--local-batch", "32", "-o",
                      "plan.json")
        run = self.rackrail_json("train", "plan.json", "--workers", "2", "--steps", "15",
                                 "--cluster", "two-hosts.csv", "--calibration", "machine.json",
                                 "--workload", "here.yaml", "--trace", "trace.json")
        # How near it comes depends on what else the machine does; see results/.
        self.assertTrue(math.isfinite(run["predicted_step_time_s"]))
        self.assertGreater(run["predicted_step_time_s"], 0)
        trace = json.loads((self.folder / "trace.json").read_text())
        names = {event["args"]["name"] for event in trace["traceEvents"]
                 if event["ph"] == "M" and event["name"] == "process_name"}
        self.assertEqual(len(names), 2, names)  # measured, and simulated
        self.assertTrue(all(event["dur"] >= 0 for event in trace["traceEvents"]
                            if event["ph"] == "X"))


if __name__ == "__main__":
    harness.main()
