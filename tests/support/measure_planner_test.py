#!/usr/bin/env python3
"""Proves that scripts/measure-planner keeps what it does not measure, writes each case at once, and
goes on where one fails; with programs that stand in for those of a build."""

import json
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from planner_cases import CASES, small_first  # noqa: E402
from planner_tables import SECTIONS, document  # noqa: E402

# Cases of planner_bench, and what becomes of each.
BENCH = '''#!/usr/bin/env python3
import json, re, sys, time
FOUND = {"all_gather/mesh_256": 1.03, "all_gather/torus_16": 1.001, "all_reduce/lost_cable_32": 1.04,
         "all_reduce/mesh_1024": 2.1, "all_reduce/wrong_8": "it is wrong", "all_reduce/ends_8": None,
         "all_reduce/slow_8": "slow"}
pattern = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--benchmark_filter=")][0]
names = [name for name in FOUND if re.search(pattern, name + "/iterations:1")]
if "--benchmark_list_tests" in sys.argv:
    print("\\n".join(f"{name}/iterations:1" for name in names))
    sys.exit()
assert len(names) == 1, names
found = FOUND[names[0]]
while found == "slow":
    pass
if found is None:
    sys.exit("no such device")
entry = {"name": names[0] + "/iterations:1", "cpu_time": 2.0, "time_unit": "s", "iterations": 1}
if isinstance(found, str):
    entry.update(error_occurred=True, error_message=found)
else:
    entry.update(ranks=int(names[0].split("_")[-1]), over=found, label="ring",
                 exact=float("1024" not in names[0]))
print(json.dumps({"benchmarks": [entry]}))
'''


def row(over, **others):
    return {"figures": {"ranks": 8, "over": over, "label": "forest"}, "day": "2020-02-03",
            "load": 0.5, "command": "some", **others}


class Measuring(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        program = self.folder / "bin" / "bench" / "planner_bench"
        program.parent.mkdir(parents=True)
        program.write_text(BENCH, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def store(self, sections):
        (self.folder / "planner.json").write_text(
            json.dumps({"machine": "3 cores", "sections": sections}), encoding="utf-8")

    def rows(self):
        text = (self.folder / "planner.json").read_text(encoding="utf-8")
        return json.loads(text)["sections"]["collectives"]

    def tables(self):
        return (self.folder / "planner.md").read_text(encoding="utf-8")

    def command(self, *arguments):
        return [sys.executable, str(SCRIPTS / "measure-planner"), "--build", str(self.folder),
                "--results", str(self.folder), *arguments]

    def measure(self, *arguments):
        return subprocess.run(self.command("--only", "collectives", *arguments),
                              capture_output=True, text=True, check=False, timeout=60)

    def test_one_case_is_measured_and_the_others_stay(self):
        before = {"all_reduce/lost_cable_32": row(1.5), "all_gather/torus_16": row(1.25),
                  "all_gather/gone_8": row(1.1)}
        self.store({"collectives": before, "usual": {}})
        done = self.measure("--case", "torus")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.rows()
        self.assertEqual(rows["all_gather/torus_16"]["figures"],
                         {"ranks": 16, "over": 1.001, "label": "ring", "exact": 1, "ms": 2000,
                          "gigabytes": rows["all_gather/torus_16"]["figures"]["gigabytes"]})
        self.assertEqual(rows["all_gather/torus_16"]["command"],
                         "planner_bench --benchmark_filter='^all_gather/torus_16(/|$)'")
        self.assertEqual(list(rows), ["all_gather/torus_16", "all_reduce/lost_cable_32",
                                      "all_gather/gone_8"])
        for case in ("all_reduce/lost_cable_32", "all_gather/gone_8"):
            self.assertEqual(rows[case], before[case])
        self.assertIn(f"| all_gather/torus_16 | 16 | 1.0010 | ring | yes | "
                      f"{rows['all_gather/torus_16']['day']} |", self.tables())
        self.assertIn("| all_reduce/lost_cable_32 | 8 | 1.5000 | forest | **no** | 2020-02-03 |",
                      self.tables())

    def test_cases_that_fail_have_rows_that_say_so(self):
        self.store({"collectives": {"all_reduce/wrong_8": row(1.0), "all_gather/gone_8": row(1)}})
        done = self.measure("--limit", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("3 cases failed", done.stderr)
        self.assertIn("there is no case all_gather/gone_8 any more", done.stderr)
        rows = self.rows()
        self.assertEqual({case: found["failed"] for case, found in rows.items()
                          if "failed" in found},
                         {"all_reduce/wrong_8": "it is wrong",
                          "all_reduce/ends_8": "status 1: no such device",
                          "all_reduce/slow_8": "not done in 1 s"})
        self.assertNotIn("figures", rows["all_reduce/wrong_8"])
        self.assertEqual(len(rows), 7)
        self.assertIn("| `all_reduce/slow_8` | not done in 1 s |  |  | **no** | ", self.tables())
        # Those of many ranks are measured last.
        measured = [line.split(":")[0] for line in done.stderr.splitlines() if "/" in line]
        self.assertEqual(measured[-2:], ["all_gather/mesh_256", "all_reduce/mesh_1024"])

    def test_what_was_measured_before_it_is_stopped_is_kept(self):
        with subprocess.Popen(self.command("--only", "collectives"),
                              stderr=subprocess.DEVNULL) as process:
            until = time.monotonic() + 30
            while time.monotonic() < until and not (
                    (self.folder / "planner.json").exists()
                    and "all_reduce/ends_8" in self.rows()):
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            self.assertNotEqual(process.wait(30), 0)
        self.assertIn("all_gather/torus_16", self.rows())
        self.assertIn("all_gather/torus_16", self.tables())
        self.assertNotIn("all_reduce/slow_8", self.rows())
        # Nor does the case go on that was being measured: what is killed may be there for a moment.
        until = time.monotonic() + 30
        while str(self.folder / "bin") in self.running() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertNotIn(str(self.folder / "bin"), self.running())

    @staticmethod
    def running():
        return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True,
                              check=True).stdout

    def test_a_case_that_there_is_not(self):
        done = self.measure("--case", "nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no case matches 'nowhere'", done.stderr)

    def test_tables_alone(self):
        self.store({"collectives": {"all_gather/torus_16": row(1.02, note="put in by hand")}})
        self.assertEqual(self.measure("--write-only").returncode, 0)
        self.assertIn("| all_gather/torus_16 | 8 | 1.0200 | forest | yes | "
                      "2020-02-03, put in by hand |", self.tables())
        self.assertEqual(self.rows(), {"all_gather/torus_16":
                                       row(1.02, note="put in by hand")})


class Tables(unittest.TestCase):
    def test_each_case_is_in_one_table(self):
        text = SECTIONS["collectives"].text({
            "all_reduce/clos_16_2to1": row(1.01), "all_reduce/lost_cable_32": row(1.05),
            "all_reduce/mesh_1024": row(2.0), "reduce_scatter/nic_of_20_64": row(1.023)})
        parts = text.split("\n### ")
        self.assertEqual([[part.count(name) for part in parts] for name in
                          ("| all_reduce/clos_16_2to1", "| all_reduce/lost_cable_32",
                           "| reduce_scatter/nic_of_20_64", "| all_reduce/mesh_1024")],
                         [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])

    def test_bounds_say_where_they_are_not_exact(self):
        def bound(exact, ms):
            return {"figures": {"ranks": 1024, "exact": exact, "ms": ms}, "day": "2020-02-03",
                    "load": 2.5}
        text = SECTIONS["bounds"].text({"allreduce_bound/mesh_1024": bound(0, 3100.0),
                                        "reducescatter_bound/boxes_1024": bound(1, 500.0)})
        self.assertIn("| allreduce_bound/mesh_1024 | 1024 | no: of cuts and partitions | "
                      "3,100.0 ms | 3,000 ms | **no** | 2020-02-03, load 2.5 |", text)
        self.assertIn("| reducescatter_bound/boxes_1024 | 1024 | yes | 500.0 ms | 500 ms | yes | ",
                      text)

    def test_what_stands_in_results_is_made_of_what_was_measured(self):
        results = SCRIPTS.parent / "results"
        store = json.loads((results / "planner.json").read_text(encoding="utf-8"))
        self.assertEqual((results / "planner.md").read_text(encoding="utf-8"), document(store))
        self.assertEqual(set(SECTIONS), set(CASES))
        for section, rows in store["sections"].items():
            for case, found in rows.items():
                self.assertEqual(found["command"], CASES[section].command(case))
                self.assertRegex(found["day"], r"^\d{4}-\d\d-\d\d$")

    def test_small_cases_first(self):
        self.assertEqual(small_first(["a/mesh_256", "a/clos_16_2to1", "a/fat_tree_128"]),
                         ["a/clos_16_2to1", "a/fat_tree_128", "a/mesh_256"])


if __name__ == "__main__":
    unittest.main()
