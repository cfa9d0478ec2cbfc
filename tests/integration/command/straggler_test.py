"""A worker that becomes slow while a job trains: train --on-slow."""

import os
import signal
import statistics
import threading

import harness
from emulation import TWO_RACKS, EmulationTest
from training import TrainingTest

WORKERS = 3
SLOW = 2  # rank
CHANGE = 20  # step after which it is slow
STEPS = 60
SOON = 10  # steps within which that is to be noticed
# Of each fiftieth of a second the slow worker's process may run so long: short pauses, because its
# messages stand still in them too, whatever the plan.
RUNS = 0.001
STOPS = 0.019
LOCAL_BATCH = "128"  # with which computing is most of a slow worker's step
MOST_LOAD = 10  # with which times still tell one worker from the others
QUIET = 4  # with which they also tell how good a plan is


class Throttle:
    """Lets a process run for a part of the time only, until it is left."""

    def __init__(self, pid):
        self.pid = pid
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def run(self):
        try:
            while not self.is_over.is_set():
                os.kill(self.pid, signal.SIGSTOP)
                self.is_over.wait(STOPS)
                os.kill(self.pid, signal.SIGCONT)
                self.is_over.wait(RUNS)
        except ProcessLookupError:
            pass  # the job is over


class StragglerCase:
    """A job of which one worker becomes slow; beside a TrainingTest."""

    def train_with_a_straggler(self, cluster, *place):
        """Returns what it says, once it has ended, and the load before its end."""
        plan = "plan.json"
        self.rackrail("plan", cluster, "digits.yaml", "--local-batch", LOCAL_BATCH, "--codec",
                      "none", "-o", plan)
        training = self.training_with_checkpoints_every(2)
        process = self.start("train", plan, *place, "--training", training, "--steps", STEPS,
                             "--checkpoints", "saved", "--workload", "digits.yaml", "--on-slow",
                             "replan", "--json")
        saved = self.folder / "saved"
        self.assertTrue(harness.wait_until(lambda: any(saved.glob(f"*{CHANGE:08}*")), 120),
                        f"no checkpoint of step {CHANGE}")
        with Throttle(self.workers()[SLOW]):
            return self.finish(process), os.getloadavg()[0]

    def assert_noticed_and_replanned(self, run, load):
        self.assertTrue(run["parameters_agree"])
        self.assertEqual(run["steps"], STEPS)
        times = dict(run["step_times_s"])
        quick = statistics.median(times[step] for step in times if 3 < step <= CHANGE)
        found = [slow for slow in run["slow"] if slow["step"] > CHANGE
                 and any(rank["rank"] == f"host{SLOW}" and rank["time_factor"] > 1.4
                         for rank in slow["ranks"])]
        if load > MOST_LOAD and not found:
            self.skipTest(f"a load of {load:.0f}: step times mean little")
        self.assertTrue(found, run["slow"])
        slow = found[0]
        began = next(step for step in sorted(times) if step > CHANGE and times[step] > 1.5 * quick)
        self.assertLessEqual(slow["step"] - began + 1, SOON)
        self.assertEqual([rank["rank"] for rank in slow["ranks"]], [f"host{SLOW}"])
        self.assertEqual(slow["outcome"], "new plan")
        self.assertGreaterEqual(slow["new_plan_from_step"], slow["step"] - 1)
        self.assertGreaterEqual(run["epochs_of_membership"], 2)
        after = [times[step] for step in times if step > slow["new_plan_from_step"] + 2]
        before = [times[step] for step in times if began <= step <= slow["step"]]
        if load > QUIET:
            self.skipTest(f"a load of {load:.0f}: it was noticed, but step times mean little")
        self.assertLess(statistics.median(after), 0.8 * statistics.median(before))


class Straggler(StragglerCase, TrainingTest):
    def test_a_worker_that_becomes_slow_is_noticed_and_gets_fewer_samples(self):
        self.write("three.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,10 Gbit/s,10 us\n" for host in range(WORKERS)))
        result, load = self.train_with_a_straggler("three.csv", "--cluster", "three.csv")
        self.assertEqual(result.status, 0, str(result))
        self.assert_noticed_and_replanned(result.json, load)


class EmulatedStraggler(StragglerCase, EmulationTest):
    def test_so_is_one_whose_messages_cross_a_network(self):
        self.write("fast.csv", TWO_RACKS.replace("80 Mbit/s", "1000 Mbit/s")
                   .replace("40 Mbit/s", "500 Mbit/s"))
        result, load = self.train_with_a_straggler("fast.csv", "--emulate", "fast.csv")
        if result.status == 1 and not result.json["emulation"]["valid"]:
            self.skipTest("this machine is too busy to hold the rates of an emulated network")
        self.assertEqual(result.status, 0, str(result))
        self.assert_noticed_and_replanned(result.json, load)
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
