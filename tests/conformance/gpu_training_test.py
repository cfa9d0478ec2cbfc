"""rackrail train --device cuda on an emulated GPU, one for each worker's process.

    gpu_training_test.py PATH-OF-THE-COMMAND-ON-AN-EMULATED-GPU

Matrices are multiplied by a stand-in for cuBLAS, and there is no NCCL: it would want a real GPU.
"""
import os
import signal
import sys
from pathlib import Path

os.environ["RACKRAIL_COMMAND"] = sys.argv.pop(1)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration" / "command"))

import harness  # noqa: E402  (reads the variable)

# A perceptron of one small layer, and the same as a workload; nothing is measured against its times.
TRAINING = """name: small
data:
  file: {data}
  image: [8, 8, 1]
  classes: 10
  maximum: 16
  test_share: 0.2
model:
  kind: mlp
  hidden: [32]
optimizer:
  base_learning_rate: 0.1
  base_batch: 128
  momentum: 0.9
  clip_norm: 5
steps: 12
local_batch: 16
seed: 1
evaluate_every: 0
checkpoint_every: 6
"""
WORKLOAD = """name: small
source: round figures for tests
device_class: cpu
profiled_batch: 16
forward: 1 ms
backward_tail: 0 s
optimizer: 0.1 ms
fixed_share: 0.1
memory_per_sample: 1 kB
memory_fixed: 1 MB
base_learning_rate: 0.1
base_batch: 128
tensors:
  - [fc2.bias, 10, 1 us]
  - [fc2.weight, 320, 10 us]
  - [fc1.bias, 32, 10 us]
  - [fc1.weight, 2048, 20 us]
"""
CUDA = ("--training", "small.yaml", "--device", "cuda")


class GpuTraining(harness.CommandTest):
    def environment(self, **variables):
        return super().environment(RACKRAIL_NCCL_LIBRARY="/nonexistent/libnccl.so.2", **variables)

    def setUp(self):
        super().setUp()
        self.write("small.yaml", TRAINING.format(data=harness.CONFIGS / "data" / "digits.csv"))
        self.write("workload.yaml", WORKLOAD)
        self.write("two-hosts.csv",
                   "source,target,bandwidth,latency\nhost0,host1,10 Gbit/s,10 us\n")

    def plan(self, cluster, *options):
        self.rackrail("plan", cluster, "workload.yaml", "--local-batch", "16", "-o", "plan.json",
                      *options)

    def train(self, *options):
        return self.rackrail_json("train", "plan.json", *options)

    def test_losses_and_traffic_are_those_of_the_cpu(self):
        self.plan("two-racks-40g", "--codec", "none", "--schedule", "ring")
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
        self.plan("two-racks-40g", "--codec", "int8")
        run = self.train(*CUDA, "--workers", "4", "--share-gpu", "--gpu-path", "staged")
        self.assertTrue(run["parameters_agree"])
        self.assertLess(run["losses"][-1], run["losses"][0])
        self.assertEqual(run["notes"], [])

    def test_a_training_goes_on_from_a_checkpoint_on_either_side(self):
        self.plan("two-hosts.csv", "--codec", "none")
        gpu = (*CUDA, "--workers", "2", "--share-gpu", "--gpu-path", "staged")
        whole = self.train(*gpu)
        self.train(*gpu, "--steps", "6", "--checkpoints", "saved")
        on_cpu = self.train("--training", "small.yaml", "--workers", "2", "--checkpoints", "saved",
                            "--resume")
        self.assertEqual(on_cpu["steps"], whole["steps"])
        self.assertAlmostEqual(on_cpu["final_loss"], whole["final_loss"], delta=1e-3)

    def test_a_lost_worker_is_an_error_that_names_it(self):
        self.plan("two-hosts.csv", "--codec", "none")
        text = (self.folder / "small.yaml").read_text()
        self.write("small.yaml", text.replace("checkpoint_every: 6", "checkpoint_every: 1"))
        running = self.start("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                             "--steps", "100000", "--checkpoints", "saved")
        saved = self.folder / "saved"
        self.assertTrue(harness.wait_until(
            lambda: saved.exists() and any(saved.rglob("*manifest*")), 100), "no step was done")
        victim = [pid for pid in self.processes()
                  if harness.command_line(pid).endswith("--rank 1")]
        os.kill(victim[0], signal.SIGKILL)
        result = self.finish(running)
        self.assertEqual(result.status, 1, str(result))
        self.assertIn("rank 1", result.err)
        self.assert_no_processes_left()

    def test_each_worker_needs_a_gpu_unless_they_share(self):
        self.plan("two-hosts.csv")
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", status=1)
        self.assertIn("rank 1 has no GPU of its own: found 1 on ", result.err)
        self.assertIn("expected more, or --share-gpu", result.err)

    def test_nccl_that_is_asked_for_and_missing_is_an_error(self):
        self.plan("two-hosts.csv")
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                               "--gpu-path", "nccl", status=1)
        self.assertIn("rank 0 is to use NCCL: no NCCL", result.err)

    def test_what_does_not_go_together_is_refused(self):
        self.plan("two-hosts.csv")
        for options in (("--share-gpu",), ("--gpu-path", "nccl"),
                        ("--device", "cuda", "--on-slow", "report")):
            with self.subTest(options=options):
                self.rackrail("train", "plan.json", *options, status=2)

    def test_info_says_which_path_is_in_use(self):
        features = {each["name"]: each for each in self.rackrail_json("info")["features"]}
        self.assertEqual(features["library: cuBLAS"]["detail"], "a stand-in")
        path = features["gradients of GPUs"]
        self.assertTrue(path["available"])
        self.assertTrue(path["detail"].startswith("through pinned memory"), path["detail"])


if __name__ == "__main__":
    harness.main()
