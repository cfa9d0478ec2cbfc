"""Workers that die or freeze while a job trains on without them: train --on-loss continue."""

import array
import json
import math
import os
import signal
import struct
import time

import harness
from training import TrainingTest

# What is asked of it is 0.2 s for a killed worker, 1.5 s for a frozen one, 3 s to go on. The tests
# allow for a machine on which each process gets a fraction of a core.
PATIENCE = 5
KILL_NOTICED = 0.2 * PATIENCE
SILENCE = 10  # seconds after which a worker counts as lost, or a starved one would
FREEZE_NOTICED = SILENCE * 1.25
RESUMED = 3 * PATIENCE


def parameters(path):
    """The floats of all tensors of a safetensors file, in one list."""
    content = path.read_bytes()
    header_size = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + header_size])
    values = []
    for name in sorted(name for name in header if name != "__metadata__"):
        begin, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "F32"
        values += array.array("f", content[8 + header_size + begin:8 + header_size + end])
    return values


class Survival(TrainingTest):
    STEPS = 30

    def setUp(self):
        super().setUp()
        self.training = self.training_with_checkpoints_every(10)

    def workers(self):
        """Process ids of this test's workers by the rank that they were started as."""
        found = {}
        for pid in self.processes():
            words = harness.command_line(pid).split()
            if "worker" in words and "--rank" in words:
                found[int(words[words.index("--rank") + 1])] = pid
        return found

    def train(self, plan, folder, *options, losses=()):
        """The result of a run whose workers get signals: (rank, number, seconds to wait first)."""
        process = self.start("train", plan, "--training", self.training, "--steps", self.STEPS,
                             "--checkpoints", folder, "--workload", "digits.yaml", "--on-loss",
                             "continue", "--heartbeat-timeout", f"{SILENCE} s", "--json",
                             *options)
        if losses:
            self.wait_for_checkpoint(folder)
        for rank, number, after in losses:
            time.sleep(after)
            os.kill(self.workers()[rank], number)
        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        self.assert_no_processes_left()
        self.assertTrue(result.json["parameters_agree"])
        self.assertEqual(len(result.json["losses"]), self.STEPS)
        return result.json

    def test_a_killed_command_is_started_again_and_takes_its_workers_up(self):
        plan = self.make_plan("four.json", "--codec", "none")
        whole = self.train(plan, "whole")
        command = ("train", plan, "--training", self.training, "--steps", self.STEPS,
                   "--checkpoints", "saved", "--workload", "digits.yaml", "--on-loss", "continue",
                   "--heartbeat-timeout", f"{SILENCE} s", "--state", "state", "--json")
        process = self.start(*command)
        self.wait_for_checkpoint("saved")
        workers = self.workers()
        # Nobody else may run the job while it is alive.
        self.assertIn("another process runs", self.rackrail(*command, status=2).err)
        process.kill()
        process.communicate()
        self.assertEqual(self.workers(), workers)
        another = self.run_any(*command, "--seed", "99")
        self.assertEqual(another.status, 2, str(another))
        self.assertIn("another plan or training", another.err)

        run = self.rackrail_json(*command[:-1])
        self.assertEqual(run["workers"], 4)
        self.assertEqual(run["epochs_of_membership"], 2)
        (restart,) = run["losses_of_workers"]
        self.assertEqual((restart["lost"], restart["workers"]), ([], 4))
        self.assertGreaterEqual(restart["step"], 10)
        self.assertLess(restart["resumed_after_s"], RESUMED)
        # Four workers and their plan are as they were: so are all bits, before the kill and after.
        self.assertEqual(run["losses"], whole["losses"])
        self.assertEqual(run["final_accuracy"], whole["final_accuracy"])
        self.assert_no_processes_left()

    def assert_same_model(self, folder, other):
        """That the sums were only added in another order: what that does grows with the steps."""
        name = f"step-{self.STEPS:08}/model.safetensors"
        one = parameters(self.folder / folder / name)
        two = parameters(self.folder / other / name)
        self.assertEqual(len(one), len(two))
        distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(one, two)))
        norm = math.sqrt(sum(a * a for a in one))
        self.assertLess(distance / norm, 1e-3)

    def test_the_model_is_the_one_of_a_run_without_losses(self):
        # In FP32 nothing but the order of additions tells fewer workers from four.
        plan = self.make_plan("four.json", "--codec", "none")
        whole = self.train(plan, "whole")
        self.assertEqual(whole["losses_of_workers"], [])
        kill, freeze = signal.SIGKILL, signal.SIGSTOP
        for name, losses, noticed in (
                ("killed", [(2, kill, 0)], KILL_NOTICED),
                ("frozen", [(0, freeze, 0)], FREEZE_NOTICED),
                ("one by one", [(0, kill, 0), (3, kill, 0.5)], KILL_NOTICED),
                ("at once", [(1, kill, 0), (2, kill, 0)], KILL_NOTICED)):
            with self.subTest(name):
                run = self.train(plan, name, losses=losses)
                self.assertEqual(run["workers"], 4 - len(losses))
                lost = [host for loss in run["losses_of_workers"] for host in loss["lost"]]
                self.assertEqual(sorted(lost), sorted(f"host{rank}" for rank, _, _ in losses))
                for loss in run["losses_of_workers"]:
                    self.assertGreaterEqual(loss["step"], 10)
                    self.assertLess(loss["noticed_within_s"], noticed)
                    self.assertLess(loss["resumed_after_s"], RESUMED)
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.01)
                self.assert_same_model(name, "whole")

    def test_fewer_than_two_cannot_go_on(self):
        process = self.start("train", self.two_host_plan(), "--cluster", "two-hosts.csv",
                             "--training", self.training, "--steps", 400, "--checkpoints", "saved",
                             "--workload", "digits.yaml", "--on-loss", "continue")
        self.wait_for_checkpoint("saved")
        os.kill(self.workers()[1], signal.SIGKILL)
        result = self.finish(process, timeout=30)
        self.assertEqual(result.status, 1, str(result))
        self.assertRegex(result.err, r"\Arackrail: rank 1 \(pid \d+ on [^)]+\) was lost: [^\n]*\n\Z")
        self.assert_no_processes_left()

    def test_what_it_needs(self):
        plan = self.two_host_plan()
        self.assert_bad_input("train", plan, "--on-loss", "continue", "--workload", "digits.yaml",
                              file=plan, where="cluster_name", expected="--cluster")
        self.assert_bad_input("train", plan, "--on-loss", "resume")
        self.assert_bad_input("train", plan, "--state", "here", expected="--on-loss continue")
        self.assert_bad_input("train", plan, "--cluster", "two-hosts.csv", "--workload",
                              "digits.yaml", "--on-loss", "continue", "--heartbeat-timeout",
                              "0.3 s", where="--heartbeat-timeout", found="0.3 s")
        self.assert_bad_input("train", plan, "--workload", "digits.yaml", where="--workload",
                              found="--on-loss")


if __name__ == "__main__":
    harness.main()
