"""The program behind scripts/gpu-check on an emulated GPU: it verifies and times every codec.

    gpu_check_program_test.py PATH-OF-PROGRAM
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


class Program(unittest.TestCase):
    def test_a_report_has_every_codec_and_all_agree(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder, "report.json")
            result = run(PROGRAM, "--verify", "20001", "--time", "4096", "--blocks", "2",
                         "--output", str(output))
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(output.read_text())
        for row in report["verification"]:
            with self.subTest(**row):
                self.assertTrue(row["good"])
        checked = {(row["codec"], row["what"]) for row in report["verification"]}
        for codec in ("fp16", "bf16", "int8", "fp8", "fp8e5m2"):
            self.assertIn((codec, "reduce of 8"), checked)
            self.assertIn((codec, "reduce of 8 and floats"), checked)
            self.assertIn((codec, "reduce of 2 and floats in a graph"), checked)
        for codec in ("none", "fp16", "bf16", "int8", "fp8", "fp8e5m2", "topk", "randomk"):
            self.assertIn((codec, "its residual"), checked)
            for what in ("encode", "decode", "decode and add", "encode with feedback"):
                self.assertIn((codec, f"{what} in a graph"), checked)
        timings = {row["what"]: row for row in report["timings"]}
        self.assertAlmostEqual(timings["int8 encode"]["bytes_per_element"], 4 + 1 + 4 / 256)
        self.assertAlmostEqual(timings["fp16 reduce of 8"]["bytes_per_element"], 18)
        self.assertAlmostEqual(timings["fp16 reduce of 8 and floats"]["bytes_per_element"], 22)
        self.assertAlmostEqual(timings["fp16 encode with feedback"]["bytes_per_element"], 14)
        for row in report["timings"]:
            self.assertGreater(row["median_s"], 0)
            self.assertGreaterEqual(row["median_s"], row["fastest_s"])
        self.assertEqual(report["timings"][0]["what"], "device copy")
        self.assertEqual(report["timings"][-1]["what"], "device copy")
        copy = max(report["timings"][i]["bytes_per_s"] for i in (0, -1))
        for row in report["timings"]:
            self.assertAlmostEqual(row["share_of_copy"] * copy / row["bytes_per_s"], 1)

    def test_one_codec_alone(self):
        result = run(PROGRAM, "--verify", "1001", "--time", "0", "--codec", "int8")
        report = json.loads(result.stdout)
        self.assertEqual(report["codecs"], ["int8"])
        self.assertEqual({row["codec"] for row in report["verification"]}, {"int8"})
        self.assertNotIn("under_way", report)
        self.assertNotEqual(run(PROGRAM, "--codec", "int9").returncode, 0)

    def test_bad_arguments_and_unwritable_output(self):
        self.assertEqual(run(PROGRAM, "--verify", "many").returncode, 2)
        result = run(PROGRAM, "--verify", "0", "--time", "0", "--output", "/nonexistent/x")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/x", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
