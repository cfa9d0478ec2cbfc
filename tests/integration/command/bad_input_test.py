"""Bad input: one line that says where and what, exit status 2, and nothing is lost."""

import json
import pathlib
import re
import subprocess

import harness


CLUSTER = """name: two
device_classes: {V100: {memory: 16 GB}}
node_types: {worker: {rank: host, device_class: V100, nics: {count: 1, link: tcp}}}
racks: {count: 1, hosts: 2, type: worker}
network: {wiring: leaf-spine, core: {count: 1, bandwidth: 40 Gbit/s, latency: 1 us, tier: up}}
"""


class BadInput(harness.CommandTest):
    def test_files_that_are_not_what_they_should_be(self):
        self.write("empty.yaml", "")
        self.write("junk.yaml", bytes(range(256)) * 8)
        self.write("list.yaml", "- 1\n- 2\n")
        self.write("open.xml", "<system version='1'><cpu")
        self.write("words.csv", "name,size\na,b\n")
        (self.folder / "folder").mkdir()
        for name in ("missing.yaml", "empty.yaml", "junk.yaml", "list.yaml", "open.xml",
                     "words.csv", "folder"):
            with self.subTest(file=name):
                self.assert_bad_input("topology", "show", name, file=name)
                self.assert_bad_input("plan", name, "resnet-50", file=name)

    def test_text_that_is_no_utf_8_is_named_by_its_line(self):
        self.write("latin.csv", b"source,target,bandwidth,latency\nhost0,switch,1 GB/s,1 us\n"
                   b"host\xff1,switch,1 GB/s,1 us\n")
        for arguments in (("topology", "bounds"), ("topology", "show")):
            self.assert_bad_input(*arguments, "latin.csv", file="latin.csv", where="line 3",
                                  expected="UTF-8")

    def test_clusters(self):
        self.write("cluster.yaml", CLUSTER)
        self.assertEqual(self.rackrail_json("topology", "show", "cluster.yaml")["ranks"], 2)
        for good, bad, named in (("name: two", "name: two\ncolour: red", "colour"),
                                 ("latency: 1 us, tier", "speed: 1 us, tier", "speed"),
                                 ("40 Gbit/s", "40", "40"),
                                 ("40 Gbit/s", "-40 Gbit/s", "-40 Gbit/s"),
                                 ("40 Gbit/s", "0 Gbit/s", "0 Gbit/s"),
                                 ("40 Gbit/s", "40 parsec", "40 parsec"),
                                 ("memory: 16 GB", "memory: 16", "16"),
                                 ("type: worker", "type: manager", "manager"),
                                 ("hosts: 2", "hosts: none", "none"),
                                 ("link: tcp", "link: string", "string"),
                                 ("racks: {count: 1", "racks: {count: -1", "-1")):
            with self.subTest(bad=bad):
                self.assertIn(good, CLUSTER)
                self.write("cluster.yaml", CLUSTER.replace(good, bad))
                error = self.assert_bad_input("topology", "show", "cluster.yaml",
                                              file="cluster.yaml").error
                self.assertIn(named, error["where"] + error["found"])
                self.assertNotEqual(error["where"], "")

    def test_keys_that_are_known_are_documented(self):
        # The error for an unknown key names those that are known; the reference has a table of them.
        reference = pathlib.Path(__file__).resolve().parents[3] / "docs" / "reference"
        self.write("plan.json", "")
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--naive", "-o", "plan.json")
        self.write("odd.yaml", "colour: red\n")
        for page, arguments in (("workload-file.md", ("plan", "two-racks-40g", "odd.yaml")),
                                  ("fault-file.md", ("simulate", "plan.json", "--scenario", "odd.yaml"))):
            with self.subTest(page=page):
                error = self.assert_bad_input(*arguments, file="odd.yaml").error
                known = set(re.findall(r"[a-z_]+", error["expected"])) - {"one", "of", "or"}
                keys = (reference / page).read_text()
                table = re.search(r"(?m)^\| --- .*\n((\|.*\n)+)", keys).group(1)
                documented = {key for line in table.splitlines() if line.startswith("| `")
                              for key in re.findall(r"`([a-z_]+)`", line.split("|")[1])}
                self.assertEqual(known, documented)

    def test_overlays(self):
        edges = self.write("edges.csv", "source,target,bandwidth,latency\ngpu0,gpu1,1 GB/s,1 us\n")
        self.assert_bad_input("topology", "show", edges, "--overlay", "missing.yaml",
                              found="missing.yaml")
        self.assert_bad_input("topology", "show", edges, "--format", "telepathy", found="telepathy")

    def test_edge_lists(self):
        head = "source,target,bandwidth,latency\n"
        for found, rows in (("25", "gpu0,gpu1,25,1 us\n"),  # no unit
                            ("-1 GB/s", "gpu0,gpu1,-1 GB/s,1 us\n"),
                            ("0", "gpu0,gpu1,0 GB/s,1 us\n"),
                            ("1 parsec", "gpu0,gpu1,1 GB/s,1 parsec\n"),
                            (None, "gpu0,gpu1,1 GB/s\n"),
                            (None, "")):
            with self.subTest(rows=rows):
                self.write("edges.csv", head + rows)
                self.assert_bad_input("topology", "show", "edges.csv", file="edges.csv",
                                      found=found)

    def test_a_cluster_in_two_parts(self):
        self.write("edges.csv", "source,target,bandwidth,latency\n"
                                "gpu0,gpu1,10 GB/s,1 us\ngpu2,gpu3,10 GB/s,1 us\n")
        self.assert_bad_input("topology", "show", "edges.csv", file="edges.csv",
                              found="gpu0, gpu1 | gpu2, gpu3")
        self.assert_bad_input("plan", "edges.csv", "resnet-50", file="edges.csv",
                              found="gpu0, gpu1 | gpu2, gpu3")

    def test_edge_lists_with_other_columns(self):
        row = {"source": "gpu0", "target": "gpu1", "bandwidth": "1 GB/s", "latency": "1 us"}
        for missing in row:
            with self.subTest(missing=missing):
                rest = {name: cell for name, cell in row.items() if name != missing}
                self.write("edges.csv", ",".join(rest) + "\n" + ",".join(rest.values()) + "\n")
                self.assert_bad_input("topology", "show", "edges.csv", "--format", "edge-list",
                                      file="edges.csv", where="line 1")

    def test_ranks_that_cannot_reach_each_other(self):
        self.write("edges.csv", "source,target,bandwidth,latency\ngpu0,gpu1,1 GB/s,1 us\n"
                                "gpu2,gpu3,1 GB/s,1 us\n")
        self.assert_bad_input("plan", "edges.csv", "resnet-50")

    def test_workloads(self):
        good = (harness.CONFIGS / "models" / "resnet-50.yaml").read_text()
        for name, content in (("unknown-key.yaml", "colour: red\n" + good),
                              ("cut.yaml", good[:good.rindex(",")]),
                              ("negative.yaml", good.replace("weight, 9408", "weight, -9408")),
                              ("empty.csv", "name,parameters\n")):
            with self.subTest(file=name):
                self.write(name, content)
                self.assert_bad_input("plan", "two-racks-40g", name, file=name)
        self.assert_bad_input("plan", "resnet-50", "two-racks-40g", file="resnet-50",
                              found="a workload", expected="a cluster")
        self.assert_bad_input("plan", "two-racks-40g", "two-racks-40g", file="two-racks-40g",
                              found="a cluster", expected="a workload")
        self.write("mistyped.csv", "tensor,elemnts,ready_gap_us\na,1,1\n")
        self.assert_bad_input("plan", "two-racks-40g", "mistyped.csv", file="mistyped.csv",
                              found="elemnts", expected="tensor,elements,ready_gap_us")
        self.assert_bad_input("plan", "two-racks-40g", "resnet-51", file="resnet-51",
                              expected="resnet-50")

    def test_rates_of_links(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "--naive", "-o", "plan.json")
        for content, found in (("garbage\n", "columns garbage"), ("link,bandwidth\n", "no row"),
                               ("link,bandwidth\ngarbage\n", "1 cell")):
            with self.subTest(content=content):
                self.write("rates.csv", content)
                self.assert_bad_input("replan", "plan.json", "--link-rates", "rates.csv", file="rates.csv",
                                      found=found)
        self.assert_bad_input("replan", "plan.json", "--lost-link", "tor0->core0", "--tolerance", "nan",
                              where="--tolerance", found="nan", expected="a share from 0 to 100%")

    def test_options(self):
        for option, value in (("--bucket-size", "25"), ("--bucket-size", "0 B"), ("--bucket-size", "-1 MiB"),
                              ("--schedule", "spiral"), ("--codec", "zip"), ("--local-batch", "0"),
                              ("--local-batch", "1.5"), ("--max-global-batch", "-1"),
                              ("--error-budget", "-1"), ("--error-budget", "much"),
                              ("--error-budget", "nan"), ("--error-budget", "2"),
                              ("--target-samples", "nan"),
                              ("--seed", "-1")):
            with self.subTest(option=option, value=value):
                error = self.assert_bad_input("plan", "two-racks-40g", "resnet-50", option, value)
                self.assertIn(value.lstrip("-"), error.error["found"])
                self.assertLess(len(error.error["message"]), 300)  # with all families or codecs
        for option in ("--bytes", "--slice", "--codec"):
            self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-reduce", option,
                                  "lots", file="<command line>", where=option, found="lots")
        for option in ("--bucket-size", "--codec"):
            self.assert_bad_input("plan", "two-racks-40g", "resnet-50", option, "lots",
                                  file="<command line>", where=option, found="lots")
        self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-to-all")
        self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-reduce",
                              "--schedule", "bset", file="<command line>", where="--schedule",
                              found="bset", expected="or best")

    @harness.slow
    def test_options_that_would_be_ignored(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        for option, value in (("--bytes", "1 MiB"), ("--schedule", "ring"), ("--codec", "none"),
                              ("--slice", "1 MiB")):
            self.assert_bad_input("simulate", "plan.json", option, value, found=option)
        for option, value in (("--steps", "2"), ("--step", "0"),
                              ("--workload", "resnet-50")):
            self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-reduce", option,
                                  value, found=option)
        for option, value in (("--schedule", "ring"), ("--schedule", "nonsense"),
                              ("--codec", "fp16"), ("--error-budget", "0.1"),
                              ("--batch-policy", "latency")):
            self.assert_bad_input("plan", "two-racks-40g", "resnet-50", "--naive", option, value,
                                  found=option)
        for option in ("--compress-outer-layers", "--compare-hosts"):
            self.assert_bad_input("plan", "two-racks-40g", "resnet-50", "--naive", option,
                                  found=option)
        self.assert_bad_input("plan", "two-racks-40g", "resnet-50", "--local-batch", "16",
                              "--batch-policy", "latency", found="--local-batch")
        self.assert_bad_input("plan", "two-racks-40g", "resnet-50", "--local-batch", "16",
                              "--max-global-batch", "63", where="local batch", found="16",
                              expected="at most 15")
        self.assert_bad_input("plan", "two-racks-40g", "resnet-50", "--batch-policy", "goodput",
                              where="--batch-policy goodput", found="no noise scale")
        self.assert_bad_input("train", "plan.json", "--workload", "nonsense",
                              found="--calibration")
        for options in (("--share-gpu",), ("--gpu-path", "nccl")):
            self.assert_bad_input("train", "plan.json", "--device", "cpu", *options,
                                  where="--device", found="cpu", expected="cuda")
        self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-reduce", "--slice",
                              "1B", where="--slice", found="1B", expected="4.00 KiB")

    def test_an_output_that_is_an_input(self):
        model = (harness.CONFIGS / "models" / "resnet-50.yaml").read_text()
        self.write("model.yaml", model)
        self.rackrail("topology", "convert", "two-racks-40g", "-o", "cluster.yaml")
        self.rackrail("plan", "cluster.yaml", "model.yaml", "-o", "plan.json")
        (self.folder / "also.json").symlink_to("plan.json")
        of_plan = ("plan.json", "--cluster", "cluster.yaml", "--workload", "model.yaml")
        for command in (("topology", "convert", "cluster.yaml", "-o", "cluster.yaml"),
                        ("plan", "cluster.yaml", "model.yaml", "-o", "./cluster.yaml"),
                        ("plan", "cluster.yaml", "model.yaml", "-o", "model.yaml"),
                        ("simulate", *of_plan, "--trace", "plan.json"),
                        ("simulate", *of_plan, "--flows", "also.json"),
                        ("report", *of_plan, "-o", "plan.json"),
                        ("train", *of_plan[:3], "--trace", "plan.json")):
            with self.subTest(command=command):
                self.assert_bad_input(*command, file=command[-1], found="is an input")

    def test_an_output_twice(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        for command in (("simulate", "plan.json", "--flows", "new", "--links", "./new"),
                        ("simulate", "plan.json", "--trace", "new", "--flows", "new"),
                        ("calibrate", "--workers", "2", "-o", "new", "--workload-output", "new")):
            with self.subTest(command=command):
                self.assert_bad_input(*command, file=command[-1], found="two outputs")
        self.rackrail("simulate", "plan.json", "--flows", "/dev/null", "--links", "/dev/null")

    def test_a_plan_that_leaves_gradients_out(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json", "--bucket-size",
                      "25MiB")
        plan = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))
        del plan["buckets"][1]
        self.write("less.json", json.dumps(plan))
        for command in ("simulate", "report", "explain"):
            with self.subTest(command=command):
                self.assert_bad_input(command, "less.json", file="less.json", found="in no bucket")
        verdict = self.rackrail("verify", "less.json", status=1)
        self.assertIn("is in no bucket", verdict.out)

    def test_a_command_that_is_none(self):
        self.assert_bad_input("plann", found="no command 'plann'", expected="rackrail --help")
        self.assert_bad_input("topology", "bound", "two-racks-40g",
                              found="no command 'topology bound'; there are show, convert, bounds",
                              expected="rackrail topology --help")
        self.assert_bad_input("job", "statu", "127.0.0.1:1", found="there are status, replan",
                              expected="rackrail job --help")
        self.assert_bad_input("fit", found="there are steps, noise", expected="rackrail fit --help")

    @harness.slow
    def test_training_that_is_not_what_was_planned(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.assert_bad_input("train", "plan.json", "--workers", "4", file="plan.json",
                              where="workload_digest", found="resnet-50", expected="calibrate")
        self.rackrail("calibrate", "--workers", "2", "-o", "machine.json", "--workload-output",
                      "here.yaml")
        self.rackrail("plan", "two-racks-40g", "here.yaml", "-o", "plan.json")
        text = (harness.CONFIGS / "training" / "digits-mlp.yaml").read_text()
        self.write("training.yaml", text.replace("../data/digits.csv", "digits.csv"))
        train = ("train", "plan.json", "--workers", "4", "--training", "training.yaml")
        self.assert_bad_input(*train, file="digits.csv", found="No such file")
        self.write("digits.csv", "1,2,3\n")
        self.assert_bad_input(*train, file="digits.csv", where="line 1")

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = subprocess.run([harness.COMMAND, "info"], stdout=full, text=True, check=False,
                                     stderr=subprocess.PIPE, env=self.environment())
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r"\Arackrail: standard output [^\n]+\n\Z")

    @harness.slow
    def test_an_output_that_cannot_be_written(self):
        # Below a file and on a folder: folders that are merely missing are made.
        self.write("file", "mine")
        (self.folder / "folder").mkdir()
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "new/folder/plan.json")
        plan = "new/folder/plan.json"
        for output in ("file/output", "folder"):
            for arguments in (("plan", "two-racks-40g", "resnet-50", "-o"),
                              ("topology", "convert", "two-racks-40g", "-o"),
                              ("simulate", plan, "--trace"),
                              ("report", plan, "-o"),
                              ("calibrate", "--workers", "2", "-o"),
                              ("train", plan, "--workers", "4", "--trace")):
                with self.subTest(command=arguments[0], output=output):
                    self.assert_bad_input(*arguments, output, file=output.partition("/")[0])

    def test_a_run_that_fails_keeps_the_file_that_was_there(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.write("mine", "mine")
        for arguments in (("plan", "two-racks-40g", "resnet-51", "-o", "mine"),
                          ("topology", "convert", "three-racks", "-o", "mine"),
                          ("simulate", "plan.json", "--cluster", "a100-8x8", "--trace", "mine"),
                          ("report", "plan.json", "--run", "missing.json", "-o", "mine"),
                          ("train", "plan.json", "--training", "opera", "--trace", "mine")):
            with self.subTest(command=arguments[0]):
                self.assert_bad_input(*arguments)  # compares the folder before and after

    def test_calibrations(self):
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        rate = {"encode": "1 GB/s", "decode": "1 GB/s"}
        good = harness.calibration()
        wrong = {"cores": 0, "core_bandwidth": "1", "message_overhead": "-1 us", "latency": 1,
                 "codecs": {"fp16": rate, "int8": rate}, "reduce": "0 GB/s", "launch": "soon",
                 "transport": None, "load": "high"}
        self.assertEqual(set(wrong), set(good))
        for key, value in wrong.items():
            for change in ({}, {key: value}):
                with self.subTest(key=key, value=change.get(key, "absent")):
                    bad = {k: v for k, v in good.items() if k != key}
                    self.write("machine.json", json.dumps({**bad, **change}))
                    self.assert_bad_input("train", "plan.json", "--workers", "4", "--calibration",
                                          "machine.json", file="machine.json", where=key)

    def test_calibrations_of_what_is_planned_for(self):
        good = harness.calibration()
        self.write("machine.json", json.dumps(good))
        self.write("wrong.json", json.dumps({**good, "reduce": "soon"}))
        self.write("cpus.csv", "source,target,bandwidth,latency,kind\n" + "".join(
            f"host{i},switch,10 Gbit/s,2 us,host-link\n" for i in range(2)))
        self.rackrail("plan", "cpus.csv", "resnet-50", "-o", "plan.json")
        for arguments in (("plan", "cpus.csv", "resnet-50"), ("schedules", "cpus.csv"),
                          ("simulate", "plan.json", "--cluster", "cpus.csv")):
            with self.subTest(command=arguments[0]):
                self.assert_bad_input(*arguments, "--calibration", "wrong.json", file="wrong.json",
                                      where="reduce")
        self.assert_bad_input("plan", "a100-8x8", "resnet-50", "--calibration", "machine.json",
                              where="--calibration", expected="device class cpu")

    @harness.slow
    def test_plans_and_calibrations(self):
        self.write("words.json", "{}")
        self.assert_bad_input("verify", "words.json", file="words.json")
        self.assert_bad_input("train", "words.json", "--workers", "2", file="words.json")
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.assert_bad_input("train", "plan.json", "--workers", "3", file="plan.json", found="4")
        self.assert_bad_input("train", "plan.json", "--workers", "0", found="--workers")
        self.assert_bad_input("train", "plan.json", "--resume", where="resume")
        self.assert_bad_input("train", "plan.json", "--token-file", "missing", file="missing")
        for period in ("0 s", "1 ms", "-1 s", "soon", "0.5"):
            self.assert_bad_input("train", "plan.json", "--heartbeat-period", period,
                                  where="--heartbeat-period", found=period)
        for options in (("--heartbeat-timeout", "0.9 s"),
                        ("--heartbeat-period", "1 s", "--heartbeat-timeout", "1.5 s"),
                        ("--on-loss", "continue", "--heartbeat-timeout", "0.3 s")):
            self.assert_bad_input("train", "plan.json", *options, where="--heartbeat-timeout",
                                  found=options[-1], expected="twice the period")
        self.assert_bad_input("train", "plan.json", "--checkpoints", "words.json",
                              file="words.json")
        self.assert_bad_input("train", "plan.json", "--training", "opera", found="opera")
        self.assert_bad_input("train", "plan.json", "--calibration", "words.json", "--workers", "4",
                              file="words.json")
        self.write("machine.json", json.dumps(harness.calibration()))
        own = self.contents()["plan.json"].replace(b'"resnet-50"', b'"digits-mlp"')
        (self.folder / "own.json").write_bytes(own)
        for options in (("--calibration", "machine.json"), ("--on-loss", "continue")):
            self.assert_bad_input("train", "own.json", "--workers", "4", *options, file="own.json",
                                  where="workload_name", found="digits-mlp",
                                  expected="--workload with the file")
        self.assert_bad_input("train", "plan.json", "--workers", "4", "--transport", "pigeon",
                              found="pigeon")
        self.assert_bad_input("simulate", "plan.json", "--cluster", "a100-8x8", file="plan.json")
        self.assert_bad_input("report", "plan.json", "--run", "words.json", file="words.json")


if __name__ == "__main__":
    harness.main()
