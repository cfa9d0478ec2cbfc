"""Workers that are lost while a job trains otherwise than by sums of every step: train --local-steps,
--mode async, or over synchronous parameter servers, with --on-loss continue or wait."""

import signal

import harness
from survival import FREEZE_NOTICED, KILL_NOTICED, RESUMED, SILENCE, SurvivalTest

KILL, FREEZE = signal.SIGKILL, signal.SIGSTOP
STALENESS = 2


class Modes(SurvivalTest):
    STEPS = 40

    def without_momentum(self):
        """So that a lost worker takes nothing along that the others have not: what goes on from
        where all held the same ends with the same bits."""
        text = self.training.read_text()
        self.assertIn("momentum: 0.9", text)
        self.training.write_text(text.replace("momentum: 0.9", "momentum: 0"))

    def server_plan(self):
        return self.make_plan("servers.json", "--schedule", "parameter-server", "--codec", "none")

    def assert_losses(self, run, losses, workers, every):
        """`every`: steps from one point that all have to the next."""
        lost = {host for loss in run["losses_of_workers"] for host in loss["lost"]}
        self.assertEqual(lost, {f"host{rank}" for rank, _, _ in losses}, run["losses_of_workers"])
        self.assertEqual(run["workers"], workers)
        noticed = FREEZE_NOTICED if any(number == FREEZE for _, number, _ in losses) else (
            KILL_NOTICED)
        for loss in run["losses_of_workers"]:
            self.assertGreaterEqual(loss["step"], 10)
            self.assertEqual(loss["step"] % every, 0)
            self.assertLess(loss["noticed_within_s"], noticed)
            self.assertLess(loss["resumed_after_s"], RESUMED)

    def test_local_steps_go_on_from_an_average_with_new_workers_to_the_same_bits(self):
        self.without_momentum()
        plan = self.make_plan("four.json", "--codec", "none")
        averages = ("--local-steps", 5)
        whole = self.train(plan, "whole", *averages)
        self.assertEqual(whole["losses_of_workers"], [])
        for name, losses in (("killed", [(2, KILL, 0)]), ("frozen", [(0, FREEZE, 0)]),
                             ("one by one", [(0, KILL, 0), (3, KILL, 0.2)])):
            with self.subTest(name):
                run = self.train(plan, name, *averages, losses=losses, on_loss="wait")
                self.assert_losses(run, losses, 4, every=5)
                self.assert_same_bits(name, "whole")
                notes = [note for note in run["notes"] if " began with the momentum of " in note]
                self.assertGreaterEqual(len(notes), 1, run["notes"])

    def test_local_steps_go_on_with_fewer_workers(self):
        plan = self.make_plan("four.json", "--codec", "none")
        averages = ("--local-steps", 5)
        whole = self.train(plan, "whole", *averages, steps=80)
        for name, losses in (("killed", [(2, KILL, 0)]),
                             ("at once", [(1, KILL, 0), (2, KILL, 0)])):
            with self.subTest(name):
                run = self.train(plan, name, *averages, losses=losses, steps=80)
                self.assert_losses(run, losses, 4 - len(losses), every=5)
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.05)

    def test_local_steps_outlive_the_command(self):
        plan = self.make_plan("four.json", "--codec", "none")
        options = ("--local-steps", "4")
        whole = self.train(plan, "whole", *options)
        command = ("train", plan, "--training", self.training, "--steps", self.STEPS,
                   "--checkpoints", "saved", "--workload", "digits.yaml", "--on-loss", "continue",
                   "--heartbeat-timeout", f"{SILENCE} s", "--state", "state", *options)
        process = self.start(*command)
        self.wait_for_checkpoint("saved")
        process.kill()
        process.communicate()
        run = self.rackrail_json(*command)
        (restart,) = run["losses_of_workers"]
        self.assertEqual((restart["lost"], restart["workers"]), ([], 4))
        self.assertEqual(restart["step"] % 4, 0)
        # Nobody was lost, and so no momentum.
        self.assertEqual(run["losses"], whole["losses"])
        self.assert_same_bits("saved", "whole")

    def test_servers_that_let_nobody_ahead_go_on_to_the_same_bits(self):
        self.without_momentum()
        plan = self.server_plan()
        served = ("--mode", "async", "--staleness", "0")
        whole = self.train(plan, "whole", *served)
        for name, losses in (("frozen", [(1, FREEZE, 0)]),
                             ("all but one", [(1, KILL, 0), (2, KILL, 0), (3, KILL, 0)])):
            with self.subTest(name):
                run = self.train(plan, name, *served, losses=losses, on_loss="wait")
                self.assert_losses(run, losses, 4, every=2)
                self.assert_same_bits(name, "whole")

    def test_asynchronous_servers_go_on_and_keep_their_bound(self):
        plan = self.server_plan()
        served = ("--mode", "async", "--staleness", STALENESS)
        whole = self.train(plan, "whole", *served, steps=80)
        for on_loss, losses, workers, note in (
                ("continue", [(2, KILL, 0)], 3, "it was that of the plan before"),
                ("continue", [(0, FREEZE, 0)], 3, "it was that of the plan before"),
                ("wait", [(1, KILL, 0)], 4, "the momentum of what rank 1 serves began anew"),
                ("wait", [(0, KILL, 0), (3, KILL, 0.2)], 4, "serves began anew")):
            with self.subTest(on_loss=on_loss, losses=losses):
                name = f"{on_loss}-{losses[0][0]}"
                run = self.train(plan, name, *served, losses=losses, on_loss=on_loss, steps=80)
                self.assert_losses(run, losses, workers, every=2)
                self.assertLessEqual(run["most_steps_ahead"], STALENESS)
                self.assertTrue(any(note in text for text in run["notes"]), run["notes"])
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.05)

    def test_synchronous_servers_survive_like_any_other_plan(self):
        plan = self.server_plan()
        whole = self.train(plan, "whole")
        losses = [(1, KILL, 0)]
        run = self.train(plan, "replaced", losses=losses, on_loss="wait")
        self.assert_losses(run, losses, 4, every=1)
        self.assert_same_bits("replaced", "whole")
        run = self.train(plan, "fewer", losses=losses)
        self.assert_losses(run, losses, 3, every=1)
        self.assert_same_model("fewer", "whole")


if __name__ == "__main__":
    harness.main()
