"""The program behind scripts/gpu-check, on an emulated GPU: that it verifies, measures and reports."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()


class GpuCheck(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=200)

    def test_a_report_has_every_codec_and_all_agree(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder, "report.json")
            result = self.run_program("--verify", "70001", "--time", "4096", "--blocks", "2",
                                      "--output", str(output))
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(output.read_text())
        for row in report["verification"]:
            with self.subTest(**row):
                self.assertTrue(row["good"])
        checked = {(row["codec"], row["what"]) for row in report["verification"]}
        for codec in ("fp16", "bf16", "int8", "fp8"):
            self.assertIn((codec, "reduce of 8"), checked)
            self.assertIn((codec, "encode in a graph"), checked)
        self.assertIn(("topk", "its residual"), checked)
        timings = {row["what"]: row for row in report["timings"]}
        self.assertAlmostEqual(timings["int8 encode"]["bytes_per_element"], 4 + 1 + 4 / 256)
        self.assertAlmostEqual(timings["fp16 reduce of 8"]["bytes_per_element"], 18)
        self.assertAlmostEqual(timings["fp16 encode with feedback"]["bytes_per_element"], 14)
        for row in report["timings"]:
            self.assertGreater(row["median_s"], 0)
            self.assertGreaterEqual(row["median_s"], row["fastest_s"])
        self.assertEqual(report["timings"][0]["what"], "device copy")
        self.assertEqual(report["timings"][-1]["what"], "device copy")

    def test_bad_arguments_and_unwritable_output(self):
        self.assertEqual(self.run_program("--verify", "many").returncode, 2)
        result = self.run_program("--verify", "0", "--time", "0", "--output", "/nonexistent/x")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/x", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
