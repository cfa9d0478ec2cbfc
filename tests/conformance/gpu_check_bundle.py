"""A bundle of scripts/gpu-check for its tests, of programs that stand in for those of a GPU.

Where they are the last arguments of the test say (gpu_check_test.py).
"""
import importlib.machinery
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration" / "command"))

from training import small_training  # noqa: E402

NCCL_LIBRARY = sys.argv.pop()
NCCL_CHECK = sys.argv.pop()
COMMAND = sys.argv.pop()
PROGRAM = sys.argv.pop()
SCRIPT = sys.argv.pop()

# The emulated program, at sizes that it can do.
RUN_IT = """if "--verify" not in arguments:
    arguments += ["--verify", "5001"]
if "--time" not in arguments:
    arguments += ["--time", "4096", "--blocks", "2", "3"]
sys.exit(subprocess.run(["{program}", *arguments]).returncode)
"""


# What the script takes for the program.
WRAPPER = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
if arguments == ["--help"]:
    sys.exit(0)
""" + RUN_IT


# The command on an emulated GPU, with a training that it can do; unless all is to be real, without NCCL
# and without the training of two nodes, which takes its time. One that loses a worker (gpu_training_test.py
# has real ones) does so in any case.
RACKRAIL = """#!{python}
import json, os, pathlib, subprocess, sys
arguments = sys.argv[1:]
all_is_real = "TEST_ALL" in os.environ
if arguments[:1] == ["train"] and not (all_is_real and "--on-loss" not in arguments):
    report = {{"transport": "none", "steps": 1, "step_time_s": 1.0, "losses": [2, 1], "sync_share": 0.25,
              "parameters_agree": "TEST_DIFFERS" not in os.environ, "plan_step_time_s": 0.5, "workers": 4,
              "plan_sync_share": 0.125, "ranks": [{{"sync_wait_s": 0.25}}, {{"sync_wait_s": 0.125}}]}}
    if "--on-loss" in arguments:
        workers = [subprocess.Popen([sys.executable, "-c", "input()", "worker", "--rank", rank],
                                    stdin=subprocess.PIPE) for rank in "012"]
        saved = pathlib.Path(arguments[arguments.index("--checkpoints") + 1])
        saved.mkdir()
        (saved / "manifest.json").touch()
        print("rank 1 ended with", workers[1].wait(100), file=sys.stderr)
        workers[0].kill()
        workers[2].kill()
        report.update(workers=3, losses_of_workers=[{{"lost": ["node0"], "resumed_after_s": 0.5}}])
    print(json.dumps(report))
    sys.exit(0)
if "nccl" in arguments and not all_is_real:
    arguments[arguments.index("nccl")] = "staged"
if arguments[:1] == ["validate"]:
    for option, value in (("--training", "{training}"), ("--local-batch", "16"), ("--steps", "6"),
                          ("--workers", "4")):
        arguments[arguments.index(option) + 1] = value
if arguments[:1] == ["train"]:
    arguments[arguments.index("--steps") + 1] = "2"
sys.exit(subprocess.run(["{command}", *arguments]).returncode)
"""


# As the first, but one codec takes it down while it is verified, and another one hangs.
BROKEN = """#!{python}
import json, os, subprocess, sys, time
arguments = sys.argv[1:]
if arguments == ["--help"]:
    sys.exit(0)
if "--verify" not in arguments and "--codec" in arguments:
    output = arguments[arguments.index("--output") + 1]
    codecs = [b for a, b in zip(arguments, arguments[1:]) if a == "--codec"]
    found = []
    for codec in codecs:
        with open(output, "w") as file:
            json.dump({{"verification": found, "under_way": codec}}, file)
        if codec == "int8":
            os.abort()
        if codec == "topk":
            subprocess.Popen(["sleep", "300"]).wait()
        found.append({{"codec": codec, "what": "encode", "good": True, "problem": ""}})
    with open(output, "w") as file:
        json.dump({{"verification": found}}, file)
    sys.exit(0)
""" + RUN_IT


# At a size that it can do, or what it would say of the library that it was offered.
NCCL = """#!{python}
import json, os, subprocess, sys
print("a line of NCCL's own", flush=True)
if "NCCL_TUNER_PLUGIN" in os.environ:
    print("NCCL INFO rackrail tuner: 1 lines of", os.environ["NCCL_TUNER_CONFIG_FILE"], "for 2 ranks on 1 nodes")
    print("NCCL INFO rackrail tuner: allreduce of 4 bytes: ring simple, channels 2", flush=True)
if "TEST_ALL" not in os.environ:
    if "--help" not in sys.argv:
        print(json.dumps({{"ranks": int(sys.argv[2]), "elements": len(os.environ["RACKRAIL_NCCL_LIBRARY"]),
                          "steps": 3, "path": "NCCL", "codec": "none", "good": True, "wrong": 0,
                          "step_s": 0.25, **({{"lost": 2, "regroup": "join", "by": "kill", "noticed_s": 0.125,
                          "summed_again_s": 4.0}} if "--lose" in sys.argv else {{}})}}))
    sys.exit(0)
words = sys.argv[1:]
for option, value in (("--elements", "50001"), ("--steps", "2")):
    if option in words:
        at = words.index(option)
        del words[at:at + 2]
    words += [option, value]
sys.exit(subprocess.run(["{program}", *words]).returncode)
"""
# What a program of test cases leaves.
CASES = """#!/bin/sh
[ "$1" = --help ] || printf 'passed\\tcodec: all\\n{first}\\nskipped\\tlast: too large\\tno memory\\n' > "$RACKRAIL_TEST_REPORT"
"""
# What a rank with PyTorch and a GPU would leave.
TORCH_CHECK = """
import json, os, sys
assert os.environ["RACKRAIL_LIBRARY"].endswith("/lib/librackrail.so"), os.environ
path, codec, ranks = sys.argv[2], sys.argv[4], int(sys.argv[6])
print(json.dumps({"torch": "9.9", "device": "cuda", "path": path, "codec": codec, "ranks": ranks, "steps": 24,
                  "buckets": 3, "first_loss": 2.3, "last_loss": 1.9, "gloo_last_loss": 1.9, "step_s": 0.02,
                  "gloo_step_s": 0.03, "profiled_ready_s": 0.01, "backward_s": 0.0125}))
"""


def run(*command, **environment):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=500, env={**os.environ, **environment})


class BundleTest(unittest.TestCase):
    """Has such a bundle, of which tests replace programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = pathlib.Path(folder.name)
        (self.bundle / "bin").mkdir()
        shutil.copy(SCRIPT, self.bundle / "gpu-check")
        for name in ("gpu_inputs.py", "gpu_report.py", "gpu_steps.py"):
            shutil.copy(pathlib.Path(SCRIPT).with_name(name), self.bundle)
        self.add_program("gpu_check", WRAPPER.format(python=sys.executable, program=PROGRAM))
        self.add_program("conformance_codec_test", CASES.format(first="passed\\tdevice codec: bytes"))
        self.add_program("conformance_training_test", CASES.format(first="passed\\tGPU training: losses"))
        self.add_program("nccl_check", NCCL.format(python=sys.executable, program=NCCL_CHECK))
        training = self.bundle / "small.yaml"
        training.write_text(small_training())
        self.add_program("rackrail", RACKRAIL.format(python=sys.executable, command=COMMAND,
                                                     training=training))
        os.environ["RACKRAIL_MPS_CONTROL"] = "/nonexistent"  # no daemon of this machine's
        self.nccl = NCCL_LIBRARY  # so that the machine's own libraries make no difference
        self.output = self.bundle / "out"

    @staticmethod
    def load_script():
        loader = importlib.machinery.SourceFileLoader("gpu_check_script", SCRIPT)
        module = types.ModuleType(loader.name)
        module.__file__ = SCRIPT
        exec(compile(loader.get_data(SCRIPT), SCRIPT, "exec"), module.__dict__)
        return module

    def add_program(self, name, text):
        (self.bundle / "bin" / name).write_text(text)
        (self.bundle / "bin" / name).chmod(0o755)

    def check(self, *arguments):
        return run(sys.executable, str(self.bundle / "gpu-check"), "--output", str(self.output),
                   *arguments, RACKRAIL_NCCL_LIBRARY=self.nccl,
                   RACKRAIL_CUBLAS_LIBRARY="libcublas.so.13")

    def outcomes(self):
        report = json.loads((self.output / "gpu-report.json").read_text())
        return report, {step["name"]: step["outcome"] for step in report["steps"]}
