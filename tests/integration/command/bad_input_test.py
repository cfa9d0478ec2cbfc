"""Bad input: one line that says where and what, exit status 2, and nothing is lost."""

import harness


class BadInput(harness.CommandTest):
    def test_files_that_are_not_what_they_should_be(self):
        self.write("empty.yaml", "")
        self.write("junk.yaml", bytes(range(256)) * 8)
        self.write("list.yaml", "- 1\n- 2\n")
        self.write("open.xml", "<system version='1'><cpu")
        self.write("words.csv", "name,size\na,b\n")
        (self.folder / "folder").mkdir()
        for name in ("missing.yaml", "empty.yaml", "junk.yaml", "list.yaml", "open.xml", "words.csv",
                     "folder"):
            with self.subTest(file=name):
                self.assert_bad_input("topology", "show", name, file=name)
                self.assert_bad_input("plan", name, "resnet-50", file=name)

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
                self.assert_bad_input("topology", "show", "edges.csv", file="edges.csv", found=found)

    def test_ranks_that_cannot_reach_each_other(self):
        self.write("edges.csv", "source,target,bandwidth,latency\ngpu0,gpu1,1 GB/s,1 us\n"
                                "gpu2,gpu3,1 GB/s,1 us\n")
        self.assert_bad_input("plan", "edges.csv", "resnet-50")

    def test_workloads(self):
        good = (harness.CONFIGS / "models" / "resnet-50.yaml").read_text()
        for name, content in (("unknown-key.yaml", "colour: red\n" + good),
                              ("cut.yaml", good[:good.rindex(",")]),
                              ("negative.yaml", good.replace("conv1.weight, 9408", "conv1.weight, -9408")),
                              ("empty.csv", "name,parameters\n")):
            with self.subTest(file=name):
                self.write(name, content)
                self.assert_bad_input("plan", "two-racks-40g", name, file=name)
        self.assert_bad_input("plan", "two-racks-40g", "resnet-51", file="resnet-51",
                              expected="resnet-50")

    def test_options(self):
        for option, value in (("--bucket-size", "25"), ("--bucket-size", "-1 MiB"),
                              ("--schedule", "spiral"), ("--codec", "zip"), ("--local-batch", "0"),
                              ("--error-budget", "-1"), ("--error-budget", "much")):
            with self.subTest(option=option, value=value):
                result = self.rackrail("plan", "two-racks-40g", "resnet-50", option, value, status=2)
                self.assertRegex(result.err, r"\Arackrail: [^\n]+\n\Z")
                self.assertIn(value.lstrip("-"), result.err)
        self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-reduce", "--bytes",
                              "lots", found="lots")
        self.assert_bad_input("simulate", "two-racks-40g", "--collective", "all-to-all")

    def test_an_output_that_cannot_be_written(self):
        self.write("file", "mine")
        self.assert_bad_input("plan", "two-racks-40g", "resnet-50", "-o", "file/plan.json",
                              file="file")

    def test_a_run_that_fails_keeps_the_file_that_was_there(self):
        self.write("plan.json", "mine")
        self.assert_bad_input("plan", "two-racks-40g", "resnet-51", "-o", "plan.json")
        self.assertEqual((self.folder / "plan.json").read_text(), "mine")

    def test_plans_and_calibrations(self):
        self.write("words.json", "{}")
        self.assert_bad_input("verify", "words.json", file="words.json")
        self.assert_bad_input("train", "words.json", "--workers", "2", file="words.json")
        self.rackrail("plan", "two-racks-40g", "resnet-50", "-o", "plan.json")
        self.assert_bad_input("train", "plan.json", "--workers", "3", file="plan.json", found="4")
        self.assert_bad_input("train", "plan.json", "--training", "opera", found="opera")
        self.assert_bad_input("train", "plan.json", "--calibration", "words.json", "--workers", "4",
                              file="words.json")
        self.assert_bad_input("train", "plan.json", "--workers", "4", "--transport", "pigeon",
                              found="pigeon")
        self.assert_bad_input("simulate", "plan.json", "--cluster", "a100-8x8", file="plan.json")
        self.assert_bad_input("report", "plan.json", "--run", "words.json", file="words.json")


if __name__ == "__main__":
    harness.main()
