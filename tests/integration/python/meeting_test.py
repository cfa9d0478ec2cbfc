"""Ranks that meet through torch.distributed's process group, however it was made."""

import subprocess
import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")
STEPS = """
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    rackrail.torch.register(model)
    for step in range(4):
        model.zero_grad()
        model(torch.full((1, 4), float(rank + step))).sum().backward()
        assert torch.allclose(model.module.weight.grad, torch.tensor((ranks - 1) / 2 + step))
    assert (rackrail.rank(), rackrail.world_size()) == (rank, ranks)
    rackrail.shutdown()
"""
# As in PyTorch's tutorials: ranks are arguments, and no variable says who a process is.
SPAWNED = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp, rackrail, rackrail.torch
def work(rank, ranks, meeting):  # and no shutdown(): what multiprocessing starts has no atexit
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
""" + STEPS.replace("    rackrail.shutdown()\n", "") + """
    os.write(1, b"good\\n")  # at once, beside others
if __name__ == "__main__":
    mp.start_processes(work, args=(3, sys.argv[1]), nprocs=3, start_method=sys.argv[2])
"""
# One that multiprocessing starts and an exception ends: the others hear of it at once.
RAISING = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp, rackrail, rackrail.torch
def work(rank, ranks, meeting):
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    rackrail.torch.register(model)
    if rank == 1:
        raise ValueError("a batch without samples")
    try:
        rackrail.allreduce(torch.ones(4))
    except rackrail.PeerLost as error:
        print(error, flush=True)
if __name__ == "__main__":
    context = mp.start_processes(work, args=(2, sys.argv[1]), nprocs=2, join=False)
    for process in context.processes:
        process.join(20)
        print(process.exitcode, flush=True)
"""
LAUNCHED = """
import time, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
if True:
""" + STEPS + """
print("good")
"""
LATE = """
import time, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
if rank == 1:
    time.sleep(14)
rackrail.torch.register(model)
print("good")
"""
STALLED = """
import numpy, time, rackrail
rackrail.allreduce(numpy.ones(10, numpy.float32))
if rackrail.rank() == 2:
    time.sleep(70)
rackrail.allreduce(numpy.ones(10, numpy.float32))
"""
REFUSED = """
import os, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
os.environ["RACKRAIL_CLUSTER"] = "nowhere.yaml"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
try:
    rackrail.torch.register(model)
except rackrail.Error as error:
    print(error)
dist.barrier()
"""


HAS_NETWORKS = subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(PYTHON, WHY_NOT)
class Meeting(RankTest):
    PYTHON = PYTHON

    def test_ranks_that_are_arguments_of_spawn(self):
        program = self.write("spawned.py", SPAWNED)
        for method in ("spawn", "fork"):
            result = self.run_python(program, f"tcp://127.0.0.1:{harness.free_ports(1)}", method)
            self.assertEqual((result.out, result.err), ("good\n" * 3, ""), str(result))

    def test_an_exception_in_a_spawned_rank_ends_the_others_at_once(self):
        result = self.run_python(self.write("raising.py", RAISING),
                                 f"tcp://127.0.0.1:{harness.free_ports(1)}")
        self.assertRegex(result.out, r"(?m)^[^\n]*rank 1 [^\n]*(a batch without samples|SystemExit)[^\n]*$")
        self.assertRegex(result.out, r"(?m)^0\n1$")

    def test_ranks_that_meet_by_a_file(self):
        result = self.run_python(self.write("spawned.py", SPAWNED), f"file://{self.folder}/store", "spawn")
        self.assertEqual(result.out, "good\n" * 3, str(result))

    def test_a_second_job_at_the_next_port(self):
        program = self.write("launched.py", LAUNCHED)
        port = harness.free_ports(3)
        jobs = [[self.start(program, program=(self.PYTHON,), variables=self.python_environment(
            RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(first))) for rank in range(2)]
            for first in (port + 1, port)]
        for job in jobs:
            for process in job:
                result = self.finish(process, timeout=120)
                self.assertEqual((result.status, result.out), (0, "good\n"), str(result))

    def assert_two_ranks_sum_after(self, commands, address="127.0.0.1"):
        """In a network and with mounts of its own, which the commands of a shell change first."""
        program = self.write("launched.py", LAUNCHED)
        ranks = "\n".join(
            f"GLOO_SOCKET_IFNAME=lo RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2"
            f" MASTER_ADDR={address} MASTER_PORT=29821 {self.PYTHON} {program} & p{rank}=$!" for rank in range(2))
        script = self.write("ranks.sh", f"set -e\nip link set lo up\n{commands}\n{ranks}\nwait $p0; wait $p1\n")
        process = self.start("--net", "--mount", "sh", script, program=("unshare",),
                             variables=self.python_environment())
        result = self.finish(process, timeout=120)
        self.assertEqual((result.status, result.out), (0, "good\n" * 2), str(result))

    @unittest.skipUnless(HAS_NETWORKS, "needs root, for a network of its own")
    def test_a_host_that_has_ipv6_alone(self):
        self.assert_two_ranks_sum_after("ip addr del 127.0.0.1/8 dev lo", address="::1")

    @unittest.skipUnless(HAS_NETWORKS, "needs root, for mounts of its own")
    def test_a_host_whose_own_name_is_127_0_1_1(self):
        hosts = self.write("hosts", "127.0.0.1 localhost\n127.0.1.1 node0\n")
        self.assert_two_ranks_sum_after(f"mount --bind {hosts} /etc/hosts", address="node0")

    @unittest.skipUnless(HAS_NETWORKS, "needs root, for mounts of its own")
    def test_a_dev_shm_of_64_kib(self):
        self.assert_two_ranks_sum_after("mount -t tmpfs -o size=64k tmpfs /dev/shm")

    def test_a_problem_of_rank_0_is_told_to_all_at_once(self):
        for result in self.run_ranks(3, self.write("refused.py", REFUSED), limit=60):
            self.assertRegex(result.out, r"\A[^\n]*nowhere.yaml[^\n]*no such file[^\n]*\n\Z", str(result))

    @harness.slow
    def test_who_is_missing_is_said_after_ten_seconds(self):
        first, late = self.run_ranks(2, self.write("late.py", LATE))
        self.assertEqual((first.out, late.out), ("good\n", "good\n"))
        self.assertIn("rackrail: rank 0 waits for rank 1, which has not called rackrail yet", first.err)

    @harness.slow
    def test_who_has_not_begun_a_sum_is_said_after_a_minute(self):
        for rank, result in enumerate(self.run_ranks(3, self.write("stalled.py", STALLED))):
            self.assertEqual(result.err, "" if rank == 2 else f"rackrail: rank {rank} has waited 60 s and more"
                             " in a sum that rank 2 has not begun\n", str(result))


if __name__ == "__main__":
    harness.main()
