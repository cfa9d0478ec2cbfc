"""Cables that are cut while a job trains in an emulated network: train --emulate --on-loss."""

import harness
from emulation import EmulationTest, names, set_link

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
        self.assertLess(loss["noticed_within_s"], NOTICED)
        self.assertLess(loss["resumed_after_s"], 15)
        self.assertEqual(run["workers"], 3)
        self.assertTrue(run["parameters_agree"])
        self.assert_no_processes_left()
        self.assertEqual([name for name in names() if f"-{process.pid}-" in name], [])
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


if __name__ == "__main__":
    harness.main()
