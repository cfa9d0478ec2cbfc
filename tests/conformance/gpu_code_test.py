"""What nvcc has made: every file with kernels holds machine code for the GPUs that this project is built for.

    gpu_code_test.py PATH-OF-THE-LIBRARY ARCHITECTURES

Both are - where there is no CUDA; architectures are as CMake has them, 80,90. Device code lies in a
section of its own, as containers with one entry for each architecture; cuobjdump lists the same, but does
not come with every nvcc.
"""
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ARCHITECTURES = sys.argv.pop()
LIBRARY = sys.argv.pop()
SOURCES = Path(__file__).resolve().parents[2] / "runtime" / "cuda"
SECTION = ".nv_fatbin"
CONTAINER = struct.Struct("<IHHQ")         # magic, version, size of this, size of the entries
ENTRY = struct.Struct("<HHIQIIHHI")        # kind, version, size of this, size, …, architecture
MAGIC = 0xBA55ED50
MACHINE_CODE = 2  # the other kind is PTX, which the driver would compile


def architectures(section):
    """Of the machine code in such a section."""
    found, at = set(), 0
    while at + CONTAINER.size <= len(section):
        magic, _, head, size = CONTAINER.unpack_from(section, at)
        if magic != MAGIC:  # what aligns the next one
            at += 8
            continue
        entry, end = at + head, at + head + size
        while entry < end:
            kind, _, entry_head, entry_size, *_, architecture = ENTRY.unpack_from(section, entry)
            if kind == MACHINE_CODE:
                found.add(architecture)
            entry += entry_head + entry_size
        at = end
    return found


@unittest.skipIf(LIBRARY == "-", "built without CUDA")
class GpuCode(unittest.TestCase):
    def test_every_file_with_kernels_has_code_for_every_architecture(self):
        wanted = {int(word.partition("-")[0]) for word in ARCHITECTURES.split(",")}
        self.assertLessEqual({80, 90}, wanted)
        expected = {file.name for file in SOURCES.glob("*.cu")}
        members = subprocess.run(["ar", "t", LIBRARY], capture_output=True, text=True, check=True).stdout
        objects = [name for name in members.split() if name.endswith(".cu.o")]
        self.assertEqual({name.removesuffix(".o") for name in objects}, expected)
        with tempfile.TemporaryDirectory() as folder:
            for name in objects:
                with self.subTest(file=name):
                    file, section = Path(folder, name), Path(folder, "section")
                    file.write_bytes(subprocess.run(["ar", "p", LIBRARY, name], capture_output=True,
                                                    check=True).stdout)
                    subprocess.run(["objcopy", "--dump-section", f"{SECTION}={section}", str(file)],
                                   check=True)
                    self.assertEqual(architectures(section.read_bytes()), wanted)


if __name__ == "__main__":
    unittest.main()
