"""Workers that Slurm's `srun` started, on a Slurm of one node that runs for these tests."""

import json
import os
import re
import signal
import unittest

import harness
import slurm
from sweep_test import SCENARIO
from training import TOKEN, TrainingTest


@unittest.skipIf(slurm.missing(), slurm.missing())
class Srun(TrainingTest):
    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm.Slurm()
        cls.addClassCleanup(cls.slurm.stop)
        try:
            cls.slurm.start()
        except slurm.DidNotStart as error:
            raise unittest.SkipTest(f"Slurm does not start here: {error}") from None

    def setUp(self):
        super().setUp()
        self.plan = self.two_host_plan()

    def srun(self, *arguments, options=()):
        """Two ranks of one command, started as the README says."""
        # With --overcommit, so that one core is enough.
        return self.start_by_srun(2, "train", self.plan, *arguments, options=options)

    def start_by_srun(self, ranks, *arguments, options=()):
        return self.start(*arguments,
                          program=(slurm.program("srun"), "-n", str(ranks), "--overcommit",
                                   *options, harness.COMMAND),
                          variables={**TOKEN, **self.slurm.variables})

    def assert_trains_with(self, plugin):
        process = self.srun("--steps", "5", "--json", options=(f"--mpi={plugin}",))
        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        run = json.loads(result.out)
        self.assertEqual(run["workers"], 2)
        self.assert_same_as_local(run, self.plan, steps=5)

    def test_training_is_the_same_as_with_local_workers(self):
        for plugin in ("none", "pmi2"):  # with the second, ranks have variables of both
            with self.subTest(mpi=plugin):
                self.assert_trains_with(plugin)

    def test_with_the_variables_of_pmix_too(self):
        reason = self.slurm.why_not("pmix")
        if reason:
            self.skipTest(f"{reason} (Debian: libpmix-dev)")
        self.assert_trains_with("pmix")

    def test_a_plan_for_another_number_of_ranks_is_bad_input(self):
        self.plan = self.make_plan("four.json", "--naive")
        result = self.finish(self.srun())
        self.assertEqual(result.status, 2, str(result))
        self.assertIn("found 4", result.err)
        self.assertIn("the number of workers that Slurm started", result.err)

    def test_a_sweep_is_shared_and_its_table_that_of_one_process(self):
        self.write("study.yaml", SCENARIO)
        shared = self.finish(self.start_by_srun(3, "sweep", "study.yaml", "--out", "shared.jsonl"))
        self.assertEqual(shared.status, 0, str(shared))
        parts = [path.read_text().count("\n") for path in self.folder.glob("shared*.jsonl*")]
        self.assertGreater(len([part for part in parts if part > 0]), 1, parts)
        joined = self.rackrail_json("sweep", "study.yaml", "--out", "shared.jsonl", "--csv",
                                    "shared.csv")
        self.assertEqual(joined["ran"], 0)
        self.rackrail("sweep", "study.yaml", "--out", "alone.jsonl", "--csv", "alone.csv")
        self.assertEqual((self.folder / "shared.csv").read_bytes(),
                         (self.folder / "alone.csv").read_bytes())

    def test_a_killed_rank_is_named_once(self):
        process = self.srun("--cluster", "two-hosts.csv", "--checkpoints", "saved", "--steps",
                            "1000", "--training", self.training_with_checkpoints_every(5))
        self.wait_for_checkpoint("saved")
        ranks = [pid for pid in self.processes()
                 if harness.command_line(pid).startswith(harness.COMMAND + " train")]
        self.assertEqual(len(ranks), 2)
        by_rank = {harness.variable_of(pid, "SLURM_PROCID"): pid for pid in ranks}
        os.kill(by_rank["1"], signal.SIGKILL)
        result = self.finish(process)
        self.assertNotEqual(result.status, 0)
        own = [line for line in result.err.splitlines()
               if not re.match(r"(srun|slurmstepd[^:]*): ", line)]
        self.assertEqual(len(own), 1, result.err)
        self.assertRegex(own[0], rf"^rackrail: rank 1 \(pid {by_rank['1']} on [^)]+\) was lost: ")
        self.assert_no_processes_left()


if __name__ == "__main__":
    harness.main()
