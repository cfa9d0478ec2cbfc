"""scripts/make-wheel: a wheel that brings along what it loads, tried where there is nothing but Python."""

import os
import shutil
import subprocess
import sys
import unittest

from ranks import LIBRARY, RankTest, harness

MAKE = harness.SOURCE / "scripts/make-wheel"


HAS_ROOT = os.geteuid() == 0 and shutil.which("debootstrap", path="/usr/sbin:/usr/bin") is not None


@unittest.skipUnless(HAS_ROOT, "it needs root and debootstrap")
class Wheel(RankTest):
    def test_it_loads_and_sums_in_another_debian(self):
        found = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", self.folder,
                                "wheel"], capture_output=True, timeout=100, check=False)
        if found.returncode != 0:
            self.skipTest("pip reaches no index of packages")
        done = subprocess.run([MAKE, "-o", self.folder, "--check"], capture_output=True, text=True, timeout=500,
                              env={**os.environ, "RACKRAIL_LIBRARY": LIBRARY}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertRegex(done.stdout, r"rackrail-[\d.]+-py3-none-manylinux_2_\d+_x86_64\.whl: \d+\.\d MiB")
        self.assertIn("rank 0 has the sum", done.stdout)
        self.assertIn("rank 1 has the sum", done.stdout)


if __name__ == "__main__":
    harness.main()
