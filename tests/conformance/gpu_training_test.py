"""rackrail train --device cuda on an emulated GPU, one for each worker's process.

    gpu_training_test.py PATH-OF-THE-COMMAND-ON-AN-EMULATED-GPU

Matrices are multiplied by a stand-in for cuBLAS, and there is no NCCL: it would want a real GPU.
"""
import math
import os
import signal
import sys
from pathlib import Path

os.environ["RACKRAIL_COMMAND"] = sys.argv.pop(1)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration" / "command"))

import harness  # noqa: E402  (reads the variable)
from training import SmallTrainingTest, small_training  # noqa: E402

CUDA = ("--training", "small.yaml", "--device", "cuda")


class GpuTraining(SmallTrainingTest):
    def environment(self, **variables):
        return super().environment(RACKRAIL_NCCL_LIBRARY="/nonexistent/libnccl.so.2", **variables)

    def train(self, *options):
        return self.rackrail_json("train", "plan.json", *options)

    def test_losses_and_traffic_are_those_of_the_cpu(self):
        self.make_plan("--codec", "none", "--schedule", "ring", cluster="two-racks-40g")
        on_cpu = self.train("--training", "small.yaml", "--workers", "4")
        on_gpu = self.train(*CUDA, "--workers", "4", "--share-gpu")
        self.assertEqual((on_cpu["device"], on_cpu["transport"]), ("cpu", "ucx"))
        self.assertEqual((on_gpu["device"], on_gpu["transport"]),
                         ("emulated GPU", "pinned memory and ucx"))
        self.assertTrue(on_gpu["parameters_agree"])
        for ours, theirs in zip(on_gpu["losses"], on_cpu["losses"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)
        self.assertEqual(on_gpu["bytes_over_tier"], on_cpu["bytes_over_tier"])
        self.assertIn("rank 0 has no NCCL", " ".join(on_gpu["notes"]))

    def test_codecs_run_on_the_gpu_too(self):
        self.make_plan("--codec", "int8", cluster="two-racks-40g")
        run = self.train(*CUDA, "--workers", "4", "--share-gpu", "--gpu-path", "staged")
        self.assertTrue(run["parameters_agree"])
        self.assertLess(run["losses"][-1], run["losses"][0])
        self.assertEqual(run["notes"], [])

    def test_a_training_goes_on_from_a_checkpoint_on_either_side(self):
        self.make_plan("--codec", "none")
        gpu = (*CUDA, "--workers", "2", "--share-gpu", "--gpu-path", "staged")
        whole = self.train(*gpu)
        self.train(*gpu, "--steps", "6", "--checkpoints", "saved")
        on_cpu = self.train("--training", "small.yaml", "--workers", "2", "--checkpoints", "saved",
                            "--resume")
        self.assertEqual(on_cpu["steps"], whole["steps"])
        self.assertAlmostEqual(on_cpu["final_loss"], whole["final_loss"], delta=1e-3)

    def test_a_lost_worker_is_an_error_that_names_it(self):
        self.make_plan("--codec", "none")
        self.write("small.yaml", small_training(checkpoint_every=1))
        running = self.start("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                             "--steps", "100000", "--checkpoints", "saved")
        self.wait_for_checkpoint("saved")
        victim = [pid for pid in self.processes()
                  if harness.command_line(pid).endswith("--rank 1")]
        os.kill(victim[0], signal.SIGKILL)
        result = self.finish(running)
        self.assertEqual(result.status, 1, str(result))
        self.assertIn("rank 1", result.err)
        self.assert_no_processes_left()

    def test_each_worker_needs_a_gpu_unless_they_share(self):
        self.make_plan()
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", status=1)
        self.assertIn("rank 1 has no GPU of its own: found 1 on ", result.err)
        self.assertIn("expected more, or --share-gpu", result.err)

    def test_nccl_that_is_asked_for_and_missing_is_an_error(self):
        self.make_plan()
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                               "--gpu-path", "nccl", status=1)
        self.assertIn("rank 0 is to use NCCL: no NCCL", result.err)

    def test_what_does_not_go_together_is_refused(self):
        self.make_plan()
        for options in (("--share-gpu",), ("--gpu-path", "nccl"),
                        ("--device", "cuda", "--on-slow", "report")):
            with self.subTest(options=options):
                self.rackrail("train", "plan.json", *options, status=2)

    def validate(self, *options, **expected):
        return self.rackrail("validate", *CUDA, "--share-gpu", "--gpu-path", "staged", "--workers",
                             "2", "--steps", "6", *options, **expected)

    def test_predictions_are_held_against_a_training_on_the_gpu(self):
        report = self.validate("--json").json
        self.assertEqual((report["device"], report["transport"]),
                         ("emulated GPU", "pinned memory and ucx"))
        self.assertEqual((report["workers"], report["gpus"], report["local_batch"]), (2, 1, 16))
        self.assertEqual(report["gradient_bytes"], 4 * (10 + 320 + 32 + 2048))
        self.assertTrue(report["parameters_agree"])
        for what in ("sums", "step"):
            for how in ("predicted_s", "measured_s"):
                self.assertGreater(report[what][how], 0, what)
            self.assertAlmostEqual(report[what]["relative_error"], report[what]["predicted_s"]
                                   / report[what]["measured_s"] - 1)
        for how in ("predicted", "measured"):
            exposed = report[f"{how}_exposed_s"]
            self.assertGreaterEqual(exposed, 0)
            self.assertLess(exposed, report["step"][f"{how}_s"])
            self.assertAlmostEqual(report[f"{how}_hidden_share"],
                                   1 - exposed / report["sums"][f"{how}_s"])
        self.assertTrue(math.isfinite(report["final_loss"]))

    def test_a_bound_on_the_error_is_the_exit_status(self):
        text = self.validate("--within", "0.0001%", status=1).out
        self.assertRegex(text, r"sums alone +pinned memory and ucx")
        self.assertIn("hidden: ", text)
        self.assertIn("bit-identical on all ranks", text)

    def test_what_validate_cannot_do_on_a_gpu_is_refused(self):
        self.validate("two-racks-40g", status=2)
        self.rackrail("validate", "--workers", "2", status=2)
        self.rackrail("validate", status=2)
        result = self.rackrail("validate", *CUDA, "--workers", "2", "--gpu-path", "staged", status=1)
        self.assertIn("rank 1 has no GPU of its own", result.err)

    def test_info_says_which_path_is_in_use(self):
        features = {each["name"]: each for each in self.rackrail_json("info")["features"]}
        self.assertEqual(features["library: cuBLAS"]["detail"], "a stand-in")
        path = features["gradients of GPUs"]
        self.assertTrue(path["available"])
        self.assertTrue(path["detail"].startswith("through pinned memory"), path["detail"])


if __name__ == "__main__":
    harness.main()
