"""Workers that somebody else started: mpirun, torchrun and its variables, TF_CONFIG."""

import json
import re
import shutil
import unittest

import harness
from training import TOKEN, TrainingTest


class Launcher(TrainingTest):
    def setUp(self):
        super().setUp()
        self.plan = self.two_host_plan()

    def run_ranks(self, variables):
        """One command per rank with these variables; returns the leader's JSON."""
        processes = [self.start("train", self.plan, "--steps", "5", "--json",
                                variables={**TOKEN, **of_rank}) for of_rank in variables]
        results = [self.finish(process) for process in processes]
        for result in results:
            self.assertEqual(result.status, 0, str(result))
        self.assertEqual([result.out for result in results[1:]], [""] * (len(results) - 1))
        return results[0].json

    def test_torchrun_variables(self):
        port = harness.free_ports(2)
        self.assert_same_as_local(self.run_ranks([
            {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for rank in range(2)]),
            self.plan, steps=5)

    def test_tf_config(self):
        port = harness.free_ports(4)
        workers = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 2}"]
        self.assert_same_as_local(self.run_ranks([
            {"TF_CONFIG": json.dumps({"cluster": {"worker": workers},
                                      "task": {"type": "worker", "index": rank}})}
            for rank in range(2)]), self.plan, steps=5)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here (Debian: openmpi-bin)")
    def test_mpirun(self):
        program = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", harness.COMMAND)
        process = self.start("train", self.plan, "--steps", "5", "--json", program=program,
                             variables=TOKEN)
        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        self.assert_same_as_local(json.loads(result.out), self.plan, steps=5)

    @unittest.skipUnless(shutil.which("torchrun"), "no torchrun here (Debian: python3-torch)")
    def test_torchrun(self):
        # Its own store has the port, rackrail's coordinator the next one.
        program = ("torchrun", "--nnodes", "1", "--nproc_per_node", "2", "--master_addr",
                   "127.0.0.1", "--master_port", str(harness.free_ports(2)),
                   # Debian's cannot leave the output alone (torch 1.13 with Python 3.11).
                   "--redirects", "2", "--tee", "1", "--log_dir", "logs",
                   "--no_python", harness.COMMAND)
        process = self.start("train", self.plan, "--steps", "5", "--json", program=program,
                             variables={**TOKEN, "OMP_NUM_THREADS": "1"})
        result = self.finish(process)
        self.assertEqual(result.status, 0, str(result))
        said = re.sub(r"^\[default(\d)\]:", "", result.out, flags=re.MULTILINE)
        self.assert_same_as_local(json.loads(said), self.plan, steps=5)

    def start_three(self):
        """Three ranks of three commands, each with at least one checkpoint behind it."""
        self.write("three.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,10 Gbit/s,10 us\n" for host in range(3)))
        plan = self.make_plan("three.json", cluster="three.csv")
        training = self.training_with_checkpoints_every(5)
        port = harness.free_ports(2)
        processes = [
            self.start("train", plan, "--cluster", "three.csv", "--checkpoints", "saved",
                       "--training", training,
                       variables={**TOKEN, "RANK": str(rank), "WORLD_SIZE": "3",
                                  "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                                  "MASTER_PORT": str(port)}) for rank in range(3)]
        self.wait_for_checkpoint("saved")
        return processes

    def assert_survivors_say(self, processes, killed, lines):
        """`lines`: by rank, what a survivor must say; the others must be silent."""
        processes[killed].kill()
        results = [self.finish(process) for process in processes]
        for rank, result in enumerate(results):
            if rank != killed:
                self.assertEqual(result.status, 1, str(result))
                self.assertEqual(result.out, "", str(result))
                self.assertRegex(result.err, lines.get(rank, r"\A\Z"), f"rank {rank}")

    def test_rank_0_alone_says_who_was_lost(self):
        self.assert_survivors_say(self.start_three(), 2, {
            0: r"\Arackrail: rank 2 \(pid \d+ on [^)]+\) was lost: [^\n]+\n\Z"})

    def test_without_rank_0_each_rank_says_why_it_ends(self):
        line = r"\Arackrail: the coordinator at 127\.0\.0\.1:\d+ was lost: [^\n]+\n\Z"
        self.assert_survivors_say(self.start_three(), 0, {1: line, 2: line})

    def test_a_launcher_that_says_half(self):
        self.assert_bad_input("train", self.plan, file="<environment>", where="MASTER_ADDR",
                              variables={**TOKEN, "RANK": "0", "WORLD_SIZE": "2"})


if __name__ == "__main__":
    harness.main()
