"""Workers that die, and users who interrupt: the command ends soon, says why, and can go on."""

import os
import signal
import time

import harness
from training import TrainingTest, slow_disk

STEPS = "400"  # some seconds: enough to be interrupted


class Loss(TrainingTest):
    def assert_names_lost_rank(self, result, rank):
        """One line in all: the survivors leave it to the command."""
        self.assertEqual(result.status, 1, str(result))
        self.assertEqual(result.out, "")
        self.assertRegex(result.err, rf"\Arackrail: rank {rank} \(pid \d+ on [^)]+\) was lost: "
                                     r"[^\n]*killed by signal 9[^\n]*\n\Z")

    def train_until_checkpoint(self, plan, *options, workers=2, cluster="two-hosts.csv"):
        process = self.start("train", plan, "--workers", workers, "--checkpoints", "saved",
                             "--cluster", cluster, "--steps", STEPS, *options)
        self.wait_for_checkpoint("saved")
        return process

    def quick_training(self):
        return self.training_with_checkpoints_every(10)

    def test_a_killed_worker_ends_the_job_which_resumes_to_the_same_loss(self):
        plan = self.two_host_plan()
        steps = ("--training", self.quick_training(), "--workers", "2", "--steps", STEPS)
        process = self.train_until_checkpoint(plan, "--training", steps[1])
        os.kill(self.workers()[1], signal.SIGKILL)
        killed = time.monotonic()
        result = self.finish(process)
        self.assert_time_below(time.monotonic() - killed, 5)
        self.assert_names_lost_rank(result, 1)
        self.assert_no_processes_left()

        resumed = self.rackrail_json("train", plan, *steps, "--checkpoints", "saved", "--resume")
        whole = self.rackrail_json("train", plan, *steps)
        rest = len(resumed["losses"])
        self.assertIn(rest, range(1, int(STEPS)))
        self.assertIn("saved/step-", resumed["resumed_from"])
        self.assertEqual(whole["resumed_from"], "")
        self.assertEqual(resumed["losses"], whole["losses"][-rest:])
        self.assertEqual(resumed["final_loss"], whole["final_loss"])
        self.assertEqual(resumed["final_accuracy"], whole["final_accuracy"])

    def test_a_frozen_worker_ends_the_job_after_the_silence_that_was_asked_for(self):
        plan = self.two_host_plan()
        self.assert_bad_input("train", plan, "--workers", "2", "--cluster", "two-hosts.csv",
                              "--heartbeat-timeout", "0.9 s", where="--heartbeat-timeout",
                              expected="500 ms")
        process = self.train_until_checkpoint(plan, "--training", self.quick_training(),
                                              "--heartbeat-timeout", "1.5 s")
        os.kill(self.workers()[1], signal.SIGSTOP)
        result = self.finish(process)
        self.assertEqual(result.status, 1, str(result))
        self.assertRegex(result.err, r"\Arackrail: rank 1 \(pid \d+ on [^)]+\) was lost: "
                                     r"no heartbeat for 1\.50 s[^\n]*\n\Z")
        self.assert_no_processes_left()

    @harness.slow
    def test_training_goes_on_while_a_disk_is_slow_and_a_loss_then_costs_that_checkpoint(self):
        """The disk does not end rank 0's part of step 20. Rank 1 can only come to step 30, and save
        its own part of that, while rank 0 trains on."""
        plan = self.two_host_plan()
        training = self.quick_training()
        process = self.start(
            "train", plan, "--workers", "2", "--checkpoints", "saved", "--cluster", "two-hosts.csv",
            "--training", training, "--steps", STEPS, variables=slow_disk(
                "step-00000020.partial/model"))
        saved = self.folder / "saved"
        is_ahead = harness.wait_until(
            lambda: (saved / "step-00000030.partial" / "rank-1.safetensors").exists(), 100)
        self.assertTrue(is_ahead, sorted(saved.rglob("*")))
        self.assertFalse((saved / "step-00000020.partial" / "model.safetensors").exists())
        os.kill(self.workers()[1], signal.SIGKILL)
        self.assert_names_lost_rank(self.finish(process), 1)

        rest = self.rackrail_json("train", plan, "--workers", "2", "--checkpoints", "saved",
                                  "--training", training, "--steps", STEPS, "--resume")
        self.assertRegex(rest["resumed_from"], r"/saved/step-00000010$")
        whole = self.rackrail_json("train", plan, "--workers", "2", "--training", training,
                                   "--steps", STEPS)
        self.assertEqual(rest["losses"], whole["losses"][10:])

    @harness.slow
    def test_a_damaged_checkpoint_is_passed_over_but_not_the_last_one(self):
        plan = self.two_host_plan()
        steps = ("--training", self.quick_training(), "--workers", "2", "--checkpoints", "saved",
                 "--steps", "25", "--cluster", "two-hosts.csv")
        whole = self.rackrail_json("train", plan, *steps)
        # Where nothing is left to do, nothing is measured, and nothing is claimed.
        done = self.rackrail_json("train", plan, *steps, "--resume")
        self.assertEqual((done["steps"], done["losses"]), (25, []))
        self.assertEqual(done["final_accuracy"], whole["final_accuracy"])
        for measured in ("final_loss", "step_time_s", "sync_share"):
            self.assertIsNone(done[measured])
        saved = self.folder / "saved"
        models = [saved / f"step-{step:08}" / "model.safetensors"
                  for step in (10, 20, 25)]  # at intervals and at the end
        self.assertTrue(all(model.exists() for model in models), list(saved.iterdir()))
        self.assert_bad_input("train", plan, *steps, file=saved, expected="--resume",
                              found="step-00000025")

        for model in models[1:]:
            os.truncate(model, 1000)
        again = self.rackrail_json("train", plan, *steps, "--resume")
        self.assertRegex(again["resumed_from"], r"/saved/step-00000010$")
        self.assertEqual(again["losses"], whole["losses"][10:])
        for model in models[1:]:
            self.assertIn(str(model), " ".join(again["notes"]))

        # When none is whole, training does not start anew over what is left of the work.
        for model in models:
            os.truncate(model, 1000)
        self.assert_bad_input("train", plan, *steps, "--resume", file=models[2], found="1000 bytes")

    @harness.slow
    def test_without_a_checkpoint_resuming_starts_and_says_so(self):
        run = self.rackrail_json("train", self.two_host_plan(), "--workers", "2", "--steps", "3",
                                 "--checkpoints", "saved", "--resume")
        self.assertEqual(len(run["losses"]), 3)
        self.assertIn("starts at step 0", " ".join(run["notes"]))

    @harness.slow
    def test_a_lost_leader_is_named_too(self):
        process = self.train_until_checkpoint(self.two_host_plan(), "--training",
                                              self.quick_training())
        os.kill(self.workers()[0], signal.SIGKILL)
        killed = time.monotonic()
        result = self.finish(process)
        self.assert_time_below(time.monotonic() - killed, 5)
        self.assert_names_lost_rank(result, 0)
        self.assert_no_processes_left()

    def test_with_json_the_loss_has_its_parts(self):
        process = self.train_until_checkpoint(self.two_host_plan(), "--training",
                                              self.quick_training(), "--json")
        os.kill(self.workers()[1], signal.SIGKILL)
        result = self.finish(process)
        self.assertEqual(result.status, 1, str(result))
        self.assertEqual(result.error["file"], "two.json")
        self.assertEqual(result.error["where"], "training")
        self.assertIn("rank 1 ", result.error["found"])
        self.assertIn("2 workers", result.error["expected"])
        self.assertEqual(result.error["message"], result.error["found"])

    @harness.slow
    def test_of_several_survivors_none_repeats_the_line(self):
        process = self.train_until_checkpoint(
            self.make_plan("four.json"), "--training", self.quick_training(), workers=4,
            cluster="two-racks-40g")
        os.kill(self.workers()[2], signal.SIGKILL)
        self.assert_names_lost_rank(self.finish(process), 2)
        self.assert_no_processes_left()

    @harness.slow
    def test_an_interrupt_ends_all_workers(self):
        process = self.train_until_checkpoint(self.two_host_plan(), "--training",
                                              self.quick_training())
        process.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        result = self.finish(process)
        self.assert_time_below(time.monotonic() - interrupted, 5)
        self.assertEqual(result.status, 128 + signal.SIGINT)
        self.assertEqual(result.err, "rackrail: interrupted by SIGINT\n")
        self.assert_no_processes_left()

    @harness.slow
    def test_a_killed_command_leaves_no_workers(self):
        process = self.train_until_checkpoint(self.two_host_plan(), "--training",
                                              self.quick_training())
        process.kill()
        process.communicate()
        self.assertTrue(harness.wait_until(lambda: not self.processes(), 5),
                        "workers outlived the command")


if __name__ == "__main__":
    harness.main()
