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
        # In 0.1 s; where shared memory did not tell, closing would wait 2 s for who is not there
        # any more. One of three is enough: the machine may be busy.
        took = []
        while not took or (min(took) > 1 and len(took) < 3):
            took.append(self.kill_one(f"saved{len(took)}"))
        self.assertLess(min(took), 1, took)

    def kill_one(self, checkpoints):
        """Seconds from the death of a worker to the end of its job."""
        process = self.start_inside("train", self.plan, "--workers", "2", "--steps", "100000",
                                    "--cluster", "two-hosts.csv",
                                    "--checkpoints", checkpoints, "--training",
                                    self.training_with_checkpoints_every(10))
        self.wait_for_checkpoint(checkpoints)
        os.kill(self.workers()[1], signal.SIGKILL)
        killed = time.monotonic()
        result = self.finish(process, timeout=30)
        seconds = time.monotonic() - killed
        self.assertEqual(result.status, 1, str(result))
        self.assertRegex(result.err, r"\Arackrail: rank 1 \(pid \d+ on [^)]+\) was lost: [^\n]*\n\Z")
        self.assert_no_processes_left()
        return seconds


if __name__ == "__main__":
    harness.main()
