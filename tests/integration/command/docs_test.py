"""README and docs: their commands run and print what the pages show; links lead somewhere; JSON keys are described.

scripts/docs-run runs the pages and says how they are written; `scripts/docs-run --update` renews their output.
"""

import importlib.util
import json
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader

import emulation
import harness


def script(name):
    """One of scripts/, which have no ending, as a module."""
    sys.dont_write_bytecode = True
    loader = SourceFileLoader(name.replace("-", "_"), str(harness.SOURCE / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


docs_run, prose = script("docs-run"), script("prose")


class Pages(harness.CommandTest):
    """A test for each page that has commands; they are added below."""

    @classmethod
    def setUpClass(cls):
        cls.runner = docs_run.Runner(harness.COMMAND)
        cls.addClassCleanup(cls.runner.close)

    def check_page(self, path):
        page = docs_run.Page(path)
        reason = docs_run.reason_to_skip(page, page.is_slow)
        if reason:
            self.skipTest(f"{page.name}: {reason}")
        if page.wants_idle:  # it emulates a network, which no other test may do meanwhile
            emulation.only_one(self)
        for _ in range(emulation.TRIES if page.wants_idle else 1):  # links that do not hold their rates
            problems = self.runner.run(page)
            if not problems:
                break
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_generated_pages_are_current(self):
        for name in docs_run.GENERATED:
            with self.subTest(page=name):
                problems = self.runner.generated(name)
                self.assertEqual(problems, [], "\n" + "\n".join(problems))


def add_pages():
    for path in docs_run.pages():
        page = docs_run.Page(path)
        if page.has_commands:
            def test(self, path=path):
                self.check_page(path)
            if page.is_slow:
                test = harness.slow(test)
            name = re.sub(r"\W+", "_", page.name.removesuffix(".md")).lower()
            setattr(Pages, f"test_{name}", test)


add_pages()


class Links(harness.CommandTest):
    def test_links_lead_somewhere(self):
        for page in prose.pages():
            text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
            for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text):
                with self.subTest(page=str(page.relative_to(harness.SOURCE)), target=target, anchor=anchor):
                    there = page.parent / target if target else page
                    self.assertTrue(there.exists())
                    if anchor:
                        headings = re.findall(r"(?m)^#+ (.*)$", there.read_text(encoding="utf-8"))
                        self.assertIn(anchor, [re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-")
                                               for h in headings])

    def test_every_how_to_and_reference_page_is_in_its_list(self):
        for folder in ("how-to", "reference"):
            listed = (harness.SOURCE / "docs" / folder / "README.md").read_text(encoding="utf-8")
            for page in (harness.SOURCE / "docs" / folder).glob("*.md"):
                self.assertTrue(page.name == "README.md" or f"({page.name})" in listed, page.name)


class Json(harness.CommandTest):
    """What commands print with --json is in docs/reference/json.md."""

    NAMES_FOLLOW = {"inputs", "baselines", "codec_tiers", "slowest_links", "refused", "wider", "varied", "forms",
                    "codec_errors", "codec_error_formulas", "codecs", "bytes_over_tier", "parameters"}

    def keys(self, value, names_follow=False):
        """Every key in a value, but for those that are names (of files, tiers, families)."""
        if isinstance(value, list):
            return set().union(*(self.keys(each, names_follow) for each in value), set())
        if not isinstance(value, dict):
            return set()
        own = set() if names_follow else set(value)
        families = isinstance(value.get("schedules"), dict)
        return own.union(*(self.keys(each, key in self.NAMES_FOLLOW or (key == "schedules" and families))
                           for key, each in value.items()), set())

    def test_every_key_is_described(self):
        page = "".join((harness.SOURCE / "docs/reference" / name).read_text(encoding="utf-8")
                       for name in ("json.md", "sweep-file.md", "other-files.md"))
        described = set(re.findall(r"[A-Za-z_0-9]+", " ".join(re.findall(r"`([^`]*)`", page))))
        self.write("my-cluster.csv", (harness.SOURCE / "docs/examples/my-cluster.csv").read_bytes())
        self.write("rates.csv", "link,bandwidth\ntor0->core,12 Gbit/s\n")
        self.write("steps.csv", "num_nodes,num_replicas,local_bsz,step_time\n" + "".join(
            f"1,{gpus},{batch},{0.02 * gpus + 0.003 * batch}\n" for gpus in (1, 2, 4) for batch in (32, 64, 96)))
        mine = ("--cluster", "my-cluster.csv")
        for arguments in (
                ("info",), ("topology", "show", "my-cluster.csv"), ("topology", "convert", "my-cluster.csv"),
                ("topology", "bounds", "my-cluster.csv", "--trees-per-rank", "2"),
                ("schedules", "my-cluster.csv", "--from", "64KiB", "--to", "4MiB"),
                ("plan", "my-cluster.csv", "resnet-50", "-o", "plan.json", "--compare", "--explain", "--compare-hosts"),
                ("place", "my-cluster.csv", "--hosts", "2"), ("verify", "plan.json", *mine),
                ("replan", "plan.json", *mine, "--link-rates", "rates.csv"), ("simulate", "plan.json", *mine),
                ("simulate", "my-cluster.csv", "--collective", "all-gather", "--bytes", "1MiB", "--network", "packet"),
                ("explain", "plan.json", *mine), ("report", "plan.json", *mine),
                ("tune", "my-cluster.csv", "resnet-50", "--trials", "2"),
                ("fit", "steps", "steps.csv", "--hold-out", "rows")):
            with self.subTest(command=" ".join(arguments)):
                printed = json.loads(self.rackrail(*arguments, "--json").out)
                self.assertEqual(sorted(self.keys(printed) - described), [])


class Help(harness.CommandTest):
    def test_help_has_no_private_words(self):
        found = []
        for command in ("", *docs_run.COMMANDS):
            shown = subprocess.run([harness.COMMAND, *command.split(), "--help"], text=True, check=True,
                                   stdout=subprocess.PIPE).stdout
            found += prose.findings(shown, f"rackrail {command} --help", code_too=True)
        self.assertEqual(found, [], "\n".join(found))

    def test_every_command_is_in_the_reference(self):
        shown = self.rackrail("--help").out.partition("Subcommands:")[2].partition("\n\n")[0]
        names = re.findall(r"(?m)^  (\w+)", shown)
        self.assertGreater(len(names), 10)
        self.assertEqual([name for name in names if name not in docs_run.COMMANDS], [])


if __name__ == "__main__":
    harness.main()
