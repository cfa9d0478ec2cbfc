"""NCCL's predicted times against measured ones: held-out counts, forms of input, exit status."""

import json
import math
import os
import unittest

import harness

MEASURED = harness.SHARED / "measured"
FROM = 8 * 2 ** 20
NEEDS = unittest.skipUnless(MEASURED.is_dir(), f"no measurements in {MEASURED}")
LOGS = harness.SHARED / "trials" / "logs"
NEEDS_LOGS = unittest.skipUnless(LOGS.is_dir(), f"no logs in {LOGS}")
HEADER = ("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
          "busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n")


def ranks(hosts, gpus):
    return "# nThread 1 nGpus 1 minBytes 8\n" + "".join(
        f"#  Rank {rank:2} Group  0 Pid {rank} on node{rank // gpus} device {rank % gpus:2} [0x{rank % gpus:02x}] "
        "NVIDIA H100\n" for rank in range(hosts * gpus))


def mean_and_worst(cases):
    """e^mean |log| − 1 and the largest error, from the cases themselves."""
    logs = [abs(math.log(case["predicted_s"] / case["measured_s"])) for case in cases]
    errors = [abs(case["predicted_s"] / case["measured_s"] - 1) for case in cases]
    return math.exp(sum(logs) / len(logs)) - 1, max(errors)


class Validate(harness.CommandTest):
    @NEEDS
    def test_calibrated_on_2_and_4_gpus_it_predicts_3_and_5(self):
        files = [MEASURED / f"a100-nvswitch-allreduce-{gpus}gpu.csv" for gpus in (2, 3, 4, 5)]
        result = self.rackrail_json("validate", *files, "--cluster", "a100-8x8", "--from", "8MiB",
                                    "--calibrate-on", "gpus=2,4", "--within", "10%",
                                    "--mean-within", "5%")
        self.assertTrue(result["calibrated"])
        for gpus in (3, 5):
            cases = [case for case in result["cases"] if f"1 x {gpus} GPUs" in case["what"]]
            self.assertEqual(len(cases), 1024 - 7)  # 1 MiB to 1 GiB, every MiB
            mean, worst = mean_and_worst(cases)
            self.assertLess(mean, 0.05)
            self.assertLess(worst, 0.10)

    @NEEDS
    def test_calibrated_on_2_nodes_it_predicts_4(self):
        result = self.rackrail_json("validate", MEASURED / "h100-2-and-4-nodes-allreduce.csv",
                                    "--cluster", "h100-32x8-rail", "--from", "8MiB",
                                    "--calibrate-on", "nodes=2")
        self.assertEqual(sorted(case["bytes"] for case in result["cases"]),
                         [2 ** 24, 2 ** 27, 2 ** 30, 2 ** 34])
        self.assertEqual({case["what"] for case in result["cases"]}, {"all-reduce, 4 x 8 GPUs"})
        mean, worst = mean_and_worst(result["cases"])
        self.assertLess(mean, 0.05)
        self.assertLess(worst, 0.10)

    @NEEDS
    def test_shipped_constants_are_what_the_command_fits(self):
        for name, files, cluster, on in (
                ("a100-nvswitch", ["a100-nvswitch-allreduce-2gpu.csv",
                                   "a100-nvswitch-allreduce-4gpu.csv"], "a100-8x8", "gpus=2,4"),
                ("h100-nvswitch-ndr", ["h100-2-and-4-nodes-allreduce.csv"], "h100-32x8-rail",
                 "nodes=2")):
            with self.subTest(name=name):
                path = self.folder / f"{name}.yaml"
                self.rackrail("validate", *(MEASURED / file for file in files), "--cluster",
                              cluster, "--from", "8MiB", "--calibrate-on", on,
                              "--save-parameters", path)
                self.assertEqual(self.values(path),
                                 self.values(harness.CONFIGS / "nccl" / f"{name}.yaml"))

    @staticmethod
    def values(path):
        return [line for line in path.read_text().splitlines() if not line.startswith("#")]

    def measurements(self, factor=1.0, name="m.csv"):
        """Times that are `factor` off what the command itself predicts."""
        rows = [(gpus, mebi << 20) for gpus in (2, 4) for mebi in (1, 8, 64)]
        table = self.write(name, "gpus,op,size_bytes,time_us\n" + "".join(
            f"{gpus},allreduce,{size},1\n" for gpus, size in rows))
        cases = self.rackrail_json("validate", table, "--cluster", "a100-8x8")["cases"]
        return self.write(name, "gpus,op,size_bytes,time_us\n" + "".join(
            f"{gpus},allreduce,{size},{case['predicted_s'] * 1e6 * factor}\n"
            for (gpus, size), case in zip(rows, cases)))

    def test_exit_status_says_whether_the_bound_was_met(self):
        table = self.measurements(factor=1 / 1.05)  # predictions are 5 % too long
        for options, status in ((["--within", "6%"], 0), (["--within", "4 %"], 1),
                                (["--within", "0.06"], 0), (["--mean-within", "4%"], 1),
                                (["--mean-within", "6%", "--within", "4%"], 1), ([], 0)):
            with self.subTest(options=options):
                result = self.rackrail("validate", table, "--cluster", "a100-8x8", "--json",
                                       *options, status=status).json
                self.assertAlmostEqual(result["median_relative_error"], 0.05, places=4)
                self.assertAlmostEqual(result["worst_relative_error"], 0.05, places=4)
                self.assertFalse(result["calibrated"])
                for case in result["cases"]:
                    self.assertLessEqual({"what", "bytes", "predicted_s", "measured_s",
                                          "relative_error"}, set(case))
                    self.assertAlmostEqual(case["relative_error"], 0.05, places=4)

    def test_every_form_of_measurement_says_the_same(self):
        forms = {
            "a.csv": "# comment\nnodes,gpus,op,algo,size_bytes,time_us\n"
                     "2,16,allreduce,default(NVLSTree),16777216,200\n"
                     "2,16,allgather,ring,16777216,100\n",
            "b-16gpu.csv": "nodes,size(B),count,type,time(ns),busbw,time(ns),busbw\n"
                           "2,16777216,4194304,float,200000,1,190000,1\n",
            "c.jsonl": json.dumps({"name": "allreduce", "kernel": 1, "ranks": 16,
                                   "ranksPerNode": 8, "size": 16777216, "time": 200.0}) + "\n",
            "d.log": "# nThread 1 nGpus 1 minBytes 16777216\n# Using devices\n"
                     + "".join(f"#  Rank {rank:2} Group 0 Pid {rank} on node{rank // 8} device "
                               f"{rank % 8:2} [0x{rank}] NVIDIA H100\n" for rank in range(16))
                     + "#       size         count      type   redop    root     time   algbw\n"
                     "    16777216       4194304     float     sum      -1    200.0   83.89  157.29"
                     "      0    199.0   84.31  158.08      0\n# Avg bus bandwidth    : 157\n",
        }
        seen = set()
        for name, content in forms.items():
            with self.subTest(form=name):
                result = self.rackrail_json("validate", self.write(name, content), "--cluster",
                                            "h100-32x8-rail")
                case, = result["cases"]
                self.assertEqual(case["bytes"], 2 ** 24)
                self.assertAlmostEqual(case["measured_s"], 200e-6, places=9)
                seen.add((case["what"], case["predicted_s"]))
        self.assertEqual(len(seen), 1)

    @NEEDS_LOGS
    def test_posted_logs_are_read_with_their_own_times(self):
        # Size and time of every row, taken from the text by its columns.
        for log in sorted(LOGS.glob("*.txt")):
            with self.subTest(log=log.name):
                rows = [line.split() for line in log.read_text().splitlines() if " float " in line]
                self.assertTrue(rows)
                run = self.rackrail("validate", log, "--cluster", "a100-8x8", "--json")
                self.assertEqual([(case["bytes"], round(case["measured_s"] * 1e6, 2)) for case in run.json["cases"]],
                                 [(int(row[0]), float(row[4])) for row in rows])
                self.assertEqual({case["what"] for case in run.json["cases"]}, {"all-reduce, 4 x 8 GPUs"})

    def test_a_log_says_what_was_inferred_and_left_out(self):
        row = "    16777216       4194304     float    {}    200.0  83.89  {}  0  190.0 88.30 {} 0\n"
        log = self.write("m.log", ranks(2, 8) + HEADER + row.format("sum -1", 157.29, 165.56)
                         + "# Avg bus bandwidth    : 161\n" + HEADER + row.format("none -1", 78.64, 82.78) + "noise\n")
        run = self.rackrail("validate", log, "--cluster", "h100-32x8-rail")
        for part in ("taken for all-reduce", "taken for all-gather", "1 row of other operations left out (1 all-gather)",
                     "1 line in tables not understood"):
            self.assertIn(part, run.err)
        self.assertIn("all-reduce, 2 x 8 GPUs", run.out)
        self.assert_bad_input("validate", self.write("none.log", ranks(2, 8) + HEADER + row.format("none -1", 78.64, 82.78)),
                              "--cluster", "h100-32x8-rail", file="none.log", found="no measured all-reduce",
                              expected="all-reduces")
        self.assert_bad_input("validate", self.write("cut.log", HEADER + row.format("sum -1", 157.29, 165.56)),
                              "--cluster", "h100-32x8-rail", file="cut.log", found="no '# Rank' lines",
                              expected="nccl-tests")

    def test_what_nccl_chose_is_predicted_and_compared(self):
        log = self.write("m.log", ranks(2, 8) + HEADER
                         + "node0:1:2 [0] NCCL INFO AllReduce: 16777216 Bytes -> Algo TREE proto LL128 "
                         "channel{Lo..Hi}={0..15}\n"
                         "    16777216       4194304     float     sum      -1    200.0   83.89  157.29      0\n")
        run = self.rackrail("validate", log, "--cluster", "h100-32x8-rail")
        self.assertIn("tree, ll128", run.out)
        self.assertIn("NCCL chose otherwise than its formula here for 1 of the 1 rows", run.err)

    def test_a_debug_log_is_shown(self):
        lines = ["Using network IB", "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>",
                 "comm 0x5 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0", "Channel 00/01 :    0   1",
                 "Trees [0] 1/-1/-1->0->-1", "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
                 "1 coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
                 "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"]
        log = self.write("job.out", "NCCL version 2.21.5+cuda12.4\n"
                         + "".join(f"0: node0:1:2 [0] NCCL INFO {line}\n" for line in lines))
        result = self.rackrail_json("info", log)
        self.assertEqual((result["version"], result["ranks"], result["nodes"]), ("NCCL 2.21.5+cuda12.4", 2, 2))
        self.assertEqual(result["rings"], [{"channel": 0, "ranks": [0, 1], "whole": True}])
        self.assertEqual(result["connections"], {"NET/IB/GDRDMA": 1})
        self.assertEqual(result["chosen"][0]["algorithm"], "ring")
        text = self.rackrail("info", log).out
        for part in ("2 ranks on 2 hosts; 1 rank wrote this log", "mlx5_0 (IB)", "used by all 1 connections",
                     "1 ring; channel 0: 0 1", "1 collective, 0 NVLS, 0 CollNet, 2 peer-to-peer"):
            self.assertIn(part, text)
        self.assert_bad_input("info", self.write("other.out", "hello\n"), file="other.out", found="NCCL INFO",
                              expected="NCCL_DEBUG=INFO")
        self.assert_bad_input("validate", log, "--cluster", "a100-8x8", file="job.out", found="debug log",
                              expected="rackrail info")
        # Without a cluster it is no cluster either.
        self.assertIn("--cluster", self.rackrail("validate", log, status=2).err)

    def test_a_given_algorithm_is_taken(self):
        table = self.write("m.csv", "nodes,gpus,size_bytes,time_us,algo,proto\n"
                           "4,32,67108864,900,Tree,Simple\n4,32,67108864,900,ring,LL128\n")
        cases = self.rackrail_json("validate", table, "--cluster", "h100-32x8-rail")["cases"]
        self.assertEqual([(case["algorithm"], case["protocol"]) for case in cases],
                         [("tree", "simple"), ("ring", "ll128")])
        cases = self.rackrail_json("validate", table, "--cluster", "h100-32x8-rail", "--algorithm",
                                   "nvls-tree", "--protocol", "simple")["cases"]
        self.assertEqual({case["algorithm"] for case in cases}, {"nvls-tree"})

    def test_a_placement_across_a_thin_uplink_takes_longer(self):
        hosts = "".join(f"gpu{i},tor{i // 2},10 GB/s,1 us\n" for i in range(4))
        cluster = self.write("cluster.csv", "source,target,bandwidth,latency\n" + hosts
                             + "tor0,tor1,2 GB/s,1 us\n")
        table = self.write("m.csv", "nodes,gpus,size_bytes,time_us,placement,algo\n"
                           + "".join(f"2,2,1073741824,1,{placement},ring\n"
                                     for placement in ("", "0;1", "3 2", "0;2")))
        times = [case["predicted_s"] for case in self.rackrail_json(
            "validate", table, "--cluster", cluster)["cases"]]
        self.assertEqual(times[0], times[1])
        self.assertEqual(times[0], times[2])
        # 1 GiB each way at 96 % of 2 GB/s.
        self.assertAlmostEqual(times[3] / (2 ** 30 / (0.96 * 2e9)), 1, delta=0.03)
        self.assertAlmostEqual(times[3] / times[0], 5, delta=0.2)

    def test_the_title_says_who_was_predicted_and_who_measured(self):
        nccl = self.measurements()
        title = "all-reduce on a100-8x8: predicted of NCCL, measured with "
        run = self.rackrail("validate", nccl, "--cluster", "a100-8x8")
        self.assertEqual(run.out.splitlines()[0], title + "NCCL")
        self.assertNotIn("MSCCL++", run.err)
        other = self.write("m.jsonl", json.dumps({"name": "allreduce", "kernel": 1, "ranks": 8,
                                                  "ranksPerNode": 8, "size": 2 ** 24,
                                                  "time": 150.0}) + "\n")
        run = self.rackrail("validate", other, "--cluster", "a100-8x8")
        self.assertEqual(run.out.splitlines()[0], title + "MSCCL++")
        self.assertIn("whose kernels are not NCCL's", run.err)

    def test_impossible_numbers_and_places_are_refused(self):
        line = {"name": "allreduce", "kernel": 1, "ranks": 8, "ranksPerNode": 8, "size": 2 ** 24, "time": 150.0}
        for key, value in (("ranks", 1e30), ("ranks", 2.5), ("ranksPerNode", 1e30), ("size", 1e30)):
            with self.subTest(key=key, value=value):
                self.write("m.jsonl", json.dumps({**line, key: value}) + "\n")
                self.assert_bad_input("validate", "m.jsonl", "--cluster", "a100-8x8", file="m.jsonl",
                                      found=key, expected="a whole number")
        self.write("m.jsonl", json.dumps(line) + "\n")
        (self.folder / "file").write_text("")
        self.assert_bad_input("validate", "m.jsonl", "--cluster", "a100-8x8", "--save-parameters",
                              "file/constants.yaml", file="file")

    def test_measurements_without_a_cluster_are_not_taken_for_one(self):
        for content in ("gpus,size_bytes,time_us\n2,1048576,50\n",
                        "# a comment\n\nsize(B),count,time(ns),gpus\n1048576,1,50000,2\n"):
            with self.subTest(content=content):
                error = self.rackrail("validate", self.write("m.csv", content), "--json",
                                      status=2).error
                self.assertIn("--cluster", error["found"] + error["expected"])
        # A table of links is one, whatever becomes of emulating it.
        error = self.rackrail("validate", self.write("links.csv", "source,target,bandwidth,latency\n"
                                                     "gpu0,tor,fast,1 us\n"), "--json",
                              status=2).error
        self.assertTrue(error["where"].startswith("line 2"), error)

    def hosts_of_two_gpus(self, name, slow=None):
        """Two racks of two hosts, 2 GPUs with a NIC each; a NIC of host `slow` at half its rate."""
        links = ["source,target,bandwidth,latency"]
        vertices = ["vertex,role,kind,host"]
        for host in range(4):
            vertices.append(f"s{host},switch,nvswitch,h{host}")
            for port in range(2):
                gpu, nic = f"gpu{host}{port}", f"nic{host}{port}"
                vertices += [f"{gpu},rank,gpu,h{host}", f"{nic},switch,nic,h{host}"]
                rate = 6.25 if host == slow and port == 1 else 12.5
                links += [f"{gpu},s{host},200 GB/s,300 ns", f"{gpu},{nic},25 GB/s,500 ns",
                          f"{nic},tor{host // 2},{rate} GB/s,1 us"]
        links.append("tor0,tor1,25 GB/s,1 us")
        return self.write(name, "\n".join(links + vertices) + "\n")

    def times(self, cluster, rows, *options):
        table = self.write("rows.csv", "nodes,gpus,size_bytes,time_us,placement,algo\n"
                           + "".join(f"{row}\n" for row in rows))
        return [case["predicted_s"] for case in self.rackrail_json(
            "validate", table, "--cluster", cluster, *options)["cases"]]

    def test_one_nic_at_half_rate_sets_the_pace_of_its_ring(self):
        healthy = self.hosts_of_two_gpus("healthy.csv")
        degraded = self.hosts_of_two_gpus("degraded.csv", slow=2)
        rows = ["4,8,1073741824,1,,ring", "2,4,1073741824,1,0;1,ring", "2,4,1073741824,1,2;3,ring"]
        well = self.times(healthy, rows)
        ill = self.times(degraded, rows)
        # 2 (n - 1) / n of 1 GiB over two NICs of 12.5 GB/s at the usual share for payload, 96 %.
        self.assertAlmostEqual(well[0] / (2 * 7 / 8 * 2 ** 30 / (0.96 * 25e9)), 1, delta=0.05)
        self.assertAlmostEqual(ill[0] / well[0], 2, delta=0.1)
        self.assertEqual(ill[1], well[1])  # other hosts do not notice
        self.assertAlmostEqual(ill[2] / well[2], 2, delta=0.1)

    def test_1440_gpus_are_predicted_in_seconds(self):
        text = (harness.CONFIGS / "clusters" / "a100-8x8.yaml").read_text()
        self.assertIn("racks: { count: 2, hosts: 4", text)
        cluster = self.write("a100-180x8.yaml", text.replace("racks: { count: 2, hosts: 4",
                                                             "racks: { count: 45, hosts: 4"))
        sizes = (2 ** 23, 2 ** 26, 2 ** 30)
        start = sum(os.times()[2:4])  # of the commands that were run
        times = self.times(cluster, [f"180,1440,{size},1,," for size in sizes])
        self.assertLess(sum(os.times()[2:4]) - start, 20)
        self.assertEqual(times, sorted(times))
        # No faster than the NICs: nearly twice the buffer through 8 of 25 GB/s.
        for size, predicted in zip(sizes, times):
            self.assertGreater(predicted, 2 * 179 / 180 * size / 200e9)
        self.assertLess(times[-1], 4 * 2 ** 30 / 200e9)

    def test_bad_input_is_one_line(self):
        good = "gpus,size_bytes,time_us\n2,1048576,50\n"
        for content, where in (("gpus,time_us\n2,5\n", "line 1"),
                               ("gpus,size_bytes,time_us\n2,many,5\n", "line 2"),
                               ("gpus,size_bytes,time_us\n2,1048576,-5\n", "line 2"),
                               ("gpus,size_bytes,time_us\n2,1048576\n", "line 2"),
                               ("nodes,gpus,size_bytes,time_us\n2,3,1048576,5\n", "line 2"),
                               ("gpus,size_bytes,time_us,algo\n2,1048576,5,star\n", "line 2"),
                               ("nodes,gpus,size_bytes,time_us,placement\n2,2,4096,5,1;1\n",
                                "line 2"),
                               ("size_bytes,time_us\n1048576,5\n", "line 1"),
                               ("{\"name\": \"allreduce\"}\n", "line 1"), ("{no\n", "line 1")):
            with self.subTest(content=content):
                path = self.write("bad.csv", content)
                error = self.rackrail("validate", path, "--cluster", "a100-8x8", "--json",
                                      status=2).error
                self.assertEqual(error["where"], where)
                self.assertEqual(error["file"], str(path))
        path = self.write("good.csv", good)
        for options in (["--calibrate-on", "gpus"], ["--calibrate-on", "racks=2"],
                        ["--calibrate-on", "gpus=2,"], ["--calibrate-on", "gpus=4"],
                        ["--calibrate-on", "gpus=2"], ["--within", "much"],
                        ["--algorithm", "star"], ["--algorithm", "nvls"], ["--from", "1GiB"],
                        ["--parameters", "missing"]):
            with self.subTest(options=options):
                self.rackrail("validate", path, "--cluster", "a100-8x8", *options, status=2)
        big = self.write("big.csv", "gpus,size_bytes,time_us\n9,1048576,5\n")
        self.rackrail("validate", big, "--cluster", "a100-8x8", status=2)


if __name__ == "__main__":
    harness.main()
