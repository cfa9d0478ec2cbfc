"""Tuning: the best of many settings, its plan, and that it is no worse than the planner alone."""

import json

import harness


class Tune(harness.CommandTest):
    def test_the_plan_is_the_best_trials(self):
        result = self.rackrail_json("tune", "two-racks-40g", "resnet-50", "--trials", "8",
                                    "--results", "trials.jsonl", "-o", "plan.json")
        self.assertEqual((result["trials"], result["failed"], result["executions"]), (8, 0, 3))
        self.assertTrue(result["executions_equal"])
        trials = [json.loads(line) for line in
                  (self.folder / "trials.jsonl").read_text().splitlines()]
        self.assertEqual(len({json.dumps(trial["varied"]) for trial in trials}), 8)
        best = max(trial["goodput"] for trial in (*trials, result["planner_alone"]))
        self.assertEqual(result["best"]["goodput"], best)
        simulated = self.rackrail_json("simulate", "plan.json")
        self.assertAlmostEqual(simulated["step_time_s"], result["best"]["step_time_s"], places=12)
        self.rackrail("verify", "plan.json", "--cluster", "two-racks-40g", "--workload",
                      "resnet-50")
        # Once more: nothing left to run, the same result.
        again = self.rackrail_json("tune", "two-racks-40g", "resnet-50", "--trials", "8",
                                   "--results", "trials.jsonl")
        self.assertEqual((again["ran"], again["best"]["digest"]), (0, result["best"]["digest"]))

    def test_a_cluster_of_any_format(self):
        self.write("own.csv", "source,target,bandwidth,latency\nhost0,tor0,10 Gbit/s,1 us\n"
                              "host1,tor0,10 Gbit/s,1 us\n\n"
                              "vertex,role,device_class\nhost0,rank,V100\nhost1,rank,V100\n")
        self.rackrail_json("tune", "own.csv", "resnet-50", "--trials", "1", "-o", "plan.json")
        self.rackrail("verify", "plan.json", "--cluster", "own.csv", "--workload", "resnet-50")

    def test_a_scenario_says_what_is_tuned(self):
        self.write("tune.yaml", "cluster: two-racks-40g\nworkload: resnet-50\n"
                   "vary: {plan.local_batch: [8, 16], plan.codec: [none, fp16]}\n"
                   "repetitions: 2\n")
        text = self.rackrail("tune", "tune.yaml").out
        for words in ("4 trials of 2 executions, by step_time_s",
                      "best            local_batch 8, codec", "planner alone",
                      "2 executions of each trial are equal", "not written"):
            self.assertIn(words, text)
        self.assertRegex(text, r"(?m)^step_time_s +[0-9.]+ s$")
        text = self.rackrail("tune", "tune.yaml", "--objective", "goodput").out
        for name in ("goodput", "planner alone"):
            self.assertRegex(text, rf"(?m)^{name} +[0-9.]+ useful samples/s$")

    def test_the_seed_changes_the_trials(self):
        digests = []
        for seed in "1", "1", "2":
            result = self.rackrail_json("tune", "two-racks-40g", "resnet-50", "--trials", "3",
                                        "--seed", seed)
            self.assertEqual(result["seed"], int(seed))
            digests.append(result["best"]["varied"])
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_bad_input(self):
        self.assert_bad_input("tune", "two-racks-40g", expected="a workload")
        self.assert_bad_input("tune", "two-racks-40g", "resnet-50", "--objective", "fun",
                              expected="goodput")
        self.write("tune.yaml", "cluster: two-racks-40g\nworkload: resnet-50\n"
                   "vary: {workload.forward: [1 ms]}\n")
        self.assert_bad_input("tune", "tune.yaml", file="tune.yaml", where="workload.forward")


if __name__ == "__main__":
    harness.main()
