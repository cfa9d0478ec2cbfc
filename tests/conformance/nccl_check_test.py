"""bench/gpu/nccl_check: what it sums is right, and where it can do nothing it says why.

    nccl_check_test.py PATH-OF-PROGRAM NCCL

NCCL is a stand-in's file, for the program on an emulated GPU; or - for that of this machine, if there is one.
"""
import json
import os
import subprocess
import sys
import unittest

NCCL = sys.argv.pop()
PROGRAM = sys.argv.pop()
ON_EMULATED_GPU = NCCL != "-"
HYBRID = ("--ranks", "4", "--across", "ucx")
UCX_ALONE = (*HYBRID, "--inside", "ucx")


def run(*arguments, **variables):
    environment = {**os.environ, **({"RACKRAIL_NCCL_LIBRARY": NCCL} if ON_EMULATED_GPU else {})}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=120,
                          env={**environment, **variables})


class NcclCheck(unittest.TestCase):
    def test_help_and_bad_arguments(self):
        self.assertEqual(run("--help").returncode, 0)
        for arguments in (("--ranks", "3"), ("--ranks", "1"), ("--ranks", "many"), ("--across", "smoke"),
                          ("--ranks", "2", "--across", "ucx"), ("--codec", "int8"),
                          ("--ranks", "12", "--codec", "fp16"), ("--inside", "ucx"),
                          ("--lose", "4"), ("--lose", "0", "--ranks", "2"), ("--regroup", "shrink"), ("--by", "stop"),
                          (*HYBRID, "--lose", "1", "--regroup", "shrink")):
            with self.subTest(arguments=arguments):
                self.assertEqual(run(*arguments).returncode, 2)

    def test_the_sum_is_right_or_it_says_what_is_missing(self):
        for arguments, ranks in ((("--ranks", "2"), 2), (HYBRID, 4)):
            with self.subTest(arguments=arguments):
                result = run(*arguments, "--elements", "100001", "--steps", "2")
                report = json.loads(result.stdout.splitlines()[-1])
                self.assertEqual((report["ranks"], report["elements"], report["wrong"]),
                                 (ranks, 100001, 0))
                self.assertEqual(report["good"], result.returncode == 0)
                if not report["good"]:
                    self.assertRegex(result.stderr, r"nccl_check: rank \d: no (GPU|NCCL): ")
                self.assertTrue(report["good"] or not ON_EMULATED_GPU, result.stderr)

    @unittest.skipUnless(ON_EMULATED_GPU, "its NCCL would want a real GPU")
    def test_each_way_between_the_pairs(self):
        staged = "NCCL inside hosts, pinned memory between them"
        direct = "NCCL inside hosts, device memory between them"
        for arguments, variables, path in (
                (HYBRID, {}, staged), ((*HYBRID, "--codec", "fp16"), {}, staged),
                (("--ranks", "6", "--across", "ucx", "--codec", "fp16"), {}, staged),
                (HYBRID, {"EMULATED_UCX_WITH_CUDA": "1"}, direct), (("--ranks", "4"), {}, "NCCL"),
                (UCX_ALONE, {}, "pinned memory"),
                (UCX_ALONE, {"EMULATED_UCX_WITH_CUDA": "1"}, "device memory")):
            with self.subTest(arguments=arguments, **variables):
                result = run(*arguments, "--elements", "300001", "--steps", "3", **variables)
                self.assertEqual(result.returncode, 0, result.stderr)
                report = json.loads(result.stdout.splitlines()[-1])
                self.assertEqual((report["path"], report["good"]), (path, True))
                self.assertEqual(report["codec"], "fp16" if "fp16" in arguments else "none")
                self.assertGreater(report["step_s"], 0)

    @unittest.skipUnless(ON_EMULATED_GPU, "its NCCL would want a real GPU")
    def test_those_who_are_left_sum_again_after_a_loss(self):
        for arguments in (("--lose", "0"), ("--lose", "2", "--by", "stop", "--regroup", "shrink"),
                          ("--lose", "0", "--by", "stop", "--regroup", "shrink"), (*HYBRID, "--lose", "3"),
                          (*HYBRID, "--lose", "0", "--by", "stop"),
                          (*UCX_ALONE, "--lose", "1")):
            with self.subTest(arguments=arguments):
                result = run(*arguments, "--elements", "100001", "--steps", "2")
                self.assertEqual(result.returncode, 0, result.stderr)
                report = json.loads(result.stdout.splitlines()[-1])
                self.assertEqual((report["good"], report["wrong"], report["lost"]),
                                 (True, 0, int(arguments[arguments.index("--lose") + 1])))
                self.assertEqual(report["regroup"], "shrink" if "shrink" in arguments else "join")
                self.assertEqual(report["by"], "stop" if "stop" in arguments else "kill")
                self.assertLess(report["noticed_s"], 20)
                self.assertGreater(report["summed_again_s"], 0)
                self.assertEqual(result.stderr.count(" heard: "), 3)


if __name__ == "__main__":
    unittest.main()
