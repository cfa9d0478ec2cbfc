"""rackrail.torch.profile: a model's backward pass as a workload that can be planned for."""

import re
import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")
PROFILE = """
import torch, rackrail.torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(50, 400)
        self.shared = torch.nn.Linear(400, 400)
        self.last = torch.nn.Linear(400, 10)
        self.unused = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.last(self.shared(torch.relu(self.shared(torch.relu(self.first(x))))))
net = Net()
before = [p.clone() for p in net.parameters()]
batch = torch.randn(64, 50), torch.randint(0, 10, (64,))
print(rackrail.torch.profile(net, batch, path="net.yaml", name="my net"), end="")
assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, net.parameters()))
"""
# Normalisation over a batch has no answer for a part of one sample.
PROFILE_NORM = """
import sys, torch, rackrail.torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(10, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
for n in map(int, sys.argv[1:]):
    batch = torch.randn(n, 10), torch.randint(0, 3, (n,))
    text = rackrail.torch.profile(net, batch, repeats=1, path=f"{n}.yaml")
    print(n, [line for line in text.splitlines() if "noise_scale" in line][0])
"""
PROFILE_REFUSED = """
import os, pathlib, torch, rackrail, rackrail.torch
class Net(torch.nn.Linear):
    passes = 0
    def forward(self, x):
        Net.passes += 1
        if self.after: self.after()
        return super().forward(x)
net = Net(4, 3)
net.after = None
inputs, targets = torch.randn(8, 4), torch.randint(0, 3, (8,))
def refused(expected, batch=(inputs, targets), kind=rackrail.InputError, **options):
    try:
        rackrail.torch.profile(net, batch, repeats=1, **options)
    except rackrail.Error as error:
        assert type(error) is kind and str(error) == expected, repr(error)
        return
    raise SystemExit(f"accepted: {expected}")
pair = "expected a pair (inputs, targets)"
refused(f"batch: found a Tensor, {pair}", torch.randn(2, 4))
refused(f"batch: found a tuple of 3, {pair}", (inputs, targets, targets))
refused(f"batch: found a list of 1, {pair}", [inputs])
refused(f"batch: found a NoneType, {pair}", None)
refused("path: nowhere/x.yaml: No such file or directory", path="nowhere/x.yaml")
refused("path: .: Is a directory", path=pathlib.Path("."))
pathlib.Path("file").write_text("")
refused("path: file/x.yaml: Not a directory", path="file/x.yaml")
assert Net.passes == 0, "measured before it was refused"
def fail(): raise ValueError("no forward")
net.after = fail
try:
    rackrail.torch.profile(net, (inputs, targets), path="left.yaml")
except ValueError:
    assert not os.path.exists("left.yaml"), "a file without contents"
pathlib.Path("late").mkdir()
net.after = lambda: os.path.exists("late") and os.rmdir("late")
refused("path: late/x.yaml: No such file or directory", kind=rackrail.Error, path="late/x.yaml")
net.after = None
os.symlink("target.yaml", "link.yaml")
for path in ("link.yaml", "file"):  # what is there is written over, and a link stays one
    assert rackrail.torch.profile(net, [inputs, targets], path=path) == pathlib.Path(path).read_text()
assert os.path.islink("link.yaml")
print("good")
"""
# Within DDP it is the same model; a copy that called other ranks would wait for this one.
PROFILE_PARALLEL = """
import torch, torch.distributed as dist, rackrail.torch
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 3))
rackrail.torch.register(model)
if dist.get_rank() == 0:
    print(rackrail.torch.profile(model, (torch.randn(8, 10), torch.randint(0, 3, (8,)))), end="")
"""
# CUDA's events by the host's clock, which may be read only once all has been waited for.
DEVICE_CLOCK = """
import time, torch, rackrail.torch
from rackrail.torch import profiler
class Event:
    recorded, settled = 0, 0
    def __init__(self, enable_timing): assert enable_timing
    def record(self, stream):
        assert stream == "stream of gpu"
        self.at = time.perf_counter_ns()
        Event.recorded += 1
        self.number = Event.recorded
    def elapsed_time(self, end):
        assert max(self.number, end.number) <= Event.settled, "read before it has happened"
        return (end.at - self.at) * 1e-6
def synchronize(device):
    Event.settled = Event.recorded
torch.cuda.Event, torch.cuda.synchronize = Event, synchronize
torch.cuda.current_stream = lambda device: f"stream of {device}"
torch.cuda.get_device_name = lambda device: NAMES[device.index]
net = torch.nn.Sequential(torch.nn.Linear(30, 200), torch.nn.Linear(200, 10))
parameters = dict(net.named_parameters())
clock = profiler._DeviceClock("gpu")
passes = profiler._Passes(net, parameters, torch.nn.functional.cross_entropy, clock)
times = passes.run(torch.randn(64, 30), torch.zeros(64, dtype=torch.long))
assert times.ready.keys() == parameters.keys() and times.forward > 0, times.ready
assert 0 < min(times.ready.values()) <= max(times.ready.values()) <= times.backward
assert max(times.ready["1.bias"], times.ready["1.weight"]) < times.ready["0.weight"], times.ready
assert profiler._optimizer_time(parameters.values(), 3, clock) > 0
NAMES = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA H200", "AMD Instinct MI250X",
         "NVIDIA GeForce RTX 4090"]
print([profiler._device_class(torch.device("cuda", i)) for i in range(len(NAMES))])
"""
# The loss is the mean of w·x, so a sample's gradient is x, whose mean and variance are given.
NOISE = """
import torch, rackrail.torch
torch.manual_seed({seed})
n, size = 4096, 20
mean = torch.full((size,), {mean})
gradients = mean + {sigma} * torch.randn(n, size)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(size))
    def forward(self, x):
        return x @ self.w
text = rackrail.torch.profile(Net(), (gradients, torch.zeros(n)), lambda out, _: out.mean(),
                              repeats=1)
print([line for line in text.splitlines() if line.startswith("noise_scale")][0])
"""


@unittest.skipUnless(PYTHON, WHY_NOT)
class Profile(RankTest):
    PYTHON = PYTHON

    def test_a_profile_is_a_workload_that_can_be_planned_for(self):
        text = self.run_python(self.write("profile.py", PROFILE)).out
        self.assertEqual((self.folder / "net.yaml").read_text(encoding="utf-8"), text)
        tensors = re.findall(r'(?m)^  - \["([^"]+)", (\d+), \d+ ns(?:, (\[.+\]))?\]$', text)
        self.assertEqual({name: (int(size), matrix) for name, size, matrix in tensors},
                         {"first.weight": (20000, "[400, 50]"), "first.bias": (400, ""),
                          "shared.weight": (160000, "[400, 400]"), "shared.bias": (400, ""),
                          "last.weight": (4000, "[10, 400]"), "last.bias": (10, "")})
        order = [name.partition(".")[0] for name, _, _ in tensors]
        self.assertEqual(order, ["last", "last", "shared", "shared", "first", "first"])
        plan = self.rackrail_json("plan", "two-racks-40g", "net.yaml", "-o", "plan.json")
        self.assertEqual(plan["workload"], "my net")
        self.rackrail("verify", "plan.json", "--workload", "net.yaml")

    def test_no_part_of_a_batch_is_a_single_sample(self):
        lines = self.run_python(self.write("norm.py", PROFILE_NORM), *"2 3 4 9 15 16 17".split()).out
        for line in lines.splitlines():
            size, _, text = line.partition(" ")
            with self.subTest(size=size):
                if int(size) < 4:
                    self.assertEqual(text, f"# no noise_scale: found a batch of {size}, expected 4"
                                           " samples or more")
                else:  # its estimate may come out as no number at all
                    self.assertRegex(text, r"\A(noise_scale: [0-9.e+]+"
                                           r"|# no noise_scale: its estimate is no positive number)\Z")
        self.assertEqual(len(lines.splitlines()), 7, lines)
        self.rackrail("plan", "two-racks-40g", "2.yaml", "-o", "plan.json")

    def test_what_is_refused_is_so_before_it_is_measured(self):
        result = self.run_python(self.write("refused.py", PROFILE_REFUSED))
        self.assertEqual(result.out, "good\n", str(result))

    def test_of_a_parallel_model_it_is_the_models_own(self):
        text = self.run_ranks(2, self.write("parallel.py", PROFILE_PARALLEL), limit=60)[0].out
        self.assertIn("name: \"Linear\"\n", text)
        self.assertEqual(set(re.findall(r'(?m)^  - \["([^"]+)", ', text)), {"weight", "bias"}, text)

    def test_on_a_device_its_events_are_the_clock(self):
        result = self.run_python(self.write("clock.py", DEVICE_CLOCK))
        self.assertEqual(result.out, str(["H100", "A100", "T4", "H200", "MI250X",
                                          '"NVIDIA GeForce RTX 4090"']) + "\n")

    def test_the_noise_scale_is_that_of_the_gradients(self):
        # tr(Σ)/|G|² with |G|² = 20 m², tr(Σ) = 20 σ². The variance is estimated from the spread of 8
        # parts in 20 dimensions, to √(2/(7·20)) = 12 %: half is four times as much.
        for mean, sigma, seed in ((0.5, 1.0, 3), (0.1, 1.0, 4)):
            with self.subTest(mean=mean, sigma=sigma, seed=seed):
                line = self.run_python(
                    "-c", NOISE.format(mean=mean, sigma=sigma, seed=seed)).out
                scale = float(line.partition(":")[2])
                true = sigma**2 / mean**2
                self.assertLess(abs(scale - true), 0.5 * true, f"true: {true}")


if __name__ == "__main__":
    harness.main()
