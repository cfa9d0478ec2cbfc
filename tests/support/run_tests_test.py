#!/usr/bin/env python3
"""Proves that scripts/run-tests counts what passed, failed and was skipped.

    run_tests_test.py SUPPORT_TEST

SUPPORT_TEST is the executable of tests/support, whose hidden cases skip, fail and crash on purpose.
"""

import importlib.util
import sys
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

sys.dont_write_bytecode = True
loader = SourceFileLoader("run_tests",
                          str(Path(__file__).resolve().parents[2] / "scripts" / "run-tests"))
run_tests = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
sys.modules["run_tests"] = run_tests
loader.exec_module(run_tests)

SUPPORT_TEST = None


def run(command, labels=("script",), timeout=60):
    return run_tests.run_test(run_tests.Test(
        name="name", command=command, labels=list(labels), environment={}, directory="/",
        timeout=timeout, skip_status=77, serial=False))


def shell(script, **options):
    return run(["/bin/sh", "-c", script], **options)


class CatchPrograms(unittest.TestCase):
    def case(self, *names):
        return run([SUPPORT_TEST, *names], ["catch2"])

    def test_all_passed(self):
        outcome = self.case()
        self.assertEqual(outcome.failed, [], outcome.output)
        self.assertGreaterEqual(outcome.passed, 2)
        self.assertEqual(outcome.skipped, [])

    def test_a_skip_is_not_a_pass(self):
        outcome = self.case("counted as skipped")
        self.assertEqual(outcome.total(), "0 passed, 0 failed, 1 skipped")
        self.assertEqual(outcome.skipped, [("counted as skipped", "no such device")])
        self.assertIn("SKIPPED: counted as skipped: no such device", outcome.output)

    def test_a_case_is_skipped_once_however_often_it_is_left(self):
        outcome = self.case("counted as skipped once*")
        self.assertEqual([reason for _, reason in outcome.skipped], ["first reason; second reason"])

    def test_a_failed_case_stays_failed(self):
        outcome = self.case("counted as failed although it skips")
        self.assertEqual(outcome.total(), "0 passed, 1 failed, 0 skipped")

    def test_a_failure_says_which_check_failed_first(self):
        failed = self.case("counted as failed although it skips").failed
        self.assertRegex(failed[0], r"^counted as failed although it skips: \w+\.cpp:\d+: ")

    def test_a_crash_fails_its_case_and_keeps_the_earlier_ones(self):
        outcome = self.case("counted as skipped,counted as failed when it crashes")
        self.assertEqual(outcome.total(), "0 passed, 1 failed, 1 skipped")
        self.assertIn("counted as failed when it crashes", outcome.failed[0])

    def test_a_program_without_cases_fails(self):
        self.assertEqual(len(self.case("no such case").failed), 1)

    def test_a_program_that_fails_after_its_cases_fails(self):
        outcome = run(["/bin/sh", "-c", f"'{SUPPORT_TEST}' && exit 3"], ["catch2"])
        self.assertGreaterEqual(outcome.passed, 2)
        self.assertEqual(outcome.failed, ["(the program: exit status 3)"])

    def test_a_program_that_dies_in_a_case_fails_that_case(self):
        outcome = run(["/bin/sh", "-c", 'printf "started\\tthe case\\n" >"$RACKRAIL_TEST_REPORT"; '
                       "kill -9 $$"], ["catch2"])
        self.assertEqual(outcome.failed, ["the case (killed by SIGKILL)"])


class OtherPrograms(unittest.TestCase):
    def test_the_exit_status_decides(self):
        self.assertEqual(shell("exit 0").total(), "1 passed, 0 failed, 0 skipped")
        self.assertEqual(shell("exit 1").total(), "0 passed, 1 failed, 0 skipped")
        self.assertEqual(shell("exit 77").total(), "0 passed, 0 failed, 1 skipped")

    def test_the_reason_of_a_skip_is_found(self):
        self.assertEqual(shell("echo 'SKIPPED: two nodes: one: core'; exit 77").skipped,
                         [("two nodes", "one: core")])

    def test_a_program_may_count_its_own_cases(self):
        outcome = shell("echo 'SKIPPED: a: b'; echo 'FAILED: c: d'; "
                        "echo '5 passed, 2 failed, 1 skipped'; exit 1")
        self.assertEqual(outcome.total(), "5 passed, 2 failed, 1 skipped")
        self.assertEqual(outcome.failed, ["c: d", "(2 of its cases)"])
        self.assertEqual(outcome.skipped, [("a", "b")])

    def test_a_bad_exit_is_not_hidden_by_good_counts(self):
        self.assertEqual(shell("echo '5 passed, 0 failed, 0 skipped'; exit 9").total(),
                         "5 passed, 1 failed, 0 skipped")

    def test_a_program_that_hangs_is_stopped_with_its_children(self):
        outcome = shell("sleep 60 & sleep 60", timeout=0.2)
        self.assertEqual(len(outcome.failed), 1)
        self.assertLess(outcome.seconds, 30)

    def test_a_program_that_is_not_built_fails(self):
        self.assertEqual(run(["/no/such/program"]).failed, ["(it is not built)"])
        self.assertEqual(run([]).failed, ["(it is not built)"])


class Parts(unittest.TestCase):
    def test_a_part_without_a_build_fails(self):
        self.assertEqual(len(run_tests.run_part("p", Path("/no/such/build"), "", None, 1).failed), 1)


if __name__ == "__main__":
    SUPPORT_TEST = sys.argv.pop(1)
    unittest.main()
