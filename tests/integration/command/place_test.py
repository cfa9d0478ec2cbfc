"""Placement and planning again: what is printed, the files, and what is refused."""

import json

import harness


class Place(harness.CommandTest):
    def test_hostfiles_say_the_same(self):
        placed = self.rackrail_json("place", "a100-8x8", "--hosts", "4", "--gpus-per-host", "4")
        names = [host["name"] for host in placed["hosts"]]
        self.assertEqual(len(set(names)), 4)
        self.assertEqual(placed["racks"], 1)
        self.assertEqual(placed["ranks"], 16)
        self.assertTrue(placed["exact"])
        self.assertEqual(placed["hostfile"], "".join(f"{name} slots=4\n" for name in names))
        arguments = ("place", "a100-8x8", "-n", "4", "--gpus-per-host", "4", "--hostfile-format")
        self.assertEqual(self.rackrail(*arguments, "slurm").out.split(),
                         [name for name in names for _ in range(4)])
        self.assertEqual(self.rackrail(*arguments, "nodelist").out, ",".join(names) + "\n")

    def test_what_is_chosen_can_be_planned_for(self):
        self.rackrail("place", "fat-tree-128-2to1", "--hosts", "8", "-o", "hostfile",
                      "--cluster-output", "part.yaml")
        files = self.contents()
        self.assertEqual(len(files["hostfile"].splitlines()), 8)
        shown = self.rackrail_json("topology", "show", "part.yaml")
        self.assertEqual((shown["ranks"], shown["racks"]), (8, 1))
        self.assertEqual(shown["name"], "fat-tree-128-2to1 (8 of 128 hosts)")
        self.rackrail("plan", "part.yaml", "resnet-50", "-o", "plan.json")
        self.rackrail("verify", "plan.json", "--cluster", "part.yaml")

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def write_unlike(self, names=("slow", "fast")):
        racks = {"slow": "{ count: 1, hosts: 3, type: slow }",
                 "fast": "{ count: 1, hosts: 2, type: fast }"}
        self.write("unlike.yaml", "name: unlike\n"
                   "link_classes: { e: { bandwidth: 25 Gbit/s, latency: 1 us } }\n"
                   "node_types:\n"
                   "  slow: { rank: host, device_class: V100, nics: { count: 1, link: e } }\n"
                   "  fast: { rank: host, device_class: A100, nics: { count: 1, link: e } }\n"
                   f"racks: [ {', '.join(racks[name] for name in names)} ]\n"
                   "network: { wiring: leaf-spine, "
                   "spine: { count: 1, bandwidth: 100 Gbit/s, latency: 1 us } }\n")

    def test_of_choices_as_good_for_the_network_the_faster_devices_are_taken(self):
        for names in (("slow", "fast"), ("fast", "slow")):
            self.write_unlike(names)
            with self.subTest(names=names):
                placed = self.rackrail_json("place", "unlike.yaml", "--hosts", "3",
                                            "--cluster-output", "part.yaml")
                self.assertEqual(placed["device_classes"], ["A100", "V100"])
                self.assertEqual(placed["racks"], 2)
                part = (self.folder / "part.yaml").read_text(encoding="utf-8")
                self.assertEqual((part.count("A100"), part.count("V100")), (2, 1))
                self.assertIn("(A100, V100): the faster network is chosen first, then the faster",
                              self.rackrail("place", "unlike.yaml", "--hosts", "3").err)
        text = self.rackrail("place", "two-racks-40g", "--hosts", "2").err
        self.assertNotIn("devices", text)

    @harness.slow
    def test_hosts_for_the_comparison_do_not_depend_on_the_order_of_racks(self):
        both = []
        for names in (("slow", "fast"), ("fast", "slow")):
            self.write_unlike(names)
            plan = self.rackrail_json("plan", "unlike.yaml", "resnet-50", "--compare-hosts",
                                      "--codec", "none", "--schedule", "ring")
            both.append(plan["goodput_by_hosts"])
        self.assertEqual([row["hosts"] for row in both[0]], [2, 4, 5])
        for one, other in zip(*both, strict=True):
            self.assertEqual((one["hosts"], one["global_batch"]),
                             (other["hosts"], other["global_batch"]))
            # Ranks have other numbers, so messages that meet may go in another order.
            self.assertAlmostEqual(one["step_time_s"] / other["step_time_s"], 1, places=5)

    def write_uneven(self):
        """Two hosts of four GPUs and two of two, and the two with fewer have wider NICs."""
        box = ("  {name}: {{ gpus: {gpus}, device_class: A100, pcie: {{ bandwidth: 20 GB/s, "
               "latency: 500 ns, gpus_per_switch: 2 }}, nics: {{ count: 1, link: {link} }} }}\n")
        self.write("uneven.yaml", "name: uneven\n"
                   "link_classes:\n"
                   "  wide: { bandwidth: 100 Gbit/s, latency: 1 us }\n"
                   "  narrow: { bandwidth: 25 Gbit/s, latency: 1 us }\n"
                   "node_types:\n" + box.format(name="big", gpus=4, link="narrow") +
                   box.format(name="small", gpus=2, link="wide") +
                   "racks: [ { count: 1, hosts: 2, type: big }, "
                   "{ count: 1, hosts: 2, type: small } ]\n"
                   "network: { wiring: leaf-spine, "
                   "spine: { count: 1, bandwidth: 100 Gbit/s, latency: 1 us } }\n")

    def test_gpus_that_no_slot_is_for_are_said(self):
        self.write_uneven()
        for hosts, slots, unused in ((4, [4, 4, 2, 2], 0), (3, [2, 2, 2], 4), (2, [4, 4], 0)):
            with self.subTest(hosts=hosts):
                placed = self.rackrail_json("place", "uneven.yaml", "--hosts", str(hosts))
                self.assertEqual([len(host["ranks"]) for host in placed["hosts"]], slots)
                self.assertEqual([int(line.split("slots=")[1])
                                  for line in placed["hostfile"].splitlines()], slots)
                self.assertEqual(placed["ranks"], sum(slots))
                self.assertEqual(placed["unused_ranks"], unused)
                self.assertTrue(placed["exact"])
        err = self.rackrail("place", "uneven.yaml", "--hosts", "3").err
        self.assertIn("4 GPUs stay unused (2 of host0, 2 of host1), as each host gets 2 ranks", err)
        asked = ("place", "uneven.yaml", "--hosts", "3", "--gpus-per-host", "2")
        self.assertNotIn("unused", self.rackrail(*asked).err)

    def test_hosts_that_are_not_eligible_are_said_with_the_reason(self):
        self.write_uneven()
        err = self.rackrail("place", "uneven.yaml", "--hosts", "2").err
        self.assertIn("2 of 2 hosts in 1 rack: ", err)
        self.assertIn("2 hosts are left out, having fewer than the 4 ranks that each host needs: "
                      "host2 (2), host3 (2)\n", err)
        placed = self.rackrail_json("place", "uneven.yaml", "--hosts", "2")
        self.assertEqual(placed["least_ranks"], 4)
        self.assertEqual(placed["ineligible_hosts"],
                         [{"name": "host2", "ranks": 2}, {"name": "host3", "ranks": 2}])
        for hosts in ("3", "4"):  # two ranks of each, and all that each has
            self.assertNotIn("eligible", self.rackrail("place", "uneven.yaml", "--hosts", hosts).err)

    def test_one_choice_is_one(self):
        self.write_uneven()
        self.assertIn("the best possible choice (1 compared)",
                      self.rackrail("place", "uneven.yaml", "--hosts", "4").err)
        self.assertRegex(self.rackrail("place", "two-racks-40g", "--hosts", "2").err,
                         r"the best possible choice \([2-9] compared\)")

    def test_names_that_no_hostfile_can_hold_are_refused(self):
        for name in ("a b", "a,b"):
            self.write("cluster.yaml", "name: odd\nnodes:\n"
                       f"  - {{ name: '{name}', kind: gpu, host: '{name}', rank: 0 }}\n"
                       "  - { name: c, kind: gpu, host: c, rank: 1 }\n"
                       "links:\n"
                       f"  - {{ from: '{name}', to: c, bandwidth: 1 GB/s, latency: 1 us, "
                       "kind: host-link, duplex: true }\n")
            for form in ("openmpi", "slurm", "nodelist"):
                with self.subTest(name=name, form=form):
                    self.assert_bad_input("place", "cluster.yaml", "--hosts", "2",
                                          "--hostfile-format", form, "-o", "hostfile",
                                          file="cluster.yaml", where="host names", found=name)

    def test_what_is_not_there_is_bad_input(self):
        for arguments in (("two-racks-40g", "--hosts", "5"),
                          ("two-racks-40g", "--hosts", "2", "--gpus-per-host", "2"),
                          ("two-racks-40g", "--hosts", "1")):
            with self.subTest(arguments=arguments):
                result = self.rackrail("place", *arguments, status=2)
                self.assertRegex(result.err, r"\Arackrail: [^\n]*two-racks-40g[^\n]*\n\Z")


class Replan(harness.CommandTest):
    def setUp(self):
        super().setUp()
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--search", "thorough", "-o", "plan.json")

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def test_the_new_plan_is_for_the_cluster_as_it_is_now(self):
        self.write("rates.csv", "link,bandwidth\ntor0->core0,10 Gbit/s\ncore0->tor0,10 Gbit/s\n"
                                "host0->tor0,12.3 GB/s\n")
        result = self.rackrail_json("replan", "plan.json", "--link-rates", "rates.csv",
                                    "-o", "new.json", "--cluster-output", "now.yaml")
        # The third is within the tolerance.
        self.assertEqual([link["name"] for link in result["links"]], ["tor0→core0", "core0→tor0"])
        self.assertLess(result["step_time_s"], result["kept_step_time_s"])
        self.assertGreaterEqual(result["step_time_s"], result["bound_s"])
        self.rackrail("verify", "new.json", "--cluster", "now.yaml")
        simulated = self.rackrail_json("simulate", "new.json", "--cluster", "now.yaml")
        self.assertAlmostEqual(simulated["step_time_s"], result["step_time_s"], places=9)
        text = self.rackrail("replan", "plan.json", "--link-rates", "rates.csv").out
        for part in ("step before", "old plan kept", "step now", "per step over the changed links"):
            self.assertIn(part, text)
        refused = self.rackrail("verify", "new.json", status=2)  # the shipped one is another
        self.assertIn("'two-racks-40g (changed)', which is not a shipped cluster", refused.err)
        self.rackrail("replan", "new.json", "--cluster", "now.yaml", "--link-rates", "rates.csv",
                      "-o", "again.json", "--cluster-output", "again.yaml")
        again = self.rackrail_json("topology", "show", "again.yaml")
        self.assertEqual(again["name"], "two-racks-40g (changed)")

    @harness.slow
    def test_one_of_parallel_cables_is_lost_by_its_number_and_all_by_the_bare_name(self):
        self.write("parallel.csv", "source,target,bandwidth,latency,kind\n" + "".join(
            f"host{i},tor{i // 2},10 GB/s,1 us,host-link\n" for i in range(4)) +
            "tor0,tor1,2 GB/s,1 us,uplink\n" * 2 + "tor0,tor1,1 GB/s,1 us,uplink\n")
        self.rackrail("plan", "parallel.csv", "resnet-50", "-o", "plan.json")
        result = self.rackrail_json("replan", "plan.json", "--cluster", "parallel.csv",
                                    "--lost-link", "tor0->tor1#3", "-o", "new.json")
        self.assertEqual([link["name"] for link in result["links"]],
                         ["tor0→tor1#3", "tor1→tor0#3"])
        result = self.rackrail("replan", "plan.json", "--cluster", "parallel.csv",
                               "--lost-link", "tor0->tor1", "-o", "new.json", status=2)
        self.assertRegex(result.err, r"\Arackrail: <command line>: lost link tor0→tor1#3: found it "
                                     r"cuts host[02], host[13] off.* before it, expected ")
        self.assertIn("once each", self.rackrail(
            "replan", "plan.json", "--cluster", "parallel.csv", "--lost-link", "tor0->tor1#3",
            "--lost-link", "tor1->tor0#3", "-o", "new.json", status=2).err)

    @harness.slow
    def test_the_full_plan_beside_it_may_do_what_the_plan_in_use_does(self):
        self.write("rates.csv", "link,bandwidth\ntor0->core0,20 Gbit/s\ncore0->tor0,20 Gbit/s\n")
        full = {}
        for option in ("", "--compress-outer-layers"):
            options = (option,) if option else ()
            self.rackrail("plan", "two-racks-40g", "bert-large", "-o", "plan.json", *options)
            result = self.rackrail_json("replan", "plan.json", "--link-rates", "rates.csv",
                                        "--cluster-output", "now.yaml", "--compare-full",
                                        "-o", "new.json")
            planned = self.rackrail_json("plan", "now.yaml", "bert-large", *options)
            self.assertAlmostEqual(result["full_step_time_s"], planned["step_time_s"], places=9)
            full[option] = result["full_step_time_s"]
            # What was written is the full plan where that is better by 3 %.
            written = self.rackrail_json("simulate", "new.json", "--cluster", "now.yaml")
            better = 1.03 * result["full_step_time_s"] <= result["step_time_s"]
            self.assertEqual(result["full_is_better"], better)
            self.assertAlmostEqual(
                written["step_time_s"],
                result["full_step_time_s" if better else "step_time_s"], delta=1e-3)
        self.assertLess(full["--compress-outer-layers"], 0.99 * full[""])

    @harness.slow
    def test_a_plan_of_one_schedule_stays_with_it_and_says_so(self):
        self.write("rates.csv", "link,bandwidth\ntor0->core0,1 Gbit/s\ncore0->tor0,1 Gbit/s\n")
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--schedule", "ring", "-o", "plan.json")
        replan = ("replan", "plan.json", "--link-rates", "rates.csv", "--compare-full")
        kept = self.rackrail_json(*replan, "--cluster-output", "now.yaml", "-o", "kept.json")
        self.assertEqual(kept["only_schedule"], "ring")
        self.assertEqual({change["after"].split()[0] for change in kept["changes"]}, {"ring"})
        self.assertIn("kept to schedule ring", " ".join(kept["notes"]))
        self.assertIn("kept to schedule ring", self.rackrail(*replan).out)
        again = self.rackrail_json("replan", "kept.json", "--cluster", "now.yaml", "--link-rates",
                                   "rates.csv")
        self.assertEqual(again["only_schedule"], "ring")
        freed = self.rackrail_json(*replan, "--any-schedule")
        self.assertEqual(freed["only_schedule"], "")
        for step in ("step_time_s", "full_step_time_s"):
            self.assertLess(freed[step], 0.99 * kept[step])

    @harness.slow
    def test_bound_gap_and_rounding_are_said_as_of_a_plan(self):
        self.write("rates.csv", "link,bandwidth\ntor0->core0,10 Gbit/s\ncore0->tor0,10 Gbit/s\n")
        replan = ("replan", "plan.json", "--link-rates", "rates.csv")
        result = self.rackrail_json(*replan, "-o", "new.json", "--cluster-output", "now.yaml")
        self.assertAlmostEqual(result["gap"], result["step_time_s"] / result["bound_s"] - 1)
        self.assertGreater(result["gradient_error"], 0)
        text = self.rackrail(*replan, "--compare-full").out
        self.assertRegex(text, r"(?m)^step now +\S+ \S+ \(\+\d+\.\d % against the lower bound, ")
        self.assertRegex(text, r"(?m)^full plan +\S+ \S+ \(\+\d+\.\d % against the lower bound, ")
        self.assertIn(result["bound_reason"], text)
        self.assertRegex(text, r"(?m)^rounding +compression changes summed gradients by up to ")
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--error-budget", "0", "-o",
                      "plan.json")
        self.assertRegex(self.rackrail(*replan).out, r"(?m)^rounding +none: ")

    def test_the_same_again_gives_the_same_bytes(self):
        self.write("rates.csv", "link,bandwidth\ntor1->core0,5 Gbit/s\n")
        for output in ("a.json", "b.json"):
            self.rackrail("replan", "plan.json", "--link-rates", "rates.csv", "-o", output)
        files = self.contents()
        self.assertEqual(files["a.json"], files["b.json"])

    def run_with(self, *rates, **others):
        """What `train --on-slow … --json` prints of links, as far as replan reads it."""
        run = {"command": "train", "plan_name": "resnet-50",
               "plan_digest": self.rackrail_json("verify", "plan.json")["digest"],
               "link_rates": [{"link": link, "now_Bps": rate} for link, rate in rates], **others}
        self.write("run.json", json.dumps(run))
        return "run.json"

    def test_the_rates_that_a_run_found_are_those_of_a_file_of_rates(self):
        run = self.run_with(("tor0→core0", 1_250_000_000), ("core0→tor0", 1_250_000_000),
                            ("host0→tor0", 12_300_000_000))
        self.write("rates.csv", "link,bandwidth\ntor0->core0,10 Gbit/s\ncore0->tor0,10 Gbit/s\n")
        by_run = self.rackrail_json("replan", "plan.json", "--run", run, "-o", "a.json")
        by_rates = self.rackrail_json("replan", "plan.json", "--link-rates", "rates.csv",
                                      "-o", "b.json")
        # The third is within the tolerance.
        self.assertEqual([link["name"] for link in by_run["links"]], ["tor0→core0", "core0→tor0"])
        self.assertEqual([link["now_Bps"] for link in by_run["links"]], [1_250_000_000] * 2)
        self.assertEqual(by_run["changes"], by_rates["changes"])
        self.assertTrue(by_run["changes"])
        self.assertIn("run.json", " ".join(by_run["inputs"]))
        files = self.contents()
        self.assertEqual(files["a.json"], files["b.json"])
        text = self.rackrail("replan", "plan.json", "--run", run).out
        self.assertRegex(text, r"tor0→core0 +\S+ \S+ +1\.25 GB/s")

    def test_a_run_without_slow_links_changes_nothing_and_says_so(self):
        result = self.rackrail("replan", "plan.json", "--run", self.run_with(), "-o", "new.json")
        self.assertIn("no link has another rate than planned", result.out)
        self.assertIn("0 of 4 buckets used a changed link", result.out)
        slow = {"ranks": [{"rank": "host1", "time_factor": 2.5}]}
        result = self.rackrail("replan", "plan.json", "--run", self.run_with(slow=[slow]))
        self.assertRegex(result.err, r"\Anote: host1 took 2.5 times as long [^\n]+\n\Z")

    def test_what_is_no_run_of_this_plan_is_said_in_a_line(self):
        self.assert_bad_input("replan", "plan.json", "--run", self.run_with(("tor0→moon", 5)),
                              file="run.json", where="tor0→moon", expected="cluster")
        self.assert_bad_input("replan", "plan.json", "--run", self.run_with(plan_digest="other"),
                              file="run.json", where="plan_digest")
        self.assert_bad_input("replan", "plan.json", "--run", self.run_with(link_rates=None),
                              file="run.json", where="link_rates", expected="--on-slow")
        self.assert_bad_input("replan", "plan.json", "--run", "plan.json", file="plan.json",
                              expected="rackrail train")
        self.assert_bad_input("replan", "plan.json", "--run", "absent.json", file="absent.json")

    def test_what_is_wrong_is_said_in_a_line(self):
        self.write("unknown.csv", "link,bandwidth\nhost0->host9,10 Gbit/s\n")
        self.write("unit.csv", "link,bandwidth\ntor0->core0,10\n")
        self.write("title.csv", "link,speed\ntor0->core0,10 Gbit/s\n")
        self.write("lost.csv", "link,bandwidth\nhost1->tor0,5 Gbit/s\ntor1->host2,lost\n")
        for arguments, part in (((), "--lost-link"),
                                (("--lost-link", "tor0->core0"), "lost link tor0→core0"),
                                (("--lost-link", "host3->tor1"),
                                 "<command line>: lost link host3→tor1: found it cuts host3 off: no "
                                 "path is left between there and the other 3 ranks, expected "),
                                (("--link-rates", "lost.csv"),
                                 "lost.csv: lost link tor1→host2: found it cuts host2 off"),
                                (("--lost-link", "tor0->moon"), "tor0->moon"),
                                (("--link-rates", "unknown.csv"), "unknown.csv"),
                                (("--link-rates", "unit.csv"), "unit.csv"),
                                (("--link-rates", "title.csv"), "title.csv"),
                                (("--link-rates", "absent.csv"), "absent.csv")):
            with self.subTest(arguments=arguments):
                result = self.rackrail("replan", "plan.json", *arguments, status=2)
                self.assertRegex(result.err, r"\Arackrail: [^\n]+\n\Z")
                self.assertIn(part, result.err)


if __name__ == "__main__":
    harness.main()
