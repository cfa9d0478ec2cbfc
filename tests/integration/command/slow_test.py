"""Links that become slow while a job trains: train --on-slow."""

import json
import os
import statistics

import harness
import soak
from emulation import EmulationTest, set_rate
from training import DIGITS, TrainingTest

# As fast between the racks as in them: the best plan in FP32 is a ring, and another one as soon as
# the racks' cable is slow.
EVEN_RACKS = """source,target,bandwidth,latency,kind
host0,tor0,80 Mbit/s,2 us,host-link
host1,tor0,80 Mbit/s,2 us,host-link
host2,tor1,80 Mbit/s,2 us,host-link
host3,tor1,80 Mbit/s,2 us,host-link
tor0,core,80 Mbit/s,1 us,uplink
tor1,core,80 Mbit/s,1 us,uplink
"""
CHANGE = 10  # step after which the cable is slow
BACK = 28  # and after which it is well again
STEPS = 44
SOON = 10  # steps within which a change is to be noticed
MOST_LOAD = 12  # with which a step still takes about what its network takes


class Slow(EmulationTest):
    def setUp(self):
        super().setUp()
        self.write("even.csv", EVEN_RACKS)
        self.training = self.training_with_checkpoints_every(2)
        # A schedule that is not the best one for what is to come.
        self.plan = self.make_plan("plan.json", "--codec", "none", "--schedule", "ring",
                                   cluster="even.csv")

    def start_training(self, on_slow, steps):
        return self.start("train", self.plan, "--emulate", "even.csv", "--training", self.training,
                          "--steps", steps, "--checkpoints", "saved", "--workload", "digits.yaml",
                          "--on-slow", on_slow, "--json")

    def wait_for_step(self, step):
        saved = self.folder / "saved"
        self.assertTrue(harness.wait_until(lambda: any(saved.glob(f"*{step:08}*")), 120),
                        f"no checkpoint of step {step}")

    def result_of(self, process):
        result = self.finish(process)
        self.assertIn(result.status, (0, 1), str(result))
        if not result.json["emulation"]["valid"]:
            self.skipTest("this machine is too busy to hold the rates of an emulated network")
        self.assertEqual(result.status, 0, str(result))
        self.assertTrue(result.json["parameters_agree"])
        self.assert_no_processes_left()
        self.assertEqual(self.own_names(), set())
        return result.json

    def first_step(self, times, after, condition):
        return next(step for step in sorted(times) if step > after and condition(times[step]))

    def test_a_slow_cable_is_noticed_planned_around_and_its_recovery_too(self):
        process = self.start_training("replan", STEPS)
        self.wait_for_step(CHANGE)
        set_rate(process, "tor0", "core", 16)
        self.wait_for_step(BACK)
        set_rate(process, "tor0", "core", 80)
        run = self.result_of(process)

        times = dict(run["step_times_s"])
        median = lambda begin, end: statistics.median(  # noqa: E731
            times[step] for step in times if begin < step <= end)
        quick = median(3, CHANGE)
        slow = run["slow"][0]
        began = self.first_step(times, CHANGE, lambda time: time > 1.5 * quick)
        self.assertLessEqual(slow["step"] - began + 1, SOON)
        links = {name for found in slow["links"] for name in found["one_of"]}
        self.assertIn("tor0→core", links)
        self.assertIn("core→tor0", links)
        self.assertTrue(all("host" not in name for name in links), links)
        for found in slow["links"]:
            self.assertFalse(found["is_back"])
            self.assertAlmostEqual(found["now_Bps"] / 2e6, 1, delta=0.25)
        self.assertEqual(slow["outcome"], "new plan")
        # What moved over the cable, and how quickly that was found, are said.
        changes = slow["changes"]
        self.assertTrue(changes["incremental"], changes)
        self.assertLess(changes["planning_s"], 1)
        self.assertTrue(changes["gradients"], changes)
        self.assertTrue(all(change["before"].startswith("ring") for change in changes["gradients"]))
        planned = slow["new_plan_from_step"]
        load = os.getloadavg()[0]
        if load > MOST_LOAD:
            self.skipTest(f"a load of {load:.0f}: it was noticed, but step times mean little")
        self.assertLess(slow["resumed_after_s"], 15)
        # 3.4 s with the ring, 2.3 s with what is best then.
        self.assertLess(median(planned + 1, BACK), 0.85 * median(began, slow["step"]))

        back = next(change for change in run["slow"] if change["step"] > BACK)
        well = self.first_step(times, BACK, lambda time: time < 0.7 * median(planned + 1, BACK))
        self.assertLessEqual(back["step"] - well + 1, SOON)
        self.assertTrue(all(found["is_back"] for found in back["links"]))
        for found in back["links"]:
            self.assertGreater(found["now_Bps"], 7e6)
        # A plan for the whole network again, where the one in use is not about as good.
        self.assertEqual(run["epochs_of_membership"],
                         1 + [change["outcome"] for change in run["slow"]].count("new plan"))
        self.assertLess(median((back["new_plan_from_step"] or back["step"]) + 1, STEPS),
                        1.25 * quick)

    def test_it_may_only_be_reported(self):
        process = self.start_training("report", CHANGE + 10)
        self.wait_for_step(CHANGE)
        set_rate(process, "tor0", "core", 16)
        run = self.result_of(process)
        (slow,) = run["slow"]
        self.assertEqual(slow["outcome"], "reported")
        self.assertIsNone(slow["changes"])
        self.assertEqual(run["epochs_of_membership"], 1)
        # The report is what to plan again by.
        self.write("run.json", json.dumps(run))
        found = {link["link"]: link["now_Bps"] for link in run["link_rates"]}
        self.assertIn("tor0→core", found)
        again = self.rackrail_json("replan", self.plan, "--cluster", "even.csv", "--workload",
                                   "digits.yaml", "--run", "run.json", "-o", "new.json")
        self.assertEqual({link["name"]: link["now_Bps"] for link in again["links"]}, found)
        self.assertLess(again["step_time_s"], again["kept_step_time_s"])


class Batch(EmulationTest):
    """What becomes of a job's batch."""

    def run_until(self, step, *options):
        """A training that has done so many steps."""
        process = self.start("train", "plan.json", "--emulate", "pair.csv", "--training",
                             self.training_with_checkpoints_every(1), "--checkpoints", "saved",
                             "--on-slow", "replan", "--json", *options)
        self.assertTrue(harness.wait_until(
            lambda: soak.latest_step(self.folder / "saved") >= step or process.poll() is not None,
            120), f"no step {step}")
        return process

    def result_of(self, process):
        """Skips where the machine was too busy to tell."""
        result = self.finish(process)
        self.assertIn(result.status, (0, 1), str(result))
        run = result.json
        self.assert_nothing_left()
        if not run["emulation"]["valid"]:
            self.skipTest("this machine is too busy to hold the rates of an emulated network")
        self.assertTrue(run["parameters_agree"])
        load = os.getloadavg()[0]
        if load > MOST_LOAD:
            self.skipTest(f"a load of {load:.0f}: times mean little")
        return run

    def test_a_batch_is_decided_by_what_a_cable_that_became_slow_carries(self):
        self.write("pair.csv", "source,target,bandwidth,latency,kind\n" + "".join(
            f"host{host},switch,200 Mbit/s,2 us,host-link\n" for host in range(2)))
        self.write("calm.yaml", "noise_scale: 5\n" + DIGITS)
        self.rackrail("plan", "pair.csv", "calm.yaml", "--codec", "none", "-o", "plan.json",
                      "--max-global-batch", "2048")
        # The second and third decision in a row come when the cable is known to be slow.
        process = self.run_until(9, "--workload", "calm.yaml", "--steps", 50, "--on-noise",
                                 "rebatch", "--decide-every", 8, "--max-global-batch", 2048)
        changed = soak.latest_step(self.folder / "saved")
        set_rate(process, "host1", "switch", 40)
        run = self.result_of(process)

        slow = next(found for found in run["slow"] if found["step"] > changed)
        self.assertLessEqual(slow["step"], changed + SOON)
        for link in slow["links"]:
            self.assertIn("host1", " ".join(link["one_of"]))
            # Of the few messages since it is slow, some of which left before.
            self.assertGreater(link["now_Bps"] / (40e6 / 8), 0.4)
            self.assertLess(link["now_Bps"] / (40e6 / 8), 2)
        decided = next(one for one in run["batch_decisions"] if one["outcome"] == "new plan")
        self.assertGreater(decided["step"], slow["step"])
        self.assertIn([decided["new_batch_from_step"], decided["new_batch"]], run["batches"])
        # With the rates of the cluster it would have been a smaller one at the same noise.
        self.write("noisy.yaml", f"noise_scale: {decided['noise_scale']}\n" + DIGITS)
        planned = self.rackrail_json("plan", "pair.csv", "noisy.yaml", "--codec", "none",
                                     "--max-global-batch", "2048")
        self.assertGreater(decided["new_batch"], 1.3 * planned["global_batch"])


class Refusals(TrainingTest):
    def test_what_it_needs(self):
        plan = self.two_host_plan()
        self.assert_bad_input("train", plan, "--on-slow", "replan", "--workload", "digits.yaml",
                              file=plan, where="cluster_name", expected="--on-slow")
        self.assert_bad_input("train", plan, "--on-slow", "wait")


if __name__ == "__main__":
    harness.main()
