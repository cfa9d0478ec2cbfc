"""Some dozens of random faults: nothing hangs, nothing is lost, nothing is left; see soak.py."""

import os
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
