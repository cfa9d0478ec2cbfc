"""The README's tour, as it stands there."""

import os
import re
import subprocess

import harness


class Readme(harness.CommandTest):
    def test_the_tour_works_line_by_line(self):
        text = (harness.SOURCE / "README.md").read_text(encoding="utf-8")
        tour = text.partition("## Five minutes")[2].partition("\n## ")[0]
        blocks = re.findall(r"```sh\n(.*?)```", tour, re.S)
        self.assertGreater(len(blocks), 1)
        script = "set -e\n" + "".join(blocks)
        script = re.sub(r"(?m)^make build.*$", "", script)  # this build is tested
        path = f"{os.path.dirname(harness.COMMAND)}:{os.environ['PATH']}"
        result = subprocess.run(["bash", "-c", script], cwd=self.folder, text=True,
                                capture_output=True, timeout=harness.TIMEOUT, check=False,
                                env=self.environment(PATH=path))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        # On a busy machine, what takes more than ten seconds says how far it is.
        self.assertEqual(re.sub(r"(?m)^[\w ]+: \d+ (% after \d+ s|s so far).*\n", "", result.stderr), "")
        for name in ("plan.json", "step.json", "report.html"):
            self.assertGreater((self.folder / name).stat().st_size, 1000)

    def test_links_lead_somewhere(self):
        for page in (harness.SOURCE / "README.md", *harness.SOURCE.glob("*/README.md"),
                     *harness.SOURCE.glob("configs/*/README.md"), *harness.SOURCE.glob("docs/*.md")):
            for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
                with self.subTest(page=page.parent.name, target=target):
                    self.assertTrue((page.parent / target).exists())


if __name__ == "__main__":
    harness.main()
