"""`import rackrail`: what it says where the library is not what it must be."""

import shutil
import subprocess
import unittest

from ranks import RankTest, harness

STUB = """
const char* rackrail_version(void) {{ return "{version}"; }}
int rackrail_interface(void) {{ return {interface}; }}
const char* rackrail_unavailable(void) {{ return {unavailable}; }}
"""
OTHERS = ("last_error", "init", "rank", "world_size", "all_reduce", "plan", "start", "wait",
          "forget_errors", "describe", "finish", "abort", "destroy")


@unittest.skipUnless(shutil.which("cc"), "no C compiler here to make stub libraries with")
class Stubs(RankTest):
    """Libraries that are what a wrong installation has."""

    def stub(self, version="0.1.0", interface=4, unavailable="0", others=OTHERS):
        text = STUB.format(version=version, interface=interface, unavailable=unavailable)
        text += "".join(f"int rackrail_{name}(void) {{ return 0; }}\n" for name in others)
        return self.compiled(text)

    def compiled(self, text):
        source = self.write("stub.c", text)
        library = self.folder / "librackrail.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return str(library)

    def assert_import_fails(self, library, sentence):
        result = self.run_python("-c", "import rackrail", status=1, RACKRAIL_LIBRARY=library)
        last = result.err.strip().splitlines()[-1]
        self.assertRegex(last, r"\AImportError: rackrail: [^\n]+\Z")
        self.assertRegex(last, sentence)
        self.assertNotIn("During handling", result.err)

    def test_a_library_that_fits_the_package(self):
        self.run_python("-c", "import rackrail", RACKRAIL_LIBRARY=self.stub())

    def test_another_version(self):
        self.assert_import_fails(self.stub(version="0.2.0"),
                                 r"is version 0\.2\.0 \(interface 4\), this package needs 0\.1\.0")
        self.assert_import_fails(self.stub(interface=5), r"\(interface 5\), this package needs")

    def test_a_build_without_a_backend(self):
        self.assert_import_fails(self.stub(unavailable='"no transport: switched off"'),
                                 "no transport: switched off")

    def test_a_library_that_lacks_a_function(self):
        self.assert_import_fails(self.stub(others=OTHERS[:-1]), "has no rackrail_destroy")

    def test_another_library(self):
        self.assert_import_fails(self.compiled("int unrelated(void) { return 0; }\n"),
                                 "is no library of rackrail")


class Missing(RankTest):
    assert_import_fails = Stubs.assert_import_fails

    def test_no_such_file(self):
        self.assert_import_fails(str(self.folder / "librackrail.so"),
                                 "its library cannot be loaded: .*librackrail.so")


class Versions(RankTest):
    def test_package_and_library_of_this_tree_agree(self):
        result = self.run_python("-c", "import rackrail; print(rackrail.__version__)")
        project = (harness.SOURCE / "CMakeLists.txt").read_text(encoding="utf-8")
        self.assertIn(f"project(rackrail VERSION {result.out.strip()} ", project)
        wheel = (harness.SOURCE / "python/pyproject.toml").read_text(encoding="utf-8")
        self.assertIn(f'version = "{result.out.strip()}"', wheel)


if __name__ == "__main__":
    harness.main()
