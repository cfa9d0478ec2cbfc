"""A few dozen random faults: nothing hangs, nothing is lost, nothing is left; see soak.py."""

import os
import sys

import harness
import soak
from training import TrainingTest

FAULTS = int(os.environ.get("RACKRAIL_SOAK_FAULTS", "24"))
SEED = int(os.environ.get("RACKRAIL_SOAK_SEED", "1"))
SILENCE = 5  # seconds: starved processes of a busy machine are not lost


class ShortSoak(TrainingTest):
    def test_random_faults_change_nothing(self):
        steps = soak.Soak.steps(FAULTS)
        plan = self.make_plan("four.json", "--codec", "none")
        training = self.training_with_checkpoints_every(soak.SAVED_EVERY)
        common = ("train", plan, "--training", training, "--steps", steps, "--json")
        survives = ("--workload", "digits.yaml", "--heartbeat-timeout")
        whole = self.rackrail_json(*common[:-1], "--checkpoints", "whole", *survives, "60 s",
                                   "--on-loss", "continue")
        command = (harness.COMMAND, *map(str, common), "--checkpoints", "saved", *survives,
                   f"{SILENCE} s", "--on-loss", "wait", "--state", "state")
        faults = []
        job = soak.Soak(command, self.folder, self.environment(), self.processes, SEED, FAULTS,
                        faults.append, silence=SILENCE)
        try:
            result = job.run()
        except soak.SoakFailure as failure:
            self.fail(f"seed {SEED}: {failure}\nafter {faults}")
        self.assertTrue(soak.same_parameters(self.folder / "saved", self.folder / "whole", steps))
        self.assertEqual(result["final_accuracy"], whole["final_accuracy"])
        self.assertGreater(result["epochs_of_membership"], FAULTS // 2)
        print(f"{dict(job.counts)}, {result['epochs_of_membership']} epochs", file=sys.stderr)


if __name__ == "__main__":
    harness.main()
