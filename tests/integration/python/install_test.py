"""`pip install` of the package: the library comes along, and nothing of the source tree is needed."""

import os
import shutil
import unittest

from ranks import LIBRARY, PACKAGE, RankTest, harness, python_with

# What builds it where there is no network to fetch it from; newer setuptools have wheel's command.
PYTHON, WHY_NOT = python_with("setuptools, wheel, pip")


@unittest.skipUnless(PYTHON, WHY_NOT)
class Install(RankTest):
    PYTHON = PYTHON

    def setUp(self):
        super().setUp()
        # pip leaves its own files where it builds.
        shutil.copytree(PACKAGE, self.folder / "source",
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))

    def install(self, library, path="", status=0):
        return self.run_python(
            "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
            "--disable-pip-version-check", "--root-user-action", "ignore", "--target",
            str(self.folder / "site"), str(self.folder / "source"), status=status, PYTHONPATH=path,
            RACKRAIL_LIBRARY=library, TMPDIR=str(self.folder))

    def run_installed(self, program, status=0):
        """Without any variable that names the library."""
        return self.run_python("-c", program, status=status, PYTHONPATH=str(self.folder / "site"),
                               RACKRAIL_LIBRARY="")

    def test_the_library_comes_along(self):
        self.install(LIBRARY)
        result = self.run_installed("import rackrail; print(rackrail.__file__, rackrail.world_size())")
        self.assertEqual(result.out.split(), [str(self.folder / "site/rackrail/__init__.py"), "1"])
        wheel = next((self.folder / "site").glob("rackrail-*.dist-info")) / "WHEEL"
        self.assertRegex(wheel.read_text(encoding="utf-8"), r"(?m)^Tag: py3-none-linux_\w+$")

    def test_without_wheel_it_says_so(self):
        self.write("without/wheel/__init__.py", "raise ModuleNotFoundError('wheel')")
        result = self.install(LIBRARY, str(self.folder / "without"), status=None)
        if result.status == 0:
            self.skipTest("setuptools has a command of its own")
        self.assertIn("rackrail: found neither setuptools 70.1 nor the package wheel", result.err)
        self.assertNotIn("Traceback", result.err)

    @unittest.skipIf(os.path.exists("/usr/lib/librackrail.so"), "the machine has the library")
    def test_without_a_library_the_import_says_so(self):
        source = self.folder / "source" / "setup.py"
        source.write_text(source.read_text(encoding="utf-8").replace("HERE.parent", "HERE"),
                          encoding="utf-8")
        self.install("")
        result = self.run_installed("import rackrail", status=1)
        self.assertRegex(result.err.strip().splitlines()[-1],
                         r"\AImportError: rackrail: its library cannot be loaded: .*make build")


if __name__ == "__main__":
    harness.main()
