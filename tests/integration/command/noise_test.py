"""A batch that becomes too small, or too large, while a job trains: train --on-noise."""

import harness
from training import DIGITS, TrainingTest

# What it takes to send is as much as it takes to compute some thousand samples.
SLOW_LINK = "source,target,bandwidth,latency\nhost0,host1,200 Mbit/s,10 us\n"
STEPS = 200
MOST = 512  # samples a step
DECIDE = ("--decide-every", "10", "--max-global-batch", str(MOST))


class Noise(TrainingTest):
    def setUp(self):
        super().setUp()
        self.write("slow-link.csv", SLOW_LINK)
        # Who planned took the gradients for less noisy than they become.
        self.write("calm.yaml", "noise_scale: 5\n" + DIGITS)
        self.rackrail("plan", "slow-link.csv", "calm.yaml", "--codec", "none", "-o", "calm.json",
                      "--max-global-batch", str(MOST))

    def train(self, *options):
        return self.rackrail_json("train", "calm.json", "--workers", "2", "--cluster",
                                  "slow-link.csv", "--workload", "calm.yaml", "--steps", STEPS,
                                  *options, timeout=300)

    def test_a_batch_grows_with_the_noise_scale_and_accuracy_is_held(self):
        planned = self.rackrail_json("plan", "slow-link.csv", "calm.yaml", "--codec", "none",
                                     "--max-global-batch", str(MOST))["global_batch"]
        self.assertLess(2 * planned, MOST)
        kept = self.rackrail_json("train", "calm.json", "--workers", "2", "--steps", STEPS,
                                  "--cluster", "slow-link.csv", timeout=300)
        run = self.train("--on-noise", "rebatch", *DECIDE)

        change = next(one for one in run["batch_decisions"] if one["outcome"] == "new plan")
        self.assertEqual(change["batch"], planned)
        self.assertGreater(change["noise_scale"], 5)
        self.assertGreater(change["gain"], 0.05)
        first, second = run["batches"][:2]
        self.assertEqual(first, [1, planned])
        self.assertEqual(second, [change["new_batch_from_step"], change["new_batch"]])
        self.assertGreater(change["new_batch"], planned)
        # By the plan's rule, which is linear.
        self.assertAlmostEqual(change["new_learning_rate"], 0.2 * change["new_batch"] / 128)

        # As many samples in fewer steps, the same parameters everywhere.
        self.assertTrue(run["parameters_agree"])
        self.assertLess(run["steps"], STEPS)
        batches = run["batches"] + [[run["steps"] + 1, 0]]
        samples = sum((end - begin) * batch
                      for (begin, batch), (end, _) in zip(batches, batches[1:]))
        self.assertGreaterEqual(samples, STEPS * planned)
        self.assertLess(samples, STEPS * planned + MOST)
        self.assertEqual(len(run["losses"]), run["steps"])
        self.assertGreater(run["noise_scale"], 0)
        self.assertGreater(run["final_accuracy"], kept["final_accuracy"] - 0.03)

    def test_it_may_only_be_reported(self):
        run = self.train("--on-noise", "report", *DECIDE)
        self.assertEqual(len(run["batches"]), 1)
        self.assertEqual(run["steps"], STEPS)
        self.assertEqual(run["epochs_of_membership"], 1)
        self.assertIn("reported", [one["outcome"] for one in run["batch_decisions"]])

    def test_what_it_needs(self):
        needs = ("train", "calm.json", "--cluster", "slow-link.csv", "--workload", "calm.yaml")
        self.assert_bad_input(*needs, "--on-noise", "rebatch", "--local-steps", "2",
                              where="--on-noise rebatch", expected="synchronous")
        self.assert_bad_input(*needs, "--on-noise", "rebatch", "--device", "cuda",
                              where="--on-noise rebatch", expected="--device cpu")
        self.assert_bad_input(*needs, "--decide-every", "5")
        self.assert_bad_input(*needs, "--on-noise", "always")


if __name__ == "__main__":
    harness.main()
