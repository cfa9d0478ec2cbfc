"""scripts/gpu-check on an emulated GPU, where CUDA's MPS serves it.

    gpu_check_mps_test.py, with the arguments of gpu_check_test.py
"""
import os
import pathlib
import sys
import unittest

from gpu_check_bundle import SCRIPT, BundleTest

sys.path.insert(0, str(pathlib.Path(SCRIPT).resolve().parent))
sys.dont_write_bytecode = True

import gpu_steps  # noqa: E402


class Mps(BundleTest):
    def test_trainings_are_planned_again_under_a_daemon_of_mps(self):
        checker = self.load_script()
        checker.BUNDLE, checker.PATHS_BY_MPS = self.bundle, ("staged",)
        run = checker.Run(100)
        report = {"libraries": {"cublas": "x", "nccl": "x"}, "training": [], "two_nodes": []}
        checker.check_planned_by_mps(run, report, None)
        names = ["planned training, 4 ranks, staged, MPS", f"{checker.TWO_NODES}, MPS",
                 checker.REFUSED_BY_MPS, checker.TWO_NODES + checker.STAGED_BY_MPS]
        self.assertEqual([(step["name"], step["outcome"]) for step in run.steps],
                         [(name, "skipped: no nvidia-cuda-mps-control on this machine") for name in names])
        told = self.add_mps_control()
        run.steps.clear()
        checker.check_planned_by_mps(run, report, None)
        self.assertEqual({step["outcome"] for step in run.steps[:-2]}, {"good"}, run.steps)
        for step, name in zip(run.steps[-2:], names[-2:]):
            self.assertEqual(step["name"], name)
            self.assertRegex(step["outcome"], "skipped: staged through pinned memory: .* built without CUDA")
        self.assertEqual([each["path"] for each in report["training"]], ["staged, MPS"])
        self.assertEqual([each["sharing"] for each in report["two_nodes"]], [", MPS"])
        pipe = run.steps[0]["command"][1].removeprefix("CUDA_MPS_PIPE_DIRECTORY=")
        self.assertEqual(told.read_text().splitlines(), [f"-f {pipe}", f" {pipe}", "quit"])
        self.assertEqual(run.steps[-3]["command"][1], run.steps[0]["command"][1])
        self.assertFalse(pathlib.Path(pipe).exists())

    def add_mps_control(self):
        """What stands in for the daemon's program; where it writes how it was called."""
        told = self.bundle / "told"
        control = self.bundle / "control"
        control.write_text(f"""#!/bin/sh
echo "$* $CUDA_MPS_PIPE_DIRECTORY" >> {told}
[ -d "$CUDA_MPS_LOG_DIRECTORY" ] || exit 1
if [ "$1" = -f ]; then
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"
  while [ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ]; do sleep 0.05; done
else
  cat >> {told}
  rm "$CUDA_MPS_PIPE_DIRECTORY/control"
fi
""")
        control.chmod(0o755)
        os.environ["RACKRAIL_MPS_CONTROL"] = str(control)
        return told

    def test_under_mps_direct_messages_have_to_be_refused_and_others_staged(self):
        checker = self.load_script()
        checker.BUNDLE, checker.PATHS_BY_MPS = self.bundle, ()
        self.add_mps_control()
        for name, value in (("EMULATED_UCX_WITH_CUDA", "1"), ("RACKRAIL_NCCL_LIBRARY", self.nccl), ("TEST_ALL", "1")):
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name, None)
        report = {"libraries": {"cublas": "x", "nccl": self.nccl}, "training": [], "two_nodes": []}
        run = checker.Run(100)
        checker.check_planned_by_mps(run, report, None)
        self.assertEqual({step["outcome"] for step in run.steps}, {"good"}, run.steps)
        self.assertIn(checker.REFUSED_BY_MPS, [step["name"] for step in run.steps])
        self.assertEqual([each["sharing"] for each in report["two_nodes"]], [", MPS", checker.STAGED_BY_MPS])
        run.steps.clear()
        checker.check_planned_by_mps(run, {**report, "libraries": {"cublas": None, "nccl": self.nccl}}, None)
        self.assertEqual({step["outcome"] for step in run.steps}, {f"skipped: {checker.NO_CUBLAS}"})
        del os.environ["TEST_ALL"]  # messages go by "none" then
        run = checker.Run(100)
        checker.check_direct_by_mps(run, report, [])  # nobody is served, so nothing is refused
        outcomes = {step["name"]: step["outcome"] for step in run.steps}
        self.assertEqual(outcomes[checker.REFUSED_BY_MPS], "does not say 'under which direct messages hang'")
        self.assertEqual(outcomes[checker.TWO_NODES + checker.STAGED_BY_MPS],
                         "its messages go by none, expected pinned memory")

    def test_a_daemon_of_mps_that_serves_nobody_or_hangs_costs_its_part_only(self):
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        self.addCleanup(setattr, gpu_steps, "ASK_LIMIT", gpu_steps.ASK_LIMIT)
        gpu_steps.ASK_LIMIT = 1
        control = self.bundle / "control"
        os.environ["RACKRAIL_MPS_CONTROL"] = str(control)
        for text in ("exit 1", "exec sleep 300"):
            with self.subTest(text=text):
                control.write_text(f"#!/bin/sh\n{text}\n")
                control.chmod(0o755)
                run = checker.Run(100)
                run.asked = lambda command, limit=1: "not shared"
                checker.check_planned_by_mps(run, {}, None)
                self.assertEqual({step["outcome"] for step in run.steps},
                                 {f"skipped: {control} serves nobody here"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
