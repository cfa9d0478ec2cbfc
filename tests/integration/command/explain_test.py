"""Explanations: what the bottleneck is, and what more of it would buy."""

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

    def test_bad_input(self):
        self.assert_bad_input("explain", "two-racks-40g", file="<command line>",
                              expected="a workload")
        self.assert_bad_input("explain", "none.json", file="none.json")
        self.plan("50 ms", "50 ms")
        self.assert_bad_input("explain", "plan.json", "resnet-50", file="plan.json",
                              where="workload_digest")


if __name__ == "__main__":
    harness.main()
