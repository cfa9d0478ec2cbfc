"""A job that trains, asked from outside: rackrail job status, rackrail job replan."""

import harness
from training import TOKEN, SmallTrainingTest, TrainingTest

# So slow that the network is most of what a step is predicted to take.
SLOW_STAR = """source,target,bandwidth,latency
host0,switch,1 Gbit/s,10 us
host1,switch,1 Gbit/s,10 us
host2,switch,1 Gbit/s,10 us
host3,switch,1 Gbit/s,10 us
"""
STEPS = 500


class Asking:
    """What the tests below ask a job; they start it and know its address."""

    def ask(self, what, **options):
        return self.rackrail_json("job", what, self.address, variables=TOKEN, **options)

    def wait_for(self, condition):
        """The first status with which it is true."""
        latest = []

        def is_there():
            result = self.run_any("job", "status", self.address, "--json", variables=TOKEN)
            if result.status == 0:
                latest[:] = [result.json]
            return bool(latest) and condition(latest[0])
        self.assertTrue(harness.wait_until(is_there, 100), f"latest: {latest}")
        return latest[0]


class Running(Asking, TrainingTest):
    def setUp(self):
        super().setUp()
        self.write("star.csv", SLOW_STAR)
        # Whose steps are twice as long as with a ring.
        self.plan = self.make_plan("plan.json", "--codec", "none", "--schedule",
                                   "double-binary-tree", cluster="star.csv")
        self.address = f"127.0.0.1:{harness.free_ports(1)}"

    def test_steps_are_seen_to_go_up_and_another_plan_is_taken_up_on_request(self):
        process = self.start("train", self.plan, "--cluster", "star.csv", "--workload",
                             "digits.yaml", "--workers", 4, "--steps", STEPS, "--on-slow",
                             "report", "--listen", self.address, "--json", variables=TOKEN)
        first = self.wait_for(lambda status: status["step"] > 0 and status["rates"])
        self.assertEqual(first["command"], "job status")
        self.assertEqual((first["state"], first["epoch"], first["workers"]), ("running", 1, 4))
        self.assertGreater(first["step_time_s"], 0)
        self.assertEqual([member["rank"] for member in first["members"]], [0, 1, 2, 3])
        workers = self.workers()
        for member in first["members"]:
            self.assertEqual(member["pid"], workers[member["rank"]])
            self.assertTrue(member["present"])
            self.assertLess(member["last_heard_s"], 3)
        for rate in first["rates"]:
            self.assertIn(rate["source"], range(4))
            self.assertGreater(rate["rate_Bps"], 0)
        self.wait_for(lambda status: status["step"] > first["step"])
        text = self.rackrail("job", "status", self.address, variables=TOKEN).out
        for part in ("running, 4 of 4 workers", "step time", str(workers[2]), "from rank"):
            self.assertIn(part, text)
        answer = self.ask("replan")
        self.assertTrue(answer["new_plan"], answer)
        self.assertEqual(answer["epoch"], 2)
        self.assertLess(answer["new_step_time_s"], 0.97 * answer["kept_step_time_s"])
        second = self.wait_for(lambda status: status["epoch"] == 2 and
                               min(member["step"] for member in status["members"]) > 0)
        self.assertEqual(second["state"], "running")
        self.assertGreater(second["step"], first["step"])
        self.assertEqual(second["plan_digest"], answer["plan_digest"])
        self.assertNotEqual(second["plan_digest"], first["plan_digest"])
        self.assertEqual([member["pid"] for member in second["members"]],
                         [member["pid"] for member in first["members"]])
        # What is in use is as good as another now.
        again = self.ask("replan")
        self.assertFalse(again["new_plan"], again)
        self.assertIn("plan kept", again["reason"])
        self.assertEqual(again["plan_digest"], answer["plan_digest"])

        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        run = result.json
        self.assertTrue(run["parameters_agree"])
        self.assertEqual(run["steps"], STEPS)
        self.assertEqual(len(run["losses"]), STEPS)
        self.assertEqual(run["epochs_of_membership"], 2)
        self.assertGreater(run["final_accuracy"], 0.95)
        self.assertEqual([one["outcome"] == "new plan" for one in run["replans_on_request"]],
                         [True, False])
        self.assert_no_processes_left()


class NothingToPlanWith(Asking, SmallTrainingTest):
    def test_strangers_are_refused_and_a_job_that_plans_nothing_says_so_and_goes_on(self):
        self.make_plan()
        self.address = f"127.0.0.1:{harness.free_ports(1)}"
        process = self.start("train", "plan.json", "--cluster", "two-hosts.csv", "--training",
                             "small.yaml", "--workers", 2, "--steps", 20000, "--listen",
                             self.address, variables=TOKEN)
        status = self.wait_for(lambda status: status["step"] > 0)
        self.assertEqual(status["rates"], [])
        for what in ("status", "replan"):
            for token in ({"RACKRAIL_JOB_TOKEN": "another-secret-of-a-test"}, {}):
                self.assert_bad_input("job", what, self.address, variables=token,
                                      where="RACKRAIL_JOB_TOKEN", expected=self.address)
        result = self.rackrail("job", "replan", self.address, variables=TOKEN, status=1)
        self.assertIn("not started so that it could be planned again", result.out)
        self.assertEqual(self.ask("status")["epoch"], 1)
        process.terminate()
        result = self.finish(process)
        self.assertIn(f"rackrail job status {self.address}", result.err)
        self.assert_no_processes_left()


class Refusals(TrainingTest):
    def test_where_nobody_answers(self):
        address = f"127.0.0.1:{harness.free_ports(1)}"
        for what in ("status", "replan"):
            result = self.rackrail("job", what, address, status=1, variables=TOKEN)
            self.assertEqual(result.out, "")
            self.assertEqual(result.err,
                             f"rackrail: no coordinator of a job answers at {address}\n")

    def test_what_it_needs(self):
        self.assert_bad_input("job", "status", "nowhere", where="coordinator", found="nowhere")
        self.assert_bad_input("job", "status", "127.0.0.1:1", "--token-file", "absent",
                              file="absent")
        plan = self.two_host_plan()
        self.assert_bad_input("train", plan, "--listen", "127.0.0.1:0", where="--listen",
                              expected="RACKRAIL_JOB_TOKEN")
        self.assert_bad_input("train", plan, "--listen", "127.0.0.1", where="--listen",
                              variables=TOKEN)
        self.assert_bad_input("train", plan, "--listen", "127.0.0.1:0", "--emulate",
                              "two-hosts.csv", where="--listen", variables=TOKEN)


if __name__ == "__main__":
    harness.main()
