"""Simulation: what it prints, closed forms of bare collectives, traces."""

import collections
import csv
import json

import harness


class Simulate(harness.CommandTest):
    def collective(self, cluster, size, schedule, *more):
        return self.rackrail_json("simulate", cluster, "--collective", "all-reduce", "--bytes",
                                  size, "--schedule", schedule, *more)

    def test_a_plan_takes_what_the_planner_said(self):
        planned = self.rackrail_json("plan", "two-racks-40g", "vgg-16", "-o", "plan.json")
        result = self.rackrail_json("simulate", "plan.json")
        self.assertLessEqual({"step_time_s", "sync_share", "critical_path", "links", "events",
                              "flows", "wall_s", "peak_rss_bytes"}, set(result))
        self.assertAlmostEqual(result["step_time_s"] / planned["step_time_s"], 1, places=3)
        health = {figure["what"]: figure for figure in result["health"]}
        self.assertAlmostEqual(health["gradient synchronisation"]["share"], result["sync_share"])
        self.assertEqual(health["gradient synchronisation"]["healthy"], result["sync_share"] < 0.2)
        self.assertAlmostEqual(health["device busy"]["share"],
                               result["compute_time_s"] / result["step_time_s"])
        path = result["critical_path"]
        for step in path:
            self.assertLessEqual({"what", "start_s", "end_s", "waited_s"}, set(step))
        for before, after in zip(path, path[1:]):
            self.assertLessEqual(before["start_s"], after["start_s"])
        self.assertAlmostEqual(path[-1]["end_s"] / result["step_time_s"], 1, places=6)
        for link in result["links"]:
            self.assertLessEqual({"name", "bytes", "utilization"}, set(link))
            self.assertLessEqual(link["utilization"], 1 + 1e-9)

    def test_two_simulations_are_equal(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        first, second = (self.rackrail_json("simulate", "plan.json", "--steps", "3")
                         for _ in range(2))
        for result in (first, second):
            del result["wall_s"], result["peak_rss_bytes"]
        self.assertEqual(first, second)

    def test_a_large_ring_runs_at_its_bottlenecks_rate(self):
        # busbw = 2(n−1)/n · S/T is the rate of the ring's slowest link.
        self.write("cluster.csv", "source,target,bandwidth,latency\n"
                   "host0,tor0,10 Gbit/s,2 us\nhost1,tor0,10 Gbit/s,2 us\n"
                   "host2,tor1,10 Gbit/s,2 us\nhost3,tor1,10 Gbit/s,2 us\n"
                   "tor0,tor1,5 Gbit/s,1 us\n")
        result = self.collective("cluster.csv", "1GiB", "ring")
        self.assertLessEqual({"time_s", "algbw_Bps", "busbw_Bps", "bound_s"}, set(result))
        self.assertAlmostEqual(result["busbw_Bps"] / 625e6, 1, delta=0.005)
        self.assertAlmostEqual(result["algbw_Bps"] * 2 * 3 / 4, result["busbw_Bps"], delta=1)
        self.assertAlmostEqual(result["algbw_Bps"], 2**30 / result["time_s"], delta=1)
        self.assertLessEqual(result["bound_s"], result["time_s"])

    def test_the_bound_of_a_small_message_is_the_latency(self):
        self.write("far.csv", "source,target,bandwidth,latency\nhost0,host1,10 GB/s,200 us\n")
        result = self.collective("far.csv", "1KiB", "best")
        self.assertAlmostEqual(result["bound_s"], 200e-6)
        self.assertEqual(result["bound_by"], "latency")
        self.assertLess(result["bound_s"], result["time_s"])
        self.assertLess(result["time_s"], 210e-6)  # one latency: both send what they have
        self.assertEqual(self.collective("far.csv", "1GiB", "best")["bound_by"], "bandwidth")

    def test_the_best_schedule_is_the_one_that_the_table_of_schedules_names(self):
        self.write("cluster.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},tor{host // 4},10 GB/s,1 us\n" for host in range(8)) +
            "tor0,core,15 GB/s,1 us\ntor1,core,15 GB/s,1 us\n")
        thorough = ("--search", "thorough")
        table = self.rackrail_json("schedules", "cluster.csv", "--from", "64KiB", "--to", "256MiB",
                                   *thorough)
        for row in table["sizes"][::3]:
            with self.subTest(bytes=row["bytes"]):
                best = self.rackrail_json("simulate", "cluster.csv", "--collective", "all-reduce",
                                          "--bytes", f"{row['bytes']}B", "--schedule", "best", *thorough)
                self.assertEqual(best["schedule"], row["best"])
                self.assertEqual(best["time_s"], row["time_s"])

    def test_the_best_schedule_in_given_slices_is_the_fastest_of_all_in_them(self):
        self.write("star.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,{rate} GB/s,1 us\n" for host, rate in enumerate((10, 10, 10, 5))))
        families = self.rackrail_json("info")["schedules"]
        for slices in ("64KiB", "1MiB"):
            times = {}
            for family in families:
                result = self.run_any("simulate", "star.csv", "--collective", "all-reduce",
                                      "--size", "64MiB", "--schedule", family, "--slice", slices,
                                      "--json")
                if result.status == 0:
                    times[family] = result.json["time_s"]
            best = self.collective("star.csv", "64MiB", "best", "--slice", slices)
            self.assertGreater(len(times), 3)
            self.assertEqual(best["time_s"], min(times.values()))
            self.assertEqual(times[best["schedule"]], best["time_s"])

    def test_the_size_of_a_collective_has_two_names(self):
        run = ("simulate", "two-racks-40g", "--collective", "all-reduce")
        self.assertEqual(*(self.rackrail_json(*run, option, "64MiB")["time_s"]
                           for option in ("--size", "--bytes")))
        self.assertRegex(self.rackrail("simulate", "--help").out, r"--bytes, ?--size")

    def test_gathering_and_scattering_are_held_against_their_exact_bounds(self):
        self.write("star.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,{rate} GB/s,1 us\n" for host, rate in enumerate((10, 10, 10, 5))))
        bounds = self.rackrail_json("topology", "bounds", "star.csv")
        for what in ("all-gather", "reduce-scatter", "all-reduce"):
            with self.subTest(what=what):
                ring, forest, best = (
                    self.rackrail_json("simulate", "star.csv", "--collective", what, "--bytes",
                                       "1GiB", "--schedule", schedule)
                    for schedule in ("ring", "forest", "best"))
                bound = bounds[what.replace("-", "") + "_algbw_Bps"]
                self.assertAlmostEqual(best["bound_s"] * bound / 2**30, 1, places=6)
                for result in (ring, forest):
                    # What cannot save half a percent, by its bound, is not looked at.
                    self.assertGreaterEqual(1.005 * result["time_s"], best["time_s"])
                    self.assertGreaterEqual(result["time_s"], result["bound_s"])
                self.assertLess(best["time_s"], 1.02 * best["bound_s"])
        # Three of four parts pass the narrow link, in either direction.
        gathered = self.rackrail_json("simulate", "star.csv", "--collective", "all-gather",
                                      "--bytes", "1GiB")
        self.assertAlmostEqual(gathered["time_s"] / (0.75 * 2**30 / 5e9), 1, delta=0.01)
        self.assertAlmostEqual(gathered["busbw_Bps"] / 5e9, 1, delta=0.01)
        self.assert_bad_input("simulate", "star.csv", "--collective", "broadcast",
                              where="--collective", found="'broadcast'", expected="all-gather")
        self.assert_bad_input("simulate", "star.csv", "--collective", "all-gather", "--schedule",
                              "double-binary-tree", found="no schedule for this collective")
        self.assertEqual((gathered["collective"], gathered["bytes"], gathered["schedule"]),
                         ("all-gather", 2**30, "ring"))
        # What would be ignored is refused.
        for key, value in (("placement", "{ hosts: [host0, host1] }"), ("local_steps", "4"),
                           ("slow_devices", "[{ ranks: [0], factor: 50 }]")):
            self.write("steps.yaml", f"{key}: {value}\n")
            self.assert_bad_input("simulate", "star.csv", "--collective", "all-reduce",
                                  "--scenario", "steps.yaml", file="steps.yaml", where=key)
        self.write("slow.yaml", "links: [{ link: host3→switch, from: 0 s, bandwidth: 1 GB/s }]\n")
        slow = self.rackrail_json("simulate", "star.csv", "--collective", "all-gather",
                                  "--scenario", "slow.yaml")
        self.assertGreater(slow["time_s"], 4 * gathered["time_s"])
        self.assert_bad_input("simulate", "star.csv", "--collective", "all-reduce", "--cluster",
                              "two-racks-40g", where="--cluster")
        self.assert_bad_input("simulate", "star.csv", "--collective", "all-reduce", "--plan",
                              "plan.json")

    def test_packets_take_as_long_as_flows_and_tell_of_queues(self):
        for schedule in ("ring", "halving-doubling"):
            with self.subTest(schedule=schedule):
                case = ("two-racks-40g", "64MiB", schedule)
                flow = self.collective(*case)
                packet = self.collective(*case, "--network", "packet")
                self.assertEqual(flow["queues"], [])
                # The flow level may simulate one of several parts that are alike.
                self.assertEqual(packet["flows"] % flow["flows"], 0)
                self.assertAlmostEqual(packet["time_s"] / flow["time_s"], 1, delta=0.05)
                self.assertGreater(max(queue["longest_bytes"] for queue in packet["queues"]), 0)

    def test_a_plan_at_the_packet_level(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        flow = self.rackrail_json("simulate", "plan.json")
        packet = self.rackrail_json("simulate", "plan.json", "--network", "packet")
        self.assertAlmostEqual(packet["step_time_s"] / flow["step_time_s"], 1, delta=0.05)

    def test_large_rings_of_the_shipped_clusters_run_at_their_bottlenecks_rate(self):
        # A ring passes each machine once in and once out, through one port of this rate; there is
        # one for each port, of which slices are still to pass the machine when links fall idle.
        for cluster, rate, ports in (("two-racks-40g", 5e9, 1), ("a100-8x8", 25e9, 8),
                                     ("fat-tree-128-2to1", 12.5e9, 1),
                                     ("h100-32x8-rail", 50e9, 8)):
            with self.subTest(cluster=cluster):
                result = self.collective(cluster, "16GiB", "ring")
                idle = 0.005 if ports == 1 else 0.03
                busiest = max(link["utilization"] for link in result["links"])
                self.assertGreater(busiest, 1 - idle)
                self.assertLessEqual(busiest, 1 + 1e-9)
                self.assertAlmostEqual(result["busbw_Bps"] / (rate * ports), 1, delta=idle)

    def test_time_grows_with_size_and_a_codec_takes_fewer_bytes(self):
        times = [self.collective("a100-8x8", size, "hierarchical")["time_s"]
                 for size in ("64KiB", "16MiB", "1GiB")]
        self.assertEqual(times, sorted(times))
        plain = self.collective("two-racks-40g", "256MiB", "ring")["time_s"]
        small = self.collective("two-racks-40g", "256MiB", "ring", "--codec", "fp16")["time_s"]
        self.assertAlmostEqual(small / plain, 0.5, delta=0.1)

    def test_a_trace_is_a_timeline(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.rackrail("simulate", "plan.json", "--trace", "trace.json")
        trace = json.loads((self.folder / "trace.json").read_text())
        tracks = [(event["pid"], event["tid"]) for event in trace["traceEvents"]
                  if event["ph"] == "M" and event["name"] == "thread_name"]
        self.assertEqual(len(tracks), len(set(tracks)))
        self.assertEqual({event["ph"] for event in trace["traceEvents"]}, {"M", "X"})
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                self.assertIn((event["pid"], event["tid"]), tracks)
                self.assertNotEqual(event["name"], "")
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertGreater(len(slices), 100)
        self.assertTrue(all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices))
        end = max(event["ts"] + event["dur"] for event in slices) * 1e-6
        result = self.rackrail_json("simulate", "plan.json")
        self.assertAlmostEqual(end / result["step_time_s"], 1, delta=0.02)

    def test_a_scenario_slows_the_steps_that_it_says(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        quiet = self.rackrail_json("simulate", "plan.json")["step_time_s"]
        self.write("slow.yaml", "steps: 4\nslow_devices:\n"
                   "  - { ranks: [2], factor: 2, first_step: 1, last_step: 1 }\n")
        result = self.rackrail_json("simulate", "plan.json", "--scenario", "slow.yaml")
        steps = [step["end_s"] - step["start_s"] for step in result["steps"]]
        self.assertEqual(len(steps), 4)
        self.assertGreater(steps[1], 1.8 * quiet)
        self.assertLess(max(steps[0], steps[3]), 1.01 * quiet)
        self.assertAlmostEqual(result["mean_step_time_s"], result["steps"][-1]["end_s"] / 4)
        self.assertIn("slow.yaml", " ".join(result["inputs"]))

    def test_memory_does_not_grow_with_the_steps(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        for scenario in ("steps: 1\n", "staleness: 1\n", "local_steps: 3\nloading: { batch: 5 ms }\n"):
            with self.subTest(scenario=scenario):
                self.write("steps.yaml", scenario)
                few, many, slowest = (
                    self.rackrail_json("simulate", "plan.json", "--scenario", "steps.yaml",
                                       "--steps", *arguments)
                    for arguments in (("9",), ("80",), ("80", "--step", "slowest")))
                for result in (many, slowest):
                    self.assertEqual(len(result["steps"]), 80)
                    self.assertLess(result["peak_rss_bytes"] - few["peak_rss_bytes"], 6e6)
                # The path of the reported step, in the middle of the others, is whole.
                path = slowest["critical_path"]
                self.assertEqual(path[0]["start_s"], 0)
                self.assertAlmostEqual(path[-1]["end_s"], slowest["step_time_s"])

    def test_a_straggler_is_told_apart_from_synchronisation(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        quiet = self.rackrail_json("simulate", "plan.json")
        self.assertEqual(quiet["waited_for_others_s"], 0)
        self.write("slow.yaml", "slow_devices: [{ ranks: [2], factor: 2 }]\n")
        slow = self.rackrail_json("simulate", "plan.json", "--scenario", "slow.yaml")
        self.assertAlmostEqual(slow["compute_time_s"], 2 * quiet["compute_time_s"], places=9)
        self.assertAlmostEqual(slow["waited_for_others_s"], 0.75 * quiet["compute_time_s"],
                               places=9)
        self.assertAlmostEqual(slow["compute_time_s"] + slow["waited_for_data_s"] +
                               slow["sync_share"] * slow["step_time_s"], slow["step_time_s"])
        self.assertIn("others wait for the slowest",
                      self.rackrail("simulate", "plan.json", "--scenario", "slow.yaml").out)

    def test_a_link_that_stays_cut_ends_with_what_waits_for_it(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.write("cut.yaml", "links: [{ tier: rack-uplink, from: 50 ms, cut: true }]\n")
        result = self.rackrail("simulate", "plan.json", "--scenario", "cut.yaml", status=1)
        self.assertRegex(result.err, "can never end: bucket [0-9]+: rank . → rank . on .* "
                         "stands still on a link without capacity")

    def test_symmetric_parts_are_simulated_once_with_the_same_result(self):
        folded, whole = (self.collective("h100-32x8-rail", "1GiB", "hierarchical-ring", *more)
                         for more in ((), ("--every-flow",)))
        self.assertGreater(folded["copies"], 1)
        self.assertEqual(whole["copies"], 1)
        self.assertEqual(folded["flows"] * folded["copies"], whole["flows"])
        self.assertEqual(folded["time_s"], whole["time_s"])
        self.assertEqual(folded["links"], whole["links"])

    def assert_records_agree(self, result, time_s):
        """flows.csv and links.csv with the totals of links."""
        bytes_over = collections.Counter()
        with open(self.folder / "flows.csv", newline="") as file:
            for flow in csv.DictReader(file):
                self.assertLessEqual(float(flow["start_s"]), float(flow["sent_s"]))
                self.assertLessEqual(float(flow["sent_s"]), float(flow["delivered_s"]))
                links = flow["links"].split()
                shares = flow["shares"].split() or ["1"] * len(links)
                for link, share in zip(links, shares, strict=True):
                    bytes_over[link] += int(flow["bytes"]) * float(share)
        totals = {link["name"]: link["bytes"] for link in result["links"]}
        self.assertEqual(bytes_over.keys(), totals.keys())
        for link, expected in totals.items():
            self.assertAlmostEqual(bytes_over[link] / expected, 1, delta=1e-6)
        with open(self.folder / "links.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        bin_s = float(rows[1]["time_s"])
        utilisation = {link["name"]: link["utilization"] for link in result["links"]}
        for link, expected in utilisation.items():
            over_time = [float(row[link]) for row in rows]
            self.assertLessEqual(max(over_time), 1 + 1e-6)
            self.assertAlmostEqual(sum(over_time) * bin_s / time_s, expected, delta=1e-4)

    def test_messages_and_links_over_time_agree_with_the_totals(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        result = self.rackrail_json("simulate", "plan.json", "--flows", "flows.csv",
                                    "--links", "links.csv")
        self.assert_records_agree(result, result["step_time_s"])

    def test_messages_that_are_sprayed_have_a_share_on_each_link(self):
        self.write("spines.csv", "source,target,bandwidth,latency,kind\n" + "".join(
            f"host{i},tor{i // 2},1 GB/s,1 us,host-link\n" for i in range(4)) + "".join(
            f"tor{i},spine{j},1 GB/s,1 us,uplink\n" for i in range(2) for j in range(2)))
        self.rackrail("plan", "spines.csv", "resnet-50", "-o", "plan.json")
        result = self.rackrail_json("simulate", "plan.json", "--cluster", "spines.csv",
                                    "--multipath", "spray", "--flows", "flows.csv", "--links",
                                    "links.csv")
        self.assertIn(",1 0.5 0.5 0.5 0.5 1\n", (self.folder / "flows.csv").read_text())
        self.assert_records_agree(result, result["step_time_s"])

    def test_a_collective_is_recorded_like_a_step(self):
        for schedule in ("ring", "best"):
            with self.subTest(schedule=schedule):
                bare = self.collective("two-racks-40g", "64MiB", schedule, "--every-flow")
                result = self.collective("two-racks-40g", "64MiB", schedule, "--flows",
                                         "flows.csv", "--links", "links.csv", "--trace",
                                         "trace.json")
                self.assertEqual(result["time_s"], bare["time_s"])
                self.assertEqual(bare["critical_path"], [])
                self.assert_records_agree(result, result["time_s"])
                path = result["critical_path"]
                self.assertEqual(path[0]["start_s"], 0)
                self.assertAlmostEqual(path[-1]["end_s"] / result["time_s"], 1, places=9)
                for before, after in zip(path, path[1:]):
                    self.assertEqual(before["end_s"], after["start_s"])
                events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
                self.assertAlmostEqual(max(event["ts"] + event["dur"] for event in events
                                           if event["ph"] == "X") / 1e6 / result["time_s"], 1,
                                       delta=0.03)  # latencies are not shown
        text = self.rackrail("simulate", "two-racks-40g", "--collective", "all-reduce", "--links",
                             "again.csv").out
        self.assertIn("critical path", text)
        self.assertIn("wrote again.csv", text)

    def two_jobs(self, start, more=""):
        """Two plans for two racks, as jobs beside each other on a cluster of twice as many hosts
        with the same uplinks."""
        self.write("own.csv", "source,target,bandwidth,latency\n"
                   "host0,tor0,10 Gbit/s,2 us\nhost1,tor1,10 Gbit/s,2 us\n"
                   "tor0,tor1,5 Gbit/s,1 us\n")
        self.write("shared.csv", "source,target,bandwidth,latency\n"
                   "host0,tor0,10 Gbit/s,2 us\nhost1,tor1,10 Gbit/s,2 us\n"
                   "host2,tor0,10 Gbit/s,2 us\nhost3,tor1,10 Gbit/s,2 us\n"
                   "tor0,tor1,5 Gbit/s,1 us\n")
        self.rackrail("plan", "own.csv", "vgg-16", "--codec", "none", "-o", "plan.json")
        self.write("jobs.yaml", "placement: { name: ours, cluster: own.csv }\n"
                   "jobs:\n  - { plan: plan.json, name: theirs, hosts: [host2, host3], "
                   f"start: {start} }}\nmultipath: ecmp\n{more}")
        return ("simulate", "plan.json", "--cluster", "shared.csv", "--scenario", "jobs.yaml")

    def test_jobs_share_what_lies_between(self):
        # VGG-16 has so many gradients that the uplink is busy all the time that two jobs are there:
        # it cannot carry the bytes of both sooner than at its rate.
        result = self.rackrail_json(*self.two_jobs("0 s"))
        ours, theirs = result["jobs"]
        self.assertEqual([job["name"] for job in (ours, theirs)], ["ours", "theirs"])
        links = {link["name"]: link for link in result["links"]}
        self.assertEqual(links["tor0→tor1"]["bytes"],
                         links["host0→tor0"]["bytes"] + links["host2→tor0"]["bytes"])
        for job in (ours, theirs):
            self.assertAlmostEqual(job["slowdown"], job["step_time_s"] / job["step_time_alone_s"])
            self.assertGreater(job["slowdown"], 1.2)
            self.assertGreaterEqual(job["step_time_s"],
                                    links["tor0→tor1"]["bytes"] / 625e6)
        alone = self.rackrail_json("simulate", "plan.json", "--cluster", "own.csv")
        self.assertAlmostEqual(ours["step_time_alone_s"], alone["step_time_s"], places=9)

    def test_jobs_that_do_not_meet_do_not_hinder(self):
        result = self.rackrail_json(*self.two_jobs("1 min", "steps: 3"), "--trace", "trace.json")
        for job in result["jobs"]:
            self.assertEqual(job["slowdown"], 1)
            self.assertEqual(len(job["steps"]), 3)
        self.assertEqual(result["jobs"][1]["start_s"], 60)
        with open(self.folder / "trace.json", encoding="utf-8") as file:
            names = {event["args"]["name"] for event in json.load(file)["traceEvents"]
                     if event["name"] == "process_name"}
        self.assertEqual(names, {"simulated: ours", "simulated: theirs"})

    def test_jobs_that_cannot_be_are_refused(self):
        arguments = self.two_jobs("0 s")
        self.assertIn("ours", self.rackrail(*arguments).out)
        for line, found in (("  - { hosts: [host2, host3] }", "plan"),
                            ("  - { plan: plan.json, hosts: [host9] }", "host9"),
                            ("  - { plan: plan.json, hosts: [host1, host2] }", "rank 1, which job"),
                            ("  - { plan: plan.json, hosts: [host2] }", "1 ranks"),
                            ("  - { plan: plan.json, hosts: [host2], ranks: [2] }", "both"),
                            ("  - { plan: none.json, hosts: [host2] }", "none.json"),
                            ("  - { plan: plan.json, hosts: [host2, host3] }\nmultipath: pinned",
                             "routes from 'host0'")):
            with self.subTest(line=line):
                self.write("jobs.yaml", f"placement: {{ cluster: own.csv }}\njobs:\n{line}\n" +
                           ("" if "pinned" in line else "multipath: ecmp\n"))
                refused = self.rackrail(*arguments, status=2)
                self.assertEqual(len(refused.err.splitlines()), 1)
                self.assertIn(found, refused.err)

    def test_routes_by_the_network(self):
        # Eight hosts send over four spines: sprayed, a large ring runs at the rate of a host, though
        # its neighbours are not in one rack: switches of the core, on which hosts hang, are none.
        def clos(latency_of_spine):
            return "source,target,bandwidth,latency\n" + "".join(
                f"host{h},core{h % 2},10 Gbit/s,1 us\n" for h in range(8)) + "".join(
                f"core{t},spine{s},10 Gbit/s,{latency_of_spine(s)} ns\n"
                for t in range(2) for s in range(4))

        self.write("clos.csv", clos(lambda spine: 1000))
        rate = {multipath: self.collective("clos.csv", "1GiB", "ring", "--multipath",
                                           multipath)["busbw_Bps"]
                for multipath in ("pinned", "ecmp", "spray")}
        self.assertAlmostEqual(rate["spray"] / 1.25e9, 1, delta=0.005)
        self.assertEqual(rate["pinned"], rate["ecmp"])
        self.assertLess(rate["ecmp"], 0.6 * 1.25e9)
        # Switches count hops: cables of four lengths are used alike. A plan goes the shortest way.
        self.write("lengths.csv", clos(lambda spine: 1000 + 10 * spine))
        for multipath in ("ecmp", "spray"):
            longer = self.collective("lengths.csv", "1GiB", "ring", "--multipath", multipath)
            self.assertAlmostEqual(longer["busbw_Bps"] / rate[multipath], 1, delta=1e-5)
        alone = self.collective("lengths.csv", "1GiB", "ring", "--multipath", "pinned")
        self.assertAlmostEqual(alone["busbw_Bps"] / 1.25e9, 1 / 4, delta=0.005)
        # With many connections between two ranks their hashes even out.
        many = self.collective("clos.csv", "1GiB", "ring", "--multipath", "ecmp", "--connections",
                               "64")["busbw_Bps"]
        self.assertGreater(many, rate["ecmp"])
        self.assertLess(many, rate["spray"])
        for multipath in ((), ("--multipath", "spray")):
            self.assert_bad_input("simulate", "clos.csv", "--collective", "all-reduce",
                                  "--connections", "4", *multipath, file="<command line>",
                                  where="--connections", expected="ecmp")
        by_packets = self.collective("clos.csv", "32MiB", "ring", "--multipath", "spray",
                                     "--network", "packet")["busbw_Bps"]
        self.assertAlmostEqual(by_packets / 1.25e9, 1, delta=0.05)

    def test_bytes_are_whole_floats(self):
        for given, simulated in (("5B", 8), ("3B", 4), ("8B", 8), ("4097B", 4100)):
            with self.subTest(given=given):
                result = self.collective("two-racks-40g", given, "ring")
                self.assertEqual(result["bytes"], simulated)
                said = [note for note in result["notes"] if "floats" in note]
                self.assertEqual(len(said), 0 if given == "8B" else 1)
        self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-reduce", "--bytes",
                              "0B", file="<command line>", where="--bytes", expected="one float")

    def test_options_of_the_packet_level(self):
        case = ("two-racks-40g", "64MiB", "halving-doubling", "--network", "packet")
        usual = self.collective(*case)
        trimmed = self.collective(*case, "--packet", "overload=trim", "--packet",
                                  "trim.queue_packets=4")
        self.assertEqual(sum(queue["trims"] for queue in usual["queues"]), 0)
        self.assertGreater(sum(queue["trims"] for queue in trimmed["queues"]), 0)
        self.write("packets.yaml", "network: packet\n"
                   "packets: { overload: trim, trim: { queue_packets: 4 } }\n")
        by_file = self.collective(*case[:3], "--scenario", "packets.yaml")
        self.assertEqual(by_file["queues"], trimmed["queues"])
        for option, found in (("queue_capacity=1", "unit"), ("payload=2 MiB", "1 MiB"),
                              ("mark_from=20 us", "mark_all"), ("dcqcn.gain=1", "'1'"),
                              ("overload=drop", "trim or pause"), ("mark", "NAME=VALUE"),
                              ("ecn=1 us", "'ecn'"), ("trim.window=0", "'0'")):
            with self.subTest(option=option):
                refused = self.rackrail("simulate", *case[:1], "--collective", "all-reduce",
                                        "--network", "packet", "--packet", option, status=2)
                self.assertEqual(len(refused.err.splitlines()), 1)
                self.assertIn(found, refused.err)
        self.rackrail("simulate", "two-racks-40g", "--collective", "all-reduce", "--packet",
                      "payload=1 KiB", status=2)

    def test_health_knows_of_loaders_and_of_host_memory(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        for batch, is_healthy in (("1 ms", True), ("5 s", False)):
            self.write("loads.yaml", f"steps: 4\nloading: {{ batch: {batch} }}\n")
            result = self.rackrail_json("simulate", "plan.json", "--scenario", "loads.yaml")
            health = {figure["what"]: figure for figure in result["health"]}
            self.assertNotIn("host-device copies", health)
            last = result["steps"][-1]
            self.assertAlmostEqual(health["data starvation"]["share"],
                                   last["waited_for_data_s"] / result["step_time_s"])
            self.assertEqual(health["data starvation"]["healthy"], is_healthy)
        # The figure is of the step that is reported: with four batches ahead, of the first alone.
        self.write("first.yaml", "steps: 4\nloading: { batch: 20 ms, prefetch: 4 }\n")
        for step, number in (("0", 0), ("last", 3)):
            result = self.rackrail_json("simulate", "plan.json", "--scenario", "first.yaml",
                                        "--step", step)
            health = {figure["what"]: figure for figure in result["health"]}
            self.assertAlmostEqual(health["data starvation"]["share"] * result["step_time_s"],
                                   result["steps"][number]["waited_for_data_s"])
        self.assertEqual(result["steps"][0]["waited_for_data_s"], 0.02)
        self.assertEqual(result["steps"][3]["waited_for_data_s"], 0)
        # Two GPUs whose only way is over the processor's memory.
        self.write("box.yaml", "name: box\nnodes:\n"
                   "  - { name: gpu0, kind: gpu, host: a, rank: 0 }\n"
                   "  - { name: gpu1, kind: gpu, host: a, rank: 1 }\n"
                   "  - { name: cpu, kind: cpu, host: a }\nlinks:\n" + "".join(
                       f"  - {{ from: gpu{i}, to: cpu, bandwidth: 10 GB/s, latency: 1 us, "
                       "kind: pcie, duplex: true }\n" for i in (0, 1)))
        self.rackrail("plan", "box.yaml", "resnet-50", "-o", "box.json")
        result = self.rackrail_json("simulate", "box.json", "--cluster", "box.yaml")
        copies = {figure["what"]: figure for figure in result["health"]}["host-device copies"]
        busiest = max(link["bytes"] for link in result["links"])
        self.assertAlmostEqual(copies["time_s"], busiest / 10e9, places=9)
        self.assertEqual(copies["healthy"], busiest / 10e9 < 5e-3)

    def test_seeds_of_the_command_line_and_of_the_scenario(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.write("own.yaml", "steps: 3\nseed: 1\nslow_devices: [{ sigma: 0.5 }]\n")
        self.write("none.yaml", "steps: 3\nslow_devices: [{ sigma: 0.5 }]\n")

        def run(scenario, *seed):
            return self.rackrail_json("simulate", "plan.json", "--scenario", scenario, *seed)

        own, one, two = run("own.yaml"), run("none.yaml", "--seed", "1"), run("own.yaml", "--seed",
                                                                              "2")
        self.assertEqual((own["seed"], one["seed"], two["seed"]), (1, 1, 2))
        self.assertEqual(own["mean_step_time_s"], one["mean_step_time_s"])
        self.assertNotEqual(own["mean_step_time_s"], two["mean_step_time_s"])

    def test_what_is_not_simulated_together_is_refused(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        run = "duration: 100 s\noutages: [{ host: host1, at: 20 s }]\n"
        for text, options, found in (
                (run + "slow_devices: [{ factor: 2 }]\n", (), "'slow_devices' beside outages"),
                (run + "links: [{ tier: rack-uplink, bandwidth: 1 Gbit/s }]\n", (),
                 "'links' beside outages"),
                (run + "staleness: 1\n", (), "'staleness' beside outages"),
                ("asynchronous: true\n", ("--trace", "trace.json"), "--trace"),
                ("background: [{ from: 0, to: 2, message: 64 MB, every: 1 ms }]\n", (), "61.0 MiB")):
            with self.subTest(text=text):
                self.write("refused.yaml", text)
                refused = self.rackrail("simulate", "plan.json", "--scenario", "refused.yaml",
                                        *options, status=2)
                self.assertEqual(len(refused.err.splitlines()), 1)
                self.assertIn(found, refused.err)
                self.assertFalse((self.folder / "trace.json").exists())

    def test_the_shipped_scenarios_run(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        for name, steps in (("rough-day", 40), ("stragglers", 20)):
            scenario = str(harness.CONFIGS / "faults" / f"{name}.yaml")
            result = self.rackrail_json("simulate", "plan.json", "--scenario", scenario)
            self.assertEqual(len(result["steps"]), steps)

    def test_an_asynchronous_server_lets_nobody_wait_for_the_slow(self):
        scenario = str(harness.CONFIGS / "faults" / "asynchronous.yaml")
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--schedule", "parameter-server",
                      "-o", "servers.json")
        result = self.rackrail_json("simulate", "servers.json", "--scenario", scenario)
        *others, slow = result["step_times_s"]
        self.assertGreater(slow, 1.7 * max(others))
        self.assertGreater(result["conflict_rate"], 0.5)
        self.assertLessEqual(result["conflict_rate"], 1)
        self.assertGreater(result["staleness_updates"], result["conflict_rate"])
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--schedule", "ring", "-o", "ring.json")
        refused = self.rackrail("simulate", "ring.json", "--scenario", scenario, status=2)
        self.assertIn("parameter-server for all", refused.err)

    @harness.slow
    def test_outages_cost_steps_and_goodput(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        scenario = str(harness.CONFIGS / "faults" / "failures.yaml")
        run = self.rackrail_json("simulate", "plan.json", "--scenario", scenario)["outages"]
        for before, after in zip(run["phases"], run["phases"][1:]):
            self.assertEqual(before["end_s"], after["start_s"])
        self.assertEqual({phase["ranks"] for phase in run["phases"]}, {0, 3, 4})
        self.assertEqual(sum(phase["lost_steps"] > 0 for phase in run["phases"]), 1)
        self.assertLess(run["samples_per_s"], 0.9 * run["undisturbed_samples_per_s"])
        # Whatever the network is simulated as: there is one way between two hosts here.
        for options in (("--multipath", "ecmp"), ("--multipath", "spray")):
            other = self.rackrail_json("simulate", "plan.json", "--scenario", scenario,
                                       *options)["outages"]
            self.assertEqual([phase["ranks"] for phase in other["phases"]],
                             [phase["ranks"] for phase in run["phases"]])
            self.assertAlmostEqual(other["samples_per_s"] / run["samples_per_s"], 1, delta=0.02)
        self.write("hashed.yaml", "multipath: ecmp\nduration: 100 s\n"
                                  "outages: [{ host: host1, at: 20 s }]\n")
        hashed = self.rackrail_json("simulate", "plan.json", "--scenario", "hashed.yaml")["outages"]
        self.assertEqual(hashed["phases"][-1]["ranks"], 3)



if __name__ == "__main__":
    harness.main()
