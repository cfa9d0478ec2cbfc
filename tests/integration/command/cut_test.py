"""Cables that are cut while a job trains in an emulated network: train --emulate --on-loss."""

import json
import shlex

import harness
from emulation import EmulationTest, set_link

SILENCE = 6  # seconds after which a rank counts as lost, or a starved one would
NOTICED = SILENCE + 1.5 * 5  # what is asked of 1.2 s of silence is 1.5 s; a busy machine takes longer
RACKS = """source,target,bandwidth,latency,kind
host0,tor0,200 Mbit/s,2 us,host-link
host1,tor0,200 Mbit/s,2 us,host-link
host2,tor1,200 Mbit/s,2 us,host-link
host3,tor1,200 Mbit/s,2 us,host-link
tor0,core,200 Mbit/s,1 us,uplink
tor1,core,200 Mbit/s,1 us,uplink
"""


class Cut(EmulationTest):
    STEPS = 40

    def setUp(self):
        super().setUp()
        self.write("cut.csv", RACKS)
        self.training = self.training_with_checkpoints_every(2)
        self.plan = self.make_plan("plan.json", "--codec", "none", cluster="cut.csv")

    def options(self, saved, plan=None):
        return ("train", plan or self.plan, "--cluster", "cut.csv", "--training", self.training,
                "--steps", self.STEPS, "--checkpoints", saved, "--json")

    def cut(self, host, saved, *options, plan=None):
        """What a job printed whose host was cut off after its first checkpoint."""
        process = self.start(*self.options(saved, plan), *options, "--emulate", "cut.csv",
                             "--workload", "digits.yaml", "--on-loss", "continue",
                             "--heartbeat-timeout", f"{SILENCE} s")
        self.wait_for_checkpoint(saved)
        set_link(process, f"host{host}", "down")
        result = self.finish(process)
        run = result.json
        if run["emulation"]["valid"]:
            self.assertEqual(result.status, 0, str(result))
        (loss,) = run["losses_of_workers"]
        self.assertEqual(loss["lost"], [f"host{host}"])
        self.assertIn("nothing came from it", loss["reason"])
        self.assert_time_below(loss["noticed_within_s"], NOTICED)
        self.assert_time_below(loss["resumed_after_s"], 15)
        self.assertEqual(run["workers"], 3)
        self.assertTrue(run["parameters_agree"])
        self.assert_no_processes_left()
        self.assertEqual(self.own_names(), set())
        return run

    def test_the_host_behind_a_cut_cable_is_lost_and_no_other(self):
        whole = self.rackrail_json(*self.options("whole")[:-1])
        for host in (2, 0):
            with self.subTest(host=host):
                run = self.cut(host, f"saved-{host}")
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.01)

    def test_nor_where_workers_are_not_in_step(self):
        servers = self.make_plan("servers.json", "--codec", "none", "--schedule",
                                 "parameter-server", cluster="cut.csv")
        for name, plan, mode, every in (
                ("averages", self.plan, ("--local-steps", "4"), 4),
                ("servers", servers, ("--mode", "async", "--staleness", "2"), 2)):
            with self.subTest(name):
                whole = self.rackrail_json(*self.options(f"whole-{name}", plan)[:-1], *mode)
                run = self.cut(2, f"saved-{name}", *mode, plan=plan)
                self.assertEqual(run["losses_of_workers"][0]["step"] % every, 0)
                self.assertAlmostEqual(run["final_accuracy"], whole["final_accuracy"], delta=0.1)

    def test_a_newcomer_that_reaches_nobody_is_lost_and_the_next_one_is_waited_for(self):
        """Others are started in its place: the first ones while the cable is still cut."""
        process = self.start(*self.options("saved"), "--emulate", "cut.csv", "--workload",
                             "digits.yaml", "--on-loss", "wait", "--heartbeat-timeout",
                             f"{SILENCE} s")
        self.wait_for_checkpoint("saved")
        seen = {self.workers()[2]}
        set_link(process, "host2", "down")

        def two_came():
            seen.update(pid for rank, pid in self.workers().items() if rank == 2)
            return len(seen) > 2
        self.assertTrue(harness.wait_until(two_came, 60), "nobody was started in its place")
        set_link(process, "host2", "up")
        run = self.finished(process)
        self.assertEqual(run["workers"], 4)
        self.assertEqual({host for loss in run["losses_of_workers"] for host in loss["lost"]},
                         {"host2"})
        self.assertEqual(run["losses_of_workers"][-1]["new_workers_for"], ["host2"])

    def test_nor_do_the_others_end_where_the_cable_stays_cut(self):
        process = self.start(*self.options("saved"), "--emulate", "cut.csv", "--workload",
                             "digits.yaml", "--on-loss", "wait", "--heartbeat-timeout",
                             f"{SILENCE} s")
        self.wait_for_checkpoint("saved")
        set_link(process, "host0", "down")  # with two ranks that miss each other, the lower one
        run = self.finished(process)
        self.assertEqual(run["workers"], 3)
        self.assertEqual({host for loss in run["losses_of_workers"] for host in loss["lost"]},
                         {"host0"})

    def test_one_that_comes_back_behind_a_cut_cable_does_not_end_those_who_went_on(self):
        """Every rank is started by somebody who starts it once more when it fails."""
        train = shlex.join(map(str, (
            harness.COMMAND, *self.options("saved")[:-1], "--workload", "digits.yaml", "--on-loss",
            "continue", "--heartbeat-timeout", f"{SILENCE} s", "--json")))
        process = self.start("emulate", "cut.csv", "--json", "--", "sh", "-c",
                             f"{train} || {train} || echo given up")
        self.wait_for_checkpoint("saved")
        set_link(process, "host2", "down")
        outputs = [rank["output"] for rank in self.finish(process).json["ranks"]]
        run = json.loads("\n".join(outputs[0]))
        self.assertEqual(run["workers"], 3)
        self.assertEqual(run["steps"], self.STEPS)
        self.assertTrue(run["parameters_agree"])
        self.assertEqual({host for loss in run["losses_of_workers"] for host in loss["lost"]},
                         {"host2"})
        self.assertEqual(run["losses_of_workers"][-1]["new_workers_for"], [])
        self.assertEqual(outputs[2][-1], "given up")

    def finished(self, process):
        """What a job printed that ended well."""
        result = self.finish(process)
        if result.out and result.json["emulation"]["valid"]:
            self.assertEqual(result.status, 0, str(result))
        run = result.json
        self.assertEqual(run["steps"], self.STEPS)
        self.assertTrue(run["parameters_agree"])
        self.assert_no_processes_left()
        return run


if __name__ == "__main__":
    harness.main()
