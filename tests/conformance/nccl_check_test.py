"""bench/gpu/nccl_check: it starts, and where it can do nothing says why.

    nccl_check_test.py PATH-OF-PROGRAM
"""
import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop()


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=120)


class NcclCheck(unittest.TestCase):
    def test_help_and_bad_arguments(self):
        self.assertEqual(run("--help").returncode, 0)
        for ranks in ("3", "1", "many"):
            self.assertEqual(run("--ranks", ranks).returncode, 2)

    def test_the_sum_is_right_or_it_says_what_is_missing(self):
        result = run("--ranks", "2", "--elements", "100001", "--steps", "2")
        report = json.loads(result.stdout.splitlines()[-1])
        self.assertEqual((report["ranks"], report["elements"], report["wrong"]), (2, 100001, 0))
        self.assertEqual(report["good"], result.returncode == 0)
        if not report["good"]:
            self.assertRegex(result.stderr, r"nccl_check: rank [01]: no (GPU|NCCL): ")


if __name__ == "__main__":
    unittest.main()
