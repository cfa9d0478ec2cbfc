"""Gradients on a GPU, which is emulated, summed over the C interface by ranks that are processes.

    device_ranks_test.py PATH-OF-DEVICE-RANK PATH-OF-PROCESS-NCCL

Whatever carries them (pinned memory and UCX; NCCL, for which there is a stand-in; both), sums are exact,
and who is lost is an error on all others in time.
"""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
PROCESS_NCCL = str(Path(sys.argv.pop(1)).resolve())
os.environ.setdefault("RACKRAIL_COMMAND", PROGRAM)  # the harness wants one
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration" / "command"))

import harness  # noqa: E402  (reads the variable)
from survival import ABORT_OF_UCX  # noqa: E402

PATHS = ("staged", "nccl", "hybrid")
# How long the others may take to hear of a loss, on a busy machine too. A killed process closes its
# connections; one that is stopped is missed after 10 s without a heartbeat.
HEARD_OF_DEATH_S = 5
HEARTBEAT_TIMEOUT_S = 10
# For what has been given up to end.
END_S = 5
TWO_NODES = """name: two-nodes
device_classes:
  cpu: { memory: 40 GB }
node_types:
  node:
    gpus: 2
    device_class: cpu
    nvlink: { bandwidth: 100 GB/s, latency: 1 us }
    pcie: { bandwidth: 20 GB/s, latency: 1 us, gpus_per_switch: 2 }
    nics: { count: 1, link: tcp }
racks: { count: 2, hosts: 1, type: node }
network:
  wiring: leaf-spine
  core: { count: 1, bandwidth: 40 Gbit/s, latency: 2 us }
"""


def can_rename_host():
    return subprocess.run(["unshare", "--uts", "hostname", "host-0"], capture_output=True).returncode == 0


class DeviceRanks(harness.CommandTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self._end_shared_memory)

    def _end_shared_memory(self):
        for left in Path("/dev/shm").glob("process-nccl-*"):
            if not Path("/proc", left.name.split("-")[2]).exists():
                left.unlink(missing_ok=True)

    def start_ranks(self, ranks, path, *arguments, hosts=1, **variables):
        """`hosts`: their ranks, which follow each other, have names of machines of their own."""
        port = harness.free_ports(1)
        processes = []
        for rank in range(ranks):
            program = (PROGRAM,)
            if hosts > 1:
                program = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"',
                           f"host-{rank * hosts // ranks}", PROGRAM)
            processes.append(self.start(*arguments, program=program, variables={
                "RACKRAIL_RANK": str(rank), "RACKRAIL_WORLD_SIZE": str(ranks),
                "RACKRAIL_COORDINATOR": f"127.0.0.1:{port}", "RACKRAIL_DEVICE": "cuda",
                "RACKRAIL_SHARE_GPU": "1", "RACKRAIL_GPU_PATH": path,
                "RACKRAIL_NCCL_LIBRARY": PROCESS_NCCL, **variables}))
        return processes

    def run_ranks(self, *arguments, status=0, **options):
        results = [self.finish(process) for process in self.start_ranks(*arguments, **options)]
        for result in results:
            self.assertEqual(result.status, status, str(result))
        return results

    def test_sums_are_exact(self):
        for path in PATHS:
            for ranks in (2, 3, 4):
                with self.subTest(path=path, ranks=ranks):
                    self.run_ranks(ranks, path, "sums")

    def test_sums_are_exact_between_hosts(self):
        if not can_rename_host():
            self.skipTest("no privilege to name hosts (unshare --uts)")
        for path in PATHS:
            for ranks, hosts in ((4, 2), (3, 3), (5, 2)):
                with self.subTest(path=path, ranks=ranks, hosts=hosts):
                    self.run_ranks(ranks, path, "sums", hosts=hosts)

    def test_nccl_is_inside_the_hosts_of_a_described_cluster(self):
        """Whatever machines there are."""
        cluster = self.write("cluster.yaml", TWO_NODES)
        for name, expected in (("none", {"0 4"}), (str(cluster), {"0 2", "1 2"})):
            with self.subTest(cluster=name):
                splits = self.folder / f"splits of {len(expected)}"
                self.run_ranks(4, "hybrid", "sums", RACKRAIL_CLUSTER=name, PROCESS_NCCL_SPLITS=str(splits))
                self.assertEqual(set(splits.read_text().splitlines()), expected)

    def test_sums_by_codecs_that_keep_them_are_exact(self):
        """Whole numbers below 2,048 are FP16's too."""
        for path in PATHS:
            with self.subTest(path=path):
                self.run_ranks(4, path, "sums", hosts=2 if can_rename_host() else 1,
                               RACKRAIL_CODECS="fp16")

    def assert_heard(self, processes, lost, pattern, seconds):
        """By all others, who then end orderly."""
        for rank, process in enumerate(processes):
            if rank == lost:
                continue
            result = self.finish(process)
            if ABORT_OF_UCX in result.err:
                self.skipTest("UCX aborted a rank, as runtime/README.md says it may")
            self.assertEqual(result.status, 0, str(result))
            said = re.fullmatch(r"([0-9.]+) ([0-9.]+) ([^\n]+)\n", result.out)
            self.assertIsNotNone(said, str(result))
            self.assertLessEqual(float(said[1]), seconds, str(result))
            self.assertLessEqual(float(said[2]), END_S, str(result))
            self.assertRegex(said[3], pattern)

    def lose(self, path, lost, number, delay, seconds, pattern, hosts=1):
        processes = self.start_ranks(3, path, "lose", lost, int(number), delay, hosts=hosts)
        self.assert_heard(processes, lost, pattern, seconds)
        processes[lost].kill()
        processes[lost].communicate()
        self.assert_no_processes_left()

    def test_a_killed_rank_is_an_error_on_the_others(self):
        for path in PATHS:
            for delay in (0, 50):
                with self.subTest(path=path, delay=delay):
                    self.lose(path, 1, signal.SIGKILL, delay, HEARD_OF_DEATH_S,
                              r"\Arank 1 \(pid \d+ on .*\) was lost: ")

    def test_a_killed_coordinator_is_an_error_on_the_others(self):
        for path in PATHS:
            with self.subTest(path=path):
                self.lose(path, 0, signal.SIGKILL, 20, HEARD_OF_DEATH_S, r"was lost")

    def test_a_killed_rank_of_another_host(self):
        if not can_rename_host():
            self.skipTest("no privilege to name hosts (unshare --uts)")
        for path in ("nccl", "hybrid"):
            with self.subTest(path=path):
                self.lose(path, 2, signal.SIGKILL, 50, HEARD_OF_DEATH_S,
                          r"\Arank 2 \(pid \d+ on host-1\) was lost: ", hosts=2)

    def test_a_stopped_rank_is_an_error_after_the_heartbeats_timeout(self):
        for path in PATHS:
            with self.subTest(path=path):
                self.lose(path, 1, signal.SIGSTOP, 50, HEARTBEAT_TIMEOUT_S + HEARD_OF_DEATH_S,
                          r"\Arank 1 \(pid \d+ on .*\) was lost: ")

    def test_an_abort_from_another_thread_ends_the_sums_of_all(self):
        for path in PATHS:
            with self.subTest(path=path):
                processes = self.start_ranks(3, path, "leave", 2)
                self.assert_heard(processes, None, r"it has had enough\Z", HEARD_OF_DEATH_S)

    def test_a_rank_that_is_lost_while_nccl_joins_is_an_error_on_the_others(self):
        processes = self.start_ranks(3, "nccl", "sums", PROCESS_NCCL_DIES_JOINING="1")
        results = [self.finish(process) for process in processes]
        self.assertEqual([result.status for result in results], [2, -signal.SIGKILL, 2], str(results))
        for result in (results[0], results[2]):
            seconds, _, reason = result.err.partition(" ")
            self.assertLessEqual(float(seconds), HEARD_OF_DEATH_S, str(result))
            self.assertRegex(reason, r"\Arank 1 \(pid \d+ on .*\) was lost: ")


if __name__ == "__main__":
    harness.main()
