"""Help, version, and commands that do not exist."""

import re

import harness

COMMANDS = ("info", "topology", "schedules", "plan", "place", "replan", "verify", "simulate",
            "sweep", "tune", "explain", "calibrate", "emulate", "train", "job", "certificates", "validate",
            "fit", "report")
GROUPED = tuple(f"topology {name}" for name in ("show", "convert", "bounds")) + (
    "job status", "job replan")


class Help(harness.CommandTest):
    def test_every_command_explains_itself_with_an_example(self):
        overview = self.rackrail("--help").out
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assertRegex(overview, rf"(?m)^  {command} ")
                text = self.rackrail(command, "--help").out
                self.assertIn(f"rackrail {command}", text.partition("Example")[2])
        for command in GROUPED:
            with self.subTest(command=command):
                text = self.rackrail(*command.split(), "--help").out
                self.assertIn(f"rackrail {command}", text.partition("Example")[2])

    def test_what_only_rackrail_starts_is_not_advertised(self):
        self.assertNotRegex(self.rackrail("--help").out, r"(?m)^  (worker|collectives) ")

    def test_version(self):
        self.assertRegex(self.rackrail("--version").out, r"^rackrail \d+\.\d+\.\d+")

    def test_examples_use_options_that_exist(self):
        for command in (*COMMANDS, *GROUPED):
            with self.subTest(command=command):
                text = self.rackrail(*command.split(), "--help").out
                options, _, example = text.replace("mpirun -n", "").partition("Example")
                for option in re.findall(r"(?<= )--?[a-z][a-z-]*", example):
                    self.assertRegex(options, rf"(?m)(^ +|,){option}[ ,]")

    def test_what_does_not_exist_is_bad_input(self):
        for arguments in (("fly",), ("plan", "--fly"), ("topology", "fly"), ("verify", "a", "b"),
                          ()):
            with self.subTest(arguments=arguments):
                result = self.rackrail(*arguments, status=2)
                self.assertEqual(result.out, "")
                self.assertRegex(result.err, r"\Arackrail: [^\n]+\n\Z")
                error = self.rackrail(*arguments, "--json", status=2).error
                self.assertEqual(error["file"], "<command line>")
                for part in ("found", "expected", "message"):
                    self.assertNotEqual(error[part], "", part)

    def test_info_says_what_there_is(self):
        info = self.rackrail_json("info")
        self.assertEqual(info["command"], "info")
        text = self.rackrail("info").out
        for word in ("ucx", "in-process", "device: CUDA", "ring", "hierarchical"):
            self.assertIn(word, text)
        self.assertTrue(re.search(r"cores?", text), text)
        self.assertRegex(text, r"(?m)^transport: in-process +yes +.*for tests, train does not")
        self.assertRegex(text, r"(?m)^codecs +fp32, fp16")
        self.assertEqual(info["codecs"][0], "none")


if __name__ == "__main__":
    harness.main()
