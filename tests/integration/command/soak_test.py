"""Some dozens of random faults: nothing hangs, nothing is lost, nothing is left; see soak.py."""

import os
import signal
import sys

import harness
import soak
from training import TrainingTest

FAULTS = int(os.environ.get("RACKRAIL_SOAK_FAULTS", "12"))
SEED = int(os.environ.get("RACKRAIL_SOAK_SEED", "1"))
SHARE = {"compressed sums": 8}  # of the faults, one in so many; of other modes one in three
SILENCE = 5  # seconds: starved processes of a busy machine are not lost


class ShortSoak(TrainingTest):
    def suffer(self, mode, faults):
        """A job through so many faults, and what must be as without them."""
        steps = soak.Soak.steps(faults)
        plan = self.make_plan("four.json", *mode.plan)
        training = self.training_with_checkpoints_every(soak.SAVED_EVERY)
        training.write_text(mode.training(training.read_text()))
        common = ("train", plan, "--training", training, "--steps", steps, *mode.train, "--json")
        survives = ("--workload", "digits.yaml", "--heartbeat-timeout")
        whole = self.rackrail_json(*common[:-1], "--checkpoints", "whole", *survives, "60 s",
                                   "--on-loss", "continue")
        command = (harness.COMMAND, *map(str, common), "--checkpoints", "saved", *survives,
                   f"{SILENCE} s", "--on-loss", "wait", "--state", "state")
        said = []
        seed = SEED + soak.MODES.index(mode)
        job = soak.Soak(command, self.folder, self.environment(), self.processes, seed, faults,
                        said.append, silence=SILENCE)
        try:
            result = job.run()
        except soak.SoakFailure as failure:
            self.fail(f"seed {seed}: {failure}\nafter {said}")
        if mode.is_exact:
            self.assertTrue(soak.same_parameters(self.folder / "saved", self.folder / "whole",
                                                 steps))
        self.assertAlmostEqual(result["final_accuracy"], whole["final_accuracy"],
                               delta=0 if mode.is_exact else mode.most_points)
        self.assertGreater(result["epochs_of_membership"], faults // 2)
        print(f"{mode.name}: {dict(job.counts)}, {result['epochs_of_membership']} epochs",
              file=sys.stderr)

    def test_survivors_of_many_losses_do_not_grow(self):
        """Rank 3 is killed again and again, and another one comes in its place."""
        plan = self.make_plan("four.json", "--codec", "none")
        process = self.start("train", plan, "--training",
                             self.training_with_checkpoints_every(soak.SAVED_EVERY), "--steps",
                             10000, "--checkpoints", "saved", "--workload", "digits.yaml",
                             "--on-loss", "wait", "--heartbeat-timeout", f"{SILENCE} s")
        growth = soak.Growth()
        step = 0
        workers = {}

        def all_go_on():
            workers.clear()
            workers.update(self.workers())
            return set(workers) == {0, 1, 2, 3} and (
                soak.latest_step(self.folder / "saved") >= step + soak.SAVED_EVERY)
        for _ in range(soak.SETTLED_AFTER + soak.FEWEST_FOR_SLOPE + 2):
            self.assertTrue(harness.wait_until(all_go_on, 100), f"nothing new after step {step}")
            step = soak.latest_step(self.folder / "saved")
            growth.look([process.pid, *(workers[rank] for rank in range(3))])
            os.kill(workers[3], signal.SIGKILL)
        process.terminate()
        self.finish(process)
        self.assertEqual(len(growth.seen), 4, "others were lost, too")
        descriptors, memory = growth.per_fault()
        self.assertLess(descriptors, soak.MOST_PER_FAULT[0])
        self.assertLess(memory, soak.MOST_PER_FAULT[1])
        print(f"with each fault: {descriptors:.2f} descriptors, {memory / 2**20:.2f} MiB",
              file=sys.stderr)
        self.assert_no_processes_left()

    def test_random_faults_change_nothing(self):
        sums, *others = soak.MODES
        self.suffer(sums, FAULTS)
        self.assertEqual(len(others), 5)


def of_another(mode):
    return lambda self: self.suffer(mode, max(FAULTS // SHARE.get(mode.name, 3), 1))


for each in soak.MODES[1:]:
    setattr(ShortSoak, f"test_nor_with_{each.name.replace(' ', '_')}", of_another(each))


if __name__ == "__main__":
    harness.main()
