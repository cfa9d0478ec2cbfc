"""bench/gpu/torch_check.py, which scripts/gpu-check runs on a GPU: on CPUs it finds all right, and what is
wrong it finds as well."""

import json
import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")
PROGRAM = harness.SOURCE / "bench" / "gpu" / "torch_check.py"
# A hook whose sums lack something, in the package's place.
WRONG_SUMS = """
from rackrail import *
from rackrail import allreduce as _right, rank
def allreduce(*arguments, **options):
    result = _right(*arguments, **options)
    return result + 1 if WHERE == "arrays" else result
import rackrail.torch
_hook = rackrail.torch.comm_hook
def comm_hook(state, bucket):
    bucket.buffer().mul_(1 - 0.01 * rank())
    return _hook(state, bucket)
if WHERE == "hook":
    rackrail.torch.comm_hook = comm_hook
torch = rackrail.torch
"""


@unittest.skipUnless(PYTHON, WHY_NOT)
class TorchCheck(RankTest):
    PYTHON = PYTHON

    def check(self, *options, status=0, **variables):
        return self.run_python(PROGRAM, "--device", "cpu", *options, status=status, **variables)

    def test_exact_and_with_8_bits(self):
        for codec in ("none", "int8"):
            with self.subTest(codec=codec):
                report = json.loads(self.check("--codec", codec).out)
                self.assertEqual((report["ranks"], report["codec"]), (2, codec))
                self.assertGreater(report["buckets"], 1)
                self.assertLess(report["last_loss"], report["first_loss"])
                self.assertEqual(report["last_loss"] == report["gloo_last_loss"], codec == "none")
                self.assertGreater(report["step_s"], 0)
                self.assertGreater(report["profiled_ready_s"], 0)
                self.assertLessEqual(report["profiled_ready_s"], report["backward_s"])

    def test_pairs_of_ranks_are_hosts_of_a_cluster(self):
        report = json.loads(self.check("--path", "hybrid", "--ranks", "4").out)
        self.assertEqual((report["ranks"], report["path"]), (4, "hybrid"))
        result = self.check("--path", "hybrid", "--ranks", "3", status=2)
        self.assertIn("--path hybrid: found 3 ranks", result.err)

    def test_a_profile_that_is_wrong_is_found(self):
        for right, wrong, message in (
                ("times = passes.run(inputs, targets)",
                 "times = passes.run(inputs, targets); times.backward //= 1000", "of a backward pass of"),
                ("layers = list(", "layers = sorted(", "in the order")):
            with self.subTest(wrong=wrong):
                program = PROGRAM.read_text()
                self.assertIn(right, program)
                self.write("check.py", program.replace(right, wrong))
                result = self.run_python(self.folder / "check.py", "--device", "cpu", status=1)
                self.assertRegex(result.err, f"torch_check: rank 0: Wrong: profile: .*{message}")

    def test_wrong_sums_are_found_and_no_process_stays(self):
        program = PROGRAM.read_text().replace("    import rackrail\n    import rackrail.torch\n",
                                              "    import wrong_sums as rackrail\n")
        for where, message in (("arrays", "a wrong sum"), ("hook", "losses differ from Gloo's by")):
            with self.subTest(where=where):
                self.write("wrong_sums.py", WRONG_SUMS.replace("WHERE", repr(where)))
                result = self.run_python(self.write("check.py", program), "--device", "cpu", status=1)
                self.assertRegex(result.err, f"torch_check: rank [01]: Wrong: .*{message}")
                self.assertEqual(result.out, "")
        self.assert_no_processes_left()

    def test_too_few_steps_are_bad_input(self):
        result = self.run_python(PROGRAM, "--device", "cpu", "--steps", "4", status=2)
        self.assertIn("--steps: found 4, expected more than 4", result.err)

    def test_without_a_gpu_it_says_so(self):
        result = self.run_python(PROGRAM, status=None)
        if result.status == 0:
            self.skipTest("there is a GPU")
        self.assertRegex(result.err, "torch_check: rank [01]: .*GPU|CUDA")


if __name__ == "__main__":
    harness.main()
