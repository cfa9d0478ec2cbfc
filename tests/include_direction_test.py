#!/usr/bin/env python3
"""Proves that include_direction.py catches what it is there for."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import include_direction  # noqa: E402


def caught(place, *lines):
    return list(include_direction.violations_of(place, "\n".join(lines) + "\n"))


class Directions(unittest.TestCase):
    def test_down_is_allowed(self):
        for place, line in [
            ("base/a.cpp", '#include "base/a.hpp"'),
            ("topology/a.hpp", '#include "base/units.hpp"'),
            ("planner/a.hpp", '#include "plan/plan.hpp"'),
            ("runtime/ucx/a.cpp", '#include "runtime/transport.hpp"'),
            ("cli/a.cpp", '#include "sim/a.hpp"'),
            ("sim/a.cpp", "#include <simd/plan.h>"),
            ("sim/a.cpp", "#include <vector>"),
        ]:
            self.assertEqual(caught(place, line), [], (place, line))

    def test_up_is_caught(self):
        order = ["base", "topology", "plan", "planner", "cli"]
        for i, low in enumerate(order):
            for high in order[i + 1:] + ["tests", "bench"]:
                for suffix in ("hpp", "cpp"):
                    self.assertEqual(
                        len(caught(f"{low}/a.{suffix}", f'#include "{high}/b.hpp"')), 1, (low, high))

    def test_the_floors_of_the_planner(self):
        for place, included, count in (
                ("planner/search/a.cpp", "planner/tuning/b.hpp", 0), ("planner/search/a.cpp", "planner/search/b.hpp", 0),
                ("planner/a.cpp", "planner/search/b.hpp", 0), ("planner/tuning/a.hpp", "planner/search/b.hpp", 1),
                ("planner/packing/a.cpp", "planner/pipeline/b.hpp", 1), ("planner/search/a.cpp", "planner/planner.hpp", 1),
                ("planner/new/a.cpp", "planner/groups/b.hpp", 1), ("cli/a.cpp", "planner/groups/b.hpp", 0)):
            self.assertEqual(len(caught(place, f'#include "{included}"')), count, (place, included))

    def test_brothers_are_caught(self):
        brothers = ["planner", "sim", "runtime"]
        for a in brothers:
            for b in brothers:
                expected = 0 if a == b else 1
                self.assertEqual(len(caught(f"{a}/x.cpp", f'#include "{b}/y.hpp"')), expected, (a, b))

    def test_the_c_interface_is_a_room_beside_cli(self):
        for below in ("base", "topology", "plan", "planner", "sim", "runtime"):
            self.assertEqual(caught("runtime/capi/a.cpp", f'#include "{below}/b.hpp"'), [], below)
            self.assertEqual(
                len(caught(f"{below}/a.cpp", '#include "runtime/capi/b.hpp"')), 1, below)
        for beside in ("explore", "cli"):
            self.assertEqual(len(caught("runtime/capi/a.cpp", f'#include "{beside}/b.hpp"')), 1)
        self.assertEqual(caught("runtime/capi/a.cpp", '#include "runtime/capi/b.h"'), [])
        self.assertEqual(len(caught("runtime/launch/a.cpp", '#include "planner/b.hpp"')), 1)
        self.assertEqual(len(caught("cli/a.cpp", '#include "runtime/capi/b.h"')), 1)

    def test_every_way_to_write_it_is_caught(self):
        for line in ['#include "cli/a.hpp"', "#include <cli/a.hpp>", '  #  include "cli/a.hpp"',
                     '#include "../cli/a.hpp"', '#include "sub/../../cli/a.hpp"']:
            self.assertEqual(len(caught("base/a.cpp", line)), 1, line)
        self.assertEqual(len(caught("base/a.cpp", '#include "units.hpp"')), 1)

    def test_the_line_is_named(self):
        (line,) = caught("base/a.hpp", "#pragma once", "", '#include "sim/b.hpp"')
        self.assertTrue(line.startswith("base/a.hpp:3: "), line)


class ThirdParty(unittest.TestCase):
    def test_backend_headers_stay_in_their_folder(self):
        for header, home in [("ucp/api/ucp.h", "runtime/ucx"), ("uct/api/uct.h", "runtime/ucx"),
                             ("cuda_runtime.h", "runtime/cuda"), ("cuda/std/span", "runtime/cuda"),
                             ("nccl.h", "runtime/nccl")]:
            line = f"#include <{header}>"
            for suffix in ("hpp", "cpp", "cu"):
                self.assertEqual(caught(f"{home}/a.{suffix}", line), [], header)
                for elsewhere in ("runtime", "runtime/other", "plan", "cli"):
                    self.assertEqual(len(caught(f"{elsewhere}/a.{suffix}", line)), 1, header)

    def test_nccl_may_use_the_cuda_runtime_but_not_the_other_way_round(self):
        self.assertEqual(caught("runtime/nccl/a.cpp", "#include <cuda_runtime.h>"), [])
        self.assertEqual(len(caught("runtime/cuda/a.cpp", "#include <nccl.h>")), 1)

    def test_heavy_headers_stay_in_sources(self):
        for line in ["#include <boost/graph/adjacency_list.hpp>", "#include <google/protobuf/message.h>",
                     "#include <grpcpp/grpcpp.h>", '#include "plan/plan.pb.h"',
                     '#include "runtime/coordinator/coordinator.grpc.pb.h"',
                     "#include <coin/ClpSimplex.hpp>", "#include <Eigen/Core>",
                     "#include <hwy/highway.h>"]:
            self.assertEqual(caught("runtime/a.cpp", line), [], line)
            self.assertEqual(len(caught("runtime/a.hpp", line)), 1, line)

    def test_explore_joins_planner_and_simulator_but_not_the_runtime(self):
        self.assertEqual(caught("explore/a.cpp", '#include "sim/b.hpp"', '#include "planner/b.hpp"'),
                         [])
        self.assertEqual(len(caught("explore/a.cpp", '#include "runtime/b.hpp"')), 1)
        self.assertEqual(len(caught("planner/a.cpp", '#include "explore/b.hpp"')), 1)
        self.assertEqual(caught("cli/a.cpp", '#include "explore/b.hpp"'), [])

    def test_highway_may_be_in_the_header_of_its_vectors(self):
        line = "#include <hwy/highway.h>"
        self.assertEqual(caught("plan/codecs/vectors.hpp", line), [])
        self.assertEqual(len(caught("plan/codecs/arithmetic.hpp", line)), 1)

    def test_eigen_may_be_in_the_headers_of_the_trainer(self):
        self.assertEqual(caught("runtime/trainer/a.hpp", "#include <Eigen/Core>"), [])
        self.assertEqual(len(caught("runtime/trainer_a.hpp", "#include <Eigen/Core>")), 1)


class Command(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            for place, text in files.items():
                path = Path(root) / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, HERE / "include_direction.py", root],
                                  capture_output=True, text=True, check=False)

    def test_a_clean_tree_passes(self):
        done = self.run_on({"base/a.hpp": "#pragma once\n", "sim/deep/b.cpp": '#include "base/a.hpp"\n'})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("2 files, 0 violations", done.stdout)

    def test_a_violation_fails(self):
        done = self.run_on({"base/deep/a.hpp": '#include "sim/b.hpp"\n', "sim/b.hpp": ""})
        self.assertEqual(done.returncode, 1)
        self.assertIn("base/deep/a.hpp:1: base/ includes sim/b.hpp", done.stdout)

    def test_an_empty_tree_fails(self):
        self.assertEqual(self.run_on({}).returncode, 1)


if __name__ == "__main__":
    unittest.main()
