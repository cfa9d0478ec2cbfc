"""Hosts with two network adapters, a network behind each: what a plan sends by which goes by it."""

import json
import os
import signal

import harness
from emulation import EmulationTest, set_link
from training import TrainingTest


def hosts(count, leaves, rate="100 Mbit/s"):
    return "source,target,bandwidth,latency,kind\n" + "".join(
        f"host{host},leaf{leaf},{rate},2 us,host-link\n"
        for host in range(count) for leaf in range(leaves))


class Names(TrainingTest):
    """Without any privilege: adapters of a plan are told among the devices that are here."""

    def train_by(self, adapters):
        self.write("rails.csv", hosts(2, 2))
        plan = self.make_plan("rails.json", "--schedule", "forest", cluster="rails.csv")
        names = {adapter["name"] for adapter in json.loads((self.folder / plan).read_text())["adapters"]}
        self.assertEqual(names, {"nic0", "nic1"})
        result = self.run_any("train", plan, "--steps", "5", "--json",
                              variables={"RACKRAIL_ADAPTERS": adapters})
        self.assertEqual(result.status, 0, str(result))
        return result.json

    def test_one_line_says_that_there_are_none(self):
        notes = [note for note in self.train_by("")["notes"] if "RACKRAIL_ADAPTERS" in note]
        self.assertEqual(len(notes), 1, notes)
        self.assertIn("nic0, nic1", notes[0])

    def test_the_user_may_say_which_they_are(self):
        if "/lo" not in self.rackrail("info").out:
            self.skipTest("UCX sees no loopback here")
        result = self.train_by("nic0=lo,nic1=lo")
        self.assertEqual([note for note in result["notes"] if "RACKRAIL_ADAPTERS" in note], [])
        self.assertEqual(result["steps"], 5)

    def test_a_killed_worker_is_lost_by_all_rails_and_the_others_go_on(self):
        if "/lo" not in self.rackrail("info").out:
            self.skipTest("UCX sees no loopback here")
        self.write("rails.csv", hosts(3, 2))
        plan = self.make_plan("rails.json", "--schedule", "forest", cluster="rails.csv")
        training = self.training_with_checkpoints_every(2)
        process = self.start("train", plan, "--cluster", "rails.csv", "--training", training,
                             "--steps", "30", "--checkpoints", "saved", "--json", "--workload",
                             "digits.yaml", "--on-loss", "continue", "--heartbeat-timeout", "10 s",
                             variables={"RACKRAIL_ADAPTERS": "nic0=lo,nic1=lo"})
        self.wait_for_checkpoint("saved")
        os.kill(self.workers()[1], signal.SIGKILL)
        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        loss, = result.json["losses_of_workers"]
        self.assertEqual(loss["lost"], ["host1"], str(result))
        self.assert_time_below(loss["noticed_within_s"], 2)  # at once, and not by silence
        self.assertTrue(result.json["parameters_agree"])
        self.assertEqual([note for note in result.json["notes"] if "RACKRAIL_ADAPTERS" in note], [])


class Rails(EmulationTest):
    def test_two_adapters_carry_nearly_twice_what_one_could(self):
        size, rate = 4 << 20, 100e6 / 8 * 8948 / 9014  # of one adapter's payload
        self.write("two.csv", hosts(3, 2))
        bound_of_one = 2 * 2 / 3 * size / rate
        runs = []
        for _ in range(3):  # other work on the machine can only make one slower
            result = self.run_any("validate", "two.csv", "--from", "4 MiB", "--to", "4 MiB",
                                  "--steps", "2", "--json")
            case, = result.json["collectives"]
            runs.append((case["measured_s"], case["relative_error"], result.json["load"]))
            # No run is faster than two adapters allow, or something else was measured.
            self.assertGreater(case["measured_s"], bound_of_one / 2.1, runs)
            if bound_of_one / case["measured_s"] > 1.8 and abs(case["relative_error"]) < 0.1:
                break
        self.assert_nothing_left()
        load = runs[-1][2]
        if load > 2 * os.cpu_count() and bound_of_one / min(runs)[0] < 1.8:
            self.skipTest(f"a load of {load:.1f}: too busy to carry the rates")
        self.assertGreater(bound_of_one / min(runs)[0], 1.8, runs)
        if load > 2 * os.cpu_count() and min(abs(error) for _, error, _ in runs) > 0.1:
            self.skipTest(f"a load of {load:.1f}: predictions are of a machine that is not busy")
        self.assertLess(min(abs(error) for _, error, _ in runs), 0.1, runs)

    def test_a_host_of_which_one_rail_is_cut_is_lost_though_the_other_works(self):
        silence = 6  # seconds: a starved rank shall not count as lost
        self.write("two.csv", hosts(3, 2, "200 Mbit/s"))
        plan = self.make_plan("two.json", "--schedule", "forest", "--codec", "none",
                              cluster="two.csv")
        training = self.training_with_checkpoints_every(2)
        process = self.start("train", plan, "--cluster", "two.csv", "--training", training,
                             "--steps", "40", "--checkpoints", "saved", "--json", "--emulate",
                             "two.csv", "--workload", "digits.yaml", "--on-loss", "continue",
                             "--heartbeat-timeout", f"{silence} s")
        self.wait_for_checkpoint("saved")
        set_link(process, "host2", "down", "rail1")
        result = self.finish(process)
        loss, = result.json["losses_of_workers"]
        self.assertEqual(loss["lost"], ["host2"], str(result))
        self.assertRegex(loss["reason"], r"by rail \d: its nic1 to nic1")
        self.assertEqual(result.json["workers"], 2)
        self.assertTrue(result.json["parameters_agree"])
        self.assert_nothing_left()

    def test_each_adapter_has_its_own_network(self):
        self.write("two.csv", hosts(2, 2))
        result = self.emulate("two.csv", "sh", "-c", "ip route; echo $RACKRAIL_ADAPTERS")
        for rank in result["ranks"]:
            self.assertEqual([line.split()[:3] for line in rank["output"][:-1]],
                             [["10.77.0.0/16", "dev", "rail0"], ["10.78.0.0/16", "dev", "mgmt0"],
                              ["10.79.0.0/16", "dev", "rail1"]])
            self.assertEqual(rank["output"][-1],
                             "rail0=rail0,rail1=rail1,nic0=rail0,nic1=rail1")
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
