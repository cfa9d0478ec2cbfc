#!/usr/bin/env python3
"""Every *_test.py is a test that ctest knows, and every *_test.cpp is compiled into one; every *_fuzz.cpp is a fuzzer.

    registered_test.py SOURCE_DIR BUILD_DIR [--without-cuda]

--without-cuda: the build found no CUDA toolkit, and files of tests that need one count as skipped.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

# Of these two only one is compiled: where SimGrid is, and where it is not.
OF_CUDA = re.compile("cuda|nccl|gpu|device")
ONE_OF = {"tests/property/sim/simgrid_test.cpp", "tests/property/sim/simgrid_absent_test.cpp"}


def compiled(build):
    """What the build folder compiles, what a unity build's files include among it."""
    sources = set()
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = Path(entry["directory"], entry["file"])
        sources.add(source.resolve())
        if re.fullmatch(r"unity_\d+_cxx\.cxx", source.name):
            included = re.findall(r'(?m)^#include "(/.*)"$', source.read_text(encoding="utf-8"))
            sources.update(Path(each).resolve() for each in included)
    return sources


def run(build):
    """The files that the commands of its tests name."""
    listing = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True,
                             stdout=subprocess.PIPE).stdout
    return {Path(word).resolve() for test in json.loads(listing)["tests"]
            for word in test.get("command", []) if word.endswith(".py")}


def forgotten_fuzzers(source):
    listed = re.findall(r"(?m)^add_fuzzer\((\w+)", (source / "tests/fuzz/CMakeLists.txt").read_text(encoding="utf-8"))
    return [path for path in source.glob("tests/fuzz/*_fuzz.cpp")
            if path.name.removesuffix("_fuzz.cpp") not in listed]


def main():
    source, build = (Path(argument).resolve() for argument in sys.argv[1:3])
    has_cuda = "--without-cuda" not in sys.argv[3:]
    known = compiled(build) | run(build)
    tests = [path for kind in ("cpp", "py") for path in sorted(source.glob(f"tests/**/*_test.{kind}"))]
    if not tests:
        sys.exit(f"no tests below {source}/tests")
    missing = [path.relative_to(source).as_posix() for path in tests if path.resolve() not in known]
    missing = [path for path in missing if path not in ONE_OF]
    skipped = [path for path in missing if not has_cuda and OF_CUDA.search(path)]
    forgotten = [path for path in missing if path not in skipped]
    forgotten += [path.relative_to(source).as_posix() for path in forgotten_fuzzers(source)]
    for path in skipped:
        print(f"SKIPPED: {path}: no CUDA toolkit")
    for path in forgotten:
        print(f"FAILED: {path}: no CMakeLists.txt registers it")
    print(f"{len(tests) - len(missing)} passed, {len(forgotten)} failed, {len(skipped)} skipped")
    sys.exit(1 if forgotten else 0)


if __name__ == "__main__":
    main()
