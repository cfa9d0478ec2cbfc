#!/usr/bin/env python3
"""Checks that includes only ever point down.

    include_direction.py ROOT

Folders: base <- topology <- plan <- {planner, sim, runtime} <- cli <- {tests, bench}. The three in
the middle never include each other; explore and export stand on planner and sim, below cli. planner/ has floors of its own (PLANNER). runtime/capi is a
room of its own beside cli: it joins planner, sim and runtime for programs that are not rackrail's.
Headers of third parties with heavy or optional dependencies stay where ALLOWED_HEADERS says. One
line per violation; exit status 1 if there is any.
"""

import re
import sys
from pathlib import Path

# A folder and all it may include, besides itself.
BELOW = {
    "base": set(),
    "topology": {"base"},
    "plan": {"base", "topology"},
    "planner": {"base", "topology", "plan"},
    "sim": {"base", "topology", "plan"},
    "runtime": {"base", "topology", "plan"},
    "explore": {"base", "topology", "plan", "planner", "sim"},
    "export": {"base", "topology", "plan", "planner", "sim"},
    "runtime/capi": {"base", "topology", "plan", "planner", "sim", "runtime"},
    "cli": {"base", "topology", "plan", "planner", "sim", "runtime", "explore", "export"},
}
# The folders of planner/, the lowest first: each may include those before it. Files of planner/ itself may
# include all, and none of the folders includes them.
PLANNER = ["request", "groups", "packing", "pipeline", "algorithms", "tuning", "placement", "batch", "compression",
           "search", "replan"]
LIBRARIES = set(BELOW)
TOP = {"tests", "bench"}

# (what, pattern of the included header, folder where even a .hpp may include it, whether a .cpp
# anywhere may). A header for which neither holds may only be included below that folder.
RESTRICTED_HEADERS = [
    ("UCX", re.compile(r"(ucp|uct|ucs|ucm)/"), "runtime/ucx/", False),
    ("CUDA", re.compile(r"(cuda|cudart|curand|cublas|nvml|cooperative_groups|cub/|thrust/)"),
     "runtime/cuda/", False),
    ("NCCL", re.compile(r"nccl"), "runtime/nccl/", False),
    ("Boost.Graph", re.compile(r"boost/graph/"), None, True),
    ("Protocol Buffers", re.compile(r"google/protobuf/|.*\.pb\.h$"), None, True),
    ("gRPC", re.compile(r"grpc(pp)?/"), None, True),
    ("Clp", re.compile(r"(coin/|Clp|Coin|Osi)"), None, True),
    ("Eigen", re.compile(r"Eigen/"), "runtime/trainer/", True),
    ("Highway", re.compile(r"hwy/"), "plan/codecs/vectors.hpp", True),
]
# nccl code also needs the CUDA runtime.
ALSO_ALLOWED = {"CUDA": ("runtime/nccl/",)}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
HEADERS = {".hpp", ".h", ".cuh", ".inl", ".ipp"}
SOURCES = {".cpp", ".cc", ".cu"}


def room_of(path):
    """The folder with rules of its own that a path from the root is in; None for a bare name."""
    parts = path.split("/")
    nested = "/".join(parts[:2])
    return nested if len(parts) > 2 and nested in BELOW else parts[0] if len(parts) > 1 else None


def above_in_planner(place, included):
    """Whether the file is in a folder of planner/ and includes what is above that."""
    here, there = (path.split("/") for path in (place, included))
    if here[0] != "planner" or there[0] != "planner" or len(here) < 3 or len(there) < 2:
        return False
    if len(there) == 2 or here[1] not in PLANNER or there[1] not in PLANNER:
        return True
    return PLANNER.index(there[1]) > PLANNER.index(here[1])


def violations_of(place, text):
    """The violations in a file: place is its path from the root, with forward slashes."""
    folder = room_of(place)
    is_header = Path(place).suffix in HEADERS
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, included = match.groups()
        target = room_of(included)
        where = f"{place}:{number}"

        if folder in LIBRARIES:
            if included.startswith("../") or "/../" in included:
                yield f"{where}: found \"{included}\", expected a path from the root"
            elif quote == '"' and target is None:
                yield f"{where}: found \"{included}\", expected a path from the root"
            elif quote == "<" and target in LIBRARIES and target != folder:
                yield f"{where}: found <{included}>, expected \"{included}\""
            elif target in LIBRARIES and target != folder and target not in BELOW[folder]:
                allowed = ", ".join(sorted(BELOW[folder])) or "nothing else"
                yield f"{where}: {folder}/ includes {included}, but may include only {allowed}"
            elif above_in_planner(place, included):
                yield f"{where}: includes {included}, which is above it: planner/ has {', '.join(PLANNER)}, lowest first"
            elif target in TOP:
                yield f"{where}: {folder}/ includes {included}, but {target}/ is above it"

        if folder in LIBRARIES:
            for name, pattern, home, in_sources in RESTRICTED_HEADERS:
                if not pattern.match(included):
                    continue
                homes = ([home] if home else []) + list(ALSO_ALLOWED.get(name, ()))
                if any(place.startswith(h) for h in homes):
                    continue
                if in_sources and not is_header:
                    continue
                rule = "only a .cpp" if in_sources else "only " + " and ".join(homes)
                if in_sources and homes:
                    rule += " or a file in " + " and ".join(homes)
                yield f"{where}: includes {included}, but {rule} may include {name}"


def check(root):
    """(number of files read, list of violations)."""
    root = Path(root)
    files = 0
    found = []
    for folder in sorted(name for name in LIBRARIES if "/" not in name):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in HEADERS | SOURCES and path.is_file():
                files += 1
                place = path.relative_to(root).as_posix()
                found += violations_of(place, path.read_text(encoding="utf-8", errors="replace"))
    return files, found


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: include_direction.py ROOT")
    files, found = check(sys.argv[1])
    for line in found:
        print(line)
    print(f"{files} files, {len(found)} violations")
    if files == 0:
        print(f"no source file below {sys.argv[1]}: nothing was checked")
    sys.exit(1 if found or files == 0 else 0)


if __name__ == "__main__":
    main()
