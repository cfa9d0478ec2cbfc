"""scripts/gpu-check on an emulated GPU: it verifies, measures, reports.

    gpu_check_test.py PATH-OF-SCRIPT PATH-OF-PROGRAM PATH-OF-THE-COMMAND PATH-OF-NCCL_CHECK NCCL

NCCL is a stand-in for ranks that are processes.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import unittest

from gpu_check_bundle import BROKEN, CASES, PROGRAM, SCRIPT, TORCH_CHECK, BundleTest, run

sys.path.insert(0, str(pathlib.Path(SCRIPT).resolve().parent))
sys.dont_write_bytecode = True

import gpu_report  # noqa: E402
import gpu_steps  # noqa: E402


class Script(BundleTest):
    def test_it_leaves_a_report_and_a_table(self):
        os.environ["TEST_ALL"] = "1"
        self.addCleanup(os.environ.pop, "TEST_ALL")
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report, outcomes = self.outcomes()
        for name in ("conformance tests", "verification", "timings", "training tests",
                     "planned training, 4 ranks, staged", "planned training, 4 ranks, nccl",
                     "planned training, 4 ranks, hybrid", "planned training, 4 ranks, hybrid, int8",
                     "NCCL, 2 ranks on one GPU", "NCCL, 4 ranks on one GPU",
                     "NCCL in pairs, UCX between them, 4 ranks",
                     "NCCL in pairs, UCX between them, 4 ranks, FP16", "UCX alone, 4 ranks",
                     "NCCL, 4 ranks, one of which is killed", "rackrail info",
                     "NCCL, 4 ranks, one of which is stopped and left out by ncclCommShrink",
                     "NCCL in pairs, UCX between them, 4 ranks, one of which is killed",
                     "training of 2 nodes of 2 ranks, whose rank 1 is killed",
                     "training of 2 nodes of 2 ranks, NCCL inside, UCX between"):
            self.assertEqual(outcomes[name], "good", name)
        self.assertEqual([each["path"] for each in report["training"]], ["staged", "nccl", "hybrid", "hybrid, int8"])
        for each in report["training"]:
            self.assertTrue(each["parameters_agree"])
            self.assertIn(each["reached"], (True, False, None))
        hybrid = "NCCL inside hosts, pinned memory between them"
        self.assertEqual([(each["ranks"], each["path"], each["codec"]) for each in report["nccl"]],
                         [(2, "NCCL", "none"), (4, "NCCL", "none"), (4, hybrid, "none"),
                          (4, hybrid, "fp16"), (4, "pinned memory", "none"), (4, "NCCL", "none"),
                          (4, "NCCL", "none"), (4, hybrid, "none")])
        self.assertEqual([each.get("lost") for each in report["nccl"]], [None] * 5 + [2] * 3)
        self.assertEqual(report["lost_worker"]["workers"], 3)
        self.assertIn("feature", report["info"])
        self.assertIn(report["info"].splitlines()[0], (self.output / "gpu-report.md").read_text())
        self.assertEqual([each["transport"] for each in report["two_nodes"]], [f"{hybrid} and ucx"])
        self.assertEqual(report["libraries"]["nccl"], self.nccl)
        self.assertEqual({row["blocks_per_multiprocessor"] for row in report["timings"]}, {2, 3})
        text = (self.output / "gpu-report.md").read_text()
        self.assertIn(text, result.stdout)
        count = len(report["verification"])
        self.assertIn(f"{count} of {count} results are those of the CPU", text)
        self.assertRegex(text, r"\| int8 reduce of 8 \| 9\.14 \| [0-9.]+ \|")
        self.assertIn("planned training, 4 ranks, direct | skipped: staged through pinned memory", text)
        self.check_targets(report, text)
        for what in ("sums alone", "step of small"):
            self.assertRegex(text, rf"\| staged \| {what} \| [0-9.]+ \| [0-9.]+ \| [-+][0-9.]+% \|")
        self.assertRegex(text, r"- nccl: 4 ranks on 1 GPU, small, .* parameters agree\.")
        self.assertRegex(text, f"- 4 ranks on one GPU, {hybrid}, codec fp16: 50001 floats .*, all right, ")
        self.assertRegex(text, f"- 2 nodes of 2 ranks, {hybrid} and ucx, int8: 2 steps .* of which the ranks wait "
                               r"[0-9.]+ to [0-9.]+ ms for sums .* the plan, .* has [0-9.]+ ms .* parameters agree")
        self.assertRegex(text, r"rank 2 stopped in a sum, the others, told of it, had given that up within \d+ ms, .*, "
                         "by ncclCommShrink")
        self.assertIn("node0 lost, on again after 0.5 s; 2 steps, the last by 3 workers", text)
        self.assertIn("- conformance tests: 2 cases passed, 0 failed, 1 skipped; last: too large: no memory.",
                      text)
        self.assertNotIn("Stopped at a limit", text)

    def check_targets(self, report, text):
        """Each target has its row, whatever this machine's figures are."""
        rows = {row["what"]: row for row in report["targets"]}
        for what, must in (("int8 encode", "85% of a copy's rate"),
                           ("int8 decode", "85% of a copy's rate"),
                           ("fp16 encode", "85% of a copy's rate"),
                           ("bf16 decode", "85% of a copy's rate"),
                           ("int8 reduce of 8", "75% of a copy's rate"),
                           ("topk encode", "30% of a copy's rate"),
                           ("int8 encode with feedback: beyond int8 encode",
                            "1 pass: the time of 1.18 copies of the gradient"),
                           ("top-k against torch.topk", "5 times as fast"),
                           ("sums hidden by backward, staged", "90% where the plan says so"),
                           ("sums hidden by backward, nccl", "90% where the plan says so"),
                           ("sums hidden by backward, hybrid", "90% where the plan says so")):
            with self.subTest(target=what):
                self.assertEqual(rows[what]["must"], must)
                self.assertIn(rows[what]["met"], (True, False, None))
                self.assertIn(f"| {what} | {must} | {rows[what]['found']} | ", text)
        for timing in report["timings"]:
            if timing["what"] == "int8 encode" and timing["blocks_per_multiprocessor"] == 2:
                self.assertEqual(rows["int8 encode"]["met"], timing["share_of_copy"] >= 0.85)
        self.assertEqual((rows["sums hidden by backward, direct"]["found"],
                          rows["sums hidden by backward, direct"]["met"]), ("not measured", None))

    def test_what_was_found_is_held_against_each_target(self):
        def timing(what, seconds, **more):
            return {"what": what, "median_s": seconds, "blocks_per_multiprocessor": 32, **more}
        training = {"path": "nccl", "predicted_hidden_share": 0.97, "measured_hidden_share": 0.89,
                    "reached": False}
        report = {"timings": [
            timing("device copy", 1.0), timing("int8 encode", 0.7, target=0.85, share_of_copy=0.9),
            timing("int8 encode with feedback", 2.0, target=0.85, share_of_copy=0.8),
            timing("topk encode", 1.5, target=0.3, share_of_copy=0.3),
            timing("topk encode with feedback", 4.7, target=0.3, share_of_copy=0.3)],
            "training": [training], "torch": {"version": "2.0", "elements": 100, "topk_s": 7.4}}
        self.assertEqual([(row["what"], row["met"]) for row in gpu_report.targets(report)], [
            ("int8 encode", True), ("int8 encode with feedback", False), ("topk encode", True),
            ("topk encode with feedback", True),
            ("int8 encode with feedback: beyond int8 encode", False),
            ("topk encode with feedback: beyond topk encode", False),
            ("top-k against torch.topk", False), ("sums hidden by backward, staged", None),
            ("sums hidden by backward, direct", None), ("sums hidden by backward, nccl", False),
            ("sums hidden by backward, hybrid", None), ("sums hidden by backward, hybrid, int8", None),
            ("sums hidden by backward, staged, MPS", None), ("sums hidden by backward, nccl, MPS", None),
            ("sums hidden by backward, hybrid, MPS", None),
            ("sums hidden by backward, hybrid, int8, MPS", None)])
        report["torch"]["topk_s"] = 7.5
        report["timings"][2].update(median_s=1.87)
        training["reached"] = True
        self.assertEqual([row["met"] for row in gpu_report.targets(report)],
                         [True, False, True, True, True, False, True, None, None, True, *[None] * 6])

    def test_another_ucx_comes_before_that_of_the_bundle(self):
        """The bundle's programs take the bundle's libraries whatever LD_LIBRARY_PATH says."""
        script = self.load_script()
        program = self.bundle / "rackrail"
        program.write_text("""#!/bin/sh
case "$LD_PRELOAD" in */elsewhere/libucp.so.0) has=true ;; *) has=false ;; esac
echo '{"features": [{"name": "messages of GPUs", "available": '$has', "detail": "why not"}]}'
""")
        program.chmod(0o755)
        run = script.Run(60)
        run.command = lambda name: [str(program)]
        self.assertEqual(script.ucx_with_cuda(run), (None, "why not"))
        os.environ["RACKRAIL_UCX_PATH"] = "/elsewhere"
        self.addCleanup(os.environ.pop, "RACKRAIL_UCX_PATH")
        words, reason = script.ucx_with_cuda(run)
        self.assertIsNone(reason)
        self.assertEqual(words[0], "env")
        self.assertTrue(words[1].endswith("/elsewhere/libucp.so.0"), words)
        program.write_text("#!/bin/sh\necho nothing\n")
        self.assertEqual(script.ucx_with_cuda(run), (None, "rackrail info does not say"))

    def test_two_nodes_whose_parameters_differ_are_a_failure(self):
        os.environ["TEST_DIFFERS"] = "1"
        self.addCleanup(os.environ.pop, "TEST_DIFFERS")
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        report = {"libraries": {"nccl": "x", "cublas": "x"}, "two_nodes": []}
        checked = checker.Run(100)
        checker.check_two_nodes(checked, report)
        self.assertEqual([step["outcome"] for step in checked.steps],
                         ["good", "the ranks' parameters differ"])

    def test_cases_that_all_skip_the_gpu_are_a_failure(self):
        self.add_program("conformance_codec_test", CASES.format(first="skipped\\tdevice codec: bytes\\tno GPU"))
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        checked, report = checker.Run(100), {"cases": {}, "libraries": {"cublas": "x"}}
        checker.conformance(checked, report, "conformance tests", 30)
        checker.conformance(checked, report, "training tests", 30)
        self.add_program("conformance_training_test", "#!/bin/sh\nexit 0\n")
        checker.conformance(checked, report, "training tests", 30)
        self.assertEqual([step["outcome"] for step in checked.steps],
                         ["no case ran on the GPU: 1 passed, 2 skipped", "good",
                          "no case ran on the GPU: 0 passed, 0 skipped"])

    def test_a_training_that_lost_nobody_is_a_failure(self):
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        text = (self.bundle / "bin" / "rackrail").read_text()
        self.add_program("rackrail", text.replace("workers=3", "workers=4"))
        checker.LOSS_RUNS = ()
        checked = checker.Run(100)
        checker.check_losses(checked, {"libraries": {"nccl": "x", "cublas": "x"}}, None)
        self.assertEqual(checked.steps[-1]["outcome"], "4 workers are left, expected 3")

    def test_direct_messages_are_measured_where_a_ucx_takes_the_gpus_memory(self):
        os.environ["EMULATED_UCX_WITH_CUDA"] = "1"
        self.addCleanup(os.environ.pop, "EMULATED_UCX_WITH_CUDA")
        self.check()
        report, outcomes = self.outcomes()
        self.assertEqual(outcomes["planned training, 4 ranks, direct"], "good")
        self.assertEqual([each["path"] for each in report["training"]], ["staged", "direct", "nccl", "hybrid", "hybrid, int8"])
        self.assertIn("device memory and ucx", report["training"][1]["transport"])
        self.assertEqual(outcomes["UCX alone, 4 ranks, from the GPU's memory"], "good")

    def test_a_sanitizer_has_to_say_that_it_looked_unless_it_cannot_work_here(self):
        tools = self.bundle / "tools"
        tools.mkdir()
        refused = "skipped"
        for says, status, outcome in (("Device not supported", 1, "skipped: it says: Device not supported"),
                                      ("1 error", 9, "exit status 9"),
                                      ("nothing", 0, "it did not say 'SUMMARY: 0 …'"),
                                      ("ERROR SUMMARY: 0 errors", 0, "good")):
            (tools / "compute-sanitizer").write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
            (tools / "compute-sanitizer").chmod(0o755)
            script = self.load_script()
            checked = script.Run(60)
            path = os.environ["PATH"]
            os.environ["PATH"] = f"{tools}:{path}"
            try:
                script.sanitize(checked, {}, None)
            finally:
                os.environ["PATH"] = path
            self.assertEqual(checked.steps[0]["outcome"], outcome)
            self.assertEqual(checked.steps[0]["required"], not outcome.startswith(refused))
            self.assertEqual(len(checked.steps), 1 if outcome.startswith(refused) else 3)

    def test_an_old_c_library_is_replaced_and_the_drivers_folder_stays(self):
        script = self.load_script()
        script.BUNDLE = self.bundle
        checked = script.Run(60)
        checked.choose_loader()
        self.assertEqual(checked.loader, [])
        self.add_program("gpu_check", "#!/bin/sh\necho GLIBC_2.36 not found >&2\nexit 1\n")
        os.environ["LD_LIBRARY_PATH"] = "/driver/lib64"
        self.addCleanup(os.environ.pop, "LD_LIBRARY_PATH")
        checked.choose_loader()
        self.assertEqual(checked.command("rackrail"), [
            f"{self.bundle}/glibc/ld-linux-x86-64.so.2", "--library-path",
            f"{self.bundle}/glibc:{self.bundle}/lib:/driver/lib64", f"{self.bundle}/bin/rackrail"])

    def test_cublas_of_another_cuda_is_taken_where_there_is_no_other(self):
        script = self.load_script()
        script.find_library = lambda run, name, variable: f"/x/{name}" if name.endswith(".12") else None
        self.addCleanup(os.environ.pop, "RACKRAIL_TEST_LIBRARY", None)
        report = {"libraries": {}}
        script.offer_library(script.Run(60), report, "cublas", ["libcublas.so.13", "libcublas.so.12"],
                             "RACKRAIL_TEST_LIBRARY")
        self.assertEqual(report["libraries"]["cublas"], "/x/libcublas.so.12")
        self.assertEqual(os.environ["RACKRAIL_TEST_LIBRARY"], "/x/libcublas.so.12")

    def test_a_refusal_is_a_failure_that_says_why(self):
        run = gpu_steps.Steps(60)
        for said, status, outcome in (("no way", 1, "good"), ("no way", 0, "exit status 0"),
                                      ("crashed", 1, "does not say 'no way'")):
            run.step("x", ["sh", "-c", f"echo {said}; exit {status}"], 5, refusal="no way")
            self.assertEqual(run.steps[-1]["outcome"], outcome)

    def test_a_ucx_is_looked_for_until_something_answers(self):
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        run = checker.Run(60)
        run.asked = lambda command: ""
        self.assertEqual(checker.direct_words(run), (None, "rackrail info does not say"))
        run.asked = lambda command: json.dumps({"features": [
            {"name": "messages of GPUs", "available": True, "detail": "directly, by ucx"}]})
        self.assertEqual(checker.direct_words(run), ([], None))
        run.asked = None  # nobody is asked again
        self.assertEqual(checker.direct_words(run), ([], None))

    def test_a_step_that_fails_is_reported(self):
        self.add_program("conformance_codec_test", "#!/bin/sh\necho wrong bytes\nexit 3\n")
        self.add_program("rackrail", "#!/bin/sh\necho no peers\nexit 1\n")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("| conformance tests | exit status 3 |", result.stdout)
        self.assertIn("wrong bytes", result.stdout)
        self.assertIn("| planned training, 4 ranks, staged | exit status 1 |", result.stdout)
        self.assertEqual(self.outcomes()[0]["training"], [])

    def test_what_one_codec_breaks_is_all_that_is_lost(self):
        self.add_program("gpu_check", BROKEN.format(python=sys.executable, program=PROGRAM))
        script = (self.bundle / "gpu-check").read_text()
        (self.bundle / "gpu-check").write_text(script.replace('["--time", "0"], 60',
                                                              '["--time", "0"], 8'))
        self.add_program("nccl_check", "#!/bin/sh\necho no JSON\n")
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        report, outcomes = self.outcomes()
        self.assertEqual(outcomes["verification"], "exit status -6 in int8")
        self.assertEqual(outcomes["verification, after int8"], "stopped after 8 s in topk")
        self.assertEqual(outcomes["verification, after topk"], "good")
        self.assertEqual([row["codec"] for row in report["verification"]],
                         [codec for codec in report["codecs"] if codec not in ("int8", "topk")])
        self.assertIn("randomk", report["codecs"])
        self.assertEqual(outcomes["timings"], "good")
        self.assertIn("output that cannot be read", outcomes["NCCL, 4 ranks on one GPU"])
        self.assertEqual(report["nccl"], [])
        text = (self.output / "gpu-report.md").read_text()
        self.assertIn("| verification | exit status -6 in int8 |", text)
        self.assertIn("Stopped at a limit, or not begun for want of time: verification, after int8.", text)

    def test_a_step_ends_with_all_its_processes(self):
        checker = self.load_script()
        mark = self.bundle / "pid"
        began = time.monotonic()
        status, output = checker.execute(
            ["sh", "-c", f"echo begun; sleep 300 & echo $! > {mark}; wait"], 10)
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual((status, output), (None, "begun\n"))
        self.assert_gone(mark.read_text())

    def test_ended_from_outside_it_takes_its_processes_along(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                self.end_with(number)

    def end_with(self, number):
        mark = self.bundle / f"pid-{number}"
        self.add_program("conformance_codec_test",
                         f"#!/bin/sh\necho $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 300\n")
        with subprocess.Popen([sys.executable, str(self.bundle / "gpu-check"), "--output",
                               str(self.output)], stdout=subprocess.DEVNULL,
                              env={**os.environ, "RACKRAIL_NCCL_LIBRARY": self.nccl,
                                   "RACKRAIL_CUBLAS_LIBRARY": "libcublas.so.13"}) as process:
            try:
                self.wait_for(mark, process)
                process.send_signal(number)
                self.assertEqual(process.wait(60), 128 + number)
            finally:
                process.kill()
        self.assert_gone(mark.read_text())
        self.assertEqual(self.outcomes()[1]["conformance tests"], "under way")

    def wait_for(self, mark, process):
        for _ in range(3000):
            if mark.exists():
                return
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        self.fail(f"there is no {mark.name}")

    def test_a_report_that_cannot_be_written_ends_nothing(self):
        checker = self.load_script()
        calls = []

        def fails():
            calls.append(1)
            raise OSError("no space left")
        checker_run = checker.Run(60, fails)
        self.assertEqual(checker_run.part("one", lambda r: r.step("x", ["echo", "y"], 30)), "y\n")
        self.assertIsNone(checker_run.part("two", lambda _: fails()))
        self.assertEqual([step["outcome"] for step in checker_run.steps],
                         ["good", "given up: OSError: no space left"])
        self.assertGreater(len(calls), 2)

    def test_what_a_program_leaves_behind_ends_with_it(self):
        checker = self.load_script()
        status, pid = checker.execute(["sh", "-c", "sleep 300 > /dev/null 2>&1 & echo $!"], 60)
        self.assertEqual(status, 0)
        self.assert_gone(pid)

    def assert_gone(self, pid):
        for _ in range(600):
            try:
                state = pathlib.Path("/proc", pid.strip(), "stat").read_text()
            except OSError:
                return
            if state.rpartition(") ")[2][0] == "Z":  # of whoever takes orphans in
                return
            time.sleep(0.1)
        self.fail(f"process {pid} is still there")

    def test_a_report_is_there_before_the_last_step(self):
        checker = self.load_script()
        report = {"device": "a GPU", "date": "today", "revision": "r", "cuda": "c", "steps": [],
                  "verification": [], "timings": [], "training": [], "nccl": [], "ddp": [], "cases": {}}
        checker_run = checker.Run(60, lambda: checker.write(report, self.output))
        report["steps"] = checker_run.steps
        look = f"grep -q 'under way' {self.output}/gpu-report.json"
        self.assertEqual(checker_run.step("one", ["sh", "-c", look], 30), "")

        def fails(_run):
            report["timings"] = [{"no": "row"}]  # of which there is no table either
            raise KeyError("speed")

        checker_run.part("two", fails)
        steps = json.loads((self.output / "gpu-report.json").read_text())["steps"]
        self.assertEqual([step["outcome"] for step in steps],
                         ["good", "given up: KeyError: 'speed'"])
        self.assertIn("# no table: KeyError", (self.output / "gpu-report.md").read_text())

    def test_a_driver_that_says_nothing_is_no_gpu(self):
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        checker.PROBE_LIMIT = 1
        self.add_program("gpu_check", "#!/bin/sh\nexec sleep 300\n")
        self.assertEqual(checker.probe(checker.Run(60), {}), "the driver said nothing for 1 s")
        self.add_program("gpu_check", "#!/bin/sh\necho '{{'\n")
        self.assertIn("Expecting", checker.probe(checker.Run(60), {}))

    def test_what_hangs_takes_no_other_parts_time(self):
        checker = self.load_script()
        self.addCleanup(setattr, gpu_steps, "LEAST_TIME", gpu_steps.LEAST_TIME)
        gpu_steps.LEAST_TIME = 1
        run = checker.Run(9)
        for name, left in (("one", 6), ("two", 3), ("three", 0)):
            run.part(name, lambda r: [r.step("hangs", ["sleep", "300"], 60),
                                      r.step("comes after it", ["true"], 60)], left_for_others=left)
        self.assertEqual([step["outcome"] for step in run.steps], ["stopped after 3 s", "no time left"] * 3)

    def test_all_parts_fit_into_eight_minutes(self):
        checker = self.load_script()
        longest_step = gpu_steps.END_LIMIT + 2
        self.assertLess(checker.TIME_LIMIT + longest_step + checker.PROBE_LIMIT / 4, 480)
        for _, _, seconds in checker.PARTS:
            self.assertGreaterEqual(seconds, 20)

    def test_ddp_is_checked_where_a_python_has_pytorch_and_a_gpu(self):
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        (self.bundle / "torch_check.py").write_text(TORCH_CHECK)
        python = self.bundle / "tools" / "python3"
        python.parent.mkdir()
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{python.parent}:{path}"
        self.addCleanup(os.environ.update, PATH=path)
        for says, reason in (("PyTorch 9.9 sees no GPU", "PyTorch 9.9 sees no GPU"),
                             ("ModuleNotFoundError: No module named 'torch'", "No module named 'torch'"),
                             ("good", None)):
            with self.subTest(says=says):
                python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && {{ echo "{says}"; exit; }}\n'
                                  f'exec {sys.executable} "$@"\n')
                python.chmod(0o755)
                checker.sys = types.SimpleNamespace(executable=None)
                checker.ucx_with_cuda = lambda run: ([], None)
                run, report = checker.Run(60), {"libraries": {"nccl": "x"}, "ddp": []}
                checker.check_torch(run, report, None)
                outcomes = [step["outcome"] for step in run.steps]
                if reason:
                    self.assertEqual(len(outcomes), 4)
                    self.assertTrue(all(each.startswith("skipped") and reason in each for each in outcomes))
                else:
                    self.assertEqual(outcomes, ["good"] * 4, run.steps)
                    self.assertEqual([(each["path"], each["codec"], each["ranks"]) for each in report["ddp"]],
                                     [("staged", "none", 2), ("nccl", "int8", 2), ("hybrid", "none", 4),
                                      ("direct", "none", 2)])

    def test_a_library_that_pytorchs_process_cannot_load_is_a_failure(self):
        checker = self.load_script()
        checker.BUNDLE = self.bundle
        run = checker.Run(60)
        answers = iter(["PyTorch is there\nGLIBCXX_3.4.30 not found\n", "no loader"])
        run.asked = lambda command, limit, shows_errors: next(answers)
        report = {"libraries": {"nccl": "x"}, "ddp": []}
        run.part("PyTorch", checker.check_torch, report, None)
        self.assertIn("GLIBCXX_3.4.30 not found", run.steps[0]["outcome"])
        self.assertTrue(run.steps[0]["required"])

    def test_without_libraries_no_training_is_planned(self):
        checker = self.load_script()
        checker.PATHS = checker.WITH_NCCL
        run = checker.Run(60)
        for libraries, expected in (({"cublas": None, "nccl": "x"}, "no cuBLAS on this machine"),
                                    ({"cublas": "x", "nccl": None}, "no libnccl.so.2")):
            report = {"libraries": libraries, "training": []}
            checker.check_planned(run, report, None)
            for step in run.steps[-3:]:
                self.assertIn(expected, step["outcome"])

    def test_whether_enough_is_hidden_depends_on_the_plan(self):
        reached = self.load_script().reached
        for predicted, measured, expected in ((0.95, 0.91, True), (0.95, 0.89, False),
                                              (0.89, 0.95, None), (None, None, None)):
            self.assertIs(reached({"predicted_hidden_share": predicted,
                                   "measured_hidden_share": measured}), expected)

    def without_a_gpu(self):
        self.add_program("gpu_check", '#!/bin/sh\n[ "$1" = --help ] || '
                         '{ echo "gpu_check: no GPU: none" >&2; exit 1; }\n')

    def test_without_a_gpu_the_report_says_what_was_skipped(self):
        self.without_a_gpu()
        result = self.check()
        self.assertEqual((result.returncode, result.stderr), (1, "gpu-check: no GPU: none\n"))
        report, outcomes = self.outcomes()
        for name in ("gpu_check", "conformance_codec_test", "nccl_check", "rackrail"):
            self.assertEqual(outcomes[f"{name} starts"], "good")
        for name in ("conformance tests", "verification", "timings", "NCCL, 4 ranks on one GPU",
                     "NCCL in pairs, UCX between them, 4 ranks, from the GPU's memory",
                     "training of 2 nodes of 2 ranks, NCCL inside, UCX between",
                     "PyTorch, 2 ranks, staged, codec none",
                     "planned training, 4 ranks, nccl", "compute-sanitizer",
                     "NCCL, 4 ranks, one of which is killed",
                     "training of 2 nodes of 2 ranks, whose rank 1 is killed"):
            self.assertEqual(outcomes[name], "skipped: no GPU: none")
            self.assertIn(f"{name}: skipped: no GPU: none", result.stdout)
        for key in ("verification", "timings", "training", "nccl"):
            self.assertEqual(report[key], [])
        self.assertIn("# no GPU", (self.output / "gpu-report.md").read_text())

    def test_a_dry_run_needs_no_gpu_but_whole_programs(self):
        self.without_a_gpu()
        self.assertEqual(self.check("--dry-run").returncode, 0)
        for name in ("timings", "direct messages refused, MPS"):
            self.assertEqual(self.outcomes()[1][name], "skipped: dry run")
        self.add_program("nccl_check", "#!/bin/sh\necho no libx.so.1; exit 127\n")
        result = self.check("--dry-run")
        self.assertEqual(result.returncode, 1)
        self.assertIn("| nccl_check starts | exit status 127 |", result.stdout)
        self.assertIn("no libx.so.1", result.stdout)

    def test_a_bundle_that_lacks_a_program_is_refused(self):
        (self.bundle / "bin" / "nccl_check").unlink()
        result = self.check()
        self.assertEqual(result.returncode, 2)
        self.assertIn("no nccl_check in", result.stderr)

    def test_bad_arguments(self):
        result = run(sys.executable, str(self.bundle / "gpu-check"), "--fast")
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
