"""scripts/gpu-bundle: what it collects runs where there is nothing but a C library."""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import harness
from training import SMALL_WORKLOAD, TWO_HOSTS, small_training

BUILD = Path(harness.COMMAND).parents[1]
MOST_BYTES = 60 * 2 ** 20
# In mounts of its own: a root that has what kernels give, and else only what is put there.
INSIDE = """set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
root=$1
shift
exec chroot "$root" "$@"
"""


def why_no_root():
    """Why there can be no other root here; None where there can."""
    if not shutil.which("unshare"):
        return "unshare is not installed"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none",
                            "/mnt"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip() or "unshare failed"


class Bundle(harness.CommandTest):
    def setUp(self):
        super().setUp()
        self.bundle = self.folder / "root" / "bundle"
        self.collect(BUILD, self.bundle, "bin/rackrail")

    def collect(self, *arguments, status=0):
        result = subprocess.run([harness.SOURCE / "scripts" / "gpu-bundle", "--collect", *arguments],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def make_root(self):
        """A root with the C library of the bundle, as if it were the machine's."""
        root = self.bundle.parent
        libraries = root / "lib" / "x86_64-linux-gnu"
        shutil.copytree(self.bundle / "glibc", libraries)
        (root / "lib64").mkdir()
        (libraries / "ld-linux-x86-64.so.2").rename(root / "lib64" / "ld-linux-x86-64.so.2")
        shutil.rmtree(self.bundle / "glibc")
        return self.make_folders(root)

    def make_folders(self, root):
        for name in ("proc", "sys", "dev", "tmp", "job"):
            (root / name).mkdir()
        return root

    def in_root(self, *words, loader=()):
        """Runs the command in the root, by a relative path."""
        result = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", INSIDE, "sh", self.bundle.parent,
             *loader, "bundle/bin/rackrail", *words],
            capture_output=True, text=True, check=False, timeout=harness.TIMEOUT,
            env={"PATH": os.environ["PATH"], harness.MARK: self.mark})
        self.assertEqual(result.returncode, 0, f"{words}: {result.stdout}{result.stderr}")
        return harness.Result(list(words), result.returncode, result.stdout, result.stderr, 0)

    def test_it_has_all_that_the_command_needs_and_is_small(self):
        for name in ("bin/rackrail", "glibc/libc.so.6", "glibc/ld-linux-x86-64.so.2", "gpu-check",
                     "share/rackrail/configs/training/digits-mlp.yaml"):
            self.assertTrue((self.bundle / name).is_file(), name)
        files = [file for file in self.bundle.rglob("*") if file.is_file()]
        self.assertEqual([file for file in files if file.is_symlink()], [])
        self.assertLess(sum(file.stat().st_size for file in files), MOST_BYTES)

    def test_its_scripts_find_what_they_import(self):
        for script in ("gpu-check", "torch_check.py"):
            result = subprocess.run([sys.executable, str(self.bundle / script), "--help"], check=False,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_it_trains_in_a_root_that_has_nothing_else(self):
        if reason := why_no_root():
            self.skipTest(reason)
        self.train_in(self.make_root())

    def test_it_brings_a_c_library_along_which_its_workers_take_too(self):
        """As on a system whose own is older: here there is none."""
        if reason := why_no_root():
            self.skipTest(reason)
        self.train_in(self.make_folders(self.bundle.parent), loader=(
            "bundle/glibc/ld-linux-x86-64.so.2", "--library-path", "bundle/glibc:bundle/lib"))

    def train_in(self, root, loader=()):
        data = "/bundle/share/rackrail/configs/data/digits.csv"
        for name, text in (("small.yaml", small_training(data=data)),
                           ("workload.yaml", SMALL_WORKLOAD), ("two-hosts.csv", TWO_HOSTS)):
            (root / "job" / name).write_text(text)
        info = self.in_root("info", "--json", loader=loader).json
        self.assertEqual(info["configs"], "/bundle/share/rackrail/configs")
        transports = {each["name"]: each for each in info["features"]}
        self.in_root("plan", "/job/two-hosts.csv", "/job/workload.yaml", "--local-batch", "16",
                     "-o", "/job/plan.json", loader=loader)
        run = self.in_root("train", "/job/plan.json", "--cluster", "/job/two-hosts.csv",
                           "--training", "/job/small.yaml", "--workers", "2", "--json",
                           loader=loader).json
        self.assertTrue(run["parameters_agree"])
        self.assertLess(run["losses"][-1], run["losses"][0])
        ucx = transports["transport: ucx"]
        if ucx["available"]:
            self.assertEqual(run["transport"], "ucx")
            if (self.bundle / "lib" / "ucx" / "libuct_cma.so.0").exists():
                self.assertIn("cma", ucx["detail"])

    def test_bad_arguments(self):
        for arguments in ((), (BUILD, self.folder / "other")):
            self.assertIn("--collect needs", self.collect(*arguments, status=1).stderr)
        result = subprocess.run([harness.SOURCE / "scripts" / "gpu-bundle", "--fast"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("'--fast'", result.stderr)


if __name__ == "__main__":
    harness.main()
