"""Workers that die or freeze while a job trains on: train --on-loss continue or wait."""

import os
import re
import signal

import harness
from survival import FREEZE_NOTICED, KILL_NOTICED, RESUMED, SILENCE, SurvivalTest
from training import TOKEN, TrainingTest, slow_disk


class Survival(SurvivalTest):
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
        self.assert_time_below(restart["resumed_after_s"], RESUMED)
        # Four workers and their plan are as they were: so are all bits, before the kill and after.
        self.assertEqual(run["losses"], whole["losses"])
        self.assertEqual(run["final_accuracy"], whole["final_accuracy"])
        self.assert_no_processes_left()

    @harness.slow
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
                    self.assert_time_below(loss["resumed_after_s"], RESUMED)
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.01)
                self.assert_same_model(name, "whole")

    @harness.slow
    def test_error_feedback_of_a_lost_worker_and_of_the_plan_before_is_dropped(self):
        plan = self.make_plan("four.json", "--codec", "int8")
        whole = self.train(plan, "whole")
        for on_loss, workers in (("continue", 3), ("wait", 4)):
            with self.subTest(on_loss):
                run = self.train(plan, on_loss, losses=[(2, signal.SIGKILL, 0)], on_loss=on_loss)
                self.assertEqual(run["workers"], workers)
                (loss,) = run["losses_of_workers"]
                self.assertGreaterEqual(loss["step"], 10)
                # What was left of the sums before is said to be gone, of encoders that there were.
                (note,) = [note for note in run["notes"] if note.startswith("error feedback of ")]
                dropped = re.fullmatch(r"error feedback of ([1-9]\d*) encoders was dropped after step "
                                       r"(\d+): they were those of the plan before", note)
                self.assertTrue(dropped, note)
                self.assertIn(int(dropped[2]) - loss["step"], (0, 1))
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.02)
        self.assertFalse([note for note in whole["notes"] if "error feedback" in note])

    @harness.slow
    def test_a_slow_disk_keeps_nobody_from_coming_back(self):
        """Rank 0's disk takes longer for its part of step 20 than the others wait for it, in the
        middle of the training and where it waits for the disk at the end."""
        plan = self.make_plan("four.json", "--codec", "none")
        for steps in (self.STEPS, 4 * self.STEPS):
            with self.subTest(steps=steps):
                saved = f"saved-{steps}"
                process = self.start(
                    "train", plan, "--training", self.training, "--steps", steps, "--checkpoints",
                    saved, "--workload", "digits.yaml", "--on-loss", "continue", "--json",
                    "--heartbeat-timeout", f"{SILENCE} s",
                    variables=slow_disk("step-00000020.partial/model", seconds=40))
                partial = self.folder / saved / "step-00000020.partial"
                self.assertTrue(harness.wait_until(
                    lambda: (partial / "rank-1.safetensors").exists(), 100))
                os.kill(self.workers()[2], signal.SIGKILL)
                run = self.finish(process).json
                (loss,) = run["losses_of_workers"]
                self.assertEqual((loss["lost"], run["workers"]), (["host2"], 3))
                self.assert_time_below(loss["resumed_after_s"], RESUMED)
                self.assert_no_processes_left()

    @harness.slow
    def test_lost_workers_are_started_again_and_nothing_is_different(self):
        plan = self.make_plan("four.json", "--codec", "none")
        whole = self.train(plan, "whole")
        kill, freeze = signal.SIGKILL, signal.SIGSTOP
        for name, losses in (("killed", [(2, kill, 0)]), ("frozen", [(0, freeze, 0)]),
                             ("crashed", [(1, signal.SIGABRT, 0)]),
                             ("one by one", [(0, kill, 0), (3, kill, 0.2)]),
                             ("all but one", [(1, kill, 0), (2, kill, 0), (3, kill, 0)])):
            with self.subTest(name):
                run = self.train(plan, name, losses=losses, on_loss="wait")
                self.assertEqual(run["workers"], 4)
                hosts = {f"host{rank}" for rank, _, _ in losses}
                for key in ("lost", "new_workers_for"):
                    self.assertEqual({host for loss in run["losses_of_workers"]
                                      for host in loss[key]}, hosts)
                for loss in run["losses_of_workers"]:
                    self.assertEqual(loss["workers"], 4)
                    self.assert_time_below(loss["resumed_after_s"], RESUMED)
                # By the same plan among as many: not a bit is different.
                self.assert_same_bits(name, "whole")
                self.assertEqual(run["final_accuracy"], whole["final_accuracy"])
                crashes = [note for note in run["notes"] if "was killed by signal 6" in note]
                self.assertEqual(len(crashes), 1 if name == "crashed" else 0, run["notes"])

    @harness.slow
    def test_when_all_are_lost_others_go_on_from_the_latest_checkpoint(self):
        plan = self.make_plan("four.json", "--codec", "none")
        whole = self.train(plan, "whole")
        process = self.start("train", plan, "--training", self.training, "--steps", self.STEPS,
                             "--checkpoints", "saved", "--workload", "digits.yaml", "--on-loss",
                             "wait", "--heartbeat-timeout", f"{SILENCE} s", "--json")
        self.wait_for_checkpoint("saved")
        for worker in self.workers().values():
            os.kill(worker, signal.SIGKILL)
        run = self.finish(process).json
        self.assertEqual(run["workers"], 4)
        loss = run["losses_of_workers"][-1]
        self.assertIn(loss["step"], (10, 20))  # that was saved
        self.assertIn("nobody is left who has the parameters, so all resume from a checkpoint",
                      loss["reason"])
        self.assertEqual(set(loss["lost"]), {f"host{rank}" for rank in range(4)})
        # Who knew the losses of the steps before is gone.
        self.assertEqual(run["losses"], whole["losses"][loss["step"]:])
        self.assertTrue(run["parameters_agree"])
        self.assert_same_bits("saved", "whole")
        self.assert_no_processes_left()

    @harness.slow
    def test_a_replacement_that_dies_before_it_came_is_replaced_at_once(self):
        plan = self.make_plan("four.json", "--codec", "none")
        process = self.start("train", plan, "--training", self.training, "--steps", self.STEPS,
                             "--checkpoints", "saved", "--workload", "digits.yaml", "--on-loss",
                             "wait", "--replacement-timeout", "150 s", "--heartbeat-timeout",
                             f"{SILENCE} s", "--json")
        self.wait_for_checkpoint("saved")
        dead = set()
        for _ in range(3):
            self.assertTrue(harness.wait_until(lambda: self.workers().get(2, 0) not in {0, *dead},
                                               30), "nobody was started in its place")
            newest = self.workers()[2]
            dead.add(newest)
            os.kill(newest, signal.SIGKILL)
        # Where nobody told the coordinator, it would wait for 150 seconds.
        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(result.json["workers"], 4)
        self.assertTrue(result.json["parameters_agree"])
        self.assert_no_processes_left()

    @harness.slow
    def test_fewer_than_two_cannot_go_on(self):
        process = self.start("train", self.two_host_plan(), "--cluster", "two-hosts.csv",
                             "--training", self.training, "--steps", 400, "--checkpoints", "saved",
                             "--workload", "digits.yaml", "--on-loss", "continue")
        self.wait_for_checkpoint("saved")
        os.kill(self.workers()[1], signal.SIGKILL)
        result = self.finish(process)
        self.assertEqual(result.status, 1, str(result))
        self.assertRegex(result.err, r"\Arackrail: rank 1 \(pid \d+ on [^)]+\) was lost: [^\n]*\n\Z")
        self.assert_no_processes_left()

    @harness.slow
    def test_where_too_few_are_left_it_is_said_how_each_process_ended(self):
        plan = self.make_plan("four.json", "--codec", "none")
        process = self.start("train", plan, "--training", self.training, "--steps", 400,
                             "--checkpoints", "few", "--workload", "digits.yaml", "--on-loss",
                             "continue", "--heartbeat-timeout", f"{SILENCE} s")
        self.wait_for_checkpoint("few")
        workers = self.workers()
        for rank in range(3):
            os.kill(workers[rank], signal.SIGABRT)
        result = self.finish(process)
        self.assertEqual(result.status, 1, str(result))
        self.assertRegex(result.err, r"\Arackrail: [^\n]*fewer than 2 workers are left[^\n]*\n\Z")
        self.assertEqual(result.err.count("was killed by signal 6"), 3, str(result))
        self.assert_no_processes_left()

    def test_what_it_needs(self):
        plan = self.two_host_plan()
        self.assert_bad_input("train", plan, "--on-loss", "continue", "--workload", "digits.yaml",
                              file=plan, where="cluster_name", expected="--cluster")
        self.assert_bad_input("train", plan, "--on-loss", "resume")
        self.assert_bad_input("train", plan, "--state", "here", expected="--on-loss continue")
        self.assert_bad_input("train", plan, "--cluster", "two-hosts.csv", "--workload",
                              "digits.yaml", "--on-loss", "wait", "--replacement-timeout", "soon",
                              where="--replacement-timeout", found="soon")
        self.assert_bad_input("train", plan, "--cluster", "two-hosts.csv", "--workload",
                              "digits.yaml", "--on-loss", "continue", "--heartbeat-timeout",
                              "0.3 s", where="--heartbeat-timeout", found="0.3 s")
        self.assert_bad_input("train", plan, "--workload", "digits.yaml", where="--workload",
                              found="--on-loss")


class Launched(TrainingTest):
    """Jobs that somebody else starts, with the variables of torchrun."""

    STEPS = 120  # some seconds

    def setUp(self):
        super().setUp()
        self.write("three.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,10 Gbit/s,10 us\n" for host in range(3)))
        self.plan = self.make_plan("three.json", "--codec", "none", cluster="three.csv")
        self.training = self.training_with_checkpoints_every(5)
        self.port = harness.free_ports(2)

    def start_rank(self, rank, on_loss, silence=SILENCE):
        return self.start("train", self.plan, "--cluster", "three.csv", "--checkpoints", "saved",
                          "--training", self.training, "--workload", "digits.yaml", "--steps",
                          self.STEPS, "--on-loss", on_loss, "--heartbeat-timeout", f"{silence} s",
                          "--replacement-timeout", "100 s", "--json",
                          variables={**TOKEN, "RANK": str(rank), "WORLD_SIZE": "3",
                                     "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                                     "MASTER_PORT": str(self.port)})

    def latest_step(self):
        return max((int(entry.name[5:]) for entry in (self.folder / "saved").glob("step-*")
                    if entry.name[5:].isdigit()), default=0)

    def wait_for_more_steps(self):
        now = self.latest_step()
        self.assertTrue(harness.wait_until(lambda: self.latest_step() >= now + 10, 60),
                        f"no step after {now}")

    def assert_ends_well(self, processes, workers):
        results = [self.finish(process) for process in processes]
        for result in results:
            self.assertEqual(result.status, 0, str(result))
        run = results[0].json
        self.assertEqual(run["workers"], workers)
        self.assertEqual(run["steps"], self.STEPS)
        self.assertTrue(run["parameters_agree"])
        self.assert_no_processes_left()
        return run

    @harness.slow
    def test_a_worker_of_the_same_rank_is_taken_up_whether_the_job_waits_or_not(self):
        for on_loss, epochs in (("wait", 2), ("continue", 3)):
            with self.subTest(on_loss):
                for entry in (self.folder / "saved").glob("*/*"):
                    entry.unlink()
                for entry in (self.folder / "saved").glob("*"):
                    entry.rmdir()
                processes = [self.start_rank(rank, on_loss) for rank in range(3)]
                self.wait_for_checkpoint("saved")
                processes[2].kill()
                processes[2].communicate()
                if on_loss == "continue":
                    self.wait_for_more_steps()  # without it
                processes[2] = self.start_rank(2, on_loss)
                run = self.assert_ends_well(processes, 3)
                self.assertEqual(run["epochs_of_membership"], epochs)
                self.assertEqual(run["losses_of_workers"][0]["lost"], ["host2"])
                self.assertEqual(run["losses_of_workers"][-1]["new_workers_for"], ["host2"])

    @harness.slow
    def test_a_worker_that_wakes_up_too_late_says_so_and_does_not_disturb(self):
        processes = [self.start_rank(rank, "continue", silence=3) for rank in range(3)]
        self.wait_for_checkpoint("saved")
        os.kill(processes[2].pid, signal.SIGSTOP)
        self.wait_for_more_steps()  # without it
        os.kill(processes[2].pid, signal.SIGCONT)
        woken = self.finish(processes[2])
        self.assertEqual(woken.status, 1, str(woken))
        self.assertEqual(woken.out, "")
        self.assertEqual(woken.err.count("\n"), 1, str(woken))
        self.assertIn("goes on without it", woken.error["message"])
        run = self.assert_ends_well(processes[:2], 2)
        (loss,) = run["losses_of_workers"]
        self.assertEqual(loss["lost"], ["host2"])


if __name__ == "__main__":
    harness.main()
