"""Explanations: what the bottleneck is, and what more of it would buy."""

import json

import harness

# One gradient of 400 MB after 100 ms of compute, or after 10 s.
MODEL = """\
name: one-gradient
profiled_batch: 1
forward: {forward}
tensors: [[w, 100000000, {backward}]]
"""


class Explain(harness.CommandTest):
    def plan(self, forward, backward):
        self.write("model.yaml", MODEL.format(forward=forward, backward=backward))
        self.rackrail("plan", "two-racks-40g", "model.yaml", "--error-budget", "0", "--schedule",
                      "ring", "-o", "plan.json")

    def explain(self, *more):
        return self.rackrail_json("explain", "plan.json", "model.yaml", *more)

    def gain(self, result, what, change):
        found = [g for g in result["gains"] if (g["what"], g["change"]) == (what, change)]
        self.assertEqual(len(found), 1, f"{what} {change}")
        return found[0]

    def test_slow_uplinks_are_the_bottleneck(self):
        self.plan("50 ms", "50 ms")
        result = self.explain()
        self.assertEqual(result["bottleneck"], "rack-uplink bandwidth")
        self.assertEqual(result["parts"][0]["what"], "wire: rack-uplink")
        # A ring over four ranks moves 2·3/4 of the gradient over each uplink: 600 MB at 5 GB/s.
        step = result["step_time_s"]
        half = self.gain(result, "rack-uplink bandwidth", "x2")
        self.assertAlmostEqual(half["gain"], 0.06 / step, delta=0.02)
        self.assertAlmostEqual(half["step_time_s"], step * (1 - half["gain"]), places=9)
        tenth = self.gain(result, "rack-uplink bandwidth", "+10 %")
        self.assertAlmostEqual(tenth["gain"], 0.12 * (1 - 1 / 1.1) / step, delta=0.005)

    def test_the_link_of_one_slow_host_is_the_bottleneck(self):
        rates = (10, 10, 2, 10)
        self.write("one-slow.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{i},switch,{rate} Gbit/s,2 us\n" for i, rate in enumerate(rates)))
        self.write("model.yaml", MODEL.format(forward="1 ms", backward="1 ms"))
        self.rackrail("plan", "one-slow.csv", "model.yaml", "--error-budget", "0", "--schedule",
                      "ring", "-o", "plan.json")
        result = self.explain("--cluster", "one-slow.csv")
        self.assertRegex(result["bottleneck"], "host2→switch|switch→host2")
        gained = [gain for gain in result["gains"] if "host2" in gain["what"]
                  and gain["change"] == "x2"]
        self.assertTrue(gained)
        self.assertGreater(max(gain["gain"] for gain in gained), 0.45)  # both ways: half the time

    def test_slow_devices_are_the_bottleneck(self):
        self.plan("3 s", "6 s")
        result = self.explain()
        self.assertEqual(result["bottleneck"], "device speed")
        self.assertEqual([part["what"] for part in result["parts"][:2]], ["backward", "forward"])
        self.assertAlmostEqual(self.gain(result, "device speed", "+10 %")["gain"],
                               9 * (1 - 1 / 1.1) / result["step_time_s"], places=4)

    def test_gains_are_sorted_and_parts_are_the_step(self):
        self.plan("50 ms", "50 ms")
        result = self.explain("--replan")
        gains = [gain["gain"] for gain in result["gains"]]
        self.assertEqual(gains, sorted(gains, reverse=True))
        self.assertAlmostEqual(sum(part["share"] for part in result["parts"]), 1, places=9)
        for gain in result["gains"]:
            self.assertLessEqual(gain["step_time_s"], gain["kept_plan_step_time_s"])
        planned = self.rackrail_json("simulate", "plan.json", "--workload", "model.yaml")
        self.assertEqual(result["step_time_s"], planned["step_time_s"])

    def test_a_cluster_is_planned_for_first(self):
        text = self.rackrail("explain", "two-racks-40g", "resnet-50").out
        self.assertIn("bottleneck      device speed", text)
        for word in ("critical path", "what if", "rack-uplink bandwidth", "nic latency", "uplinks"):
            self.assertIn(word, text)
        self.assertIn("no gain         by ", text)
        self.assertNotIn(" 0.00 %", text)

    def test_gains_under_a_scenario(self):
        self.plan("50 ms", "50 ms")
        slow = "steps: 4\nslow_devices: [{{ ranks: [1], factor: {} }}]\n"
        more = ("background: [{ from: 0, to: 2, message: 16 MB, rate: 10 Gbit/s }]\n"
                "links: [{ link: tor0→core0, from: 100 ms, until: 500 ms, bandwidth: 10 Gbit/s }]\n")
        self.write("faults.yaml", slow.format(4) + more)
        result = self.explain("--scenario", "faults.yaml", "--step", "slowest")
        self.assertEqual(result["steps"], 4)
        simulate = ["simulate", "plan.json", "--workload", "model.yaml", "--scenario"]
        as_is = self.rackrail_json(*simulate, "faults.yaml", "--step", "slowest")
        self.assertEqual(result["step_time_s"], as_is["mean_step_time_s"])
        self.assertEqual(result["reported_step_time_s"], as_is["step_time_s"])
        self.assertAlmostEqual(sum(part["share"] for part in result["parts"]), 1, places=9)
        # Without the straggler, the slow link, the others' traffic: what other files say.
        for name, text in (("slowness of rank 1", slow.format(1) + more),
                           ("trouble of tor0→core0", slow.format(4) + more.partition("links")[0]),
                           ("background from rank 0 to rank 2",
                            slow.format(4) + "links" + more.partition("links")[2])):
            with self.subTest(name):
                self.write("less.yaml", text)
                without = self.rackrail_json(*simulate, "less.yaml")["mean_step_time_s"]
                gain = self.gain(result, name, "gone")
                self.assertTrue(gain["disturbance"])
                self.assertEqual(gain["step_time_s"], without)
        text = self.rackrail("explain", "plan.json", "model.yaml", "--scenario", "faults.yaml").out
        self.assertIn("under faults.yaml: a step takes", text)
        self.assertIn("critical path of step 3", text)
        self.assertIn("what costs most", text)

    def test_gains_of_a_link_are_those_of_a_cluster_that_has_it(self):
        """Of a cluster in a file, changed there by hand."""
        rows = "source,target,bandwidth,latency\n{}{}{}{}"
        cable = "{},{},{} Gbit/s,2 us\n"
        def cluster(name, uplink):
            self.write(name, rows.format(cable.format("host0", "s0", 100),
                                         cable.format("host1", "s1", 100),
                                         cable.format("s0", "core", uplink),
                                         cable.format("s1", "core", 40)))
        cluster("cluster.csv", 10)
        self.write("model.yaml", MODEL.format(forward="50 ms", backward="50 ms"))
        self.rackrail("plan", "cluster.csv", "model.yaml", "--error-budget", "0", "--schedule",
                      "ring", "-o", "plan.json")
        result = self.explain("--cluster", "cluster.csv", "--link", "s0->core",
                              "--link", "core->s0")
        self.assertIn(result["bottleneck"],
                      ("s0→core and back bandwidth", "core→s0 and back bandwidth"))
        one_more = self.gain(result, "cables s0↔core", "2 instead of 1")
        self.assertEqual(one_more["step_time_s"],
                         self.gain(result, "s0→core and back bandwidth", "x2")["step_time_s"])
        # The same plan on a cluster whose cable is twice as wide.
        cluster("wider.csv", 20)
        plan = (self.folder / "plan.json").read_text()
        def digest(name):
            self.rackrail("plan", name, "model.yaml", "--error-budget", "0", "-o", "digest.json")
            return json.loads((self.folder / "digest.json").read_text())["cluster_digest"]
        plan = plan.replace(digest("cluster.csv"), digest("wider.csv"))
        self.write("wider.json", plan)
        wider = self.rackrail_json("simulate", "wider.json", "--cluster", "wider.csv",
                                   "--workload", "model.yaml")
        self.assertEqual(one_more["step_time_s"], wider["step_time_s"])
        self.assertGreater(one_more["gain"], 0.2)

    def test_drains_and_failures(self):
        self.plan("3 s", "6 s")
        self.write("failures.yaml", "duration: 1000 s\noutages:\n"
                   "  - { host: host1, at: 100 s, drain: true, recovery: 10 s, back: 600 s }\n")
        result = self.explain("--scenario", "failures.yaml")
        run = self.rackrail_json("simulate", "plan.json", "--workload", "model.yaml",
                                 "--scenario", "failures.yaml")
        batch = json.loads((self.folder / "plan.json").read_text())["batch"]["local_batch"]
        samples = sum(int(n) for n in batch)
        self.assertAlmostEqual(result["step_time_s"], samples / run["outages"]["samples_per_s"],
                               places=6)
        gone = self.gain(result, "drain of host1", "gone")
        self.assertAlmostEqual(
            gone["step_time_s"], samples / run["outages"]["undisturbed_samples_per_s"], places=6)
        self.assertEqual(result["worst_disturbance"], "drain of host1")
        self.assertEqual(result["bottleneck"], "device speed")

    def test_scenarios_that_cannot_be_explained(self):
        self.plan("50 ms", "50 ms")
        explain = ("explain", "plan.json", "model.yaml", "--scenario", "faults.yaml")
        for text, where in (("asynchronous: true\n", "asynchronous"),
                            ("jobs: [{ plan: plan.json, ranks: [0, 1] }]\n", "jobs"),
                            ("placement: { ranks: [3, 2, 1, 0] }\n", "placement"),
                            ("packets: { queue_capacity: 1 MiB }\n", "packets")):
            with self.subTest(text):
                self.write("faults.yaml", text)
                self.assert_bad_input(*explain, file="faults.yaml", where=where)
        self.write("faults.yaml", "steps: 2\n")
        self.assert_bad_input(*explain, "--step", "2", file="<command line>", where="--step")
        self.assert_bad_input(*explain, "--link", "tor0→nowhere", file="<command line>",
                              where="--link", expected="a link of the cluster")
        self.assert_bad_input("explain", "plan.json", "model.yaml", "--scenario", "none.yaml",
                              file="none.yaml")

    def test_bad_input(self):
        self.assert_bad_input("explain", "two-racks-40g", file="<command line>",
                              expected="a workload")
        self.assert_bad_input("explain", "none.json", file="none.json")
        self.plan("50 ms", "50 ms")
        self.assert_bad_input("explain", "plan.json", "resnet-50", file="plan.json",
                              where="workload_digest")


if __name__ == "__main__":
    harness.main()
