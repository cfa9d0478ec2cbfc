"""The C interface from a program in C, one process per rank."""

import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "command"))
sys.dont_write_bytecode = True
import harness  # noqa: E402

PROGRAM = os.environ.get("RACKRAIL_CAPI_PROGRAM", "")
LIBRARY = os.environ.get("RACKRAIL_LIBRARY", "")
TIMEOUT = 200  # seconds for one process, on a busy machine
RACKS = """source,target,bandwidth,latency,kind
host0,tor0,10 Gbit/s,2 us,host-link
host1,tor0,10 Gbit/s,2 us,host-link
host2,tor1,10 Gbit/s,2 us,host-link
host3,tor1,10 Gbit/s,2 us,host-link
tor0,core,2 Gbit/s,1 us,uplink
tor1,core,2 Gbit/s,1 us,uplink
"""


class CInterface(harness.CommandTest):
    def run_ranks(self, ranks, *arguments, status=0, **variables):
        """The results of all ranks, which must end with `status` (None: each as it likes)."""
        port = harness.free_ports(1)
        processes = [self.start(*arguments, program=(PROGRAM,), variables={
            "RACKRAIL_RANK": str(rank), "RACKRAIL_WORLD_SIZE": str(ranks),
            "RACKRAIL_COORDINATOR": f"127.0.0.1:{port}", **variables}) for rank in range(ranks)]
        results = [self.finish(process, timeout=TIMEOUT) for process in processes]
        for result in results:
            if status is not None:
                self.assertEqual(result.status, status, str(result))
        return results

    def test_sums_alone(self):
        result = self.finish(self.start("sums", program=(PROGRAM,)), timeout=TIMEOUT)
        self.assertEqual(result.status, 0, str(result))

    def test_sums_of_two(self):
        self.run_ranks(2, "sums")

    def test_sums_of_three(self):
        self.run_ranks(3, "sums")

    def test_sums_of_four_in_two_racks(self):
        self.write("racks.csv", RACKS)
        self.run_ranks(4, "sums", RACKRAIL_CLUSTER="racks.csv")

    def test_misuse_is_refused_and_the_job_goes_on(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.run_ranks(ranks, "misuse")

    def test_codecs(self):
        # Of sines between -1 and 1: FP16 keeps 11 bits. Codes of 8 bits err by 1/127 of the largest
        # value of a block at most, in a contribution (halved) and in the sum: 1.2 %. With feedback
        # a step's error is its own less that of the step before, twice that at most; so over 24
        # steps all but the last one's cancel, and their mean errs by 0.05 %.
        for codec, least, most, lasting_share in (
                ("none", 0, 1e-7, 1), ("fp16", 1e-6, 1e-3, 1), ("int8", 1e-4, 2.4e-2, 0.05)):
            with self.subTest(codec=codec):
                said = [result.out for result in self.run_ranks(2, "lossy", RACKRAIL_CODECS=codec)]
                self.assertEqual(said[0], said[1], "ranks have different sums")
                error, lasting = (float(word) for word in said[0].split()[:2])
                self.assertLessEqual(error, most)
                self.assertGreaterEqual(error, least)
                self.assertLessEqual(lasting, lasting_share * error)

    def test_a_lost_rank(self):
        results = self.run_ranks(3, "die", "1")
        for rank in (0, 2):
            self.assertRegex(results[rank].out, r"\Arank 1 \(pid \d+ on .*\) was lost: .*\n\Z")
        self.assert_no_processes_left()

    def test_a_lost_coordinator(self):
        results = self.run_ranks(3, "die", "0")
        for rank in (1, 2):
            self.assertRegex(results[rank].out, r"\A[^\n]*was lost[^\n]*\n\Z")

    def test_a_rank_that_gives_up(self):
        results = self.run_ranks(3, "quit", "2")
        for rank in (0, 1):
            self.assertRegex(results[rank].out,
                             r"\Arank 2 \(pid \d+ on .*\) failed: it has had enough\n\Z")

    def said_of(self, variables, ranks):
        port = harness.free_ports(1)
        result = self.finish(self.start("sums", program=(PROGRAM,), variables={
            "RACKRAIL_RANK": "0", "RACKRAIL_WORLD_SIZE": str(ranks),
            "RACKRAIL_COORDINATOR": f"127.0.0.1:{port}", **variables}), timeout=20)
        self.assertEqual(result.status, 2, str(result))
        self.assertEqual(result.err.count("\n"), 1, result.err)
        return result.err

    def test_bad_environments_are_one_line(self):
        for variables, parts in (
                ({"RACKRAIL_CODECS": "zip"}, ("RACKRAIL_CODECS", "zip", "or auto")),
                ({"RACKRAIL_CLUSTER": "nowhere.yaml"}, ("nowhere.yaml", "no such file")),
                ({"RACKRAIL_PLAN": "nowhere.json"}, ("nowhere.json",)),
                ({"RACKRAIL_CALIBRATION": "nowhere.yaml"}, ("nowhere.yaml",)),
                ({"RACKRAIL_TRANSPORT": "pigeon"}, ("transport", "'pigeon'")),
                ({"RACKRAIL_COORDINATOR": "here"}, ("RACKRAIL_COORDINATOR", "here"))):
            with self.subTest(variables=variables):
                said = self.said_of(variables, 2)
                for part in parts:
                    self.assertIn(part, said)
                self.assertEqual(self.said_of(variables, 1), said, "a job of one says something else")

    def test_a_cluster_of_other_ranks_is_for_a_job_of_one_only(self):
        self.write("racks.csv", RACKS)
        said = self.said_of({"RACKRAIL_CLUSTER": "racks.csv"}, 2)
        for part in ("racks.csv", "found 4", "expected 2"):
            self.assertIn(part, said)
        self.run_ranks(1, "sums", RACKRAIL_CLUSTER="racks.csv")

    def test_nothing_but_the_interface_is_exported(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True,
                                 capture_output=True, text=True).stdout
        exported = {line.split()[-1].partition("@")[0] for line in symbols.splitlines()}
        header = (harness.SOURCE / "runtime/capi/rackrail.h").read_text(encoding="utf-8")
        declared = set(re.findall(r"RACKRAIL_API [^;]*?(rackrail_\w+)\(", header))
        self.assertGreater(len(declared), 10)
        self.assertEqual(exported, declared)


if __name__ == "__main__":
    harness.main()
