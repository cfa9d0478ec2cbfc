"""What the tests of the Python package share: the interpreter, and one process per rank."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "command"))
sys.dont_write_bytecode = True
import harness  # noqa: E402

LIBRARY = os.environ.get("RACKRAIL_LIBRARY", "")
PACKAGE = harness.SOURCE / "python"
HERE = Path(__file__).resolve().parent
TIMEOUT = 240  # seconds for one process, on a busy machine


def python_with(module):
    """(an interpreter that has the module, or None; why there is none). Debian's packages are those
    of /usr/bin/python3, whichever Python runs the tests."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        if os.access(candidate, os.X_OK) and subprocess.run(
                [candidate, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return candidate, ""
    return None, f"no Python with {module} here (Debian: python3-{module})"


class RankTest(harness.CommandTest):
    """Runs Python programs that import rackrail, one process per rank."""

    PYTHON = sys.executable

    def python_environment(self, **variables):
        return {"PYTHONPATH": str(PACKAGE), "RACKRAIL_LIBRARY": LIBRARY, "OMP_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1", **variables}

    def run_python(self, *arguments, status=0, **variables):
        """One process without a launcher; `status` None: as it likes."""
        result = self.finish(self.start(*arguments, program=(self.PYTHON,),
                                        variables=self.python_environment(**variables)),
                             timeout=TIMEOUT)
        if status is not None:
            self.assertEqual(result.status, status, str(result))
        return result

    def run_ranks(self, ranks, *arguments, status=0, limit=TIMEOUT, **variables):
        """The results of all ranks, started as torchrun does; `status` None: each as it likes; `limit`:
        seconds for each."""
        port = harness.free_ports(2)
        processes = [self.start(*arguments, program=(self.PYTHON,),
                                variables=self.python_environment(
                                    RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                                    LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                                    MASTER_PORT=str(port), **variables))
                     for rank in range(ranks)]
        results = [self.finish(process, timeout=limit) for process in processes]
        for result in results:
            if status is not None:
                self.assertEqual(result.status, status, str(result))
        return results
