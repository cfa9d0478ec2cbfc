"""Workers that somebody else started: mpirun, torchrun's variables, TF_CONFIG."""

import json
import shutil
import unittest

import harness
from training import TrainingTest

TOKEN = {"RACKRAIL_JOB_TOKEN": "a-secret-of-this-test-0123456789"}


class Launcher(TrainingTest):
    def setUp(self):
        super().setUp()
        self.plan = self.two_host_plan()

    def run_ranks(self, variables):
        """One command per rank with these variables; returns the leader's JSON."""
        processes = [self.start("train", self.plan, "--steps", "5", "--json",
                                variables={**TOKEN, **of_rank}) for of_rank in variables]
        results = [self.finish(process, timeout=60) for process in processes]
        for result in results:
            self.assertEqual(result.status, 0, str(result))
        self.assertEqual([result.out for result in results[1:]], [""] * (len(results) - 1))
        return results[0].json

    def assert_same_as_local(self, run):
        local = self.rackrail_json("train", self.plan, "--workers", "2", "--steps", "5")
        self.assertEqual(run["losses"], local["losses"])
        self.assertTrue(run["parameters_agree"])

    def test_torchrun_variables(self):
        port = harness.free_ports(2)
        self.assert_same_as_local(self.run_ranks([
            {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for rank in range(2)]))

    def test_tf_config(self):
        port = harness.free_ports(4)
        workers = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 2}"]
        self.assert_same_as_local(self.run_ranks([
            {"TF_CONFIG": json.dumps({"cluster": {"worker": workers},
                                      "task": {"type": "worker", "index": rank}})}
            for rank in range(2)]))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here (Debian: openmpi-bin)")
    def test_mpirun(self):
        program = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", harness.COMMAND)
        process = self.start("train", self.plan, "--steps", "5", "--json", program=program,
                             variables=TOKEN)
        result = self.finish(process, timeout=60)
        self.assertEqual(result.status, 0, str(result))
        self.assert_same_as_local(json.loads(result.out))

    def test_a_launcher_that_says_half(self):
        self.assert_bad_input("train", self.plan, file="<environment>", where="MASTER_ADDR",
                              variables={**TOKEN, "RANK": "0", "WORLD_SIZE": "2"})


if __name__ == "__main__":
    harness.main()
