"""Training whose workers are not in step: periodic averaging, asynchronous parameter servers."""

import os
import signal
import time

import harness
from training import TrainingTest

GRADIENTS = 4 * (10 + 10240 + 1024 + 1048576 + 1024 + 65536)  # bytes


class Modes(TrainingTest):
    def server_plan(self, name="servers.json"):
        return self.make_plan(name, "--schedule", "parameter-server", "--codec", "none")

    def unclipped_training(self):
        """Each worker clips its own gradient, where the executor's users clip the sum."""
        training = self.training_with_checkpoints_every(10)
        self.assertIn("  clip_norm: 5\n", training.read_text())
        training.write_text(training.read_text().replace("  clip_norm: 5\n", ""))
        return training

    def test_local_steps_divide_the_bytes_and_learn(self):
        plan = self.make_plan("ring.json", "--schedule", "ring", "--codec", "none")
        together = self.rackrail_json("train", plan, "--workers", "4", "--steps", "60")
        self.assertEqual(together["mode"], "synchronous")
        for local_steps in (4, 8):
            run = self.rackrail_json("train", plan, "--workers", "4", "--steps", "60",
                                     "--local-steps", local_steps)
            self.assertEqual((run["mode"], run["local_steps"]), ("periodic-averaging", local_steps))
            self.assertTrue(run["parameters_agree"])
            averages = -(-60 // local_steps)  # the end has one
            for tier, size in together["bytes_over_tier"].items():
                self.assertEqual(run["bytes_over_tier"][tier] * 60, size * averages)
            self.assertGreater(run["final_accuracy"], 0.8)
            self.assertAlmostEqual(run["final_accuracy"], together["final_accuracy"], delta=0.08)
        text = self.rackrail("train", plan, "--workers", "4", "--steps", "4", "--local-steps", "2")
        self.assertRegex(text.out, r"averaged\W+parameters, every 2 steps")

    def test_one_local_step_is_synchronous_training(self):
        plan = self.make_plan("ring.json", "--schedule", "ring", "--codec", "none")
        training = self.unclipped_training()
        runs = [self.rackrail_json("train", plan, "--training", training, "--workers", "4",
                                   "--steps", "20", *options)
                for options in ((), ("--local-steps", "1"))]
        self.assertEqual(runs[0]["bytes_over_tier"], runs[1]["bytes_over_tier"])
        for one, other in zip(runs[0]["losses"], runs[1]["losses"]):
            self.assertAlmostEqual(one, other, delta=1e-3)

    def test_compressed_averages_agree_too(self):
        plan = self.make_plan("int8.json", "--codec", "int8", "--error-budget", "0.1")
        run = self.rackrail_json("train", plan, "--workers", "4", "--steps", "60",
                                 "--local-steps", "4")
        self.assertTrue(run["parameters_agree"])
        self.assertGreater(run["final_accuracy"], 0.8)

    def test_local_steps_resume_to_the_same_result(self):
        plan = self.two_host_plan()
        training = self.training_with_checkpoints_every(10)
        options = ("train", plan, "--training", training, "--workers", "2", "--cluster",
                   "two-hosts.csv", "--local-steps", "4", "--checkpoints")
        # A constant learning rate, which does not depend on the number of steps.
        training.write_text(training.read_text().replace("decay: cosine", "decay: constant"))
        whole = self.rackrail_json(*options, "whole", "--steps", "40")
        self.rackrail(*options, "saved", "--steps", "24")
        rest = self.rackrail_json(*options, "saved", "--steps", "40", "--resume")
        self.assertEqual(rest["losses"], whole["losses"][-16:])
        self.assertEqual(rest["final_accuracy"], whole["final_accuracy"])
        refused = self.rackrail("train", plan, "--training", training, "--workers", "2",
                                "--cluster", "two-hosts.csv", "--checkpoints", "saved", "--steps",
                                "60", "--resume", status=2)
        self.assertEqual(refused.err.count("\n"), 1)
        self.assertIn("a checkpoint of training", refused.err)

    def test_servers_that_let_nobody_ahead_train_as_the_executor_does(self):
        plan = self.server_plan()
        training = self.unclipped_training()
        options = ("train", plan, "--training", training, "--workers", "4", "--steps", "15")
        together = self.rackrail_json(*options)
        served = self.rackrail_json(*options, "--mode", "async", "--staleness", "0")
        self.assertEqual(served["losses"], together["losses"])
        self.assertEqual(served["final_accuracy"], together["final_accuracy"])
        self.assertEqual(served["bytes_over_tier"], together["bytes_over_tier"])
        self.assertEqual(served["conflict_rate"], 0)

    def test_asynchronous_servers_learn_and_say_what_conflicts(self):
        plan = self.server_plan()
        run = self.rackrail_json("train", plan, "--workers", "4", "--steps", "80", "--mode",
                                 "async", "--staleness", "3")
        self.assertEqual((run["mode"], run["staleness"]), ("asynchronous", 3))
        self.assertTrue(run["parameters_agree"])
        self.assertLessEqual(run["most_steps_ahead"], 3)
        self.assertGreater(run["final_accuracy"], 0.8)
        self.assertGreater(run["conflict_rate"], 0.3)
        self.assertLessEqual(run["conflict_rate"], 1)
        self.assertGreaterEqual(run["staleness_updates"], run["conflict_rate"])
        self.assertIsNone(run["predicted_conflict_rate"])  # no calibration was given
        # Each rank pushes three quarters of its gradients, and sends as much to others.
        self.assertEqual(run["bytes_over_tier"]["nic"], 80 * 4 * 2 * 3 * GRADIENTS // 4)
        text = self.rackrail("train", plan, "--workers", "4", "--steps", "5", "--mode", "async")
        self.assertRegex(text.out, r"asynchronous\W+up to 4 steps ahead")
        self.assertRegex(text.out, r"conflicts\W+[\d.]+ % of the updates met newer parameters")

    def test_the_simulator_predicts_each_mode(self):
        self.rackrail("calibrate", "--workers", "4", "-o", "machine.json", "--workload-output",
                      "here.yaml")
        self.rackrail("plan", "two-racks-40g", "here.yaml", "--local-batch", "32", "--schedule",
                      "parameter-server", "--codec", "none", "-o", "plan.json")
        options = ("train", "plan.json", "--workers", "4", "--calibration", "machine.json",
                   "--workload", "here.yaml", "--steps", "12")
        # How near times come depends on what else the machine does; see results/.
        times = {}
        for mode in ((), ("--local-steps", "4"), ("--mode", "async", "--staleness", "8"),
                     ("--mode", "async", "--staleness", "0")):
            with self.subTest(mode=mode):
                run = self.rackrail_json(*options, *mode)
                times[mode] = run["predicted_step_time_s"]
                self.assertGreater(times[mode], 0)
                if "async" in mode:
                    expected = 0 if mode[-1] == "0" else 1
                    self.assertAlmostEqual(run["predicted_conflict_rate"], expected, delta=0.2)
                    self.assertAlmostEqual(run["conflict_rate"], run["predicted_conflict_rate"],
                                           delta=0.4)
        self.assert_time_below(times["--local-steps", "4"], times[()])

    def test_asynchronous_training_resumes(self):
        plan = self.server_plan()
        training = self.training_with_checkpoints_every(10)
        options = ("train", plan, "--training", training, "--workers", "4", "--mode", "async",
                   "--checkpoints", "saved")
        training.write_text(training.read_text().replace("decay: cosine", "decay: constant"))
        first = self.rackrail_json(*options, "--steps", "20")
        self.assertTrue((self.folder / "saved" / "step-00000010" / "manifest.json").exists())
        rest = self.rackrail_json(*options, "--steps", "40", "--resume")
        self.assertIn("step-00000020", rest["resumed_from"])
        self.assertEqual(len(rest["losses"]), 20)
        self.assertTrue(rest["parameters_agree"])
        self.assertLess(rest["final_loss"], first["losses"][0])

    def test_a_worker_that_dies_ends_the_job_with_one_line(self):
        plan = self.server_plan()
        training = self.training_with_checkpoints_every(10)
        for mode in (("--mode", "async", "--staleness", "2"), ("--local-steps", "5")):
            with self.subTest(mode=mode):
                folder = "saved" + mode[0]
                process = self.start("train", plan, "--workers", "4", "--training", training,
                                     "--steps", "5000", "--checkpoints", folder, *mode)
                self.wait_for_checkpoint(folder)
                os.kill(self.workers()[2], signal.SIGKILL)
                killed = time.monotonic()
                result = self.finish(process)
                self.assert_time_below(time.monotonic() - killed, 15)
                self.assertEqual(result.status, 1, str(result))
                self.assertEqual(result.out, "")
                self.assertRegex(result.err, r"\Arackrail: rank 2 \(pid \d+ on [^)]+\) was lost: "
                                             r"[^\n]*killed by signal 9[^\n]*\n\Z")
                self.assert_no_processes_left()

    def test_what_does_not_go_together_is_refused(self):
        servers = self.server_plan()
        ring = self.make_plan("ring.json", "--schedule", "ring", "--codec", "none")
        half = self.make_plan("half.json", "--schedule", "parameter-server", "--codec", "fp16")
        for plan, options, where, found in (
                (servers, ("--staleness", "2"), "--staleness", "beside --mode sync"),
                (servers, ("--mode", "async", "--local-steps", "2"), "--local-steps",
                 "beside --mode async"),
                (servers, ("--mode", "async", "--on-slow", "report"), "--on-slow report",
                 "beside --mode async"),
                (servers, ("--local-steps", "2", "--on-slow", "replan"), "--on-slow replan",
                 "beside --local-steps"),
                (servers, ("--local-steps", "2", "--device", "cuda"), "--local-steps",
                 "--device cuda"),
                (servers, ("--mode", "async", "--device", "cuda"), "--mode async",
                 "--device cuda"),
                (servers, ("--mode", "async", "--share-gpu"), "--mode async", "--device cuda"),
                (ring, ("--mode", "async"), "schedules", "with schedule 'ring'"),
                (half, ("--mode", "async"), "schedules", "with a codec")):
            with self.subTest(options=options):
                self.assert_bad_input("train", plan, "--workers", "4", *options, where=where,
                                      found=found)
        for options in (("--mode", "eventually"), ("--mode", "async", "--staleness", "-1"),
                        ("--local-steps", "0")):
            with self.subTest(options=options):
                refused = self.rackrail("train", servers, *options, status=2)
                self.assertEqual(refused.err.count("\n"), 1)


if __name__ == "__main__":
    harness.main()
