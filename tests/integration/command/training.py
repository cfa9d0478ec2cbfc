"""What the tests of short training runs share."""

import unittest
from pathlib import Path

import harness

# The built-in model as a workload. Its times are round figures: nothing is measured against them.
DIGITS = """name: digits-mlp
source: round figures for tests
device_class: cpu
profiled_batch: 32
forward: 2.5 ms
backward_tail: 0 s
optimizer: 0.4 ms
fixed_share: 0.1
memory_per_sample: 32 kB
memory_fixed: 14 MB
base_learning_rate: 0.2
base_batch: 128
tensors:
  - [fc3.bias, 10, 1 us]
  - [fc3.weight, 10240, 40 us]
  - [fc2.bias, 1024, 180 us]
  - [fc2.weight, 1048576, 1900 us]
  - [fc1.bias, 1024, 2000 us]
  - [fc1.weight, 65536, 130 us]
"""
# A perceptron of one small layer for where a step must take next to nothing, and its workload.
SMALL_TRAINING = """name: small
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
checkpoint_every: {checkpoint_every}
"""
SMALL_WORKLOAD = """name: small
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
TOKEN = {"RACKRAIL_JOB_TOKEN": "a-secret-of-these-tests-0123456789"}
TWO_HOSTS = "source,target,bandwidth,latency\nhost0,host1,10 Gbit/s,10 us\n"


def slow_disk(part_of_path, seconds=None):
    """Variables for a disk that never ends to flush such files, or takes some seconds for each
    (tests/support/slow_disk.cpp, beside the command)."""
    library = Path(harness.COMMAND).parent / "tests" / "libslow_disk.so"
    if not library.exists():
        raise unittest.SkipTest(f"no {library}")
    limit = {} if seconds is None else {"RACKRAIL_SLOW_DISK_SECONDS": str(seconds)}
    return {"LD_PRELOAD": str(library), "RACKRAIL_SLOW_DISK": part_of_path, **limit}


def small_training(checkpoint_every=6, data=harness.CONFIGS / "data" / "digits.csv"):
    return SMALL_TRAINING.format(data=data, checkpoint_every=checkpoint_every)


class CheckpointedTest(harness.CommandTest):
    """Looks after what trainings leave."""

    def workers(self):
        """Process ids of this test's workers by the rank that they were started as."""
        found = {}
        for pid in self.processes():
            words = harness.command_line(pid).split()
            if "worker" in words and "--rank" in words:
                found[int(words[words.index("--rank") + 1])] = pid
        return found

    def wait_for_checkpoint(self, name):
        folder = self.folder / name

        def is_there():
            try:
                return folder.exists() and any(folder.rglob("*manifest*"))
            except FileNotFoundError:  # it just got its name
                return False
        self.assertTrue(harness.wait_until(is_there, 100), "no checkpoint")


class SmallTrainingTest(CheckpointedTest):
    """Its plans are for the small training, on two hosts unless another cluster is named."""

    def setUp(self):
        super().setUp()
        self.write("small.yaml", small_training())
        self.write("workload.yaml", SMALL_WORKLOAD)
        self.write("two-hosts.csv", TWO_HOSTS)

    def make_plan(self, *options, cluster="two-hosts.csv"):
        self.rackrail("plan", cluster, "workload.yaml", "--local-batch", "16", "-o", "plan.json",
                      *options)


class TrainingTest(CheckpointedTest):
    """Its plans are made for four workers in two racks, or for two hosts."""

    def setUp(self):
        super().setUp()
        self.write("digits.yaml", DIGITS)
        self.write("two-hosts.csv", TWO_HOSTS)

    def make_plan(self, name, *options, cluster="two-racks-40g"):
        self.rackrail("plan", cluster, "digits.yaml", "--local-batch", "32", "-o", name, *options)
        return name

    def two_host_plan(self):
        return self.make_plan("two.json", cluster="two-hosts.csv")

    def training_with_checkpoints_every(self, steps):
        """The shipped training, which saves more often."""
        text = (harness.CONFIGS / "training" / "digits-mlp.yaml").read_text()
        text = text.replace("../data/digits.csv", str(harness.CONFIGS / "data" / "digits.csv"))
        self.assertIn("checkpoint_every: 100", text)
        return self.write("quick.yaml",
                          text.replace("checkpoint_every: 100", f"checkpoint_every: {steps}"))

    def assert_same_as_local(self, run, plan, steps):
        """That a launched run computed what as many local workers compute."""
        local = self.rackrail_json("train", plan, "--workers", run["workers"], "--steps", steps)
        self.assertEqual(run["losses"], local["losses"])
        self.assertTrue(run["parameters_agree"])
