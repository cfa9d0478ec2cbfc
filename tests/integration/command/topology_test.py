"""Clusters: shown, converted, bounded; real vendor files with overlays, and plain edge lists."""

import unittest
from fractions import Fraction

import harness

RANKS = {"two-racks-40g": 4, "a100-8x8": 64, "h100-32x8-rail": 256, "fat-tree-128-2to1": 128}
NDV4 = harness.SHARED / "inputs" / "nccl-topology" / "ndv4-topo.xml"
EDGES = """source,target,bandwidth,latency
host0,tor0,10 Gbit/s,2 us
host1,tor0,10 Gbit/s,2 us
host2,tor1,10 Gbit/s,2 us
host3,tor1,10 Gbit/s,2 us
tor0,tor1,5 Gbit/s,1 us
"""


class Topology(harness.CommandTest):
    def test_a_tier_names_its_slowest_link_and_unknown_classes_are_warned_of(self):
        self.write("own.csv", "source,target,bandwidth,latency\n"
                              "host0,tor,10 GB/s,1 us\nhost1,tor,4 GB/s,1 us\n\n"
                              "vertex,role,device_class\nhost0,rank,A1OO\nhost1,rank,A100\n")
        shown = self.rackrail("topology", "show", "own.csv")
        self.assertRegex(shown.out, r"(?m) 4.00 GB/s .*host1→tor$")
        self.assertIn("A1OO", shown.err)
        result = self.run_any("topology", "show", "own.csv", "--json").json
        (slowest,) = result["slowest_links"].values()
        self.assertEqual(slowest, {"link": "host1→tor", "bandwidth_Bps": 4e9})
        self.assertIn("A1OO", " ".join(result["notes"]))

    def test_a_matrix_of_nvidia_smi_is_a_cluster_with_an_overlay(self):
        self.write("topo.txt", "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
                               "GPU0\t X \tNV12\t0-31\t0\nGPU1\tNV12\t X \t0-31\t0\n")
        self.write("two.yaml", "hosts: 2\nnics: 2\n"
                               "nic: { bandwidth: 100 Gbit/s, latency: 1 us }\n")
        shown = self.rackrail("topology", "show", "topo.txt")
        self.assertIn("A100 assumed", shown.err)
        result = self.run_any("topology", "show", "topo.txt", "--overlay", "two.yaml",
                              "--device-class", "H100", "--tier-bandwidth", "nic=400 Gbit/s",
                              "--tier-bandwidth", "pcie=9GB/s", "--json").json
        self.assertEqual(result["ranks"], 4)
        rates = {tier: slowest["bandwidth_Bps"] for tier, slowest in result["slowest_links"].items()}
        self.assertEqual(rates["nic"], 50e9)
        self.assertEqual(rates["pcie"], 9e9)
        self.assertEqual(rates["nvlink"], 12 * 20.6e9)
        self.assertNotIn("assumed, the likeliest", " ".join(result["notes"]))

    def test_tier_bandwidths_that_mean_nothing_are_refused(self):
        for text, expected in (("spin=1 GB/s", "rack-uplink"), ("nic", "TIER=RATE"),
                               ("=1 GB/s", "TIER=RATE"), ("nic=fast", "'fast'"),
                               ("nic=0 GB/s", "above 0")):
            with self.subTest(text):
                refused = self.rackrail("topology", "show", "two-racks-40g", "--tier-bandwidth", text,
                                        status=2).err
                self.assertIn("--tier-bandwidth", refused)
                self.assertIn(expected, refused)

    def test_a_device_class_that_changes_nothing_is_noted(self):
        shown = self.rackrail("topology", "show", "a100-8x8", "--device-class", "V100")
        self.assertIn("--device-class V100 changes nothing", shown.err)

    def test_show_has_its_keys_and_counts(self):
        for name, ranks in RANKS.items():
            with self.subTest(cluster=name):
                shown = self.rackrail_json("topology", "show", "--cluster", name)
                self.assertLessEqual({"ranks", "vertices", "links", "tiers", "rackrail", "command",
                                      "seed", "inputs"}, set(shown))
                self.assertEqual(shown["ranks"], ranks)
                self.assertEqual(sum(tier["links"] for tier in shown["tiers"]), shown["links"])
                for tier in shown["tiers"]:
                    self.assertEqual(set(tier), {"name", "links", "bandwidth_Bps"})
                    self.assertGreater(tier["bandwidth_Bps"], 0)

    def test_show_says_who_copies_to_host_memory_first(self):
        self.write("staged.yaml", """name: staged
nodes:
  - {name: a, kind: gpu, host: h0, rank: 0, host_staging: 12 GB/s}
  - {name: b, kind: gpu, host: h1, rank: 1, host_staging: 12 GB/s}
  - {name: c, kind: gpu, host: h2, rank: 2}
  - {name: tor, kind: tor}
links:
  - {from: a, to: tor, bandwidth: 25 GB/s, latency: 1 us, duplex: true}
  - {from: b, to: tor, bandwidth: 25 GB/s, latency: 1 us, duplex: true}
  - {from: c, to: tor, bandwidth: 25 GB/s, latency: 1 us, duplex: true}
""")
        self.assertIn("2 of 3 ranks copy what goes to other hosts to host memory first, at 12.0 GB/s"
                      " each way\n", self.rackrail("topology", "show", "staged.yaml").out)
        self.assertEqual(self.rackrail_json("topology", "show", "staged.yaml")["host_staging"],
                         [{"ranks": 2, "bandwidth_Bps": 12_000_000_000}])
        self.assertNotIn("host memory", self.rackrail("topology", "show", "two-racks-40g").out)

    def test_racks_are_those_that_have_names(self):
        self.write("pair.csv", "source,target,bandwidth,latency\nhost0,host1,1 Gbit/s,1 us\n")
        for cluster, racks in (("pair.csv", 0), ("two-racks-40g", 2)):
            self.assertEqual(self.rackrail_json("topology", "show", cluster)["racks"], racks)

    def test_a_converted_cluster_is_the_same_cluster(self):
        for name in RANKS:
            with self.subTest(cluster=name):
                path = self.folder / f"{name}.yaml"
                self.rackrail("topology", "convert", name, "-o", path)
                first = self.rackrail_json("topology", "show", name)
                second = self.rackrail_json("topology", "show", path)
                for key in ("ranks", "vertices", "links", "tiers"):
                    self.assertEqual(second[key], first[key])
                self.assertEqual(self.table(path), self.table(name))
                # Standard output has the same text as the file.
                self.assertEqual(self.rackrail("topology", "convert", path).out, path.read_text())

    def table(self, cluster):
        """What show prints below the line that names the cluster."""
        return self.rackrail("topology", "show", cluster).out.partition("\n")[2]

    def test_an_edge_list_of_a_cluster_keeps_its_links(self):
        # It has no tier names, so only what the links add up to can be compared.
        for name in RANKS:
            with self.subTest(cluster=name):
                path = self.folder / f"{name}.csv"
                self.rackrail("topology", "convert", name, "--to", "edge-list", "-o", path)
                first, second = (self.rackrail_json("topology", "show", cluster)
                                 for cluster in (name, path))
                for key in ("ranks", "vertices", "links"):
                    self.assertEqual(second[key], first[key])
                self.assertEqual(*(sum(tier["bandwidth_Bps"] for tier in shown["tiers"])
                                   for shown in (first, second)))
                first, second = (self.rackrail_json("topology", "bounds", cluster)
                                 for cluster in (name, path))
                for key in ("allgather_algbw_Bps", "reducescatter_algbw_Bps", "exact"):
                    self.assertEqual(second[key], first[key])

    def test_bounds_of_two_racks_are_what_the_uplink_allows(self):
        # Two racks of two workers behind 40 Gbit/s each way: every rack must receive the halves
        # of the other one, so an all-gather of S bytes takes (S/2) / (5 GB/s).
        bounds = self.rackrail_json("topology", "bounds", "two-racks-40g")
        self.assertLessEqual({"allgather_algbw_Bps", "reducescatter_algbw_Bps",
                              "allreduce_algbw_Bps", "trees_per_root", "cut", "exact"}, set(bounds))
        self.assertAlmostEqual(bounds["allgather_algbw_Bps"] / 10e9, 1, places=6)
        self.assertAlmostEqual(bounds["reducescatter_algbw_Bps"] / 10e9, 1, places=6)
        self.assertGreater(len(bounds["cut"]), 0)
        # A rack of two hosts behind 40 Gbit/s; with twice that on one side, the other one binds.
        self.assertRegex(bounds["cut_around"], r"^2 ranks of rack[01], leaving$")
        self.assertEqual(bounds["cut_Bps"], 5_000_000_000)
        self.assertGreaterEqual(bounds["allgather_algbw_wider_Bps"],
                                bounds["allgather_algbw_Bps"])

    def test_bounds_where_every_machine_is_the_bottleneck(self):
        # n machines that each take in B: all but a 1/n of an all-gather must come in, and an
        # all-reduce brings the same again on its second way.
        for name, machines, rate in (("a100-8x8", 8, 8 * 25e9), ("h100-32x8-rail", 32, 8 * 50e9),
                                     ("fat-tree-128-2to1", 128, 12.5e9)):
            with self.subTest(cluster=name):
                bounds = self.rackrail_json("topology", "bounds", name)
                gather = rate * machines / (machines - 1)
                self.assertAlmostEqual(bounds["allgather_algbw_Bps"] / gather, 1, places=6)
                self.assertAlmostEqual(bounds["reducescatter_algbw_Bps"] / gather, 1, places=6)
                self.assertAlmostEqual(bounds["allreduce_algbw_Bps"] / (gather / 2), 1, places=6)
                # Exactly: seconds for each byte of one rank's share.
                self.assertEqual(Fraction(bounds["exact"]),
                                 Fraction(RANKS[name] * (machines - 1), int(rate) * machines))

    def test_every_bound_is_exact_and_says_what_a_wider_link_buys(self):
        # One narrow host on a switch: 7 shares enter it, or leave it, at 1 GB/s; an all-reduce
        # takes its buffer in and out once, by trees that have no root there.
        cluster = self.write("star.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{h},switch,{1 if h == 7 else 4} GB/s,1 us\n" for h in range(8)))
        bounds = self.rackrail_json("topology", "bounds", cluster)
        share = Fraction(7, 10**9)
        self.assertEqual(Fraction(bounds["exact"]), share)
        self.assertEqual(Fraction(bounds["reducescatter_exact"]), share)
        self.assertEqual(bounds["cut"], ["switch→host7"])
        self.assertEqual(bounds["reducescatter_cut"], ["host7→switch"])
        self.assertEqual(bounds["reducescatter_cut_Bps"], 10**9)
        self.assertEqual(Fraction(bounds["allreduce_exact"]), Fraction(1, 10**9))
        for collective, link, algbw in (("all-gather", "switch→host7", 16 * 10**9 // 7),
                                        ("reduce-scatter", "host7→switch", 16 * 10**9 // 7),
                                        ("all-reduce", None, 2 * 10**9)):
            with self.subTest(collective=collective):
                wider = bounds["wider"][collective]
                self.assertEqual(wider["algbw_Bps"], algbw)
                self.assertIn("host7", wider["link"])
                self.assertIn(link or wider["link"], wider["link"])
        text = self.rackrail("topology", "bounds", cluster).out
        self.assertIn("exact reduce-scatter bound: 7/1000000000 seconds for each byte of a rank's own", text)
        self.assertIn("exact all-reduce bound: 1/1000000000 seconds for each byte", text)
        self.assertIn("reduce-scatter: doubling host7→switch in both directions gives 2.29 GB/s instead of "
                      "1.14 GB/s (+100.0 %)",
                      text)

    def test_a_cut_is_named_by_its_racks_and_links(self):
        # Racks of two and one host behind 3 GB/s: the all-reduce enters, and leaves, the smaller.
        cluster = self.write("racks.yaml", """name: racks
nodes:
  - {name: a, kind: gpu, host: ha, rack: rack0, rank: 0}
  - {name: b, kind: gpu, host: hb, rack: rack0, rank: 1}
  - {name: c, kind: gpu, host: hc, rack: rack1, rank: 2}
  - {name: s, kind: tor, rack: rack0}
  - {name: t, kind: tor, rack: rack1}
links:
  - {from: a, to: s, bandwidth: 9 GB/s, latency: 1 us, duplex: true}
  - {from: b, to: s, bandwidth: 9 GB/s, latency: 1 us, duplex: true}
  - {from: c, to: t, bandwidth: 9 GB/s, latency: 1 us, duplex: true}
  - {from: s, to: t, bandwidth: 3 GB/s, latency: 1 us, duplex: true}
""")
        bounds = self.rackrail_json("topology", "bounds", cluster)
        self.assertRegex(bounds["allreduce_reason"],
                         r"^cut: 1 rank of rack1 can (send|receive) at most 3.00 GB/s together \(.*\)$")
        self.assertEqual(len(bounds["allreduce_cut"]), 1)
        self.assertIn(bounds["allreduce_reason"],
                      self.rackrail("topology", "bounds", cluster).out)

    def test_two_racks_behind_two_uplinks_are_named_with_what_these_carry(self):
        # Four racks of twelve GPUs; rack2 and rack3 reach the others by two uplinks of 40 GB/s.
        nodes = [f"  - {{name: g{i}, kind: gpu, host: h{i}, rack: rack{i // 12}, rank: {i}}}"
                 for i in range(48)]
        nodes += [f"  - {{name: tor{r}, kind: tor, rack: rack{r}}}" for r in range(4)]
        nodes += [f"  - {{name: {name}, kind: spine}}" for name in ("a", "b", "u5", "u6")]
        links = [(f"g{i}", f"tor{i // 12}", 400) for i in range(48)]
        links += [(f"tor{r}", "ab"[r // 2], 400) for r in range(4)]
        links += [("b", "u5", 40), ("b", "u6", 40), ("u5", "a", 400), ("u6", "a", 400)]
        cluster = self.write("pods.yaml", "\n".join(
            ["name: pods", "nodes:", *nodes, "links:",
             *(f"  - {{from: {a}, to: {b}, bandwidth: {rate} GB/s, latency: 1 us, duplex: true}}"
               for a, b, rate in links)]) + "\n")
        bounds = self.rackrail_json("topology", "bounds", cluster)
        self.assertRegex(bounds["allgather_reason"],
                         r"^cut: 24 ranks of rack[02], rack[13] can (send|receive) at most "
                         r"80.0 GB/s together \((b→u5, b→u6|u5→b, u6→b)\)$")
        self.assertEqual(bounds["allgather_algbw_Bps"], 160 * 10**9)
        # With a third uplink as wide as these: 120 GB/s for 24 GPUs.
        self.assertEqual(bounds["wider"]["all-gather"]["algbw_Bps"], 240 * 10**9)
        self.assertRegex(bounds["wider"]["all-gather"]["link"], "u[56]")

    def test_equal_hosts_are_wider_together_and_in_the_network(self):
        cluster = self.write("star.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{h},switch,4 GB/s,1 us\n" for h in range(8)))
        bounds = self.rackrail_json("topology", "bounds", cluster)
        wider = bounds["wider"]["all-gather"]
        self.assertEqual(wider["algbw_Bps"], bounds["allgather_algbw_Bps"])
        self.assertEqual(len(wider["together"]["links"]), 16)
        self.assertAlmostEqual(wider["together"]["algbw_Bps"] / bounds["allgather_algbw_Bps"], 2,
                               places=6)
        text = self.rackrail("topology", "bounds", cluster).out
        self.assertRegex(text, r"(?m)^all-gather: doubling (switch→host\d|host\d→switch) alone gains "
                               r"nothing; doubling 16 links \(.*, …\) gives 9.14 GB/s "
                               r"instead of 4.57 GB/s \(\+100.0 %\)$")
        # A sum of eight passes each link once where the switch adds, else 14 eighths of it.
        self.assertEqual(Fraction(bounds["allreduce_exact"]), Fraction(14, 8 * 4 * 10**9))
        inside = self.rackrail_json("topology", "bounds", cluster, "--in-network")
        self.assertEqual(Fraction(inside["allreduce_exact"]), Fraction(1, 4 * 10**9))
        self.assertEqual(inside["in_network_abilities"], "assumed")
        self.assertEqual(inside["wider"]["all-reduce"]["together"]["algbw_Bps"], 8 * 10**9)
        self.assertIn("the cluster file names no switch that reduces or multicasts",
                      self.rackrail("topology", "bounds", cluster, "--in-network").out)

    def star(self, ranks, back):
        """Ranks on a switch that sends to each at another rate than it receives: its bounds."""
        nodes = "".join(f"  - {{name: r{i}, kind: gpu, host: h{i}, rank: {i}}}\n"
                        for i in range(ranks))
        links = "".join(f"  - {{from: r{i}, to: s, bandwidth: 2 GB/s, latency: 1 us}}\n"
                        f"  - {{from: s, to: r{i}, bandwidth: {back}, latency: 1 us}}\n"
                        for i in range(ranks))
        self.write("star.yaml", f"name: star\nnodes:\n{nodes}  - {{name: s, kind: tor}}\n"
                                f"links:\n{links}")
        return (self.rackrail("topology", "bounds", "star.yaml").out,
                self.rackrail_json("topology", "bounds", "star.yaml"))

    def test_a_bound_that_may_be_out_of_reach_is_not_called_reached(self):
        for back in ("2 GB/s", "1 GB/s"):
            text, bounds = self.star(3, back)
            self.assertIn("1 spanning tree from each rank reaches it", text)
            self.assertFalse(bounds["allreduce_may_be_out_of_reach"])
            self.assertFalse(bounds["allgather_may_be_out_of_reach"])
            self.assertFalse(bounds["reducescatter_may_be_out_of_reach"])
        text, bounds = self.star(300, "1 GB/s")
        self.assertIn("may reach it", text)
        self.assertTrue(bounds["allgather_may_be_out_of_reach"])
        self.assertTrue(bounds["reducescatter_may_be_out_of_reach"])
        text, bounds = self.star(1025, "2 GB/s")
        self.assertIn("proved all-reduce bound: 2/", text)
        self.assertTrue(bounds["allreduce_may_be_out_of_reach"])

    def test_what_a_switch_passes_on_bounds_where_no_cut_does(self):
        # Every cut lets half a unit of each rank through, but c and b hear of each other, and of a,
        # by what leaves a only: of 3x bytes per second that is x to both, and what each lacks of the
        # other.
        links = "".join(f"  - {{from: {a}, to: {b}, bandwidth: 4 GB/s, latency: 1 us}}\n"
                        for a, b in ("as", "sb", "sc", "ba", "ca"))
        self.write("one-way.yaml", "name: one-way\nnodes:\n" + "".join(
            f"  - {{name: {name}, kind: gpu, host: {name}, rank: {rank}}}\n"
            for rank, name in enumerate("abc")) +
            f"  - {{name: s, kind: tor}}\nlinks:\n{links}")
        bounds = self.rackrail_json("topology", "bounds", "one-way.yaml", "--trees-per-rank", "4")
        self.assertEqual(Fraction(bounds["exact"]), Fraction(4, 4 * 10**9))
        self.assertEqual(bounds["allgather_algbw_Bps"], 3 * 10**9)
        self.assertFalse(bounds["allgather_may_be_out_of_reach"])
        self.assertIn("what switches pass on: 3.00 GB/s", bounds["allgather_reason"])
        forest = bounds["forests"][0]
        self.assertAlmostEqual(forest["share_of_bound"], 1, places=6)
        self.assertEqual(forest["trees_per_rank"], 1)
        self.assertIn("what switches pass on", self.rackrail("topology", "bounds",
                                                             "one-way.yaml").out)

    def test_so_many_trees_per_rank_say_how_near_they_come(self):
        few = self.rackrail_json("topology", "bounds", "a100-8x8", "--trees-per-rank", "1")["forests"]
        more = self.rackrail_json("topology", "bounds", "a100-8x8", "--trees-per-rank", "8")["forests"]
        self.assertEqual([one["collective"] for one in few], ["all-gather", "reduce-scatter"])
        for one, another in zip(few, more):
            self.assertEqual(one["trees_per_rank"], 1)
            self.assertLessEqual(another["trees_per_rank"], 8)
            self.assertLessEqual(one["share_of_bound"], another["share_of_bound"])
            self.assertGreater(another["share_of_bound"], 0.96)
            self.assertGreater(one["depth"], 0)
        text = self.rackrail("topology", "bounds", "a100-8x8", "--trees-per-rank", "1").out
        self.assertRegex(text, r"all-gather along 1 spanning tree from each rank: .* GB/s, [\d.]+ % of the"
                               r" bound, \d+ transfers deep\n")
        self.assertEqual(self.rackrail_json("topology", "bounds", "a100-8x8")["forests"], [])
        self.assert_bad_input("topology", "bounds", "a100-8x8", "--trees-per-rank", "0")

    def test_switches_that_add_change_the_exact_bound_of_all_reduce(self):
        for options, machines in (((), 2 * 7), (("--in-network",), 8)):
            with self.subTest(options=options):
                bounds = self.rackrail_json("topology", "bounds", "a100-8x8", *options)
                self.assertEqual(Fraction(bounds["allreduce_exact"]),
                                 Fraction(machines, 8 * 8 * 25 * 10**9))

    def test_switches_that_copy_change_the_bound_of_all_gather_where_they_send_more(self):
        # Each host sends 1 GB/s and receives 2: a switch that copies may pass on twice what it gets.
        links = "".join(f"gpu{i},hub,1 GB/s,1 us,uplink\nhub,gpu{i},2 GB/s,1 us,uplink\n"
                        for i in range(3))
        cluster = self.write("star.csv",
                             "# directed\nsource,target,bandwidth,latency,kind\n" + links)
        for options, rate, exact in (((), 1.5e9, "1/500000000"),
                                     (("--in-network",), 3e9, "1/1000000000")):
            with self.subTest(options=options):
                bounds = self.rackrail_json("topology", "bounds", cluster, *options)
                self.assertEqual(bounds["allgather_algbw_Bps"], rate)
                self.assertEqual(Fraction(bounds["exact"]), Fraction(exact))
        text = self.rackrail("topology", "bounds", cluster, "--in-network").out
        self.assertIn("all-gather                        3.00 GB/s", text)

    def test_abilities_that_no_switch_has_are_said_to_be_assumed(self):
        said = "all are assumed to do both"
        self.assertNotIn(said, self.rackrail("topology", "bounds", "a100-8x8").out)
        self.assertIn(said, self.rackrail("topology", "bounds", "a100-8x8", "--in-network").out)
        bounds = self.rackrail_json("topology", "bounds", "a100-8x8", "--in-network")
        self.assertEqual(bounds["in_network_abilities"], "assumed")

    def test_a_plain_edge_list_goes_the_whole_way(self):
        cluster = self.write("cluster.csv", EDGES)
        self.assertEqual(self.rackrail_json("topology", "show", cluster)["ranks"], 4)
        self.rackrail("plan", cluster, "resnet-50", "-o", "plan.json")
        self.rackrail("verify", "plan.json", "--cluster", cluster)
        planned = self.rackrail_json("plan", cluster, "resnet-50")
        simulated = self.rackrail_json("simulate", "plan.json", "--cluster", cluster)
        self.assertAlmostEqual(simulated["step_time_s"] / planned["step_time_s"], 1, places=2)

    @unittest.skipUnless(NDV4.exists(), f"no vendor file {NDV4.name} beside the project")
    def test_eight_azure_nodes_from_nccls_file_and_an_overlay(self):
        overlay = harness.CONFIGS / "overlays" / "ndv4-8-nodes.yaml"
        shown = self.rackrail_json("topology", "show", NDV4, "--overlay", overlay)
        self.assertEqual(shown["ranks"], 64)
        planned = self.rackrail_json("plan", NDV4, "resnet-50", "--overlay", overlay, "-o",
                                    "p.json")
        self.assertGreaterEqual(planned["gap"], 0)
        self.rackrail("verify", "p.json", "--cluster", NDV4, "--overlay", overlay)


if __name__ == "__main__":
    harness.main()
