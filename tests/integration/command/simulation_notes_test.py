"""What a simulation says about itself: notes, links with others' traffic, which step, which bound."""

import csv

import harness

EDGES = ("source,target,bandwidth,latency\n"
         "gpu0,tor0,10 GB/s,1 us\ngpu1,tor0,10 GB/s,1 us\ngpu2,tor0,10 GB/s,1 us\n")


class Notes(harness.CommandTest):
    def test_gpus_without_a_class_are_pointed_out_and_can_be_given_one(self):
        edges = EDGES.replace("10 GB/s", "1000 GB/s")  # so that additions take most of the time
        self.write("edges.csv", edges)
        run = ("simulate", "edges.csv", "--collective", "all-reduce", "--schedule", "ring")
        plain = self.rackrail(*run)
        self.assertEqual(plain.err.count("note: "), 1, str(plain))
        self.assertIn("gpu0 and 2 more GPUs have no device class", plain.err)
        unknown = self.rackrail_json(*run)
        self.assertEqual(len(unknown["notes"]), 1)
        named = self.rackrail_json(*run, "--device-class", "A100")
        self.assertEqual(named["notes"], [])
        in_small_letters = self.rackrail_json(*run, "--device-class", "a100")
        self.assertEqual(in_small_letters["time_s"], named["time_s"])
        # An H100 is assumed, which adds faster than an A100.
        self.assertIn("at the rates of H100", unknown["notes"][0])
        assumed = self.rackrail_json(*run, "--device-class", "H100")
        self.assertEqual(assumed["time_s"], unknown["time_s"])
        self.assertLess(unknown["time_s"], named["time_s"])
        table = self.rackrail("schedules", "edges.csv", "--to", "1MiB")
        self.assertEqual(table.err.count("note: gpu0 and 2 more GPUs have no device class"), 1)
        table = edges + "\nvertex,role,kind,host,rack,device_class\n" + "".join(
            f"gpu{i},rank,gpu,,,A100\n" for i in range(3))
        self.write("table.csv", table)
        in_table = self.rackrail_json("simulate", "table.csv", *run[2:])
        self.assertEqual(in_table["notes"], [])
        self.assertEqual(in_table["time_s"], named["time_s"])
        self.write("small.csv", table.replace("A100", "a100"))
        small = self.rackrail_json("simulate", "small.csv", *run[2:])
        self.assertEqual((small["notes"], small["time_s"]), ([], named["time_s"]))
        self.assertIn("A100", self.rackrail("topology", "convert", "small.csv").out)
        self.assert_bad_input(*run, "--device-class", "A1OO", where="--device-class")

    def test_slices_that_cut_nothing_are_said_to(self):
        self.write("edges.csv", EDGES.replace("gpu", "host"))
        for schedule in ("ring", "best"):
            def notes(*slices):
                run = ("simulate", "edges.csv", "--collective", "all-reduce", "--bytes", "3MiB",
                       "--schedule", schedule)
                return " ".join(self.rackrail_json(*run, *slices)["notes"])
            self.assertIn("--slice 64MiB changes nothing: no message is larger than",
                          notes("--slice", "64MiB"))
            self.assertNotIn("changes nothing", notes("--slice", "64KiB"))
            self.assertNotIn("changes nothing", notes())

    def test_an_unknown_class_is_taken_as_the_likeliest_one(self):
        self.write("small.csv", EDGES + "\nvertex,role,kind,device_class\n" + "".join(
            f"gpu{i},rank,gpu,a100-sxm\n" for i in range(3)))
        self.write("model.yaml", "name: own\nprofiled_batch: 8\nforward: 1 ms\n"
                                 "optimizer: 100 us\ntensors: [[weight, 1048576, 5 ms]]\n")
        expected = "gpu0 and 2 more ranks have the unknown device class 'a100-sxm', taken as A100;"
        for run in (("plan", "small.csv", "model.yaml", "--schedule", "ring", "-o", "plan.json"),
                    ("simulate", "plan.json", "--cluster", "small.csv", "--model", "model.yaml"),
                    ("simulate", "small.csv", "--collective", "all-reduce"),
                    ("schedules", "small.csv", "--to", "1MiB"),
                    ("explain", "plan.json", "--cluster", "small.csv", "--model", "model.yaml")):
            with self.subTest(command=run[0]):
                plain = self.rackrail(*run)
                self.assertEqual((plain.out + plain.err).count(expected), 1, str(plain))
                if run[0] != "explain":
                    self.assertRegex(plain.err, rf"(?m)^note: {expected}")
                notes = self.rackrail_json(*run)["notes"]
                self.assertEqual(sum(expected in note for note in notes), 1)
        known = self.rackrail("schedules", "--cluster", "two-racks-40g", "--to", "1MiB")
        self.assertNotIn("unknown", known.err)
        run = ("simulate", "small.csv", "--collective", "all-reduce")
        self.assertEqual(self.rackrail_json(*run)["time_s"], self.time_of_class(*run, "A100"))
        self.write("small.csv", EDGES + "\nvertex,role,kind,device_class\n" + "".join(
            f"gpu{i},rank,gpu,{name}\n"
            for i, name in enumerate(("Gaudi 3", "NVIDIA GB200 NVL72", "Gaudi 3"))))
        notes = self.rackrail_json(*run)["notes"]
        self.assertEqual(len(notes), 1)
        self.assertIn("gpu0 and 1 more rank have the unknown device class 'Gaudi 3', taken as H100",
                      notes[0])
        self.assertIn("gpu1 has the unknown device class 'NVIDIA GB200 NVL72', taken as GB200",
                      notes[0])

    def time_of_class(self, command, cluster, *rest):
        self.write("named.csv", EDGES)
        *options, name = rest
        return self.rackrail_json(command, "named.csv", *options, "--device-class", name)["time_s"]

    def test_a_cluster_file_describes_a_device_that_nobody_knows(self):
        def cluster(classes):
            return ("name: own\n" + classes +
                    "node_types:\n  box:\n    gpus: 4\n    device_class: Mine\n"
                    "    pcie: { bandwidth: 500 GB/s, latency: 1 us }\n"
                    "racks: { hosts: 1 }\n")
        run = ("--collective", "all-reduce", "--bytes", "256MiB", "--schedule", "ring")
        times = {}
        for rate in (100, 200, 4000):
            self.write("own.yaml", cluster("device_classes: { Mine: { matrix_tflops: 100, "
                                           f"memory_bandwidth: {rate} GB/s }} }}\n"))
            result = self.rackrail_json("simulate", "own.yaml", *run)
            self.assertEqual(result["notes"], [])
            times[rate] = result["time_s"]
        self.assertGreater(times[100], 1.5 * times[200])
        self.assertGreater(times[200], times[4000])
        self.write("flat.yaml", self.rackrail("topology", "convert", "own.yaml").out)
        self.assertEqual(self.rackrail_json("simulate", "flat.yaml", *run)["time_s"], times[4000])
        self.write("own.yaml", cluster(""))
        self.assertIn("taken as H100", self.rackrail("simulate", "own.yaml", *run).err)

    def test_files_of_devices_add_to_the_shipped_ones_and_replace_them(self):
        mine = {"RACKRAIL_CONFIGS": str(self.folder / "mine")}
        device = "name: {}\nsource: test\nmatrix_tflops: 100\nmemory_bandwidth: {} GB/s\n"
        self.write("mine/devices/own.yaml", device.format("Own", 200) + "aliases: [Own 64GB]\n")
        self.write("edges.csv", EDGES.replace("10 GB/s", "1000 GB/s"))
        run = ("simulate", "edges.csv", "--collective", "all-reduce", "--bytes", "256MiB",
               "--schedule", "ring", "--device-class")
        own = self.rackrail_json(*run, "own 64gb", variables=mine)
        self.assertEqual(own["notes"], [])
        h100 = self.rackrail_json(*run, "H100", variables=mine)
        self.assertGreater(own["time_s"], h100["time_s"])
        self.assert_bad_input(*run, "Own", where="--device-class", found="Own")
        self.write("mine/devices/h100.yaml", device.format("h100", 200))
        replaced = self.rackrail_json(*run, "H100", variables=mine)
        self.assertEqual(replaced["time_s"], own["time_s"])
        for text, parts in (
                (device.format("A100", 0), {"where": "line 4, memory_bandwidth"}),
                ("name: X\nmatrix_tflops: 1\n", {"expected": "'memory_bandwidth'"}),
                (device.format("X", 1).replace("source", "sauce"), {"found": "'sauce'"}),
                (device.format("X", 1) + "aliases: [gb200]\n", {"found": "'gb200'"}),
                (device.format("own", 1), {"where": "name", "found": "'own'"}),
                ("text\n", {"expected": "a device class"})):
            with self.subTest(text=text):
                self.write("mine/devices/x.yaml", text)
                self.assert_bad_input(*run, "A100", file="x.yaml", variables=mine, **parts)

    def test_ranks_without_a_class_compute_as_the_profile_and_are_pointed_out(self):
        self.write("edges.csv", EDGES)
        expected = "gpu0 and 2 more ranks have no device class: compute times are those of the V100"
        for run in (("plan", "edges.csv", "resnet-50", "--schedule", "ring"),
                    ("explain", "edges.csv", "resnet-50")):
            plain = self.rackrail(*run)
            self.assertEqual((plain.out + plain.err).count(expected), 1, str(plain))
            named = self.rackrail(*run, "--device-class", "A100")
            self.assertNotIn("no device class", named.out + named.err)
        self.rackrail("plan", "edges.csv", "resnet-50", "-o", "plan.json")
        self.assertIn(expected, self.rackrail("simulate", "plan.json", "--cluster",
                                              "edges.csv").err)

    def test_a_plan_for_gpus_without_a_class_says_what_its_gap_is_made_of(self):
        self.write("edges.csv", EDGES)
        run = ("plan", "edges.csv", "resnet-50", "--schedule", "ring")
        notes = [note for note in self.rackrail_json(*run)["notes"] if "no device class" in note]
        self.assertEqual(len(notes), 1)
        for part in ("compute times are those of", "at the rates of H100", "--device-class"):
            self.assertIn(part, notes[0])
        named = self.rackrail_json(*run, "--device-class", "A100")
        self.assertNotIn("no device class", " ".join(named["notes"]))

    def test_what_messages_cost_cores_is_charged_or_said_not_to_be(self):
        def cluster(cores):
            return ("name: test\ndevice_classes: { V100: { memory: 16 GB } }\n"
                    "node_types:\n  worker: { rank: host, device_class: V100, " + cores +
                    "nics: { link: tcp } }\nracks: { hosts: 4 }\n")
        times = {}
        for cores in ("", "cores: 1, ", "cores: 64, "):
            self.write("cluster.yaml", cluster(cores))
            result = self.rackrail_json("simulate", "cluster.yaml", "--collective", "all-reduce",
                                        "--bytes", "64MiB", "--schedule", "ring")
            times[cores] = result["time_s"]
            self.assertEqual(len(result["notes"]), 1 if cores == "" else 0, cores)
            if cores == "":
                self.assertIn("is left out on 4 machines (host0…), where they take 35.0 % of the "
                              "cores", result["notes"][0])
        # 64 cores have room for both ends of TCP, 2 x 35 %, and the work beside it.
        self.assertAlmostEqual(times["cores: 64, "] / times[""], 1, delta=1e-3)
        self.assertGreater(times["cores: 1, "], times["cores: 64, "])

    def test_links_show_what_others_send(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.write("others.yaml", "background: [{ from: 0, to: 2, message: 1 GB, "
                                  "rate: 1 GB/s }]\n")
        result = self.rackrail_json("simulate", "plan.json", "--scenario", "others.yaml",
                                    "--links", "links.csv")
        background = {link["name"]: link["background_utilization"] for link in result["links"]
                      if link["background_bytes"] > 0}
        self.assertEqual(set(background), {"host0→tor0", "tor0→core0", "core0→tor1", "tor1→host2"})
        self.assertAlmostEqual(background["tor0→core0"], 0.2, places=3)  # 1 of 5 GB/s
        with open(self.folder / "links.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        others = [float(row["tor0→core0 (others)"]) for row in rows]
        self.assertAlmostEqual(sum(others[:-1]) / len(others[:-1]), 0.2, places=3)
        for row in rows:
            self.assertLessEqual(float(row["tor0→core0"]) + float(row["tor0→core0 (others)"]),
                                 1 + 1e-6)
        text = self.rackrail("simulate", "plan.json", "--scenario", "others.yaml").out
        self.assertIn("of others", text)
        self.assertNotIn("of others", self.rackrail("simulate", "plan.json").out)

    def test_any_step_can_be_reported(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.write("slow.yaml", "steps: 6\n"
                                "slow_devices: [{ factor: 2, first_step: 3, last_step: 3 }]\n")
        run = ("simulate", "plan.json", "--scenario", "slow.yaml")
        for choice, step in (("last", 5), ("slowest", 3), ("3", 3), ("0", 0)):
            with self.subTest(choice=choice):
                result = self.rackrail_json(*run, "--step", choice)
                self.assertEqual(result["reported_step"], step)
                span = result["steps"][step]
                # A rank that ends sooner begins the next step sooner.
                self.assertAlmostEqual(result["step_time_s"], span["end_s"] - span["start_s"],
                                       delta=1e-5)
                self.assertAlmostEqual(result["critical_path"][-1]["end_s"],
                                       result["step_time_s"], delta=1e-5)
        text = self.rackrail(*run, "--step", "slowest").out
        self.assertIn("what follows is step 3's, the slowest one", text)
        for choice in ("6", "-1", "soon"):
            self.assert_bad_input(*run, f"--step={choice}", where="--step")

    def test_the_bound_is_that_of_the_links_as_they_are(self):
        self.write("edges.csv", EDGES.replace("gpu", "host"))
        run = ("simulate", "edges.csv", "--collective", "all-gather", "--bytes", "300MB",
               "--schedule", "ring")
        plain = self.rackrail_json(*run)
        self.write("slow.yaml", "links: [{ link: tor0→host2, from: 0 s, bandwidth: 2 GB/s }]\n")
        slow = self.rackrail_json(*run, "--scenario", "slow.yaml")
        # Host 2 must get the other two thirds over its link.
        self.assertAlmostEqual(slow["bound_s"], 0.2 / 2, places=6)
        self.assertAlmostEqual(plain["bound_s"], 0.2 / 10, places=6)
        self.assertLessEqual(slow["bound_s"], slow["time_s"])
        self.assertNotEqual(slow["bound_of"], plain["bound_of"])
        self.assertIn("every link at its best", self.rackrail(*run, "--scenario", "slow.yaml").out)


if __name__ == "__main__":
    harness.main()
