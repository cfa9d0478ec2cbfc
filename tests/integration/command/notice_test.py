"""How soon a lost worker is noticed, and the others train again, with the settings that every job
has: train --emulate --on-loss continue, in the middle of sending."""

import json
import os
import signal
import subprocess
import time

import harness
import soak
from emulation import EmulationTest, set_link
from survival import ABORT_OF_UCX

HOSTS = 5
RATE = 20  # Mbit/s: a step's largest bucket takes two seconds
STEPS = 9
QUIET = 4  # load with which times are those of the job
RESUMED = 3
# By the host it happens to: seconds within which it is asked to be noticed.
NOTICED = {"host4": 0.2, "host3": 1.5, "host2": 1.5}


class Notice(EmulationTest):
    def setUp(self):
        super().setUp()
        self.write("star.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,{RATE} Mbit/s,2 us\n" for host in range(HOSTS)))
        self.training = self.training_with_checkpoints_every(1)
        self.plan = self.make_plan("plan.json", "--codec", "none", cluster="star.csv")

    def skip_if_busy(self, why=""):
        load = os.getloadavg()[0]
        if load > QUIET:
            self.skipTest(f"a load of {load:.0f}: times mean little {why}")

    def sent(self, host):
        shown = subprocess.run(["ip", "-n", f"rackrail-{self.process.pid}-{host}", "-s", "-j", "link",
                                "show", "rail0"], check=True, capture_output=True, text=True)
        return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]

    def wait_until_in_the_middle_of_sending(self, host):
        """Until it has sent for half a second, in each part of it at half the rate at least."""
        part = 0.1
        least = RATE * 1e6 / 8 * part / 2
        end = time.monotonic() + 60
        parts = 0
        before = self.sent(host)
        while parts < 5:
            self.assertLess(time.monotonic(), end, f"{host} does not send")
            time.sleep(part)
            now = self.sent(host)
            parts = parts + 1 if now - before > least else 0
            before = now

    def strike(self, host):
        """Kills a worker, stops one, or cuts a cable; returns when."""
        pid = self.workers()[int(host[-1])]
        at = time.time()
        if host == "host2":
            set_link(self.process, host, "down")
        else:
            os.kill(pid, signal.SIGKILL if host == "host4" else signal.SIGSTOP)
        return at

    def wait_for_step(self, step):
        self.assertTrue(harness.wait_until(
            lambda: soak.latest_step(self.folder / "saved") >= step or
            self.process.poll() is not None, 60), f"no checkpoint of step {step}")

    def test_a_kill_a_freeze_and_a_cut_while_a_bucket_takes_seconds(self):
        self.skip_if_busy()
        self.process = self.start("train", self.plan, "--emulate", "star.csv", "--training",
                                  self.training, "--steps", STEPS, "--checkpoints", "saved",
                                  "--workload", "digits.yaml", "--on-loss", "continue", "--json")
        at = {}
        for host in NOTICED:
            self.wait_for_step(soak.latest_step(self.folder / "saved") + 2)
            self.wait_until_in_the_middle_of_sending(host)
            at[host] = self.strike(host)
        result = self.finish(self.process)
        if ABORT_OF_UCX in result.err + result.out:
            self.skipTest(f"UCX aborted a worker, as runtime/README.md says it may: {result}")
        run = result.json
        self.assert_nothing_left()
        self.assertTrue(run["parameters_agree"])
        self.assertEqual(len(run["losses"]), STEPS)
        if [loss["lost"] for loss in run["losses_of_workers"]] != [[host] for host in NOTICED]:
            self.skip_if_busy("and other workers seemed to be lost, too")
        self.assertEqual([loss["lost"] for loss in run["losses_of_workers"]],
                         [[host] for host in NOTICED])
        self.assertEqual(run["workers"], HOSTS - len(NOTICED))
        took = {host: (loss["noticed_at_unix_s"] - at[host], loss["resumed_after_s"])
                for host, loss in zip(NOTICED, run["losses_of_workers"])}
        if any(noticed > NOTICED[host] or resumed > RESUMED
               for host, (noticed, resumed) in took.items()):
            self.skip_if_busy(f"(noticed and resumed: {took})")
        for host, (noticed, resumed) in took.items():
            self.assertLessEqual(noticed, NOTICED[host], took)
            self.assertLessEqual(resumed, RESUMED, took)


if __name__ == "__main__":
    harness.main()
