"""A codec is its file, its line in the list and its test: nothing else in the program knows it."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CODECS = ROOT / "plan" / "codecs"
FOLDERS = ("base", "topology", "plan", "planner", "sim", "runtime", "cli", "explore")
# FP32 and FP16 are the planner's baselines, so it names them.
BASELINES = {"none", "fp16"}


class CodecFiles(unittest.TestCase):
    def codecs(self):
        """(kind, name of the file) of each line of the list."""
        lines = (CODECS / "registered.inc").read_text()
        return re.findall(r"^RACKRAIL_CODEC\((\w+), (\w+)\)", lines, re.MULTILINE)

    def test_every_codec_has_a_file_and_a_test(self):
        codecs = self.codecs()
        self.assertGreaterEqual(len(codecs), 4)
        for _, name in codecs:
            with self.subTest(codec=name):
                self.assertTrue((CODECS / f"{name}.cpp").is_file())
                test = ROOT / "tests/unit/plan/codecs" / f"{name}_test.cpp"
                self.assertTrue(name == "none" or test.is_file())  # FP32 changes nothing

    def test_no_other_source_names_one(self):
        sources = [path for folder in FOLDERS for pattern in ("*.cpp", "*.hpp", "*.txt", "*.proto")
                   for path in (ROOT / folder).rglob(pattern)]
        self.assertGreater(len(sources), 200)
        for kind, name in self.codecs():
            if name in BASELINES:
                continue
            word = re.compile(rf"\b{kind}\b|codecs/{name}\b|\b{name}\.cpp\b")
            for path in sources:
                if path != CODECS / f"{name}.cpp":
                    with self.subTest(codec=name, source=str(path.relative_to(ROOT))):
                        self.assertIsNone(word.search(path.read_text()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
