"""The example for DistributedDataParallel: short, an ordinary script, and it learns."""

import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")


@unittest.skipUnless(PYTHON, WHY_NOT)
class Example(RankTest):
    PYTHON = PYTHON

    EXAMPLE = harness.SOURCE / "python/examples/digits_ddp.py"
    DIGITS = harness.SOURCE / "configs/data/digits.csv"

    def assert_learnt(self, result, epochs=3):
        lines = result.out.splitlines()
        self.assertEqual(len(lines), epochs, str(result))
        self.assertGreater(float(lines[-1].rpartition("accuracy ")[2].rstrip(" %")), 85)

    def test_the_example_learns(self):
        for model, epochs in (("cnn", 3), ("transformer", 5)):
            with self.subTest(model=model):
                results = self.run_ranks(2, self.EXAMPLE, "--model", model, "--epochs", str(epochs))
                self.assert_learnt(results[0], epochs)

    def test_it_is_short_and_an_ordinary_script_but_for_three_lines(self):
        lines = self.EXAMPLE.read_text(encoding="utf-8").splitlines()
        self.assertLessEqual(len(lines), 60)
        ordinary = [line for line in lines if not line.endswith("# rackrail")]
        self.assertLessEqual(len(lines) - len(ordinary), 3)
        self.assertFalse([line for line in ordinary[ordinary.index("import argparse"):] if "rackrail" in line])
        script = self.copied("ordinary", "\n".join(ordinary) + "\n")
        self.assert_learnt(self.run_ranks(2, script, "--epochs", "3", "--digits", self.DIGITS)[0])

    def copied(self, folder, text):
        """A script in the place of the example's, with what lies beside that."""
        for beside in ("digits.py", "digits_torch.py"):
            self.write(f"{folder}/{beside}", self.EXAMPLE.with_name(beside).read_text(encoding="utf-8"))
        return self.write(f"{folder}/digits_ddp.py", text)

    def test_a_copy_says_what_it_looks_for_and_takes_it_from_elsewhere(self):
        copy = self.copied("there/else", self.EXAMPLE.read_text(encoding="utf-8"))
        result = self.run_python(copy, status=2)
        self.assertEqual(result.err.splitlines()[-1],
                         f"digits_ddp.py: error: argument --digits: found no file {self.folder}/configs/data/digits.csv,"
                         " expected the digits of rackrail's source tree: say --digits"
                         " RACKRAIL/configs/data/digits.csv")
        self.assertNotIn("Traceback", result.err)
        results = self.run_ranks(2, copy, "--epochs", "1", "--digits", self.DIGITS)
        self.assertRegex(results[0].out, r"\Aepoch 1: .*accuracy")

    def test_the_example_learns_under_torchrun(self):
        def torchrun(*command, **options):
            return self.run_python("-m", "torch.distributed.run", "--nproc_per_node", "2",
                                   "--master_port", harness.free_ports(2), *command, **options)
        # The second time for PyTorch 1.13 with Python 3.11 (python/README.md).
        for around in ((), ("--redirects", "9:1", "--tee", "9:1")):
            trial = torchrun(*around, self.write("nothing.py", ""), status=None)
            if trial.status == 0:
                break
        else:
            self.skipTest("torchrun itself fails here: " + trial.err.strip().splitlines()[-1])
        self.assert_learnt(torchrun(*around, self.EXAMPLE, "--model", "cnn", "--epochs", "3"))
        self.assert_no_processes_left()


if __name__ == "__main__":
    harness.main()
