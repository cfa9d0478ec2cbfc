"""Sweeps: rows, resuming, shares of processes, errors."""

import csv
import json
import shutil
import subprocess
import time
import unittest

import harness

SCENARIO = """\
name: study
cluster: two-racks-40g
workload: resnet-50
plan: { error_budget: 0, schedule: ring, bucket_size: 25 MiB }
vary:
  cluster.network.core.bandwidth: [10 Gbit/s, 40 Gbit/s]
  plan.local_batch: [16, 32, 64]
"""


class Sweep(harness.CommandTest):
    def rows(self, name="out.jsonl"):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    @staticmethod
    def results(rows):
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]

    def test_a_row_is_what_plan_says(self):
        self.write("study.yaml", SCENARIO)
        result = self.rackrail_json("sweep", "study.yaml", "--out", "out.jsonl", "--csv", "out.csv")
        self.assertEqual((result["cells"], result["ran"], result["failed"]), (6, 6, 0))
        rows = self.rows()
        self.assertEqual([row["cell"] for row in rows], list(range(6)))
        # Cell 4: the shipped cluster as it is.
        self.assertEqual(rows[4]["varied"], {"cluster.network.core.bandwidth": "40 Gbit/s",
                                             "plan.local_batch": "32"})
        planned = self.rackrail_json("plan", "two-racks-40g", "resnet-50", "--error-budget", "0",
                                     "--schedule", "ring", "--bucket-size", "25 MiB",
                                     "--local-batch", "32")
        for key in ("step_time_s", "bound_s", "sync_share"):
            self.assertAlmostEqual(rows[4][key], planned[key], places=9, msg=key)
        self.assertAlmostEqual(rows[4]["throughput"] * rows[4]["step_time_s"], 4 * 32)
        best = min(rows, key=lambda row: row["step_time_s"])
        self.assertEqual(result["best"], best)
        with open(self.folder / "out.csv", newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([float(line["step_time_s"]) for line in table],
                         [row["step_time_s"] for row in rows])

    def test_threads_do_not_matter(self):
        self.write("study.yaml", SCENARIO)
        for jobs in "1", "2", "8":
            self.rackrail("sweep", "study.yaml", "--out", f"out{jobs}.jsonl", "--csv",
                          f"out{jobs}.csv", "--jobs", jobs)
        for jobs in "2", "8":
            self.assertEqual(self.results(self.rows(f"out{jobs}.jsonl")),
                             self.results(self.rows("out1.jsonl")))
            self.assertEqual((self.folder / f"out{jobs}.csv").read_bytes(),
                             (self.folder / "out1.csv").read_bytes())

    def test_a_stopped_sweep_goes_on(self):
        self.write("study.yaml", SCENARIO)
        self.rackrail("sweep", "study.yaml", "--out", "out.jsonl")
        whole = (self.folder / "out.jsonl").read_bytes()
        cut = whole[:whole.index(b"\n", len(whole) // 2) + 40]  # some lines and a piece of one
        self.write("out.jsonl", cut)
        result = self.rackrail_json("sweep", "study.yaml", "--out", "out.jsonl")
        self.assertEqual(result["ran"], 6 - cut.count(b"\n"))
        self.assertEqual(self.results(self.rows()),
                         self.results(json.loads(line) for line in whole.splitlines()))
        self.assertEqual(self.rackrail_json("sweep", "study.yaml", "--out", "out.jsonl")["ran"], 0)

    def test_processes_of_a_launcher_share_it(self):
        self.write("study.yaml", SCENARIO)
        running = [self.start("sweep", "study.yaml", "--out", "out.jsonl",
                              variables={"SLURM_PROCID": str(rank), "SLURM_NTASKS": "4",
                                         "SLURM_STEP_ID": "0"})
                   for rank in range(4)]
        for process in running:
            result = self.finish(process)
            self.assertEqual(result.status, 0, str(result))
        cells = [row["cell"] for rank in range(4) for row in self.rows(f"out.rank{rank}.jsonl")]
        self.assertEqual(sorted(cells), list(range(6)))
        joined = self.rackrail_json("sweep", "study.yaml", "--out", "out.jsonl")
        self.assertEqual((joined["cells"], joined["ran"]), (6, 0))
        self.assertEqual([row["cell"] for row in self.rows()], list(range(6)))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here (Debian: openmpi-bin)")
    def test_under_mpirun_the_table_is_that_of_one_process(self):
        self.write("study.yaml", SCENARIO)
        subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3",
                        harness.COMMAND, "sweep", "study.yaml", "--out", "shared.jsonl"],
                       cwd=self.folder, check=True, capture_output=True, timeout=harness.TIMEOUT)
        joined = self.rackrail_json("sweep", "study.yaml", "--out", "shared.jsonl", "--csv",
                                    "shared.csv")
        self.assertEqual(joined["ran"], 0)
        self.rackrail("sweep", "study.yaml", "--out", "alone.jsonl", "--csv", "alone.csv")
        self.assertEqual((self.folder / "shared.csv").read_bytes(),
                         (self.folder / "alone.csv").read_bytes())

    def test_a_killed_sweep_goes_on_to_the_same_table(self):
        self.write("study.yaml", SCENARIO)
        self.rackrail("sweep", "study.yaml", "--out", "whole.jsonl", "--csv", "whole.csv")
        process = subprocess.Popen([harness.COMMAND, "sweep", "study.yaml", "--out",
                                    "killed.jsonl", "--jobs", "1"], cwd=self.folder,
                                   env=self.environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        rows = self.folder / "killed.jsonl"
        while process.poll() is None and (not rows.exists() or b"\n" not in rows.read_bytes()):
            time.sleep(0.01)
        process.kill()
        process.wait()
        done = rows.read_bytes().count(b"\n")
        self.assertGreater(done, 0)
        result = self.rackrail_json("sweep", "study.yaml", "--out", "killed.jsonl", "--csv",
                                    "killed.csv")
        self.assertEqual(result["ran"], 6 - done)
        self.assertEqual((self.folder / "killed.csv").read_bytes(),
                         (self.folder / "whole.csv").read_bytes())

    def test_a_failing_cell_is_a_row_and_the_status_says_so(self):
        self.write("study.yaml", SCENARIO.replace("64]", "100000]"))  # does not fit into memory
        result = self.rackrail("sweep", "study.yaml", "--out", "out.jsonl", status=1)
        self.assertIn("2 failed", result.out)
        rows = self.rows()
        self.assertEqual([row["cell"] for row in rows if "error" in row], [2, 5])
        self.assertIn("memory", rows[2]["error"])
        # Neither run again nor forgotten.
        again = self.rackrail_json("sweep", "study.yaml", "--out", "out.jsonl", status=1)
        self.assertEqual((again["ran"], again["failed"]), (0, 2))
        retried = self.rackrail_json("sweep", "study.yaml", "--out", "out.jsonl", "--retry-failed",
                                     status=1)
        self.assertEqual((retried["ran"], retried["failed"]), (2, 2))

    def test_the_seed_chooses_the_draws(self):
        self.write("study.yaml", SCENARIO.replace("[16, 32, 64]", "{from: 1, to: 64, whole: true}")
                   + "search: {random: {trials: 5}}\nseed: 3\n")
        drawn = []
        for more in ((), ("--seed", "3"), ("--seed", "4")):
            name = f"out{len(drawn)}.jsonl"
            self.rackrail("sweep", "study.yaml", "--out", name, *more)
            drawn.append([row["varied"] for row in self.rows(name)])
        self.assertEqual(len(drawn[0]), 5)
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_whole_clusters_are_compared_side_by_side(self):
        links = "source,target,bandwidth,latency\n" + "".join(
            f"host{i},switch,{{rate}} Gbit/s,2 us\n" for i in range(4))
        self.write("slow.csv", links.format(rate=10))
        self.write("fast.csv", links.format(rate=40))
        self.write("study.yaml", SCENARIO.replace("cluster: two-racks-40g\n", "")
                   .replace("cluster.network.core.bandwidth: [10 Gbit/s, 40 Gbit/s]",
                            "cluster: [slow.csv, fast.csv, two-racks-40g]"))
        printed = self.rackrail("sweep", "study.yaml", "--out", "out.jsonl").out
        self.assertIn("resnet-50 on several clusters", printed)
        rows = self.rows()
        self.assertEqual([row["varied"]["cluster"] for row in rows[::3]],
                         ["slow.csv", "fast.csv", "two-racks-40g"])
        for row in rows[1::3]:
            planned = self.rackrail_json("plan", row["varied"]["cluster"], "resnet-50",
                                         "--error-budget", "0", "--schedule", "ring",
                                         "--bucket-size", "25 MiB", "--local-batch", "32")
            self.assertAlmostEqual(row["step_time_s"], planned["step_time_s"], places=9)
        both = SCENARIO.replace("cluster.network.core.bandwidth: [10 Gbit/s, 40 Gbit/s]",
                                "cluster: [slow.csv, fast.csv]")
        self.write("both.yaml", both)
        self.assert_bad_input("sweep", "both.yaml", file="both.yaml", where="cluster",
                              found="here and below 'vary'")
        self.write("missing.yaml", both.replace("cluster: two-racks-40g\n", "")
                   .replace("fast.csv", "no.csv"))
        self.assert_bad_input("sweep", "missing.yaml", file="no.csv")

    def test_equal_executions_are_recognised(self):
        self.write("study.yaml", SCENARIO + "repetitions: 3\n")
        result = self.rackrail("sweep", "study.yaml", "--out", "out.jsonl")
        self.assertIn("executions of each cell are equal", result.out)
        self.assertEqual({row["executions"] for row in self.rows()}, {3})

    def test_bad_scenarios_are_refused(self):
        self.assert_bad_input("sweep", "none.yaml", file="none.yaml")
        self.write("a.yaml", SCENARIO.replace("core.bandwidth", "core.bandwdth"))
        self.assert_bad_input("sweep", "a.yaml", file="a.yaml",
                              where="vary.cluster.network.core.bandwdth", found="no such field",
                              expected="cluster.network.core.bandwidth")
        self.write("b.yaml", SCENARIO.replace("plan.local_batch", "plan.batch"))
        self.assert_bad_input("sweep", "b.yaml", file="b.yaml", expected="local_batch")
        self.write("c.yaml", SCENARIO + "vary: {}\n")
        self.assert_bad_input("sweep", "c.yaml", file="c.yaml")
        self.write("good.yaml", SCENARIO)
        self.write("other.jsonl", "this is\nsomething else\n")
        self.assert_bad_input("sweep", "good.yaml", "--out", "other.jsonl", file="other.jsonl",
                              where="line 1")
        self.assert_bad_input("sweep", "good.yaml", file="<environment>", where="SLURM_PROCID",
                              variables={"SLURM_PROCID": "4", "SLURM_NTASKS": "4",
                                         "SLURM_STEP_ID": "0"})


if __name__ == "__main__":
    harness.main()
