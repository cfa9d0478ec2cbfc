"""Workers where the system shows no network devices, as in some sandboxes: UCX has shared memory alone."""

import os
import shutil
import signal
import subprocess
import time

import harness
from training import TrainingTest

# In mounts of its own: nothing in /sys/class/net, where UCX looks for devices.
WITHOUT_DEVICES = ("unshare", "--mount", "sh", "-c",
                   'mount -t tmpfs none /sys/class/net && exec "$0" "$@"')


def why_no_sandbox():
    if not shutil.which("unshare"):
        return "unshare is not installed"
    tried = subprocess.run([*WITHOUT_DEVICES, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip() or "unshare failed"


class Sandbox(TrainingTest):
    def setUp(self):
        super().setUp()
        if reason := why_no_sandbox():
            self.skipTest(reason)
        self.plan = self.two_host_plan()

    def start_inside(self, *arguments):
        return self.start(*arguments, program=(*WITHOUT_DEVICES, harness.COMMAND))

    def test_workers_sum_to_the_same_losses(self):
        steps = ("train", self.plan, "--workers", "2", "--steps", "20", "--json")
        info = self.finish(self.start_inside("info", "--json")).json
        ucx = {each["name"]: each for each in info["features"]}["transport: ucx"]
        if not ucx["available"]:
            self.skipTest(ucx["detail"])
        self.assertNotIn("tcp/", ucx["detail"])
        inside = self.finish(self.start_inside(*steps))
        self.assertEqual(inside.status, 0, str(inside))
        self.assertEqual(inside.json["transport"], "ucx")
        self.assertEqual(inside.json["losses"], self.rackrail(*steps).json["losses"])

    def test_a_killed_worker_is_named(self):
        process = self.start_inside("train", self.plan, "--workers", "2", "--steps", "100000",
                                    "--cluster", "two-hosts.csv",
                                    "--checkpoints", "saved", "--training",
                                    self.training_with_checkpoints_every(10))
        self.wait_for_checkpoint("saved")
        os.kill(self.workers()[1], signal.SIGKILL)
        killed = time.monotonic()
        result = self.finish(process)
        self.assert_time_below(time.monotonic() - killed, 5)
        self.assertEqual(result.status, 1, str(result))
        self.assertRegex(result.err, r"\Arackrail: rank 1 \(pid \d+ on [^)]+\) was lost: [^\n]*\n\Z")
        self.assert_no_processes_left()


if __name__ == "__main__":
    harness.main()
