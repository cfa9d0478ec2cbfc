"""What the tests of jobs that outlive their workers share."""

import array
import json
import math
import os
import struct
import time

from training import TrainingTest

# What is asked of it is 0.2 s for a killed worker, 1.5 s for a frozen one, 3 s to go on. The tests
# allow for a machine on which each process gets a fraction of a core.
PATIENCE = 5
KILL_NOTICED = 0.2 * PATIENCE
SILENCE = 10  # seconds after which a worker counts as lost, or a starved one would
FREEZE_NOTICED = SILENCE * 1.25
RESUMED = 3 * PATIENCE
# UCX 1.13 does not survive that a peer dies between the connection to it and the first message.
ABORT_OF_UCX = "wireup_ep->pending_count == 0"


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


class SurvivalTest(TrainingTest):
    STEPS = 30

    def setUp(self):
        super().setUp()
        self.training = self.training_with_checkpoints_every(10)

    def train(self, plan, folder, *options, losses=(), on_loss="continue", steps=None):
        """The result of a run whose workers get signals: (rank, number, seconds to wait first)."""
        steps = steps or self.STEPS
        process = self.start("train", plan, "--training", self.training, "--steps", steps,
                             "--checkpoints", folder, "--workload", "digits.yaml", "--on-loss",
                             on_loss, "--heartbeat-timeout", f"{SILENCE} s", "--json",
                             *options)
        if losses:
            self.wait_for_checkpoint(folder)
        for rank, number, after in losses:
            time.sleep(after)
            os.kill(self.workers()[rank], number)
        result = self.finish(process)
        if ABORT_OF_UCX in result.err + result.out:
            self.skipTest(f"UCX aborted a worker, as runtime/README.md says it may: {result}")
        self.assertEqual(result.status, 0, str(result))
        self.assert_no_processes_left()
        self.assertTrue(result.json["parameters_agree"])
        self.assertEqual(len(result.json["losses"]), steps)
        return result.json

    def assert_same_model(self, folder, other):
        """That the sums were only added in another order: what that does grows with the steps."""
        name = f"step-{self.STEPS:08}/model.safetensors"
        one = parameters(self.folder / folder / name)
        two = parameters(self.folder / other / name)
        self.assertEqual(len(one), len(two))
        distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(one, two)))
        norm = math.sqrt(sum(a * a for a in one))
        self.assertLess(distance / norm, 1e-3)

    def assert_same_bits(self, folder, other):
        name = f"step-{self.STEPS:08}/model.safetensors"
        one, two = (parameters(self.folder / run / name) for run in (folder, other))
        self.assertTrue(one == two, "other parameters than without a loss")
