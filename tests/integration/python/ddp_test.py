"""DistributedDataParallel with rackrail's hook against the same with Gloo, on CPUs."""

import json
import re
import unittest

from ranks import HERE, RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")
PROGRAM = HERE / "ddp_program.py"

LOST = """
import os, time, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
model.register_comm_hook(None, rackrail.torch.comm_hook)
for step in range(50):
    if step == 5 and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    try:
        model(torch.ones(4, 300)).sum().backward()
    except RuntimeError as error:
        print(f"step {step}: {error}", flush=True)
        if dist.get_rank() == 0:  # who has the coordinator, which the others hear of it by
            time.sleep(2)
        os._exit(3)
"""
# Two models whose steps alternate, buckets that are skipped (no_sync), 16-bit gradients, and an
# all-reduce of the program's own between steps. Integer gradients, so that means are exact.
MIXED = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
class Product(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(12000, dtype=dtype))
    def forward(self, x):
        return (self.w * x).sum()
def model_of(dtype):
    model = Product(dtype)
    model = torch.nn.parallel.DistributedDataParallel(model)
    state = rackrail.torch.State()
    model.register_comm_hook(state, rackrail.torch.comm_hook)
    return model, state
models = [model_of(torch.float32), model_of(torch.float16)]
for step in range(8):
    for model, state in models:
        model.zero_grad()
        data = torch.full((12000,), float(2 * rank + step), dtype=model.module.w.dtype)
        with model.no_sync():
            model(data).backward()
        model(data).backward()
        expected = 2 * (ranks - 1 + step)  # twice the mean of 2 r + step
        assert (model.module.w.grad == expected).all(), (step, model.module.w.grad[:3], expected)
    total = rackrail.allreduce(torch.full((3,), float(rank)))
    assert isinstance(total, torch.Tensor) and total.tolist() == [sum(range(ranks))] * 3
assert all(state.is_planned and state.steps == 8 for _, state in models)
assert [bucket["elements"] for bucket in rackrail.describe()] == [12000, 12000]
print("good")
"""
# Rank 1 begins its backward pass later, so on rank 0 every bucket is still under way when the last
# one is given to the hook, unless backward has waited for one.
OVERLAP = """
import time, torch, torch.distributed as dist, rackrail.torch
dist.init_process_group("gloo")
dist._DEFAULT_FIRST_BUCKET_BYTES = 1000
class Watching(rackrail.torch.State):
    futures, open_at_end = [], []
    def reduce(self, bucket):
        future = super().reduce(bucket)
        self.futures.append(future)
        if bucket.is_last():
            self.open_at_end.append([not each.done() for each in self.futures])
            self.futures = []
        return future
model = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(4)))
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
state = Watching()
model.register_comm_hook(state, rackrail.torch.comm_hook)
for step in range(5):
    loss = model(torch.ones(2, 200)).sum()
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(0.5)
    loss.backward()
assert state.is_planned and len(state.open_at_end) == 5
assert all(len(open_now) >= 4 for open_now in state.open_at_end[1:]), state.open_at_end
assert dist.get_rank() == 1 or all(map(all, state.open_at_end)), state.open_at_end
print("good")
"""
# Rank 1 does not come to the last step, and rank 0 waits for it within backward().
INTERRUPTED = """
import os, signal, threading, time, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
rackrail.torch.register(model)
for step in range(4):
    model(torch.ones(4, 300)).sum().backward()
if dist.get_rank() == 1:
    time.sleep(20)
start = time.monotonic()
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    model(torch.ones(4, 300)).sum().backward()
    time.sleep(60)  # Python's own turn
except (KeyboardInterrupt, RuntimeError) as error:
    os.write(1, f"{time.monotonic() - start:.1f} {str(error).splitlines()[:1]}".encode())
    os._exit(0)
"""
# Models in one backward pass, with ranks that are late by chance. Gradients against those of copies without
# DDP, averaged by Gloo.
JOINT = """
import copy, random, sys, time, torch, torch.distributed as dist, rackrail.torch
dist.init_process_group("gloo")
dist._DEFAULT_FIRST_BUCKET_BYTES = 1000
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
chance = random.Random(rank)
class Late(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x.clone()
    @staticmethod
    def backward(context, gradient):
        time.sleep(0.01 * chance.random())
        return gradient
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(200, 200) for _ in range(4))
    def forward(self, x, inner=()):  # whose layers, and so buckets, lie between its own
        for i, layer in enumerate(self.layers):
            x = Late.apply(layer(x))
            if i == 1:
                for each in inner:
                    x = each(x)
        return x
class Model:
    def __init__(self):
        self.plain = Net()
        self.parallel = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(self.plain),
                                                                  bucket_cap_mb=0.1)
        self.state = rackrail.torch.register(self.parallel)
def train(steps, outer, inner=()):
    models = [*outer, *inner]
    for step in range(steps):
        for kind in ("plain", "parallel"):
            x = torch.full((4, 200), 1 + 0.1 * rank + step)
            for model in models:
                getattr(model, kind).zero_grad()
            for model in outer:
                x = getattr(model, kind)(x, [getattr(each, kind) for each in inner])
            x.pow(2).mean().backward()
        for model in models:
            for mine, other in zip(model.parallel.parameters(), model.plain.parameters()):
                mean = other.grad
                dist.all_reduce(mean)
                assert torch.allclose(mine.grad, mean / ranks, rtol=1e-4, atol=1e-7), step
def check(*models):
    assert all(each.state.is_planned for each in models)
first, second, third, fourth = Model(), Model(), Model(), Model()
train(6, [first, second])  # both are new
check(first, second)
train(6, [third, first])  # one is
check(third)
train(1, [first], [fourth])  # one is, in another
train(2, [first])
train(4, [first], [fourth])
check(fourth)
train(3, [first, second, third, fourth])
print("good")
"""
# Ranks 0 and 1 have another model than 2 and 3.
GROUPS = """
import sys, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, way = dist.get_rank(), sys.argv[1]
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1), process_group=groups[rank // 2])
try:
    if way == "register":
        rackrail.torch.register(model)
    elif way == "state":
        whole = torch.nn.parallel.DistributedDataParallel(model.module)  # which it could be as well
        state = rackrail.torch.State(process_group=model.process_group)
        model.register_comm_hook(state, rackrail.torch.comm_hook)
    else:
        model.register_comm_hook(None, rackrail.torch.comm_hook)
    model(torch.ones(1, 4)).sum().backward()
except RuntimeError as error:
    print(str(error).splitlines()[0])
rackrail.shutdown()
"""
# Gradients of all groups that have every rank, whatever PyTorch's ranks are called.
WHOLE = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
everybody = dist.new_group(list(range(ranks)))
for group in (None, everybody):
    for state in (None, rackrail.torch.State(process_group=everybody)):
        model = torch.nn.Linear(4, 1, bias=False)
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        model.register_comm_hook(state, rackrail.torch.comm_hook)
        model(torch.full((1, 4), float(rank))).sum().backward()
        assert (model.module.weight.grad == (ranks - 1) / 2).all(), model.module.weight.grad
state = rackrail.torch.register(model := torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1)))
assert isinstance(state, rackrail.torch.State) and rackrail.is_initialized()
for wrong, given in ((torch.nn.Linear(4, 1), None),
                     (torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1)), state)):
    try:
        rackrail.torch.register(wrong, given)
    except rackrail.InputError as error:
        assert "expected" in str(error) and "\\n" not in str(error), error
    else:
        raise SystemExit("accepted")
print("good")
"""
# PyTorch's job is another one than rackrail's.
OTHER_JOB = """
import os, sys, torch, torch.distributed as dist, rackrail, rackrail.torch
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if sys.argv[1] == "rank":
    rackrail.init()
    dist.init_process_group("gloo", rank=ranks - 1 - rank, world_size=ranks)
else:
    dist.init_process_group("gloo")
    rackrail.init(rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
try:
    rackrail.torch.register(model)
except rackrail.InputError as error:
    print(error)
rackrail.shutdown()
"""
# Tensors on the CPU, of which NumPy has no bfloat16.
TENSORS = """
import torch, rackrail
rank, ranks = rackrail.rank(), rackrail.world_size()
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    mine = torch.full((2, 3), rank + 1.0, dtype=dtype).t().requires_grad_()
    for operation, expected in (("sum", ranks * (ranks + 1) / 2), ("mean", (ranks + 1) / 2)):
        total = rackrail.allreduce(mine, operation)
        assert total.dtype == dtype and total.shape == (3, 2) and (total == expected).all(), total
    assert (mine == rank + 1).all(), "the argument was changed"
# Rounded once: of 256 + 1 + 1, bfloat16 has 256 + 1 not.
of_rank = torch.tensor([256.0 if rank == 0 else 1.0], dtype=torch.bfloat16)
assert ranks != 3 or rackrail.allreduce(of_rank).item() == 258
for wrong, options, part in ((torch.zeros(3, dtype=torch.bfloat16), {"in_place": True}, "in_place"),
                             (torch.zeros(3, dtype=torch.float64), {}, "float64")):
    try:
        rackrail.allreduce(wrong, **options)
    except rackrail.InputError as error:
        assert part in str(error) and "\\n" not in str(error), error
    else:
        raise SystemExit("accepted")
print("good")
"""
TYPES = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
for dtype in (torch.float16, torch.float64):  # Gloo's broadcast of 1.13 has no bfloat16
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(12, dtype=dtype))
    model.forward = lambda x, w=model.w: (w * x).sum()
    model = torch.nn.parallel.DistributedDataParallel(model)
    rackrail.torch.register(model)
    try:
        model(torch.full((12,), 2 * rank, dtype=dtype)).backward()
        assert (model.module.w.grad == ranks - 1).all() and model.module.w.grad.dtype == dtype
        print("summed", dtype)
    except RuntimeError as error:
        print(str(error).splitlines()[0])
rackrail.shutdown()
"""
# Batches from forked processes, while the hook is at work in this one.
LOADERS = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
model.register_comm_hook(None, rackrail.torch.comm_hook)
data = torch.utils.data.TensorDataset(torch.randn(40, 300))
class Nosy(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        assert not rackrail.is_initialized()
        try:
            rackrail.rank()
        except rackrail.Error as error:
            assert "forked" in str(error)
            return torch.full((300,), float(i))
        raise AssertionError("a job in a forked process")
for epoch in range(3):
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
        model(batch).sum().backward()
assert len(list(torch.utils.data.DataLoader(Nosy(), batch_size=4, num_workers=2))) == 2
assert rackrail.allreduce(torch.ones(1)).item() == dist.get_world_size()
print("good")
"""
# Integer gradients, so that means are exact in 16 bits.
PLANNED = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(300, 300, bias=False)
model = torch.nn.parallel.DistributedDataParallel(model)
model.register_comm_hook(None, rackrail.torch.comm_hook)
for step in range(5):
    model.zero_grad()
    model(torch.full((1, 300), float(2 * rank + step))).sum().backward()
    assert (model.module.weight.grad == ranks - 1 + step).all(), step
print([(b["elements"], b["schedule"], b["codec"]) for b in rackrail.describe()])
"""
TWO_HOSTS = """source,target,bandwidth,latency
host0,switch,1 Gbit/s,10 us
host1,switch,1 Gbit/s,10 us
"""
ONE_LAYER = """name,parameters,bytes_per_parameter,forward_us,backward_us
weight,90000,4,100,200
"""
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
# What a GPU's arrays would be summed as: PyTorch shows their memory, which is the host's here, and the
# library is not called.
ON_DEVICE = """
import sys, types, torch, rackrail
from rackrail import _arrays, _job, _library
joined, calls = [], []
_job.join_on_gpu = joined.append
def all_reduce(buffer, operation):
    calls.append((buffer.data, buffer.elements, buffer.device, buffer.stream, operation))
    from ctypes import c_float
    values = (c_float * buffer.elements).from_address(buffer.data)
    values[:] = [3 * value for value in values]  # of ranks that all have the same
_job.all_reduce = all_reduce
torch.cuda.current_stream = lambda device: types.SimpleNamespace(cuda_stream=77)
torch.from_dlpack = lambda array: array.tensor
class OnDevice:
    def __init__(self, tensor): self.tensor = tensor
    def __dlpack_device__(self): return (2, 0)
class Tensor(torch.Tensor):  # one of PyTorch's own
    def __dlpack_device__(self): return (2, 0)
jax = types.ModuleType("jax"); jax.dlpack = types.ModuleType("jax.dlpack")
jax.dlpack.from_dlpack = lambda tensor: ("an array of JAX", tensor)
sys.modules.update({"jax": jax, "jax.dlpack": jax.dlpack})
class JaxArray(OnDevice): __module__ = "jaxlib.xla_extension"

values = torch.arange(6.0).reshape(2, 3)
result = rackrail.allreduce(OnDevice(values))
assert torch.equal(result, 3 * values) and torch.equal(values, torch.arange(6.0).reshape(2, 3))
assert calls[-1][1:] == (6, _library.CUDA, 77, _library.SUM) and joined == [0], calls
library, result = rackrail.allreduce(JaxArray(values.t()), "mean")
assert library == "an array of JAX" and torch.equal(result, 3 * values.t())
assert result.is_contiguous() and calls[-1][-1] == _library.MEAN
half = rackrail.allreduce(OnDevice(values.bfloat16()))
assert half.dtype == torch.bfloat16 and torch.equal(half, (3 * values).bfloat16())
mine = values.clone().as_subclass(Tensor)
assert rackrail.allreduce(mine, in_place=True) is mine and calls[-1][0] == mine.data_ptr()
assert torch.equal(mine.as_subclass(torch.Tensor), 3 * values)
for wrong, options in ((OnDevice(values.double()), {}), (OnDevice(values), {"in_place": True}),
                       (values.t().as_subclass(Tensor), {"in_place": True})):
    try:
        rackrail.allreduce(wrong, **options)
    except rackrail.InputError as error:
        assert "expected" in str(error) and "\\n" not in str(error), error
    else:
        raise SystemExit("accepted")
print("good")
"""
# DDP's buckets on a GPU, as objects that have what the hook looks at and note what becomes of them; each
# thread has another current stream, on each device.
HOOK_ON_DEVICE = """
import threading, types, torch
from rackrail import _job, _library
from rackrail.torch import hook
log, joined = [], []
main = threading.current_thread()
def current_stream(device):
    number = 100 * (device.index + 1) + (0 if threading.current_thread() is main else 50)
    return types.SimpleNamespace(cuda_stream=number)
torch.cuda.current_stream = current_stream
class Future:
    def __init__(self, devices=None):
        self.devices, self.there = devices, threading.Event()
    def set_result(self, value):
        log.append(("result", value.name))
        self.value = value
        self.there.set()
    def set_exception(self, error):
        log.append(("error", repr(error)))
        self.there.set()
torch.futures.Future = Future
class Tensor:
    is_cuda = True
    def __init__(self, name, dtype, address):
        self.name, self.dtype, self.address = name, dtype, address
        self.device = types.SimpleNamespace(type="cuda", index=2)
    def data_ptr(self): return self.address
    def numel(self): return 640
    def float(self):
        log.append(("cast", self.name, current_stream(self.device).cuda_stream))
        return Tensor(self.name + " as floats", torch.float32, self.address + 1)
    def copy_(self, other):
        log.append(("copy", other.name, self.name, current_stream(self.device).cuda_stream))
    def record_stream(self, stream):
        log.append(("keep", self.name, stream.cuda_stream))
def summed(what, buffer, operation):
    assert (buffer.device, buffer.device_id, buffer.elements) == (_library.CUDA, 2, 640)
    assert operation == _library.MEAN
    log.append((what, buffer.data, buffer.stream))
_job.join_on_gpu, _job.rank = joined.append, lambda: 0
_job.all_reduce = lambda buffer, operation: summed("sum", buffer, operation)
_job.start = lambda number, buffer, operation: summed(f"start {number}", buffer, operation)
_job.wait = lambda number: log.append(("wait", number))
_job.plan = lambda sizes, times: 40
class Bucket:
    def __init__(self, tensor): self.tensor = tensor
    def index(self): return 0
    def is_last(self): return True
    def buffer(self): return self.tensor
def reduce(state, tensor):
    log.clear()
    future = state.reduce(Bucket(tensor))
    assert future.devices == [tensor.device], future.devices
    assert future.there.wait(60) and future.value is tensor
    return list(log)
floats, halves = Tensor("floats", torch.float32, 7000), Tensor("halves", torch.float16, 8000)
for tensor, data, before, after in (
        (floats, 7000, [], []),
        (halves, 8001, [("cast", "halves", 300)],
         [("copy", "halves as floats", "halves", 350), ("keep", "halves as floats", 350)])):
    state = hook.State()
    end = [*after, ("result", tensor.name)]
    for step in range(2):  # until the buckets are settled
        assert reduce(state, tensor) == [*before, ("sum", data, 300), *end], log
    for step in range(2):
        assert reduce(state, tensor) == [*before, ("start 40", data, 300), ("wait", 40), *end], log
assert joined == [2] * 8, joined
class Norm:
    def __init__(self, tensor):
        log.append(("norm of", tensor.name))
    def __float__(self):
        log.append(("read",))
        return 1.0
torch.dot = lambda tensor, _: Norm(tensor)
state = hook.State(noise_scale=True)
for step in range(3):
    reduce(state, floats)
# Whoever reads a norm waits for the device: so only behind the sum, not on backward's thread.
assert log == [("norm of", "floats"), ("start 40", 7000, 300), ("wait", 40), ("norm of", "floats"),
               ("read",), ("read",), ("result", "floats")], log
print("good")
"""
# What a step of two ranks leaves of the norms behind the noise scale: gradients are 2 ± e, where e of rank
# r is its own, so that all squares are known.
LIVE_NOISE = """
import torch, torch.distributed as dist, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(6000))
        self.b = torch.nn.Parameter(torch.zeros(10))
    def forward(self, x): return (self.a * x).sum() + (self.b * x[:10]).sum()
model = torch.nn.parallel.DistributedDataParallel(Sum(), bucket_cap_mb=0.01)
state = rackrail.torch.State(noise_scale=True)
assert state.noise_scale(8) is None
model.register_comm_hook(state, rackrail.torch.comm_hook)
for step in range(STEPS):
    model.zero_grad()
    gradient = torch.full((6000,), 2.0)
    gradient[rank::ranks] += 3.0 + step
    model(gradient).backward()
print(state.noise_scale(8))
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
class Hook(RankTest):
    PYTHON = PYTHON

    def compare(self, ranks, model, steps, evaluated, **variables):
        results = self.run_ranks(ranks, PROGRAM, model, steps, evaluated,
                                 RACKRAIL_SOURCE_DIR=str(harness.SOURCE), **variables)
        result = json.loads(results[0].out)
        self.assertTrue(result["planned"])
        self.assertEqual(result["steps"], steps)
        self.assertGreater(len(result["buckets"]), 1)
        self.assertTrue(result["hook"]["same"], "ranks have different parameters")
        self.assertGreater(result["gloo"]["losses"][0], 1.2 * result["gloo"]["losses"][-1],
                           "the model has learnt nothing, so losses compare nothing")
        return result

    def assert_same_curve(self, result):
        for step, (a, b) in enumerate(zip(result["gloo"]["losses"], result["hook"]["losses"])):
            self.assertLessEqual(abs(a - b), 1e-6, f"loss of step {step}")

    def test_two_ranks_uncompressed_have_the_curve_of_gloo(self):
        for model in ("cnn", "transformer"):
            with self.subTest(model=model):
                result = self.compare(2, model, 50, 0)
                self.assert_same_curve(result)
                self.assertEqual({bucket["codec"] for bucket in result["buckets"]}, {"none"})
                self.assertGreater(result["noise_scale"], 0)

    def test_four_ranks_uncompressed_have_the_curve_of_gloo(self):
        self.assert_same_curve(self.compare(4, "cnn", 40, 0))

    def assert_near_in_accuracy(self, result, codec):
        self.assertIn(codec, {bucket["codec"] for bucket in result["buckets"]})
        self.assertNotEqual(result["gloo"]["losses"], result["hook"]["losses"])
        self.assertGreater(result["gloo"]["accuracy"], 0.9)
        self.assertGreaterEqual(result["hook"]["accuracy"], result["gloo"]["accuracy"] - 0.01)

    def test_two_ranks_with_8_bits(self):
        self.assert_near_in_accuracy(
            self.compare(2, "cnn", 200, 8, RACKRAIL_CODECS="int8"), "int8")

    def test_four_ranks_with_8_bits(self):
        self.assert_near_in_accuracy(
            self.compare(4, "cnn", 150, 8, RACKRAIL_CODECS="int8"), "int8")

    def test_two_ranks_with_16_bits(self):
        self.assert_near_in_accuracy(
            self.compare(2, "cnn", 200, 8, RACKRAIL_CODECS="fp16"), "fp16")

    def test_several_models_types_and_sums_between(self):
        for ranks in (1, 2):
            for result in self.run_ranks(ranks, self.write("mixed.py", MIXED)):
                self.assertEqual(result.out, "good\n", str(result))

    def test_a_plan_that_was_made_before(self):
        self.write("hosts.csv", TWO_HOSTS)
        self.write("model.csv", ONE_LAYER)
        program = self.write("planned.py", PLANNED)
        self.rackrail("plan", "hosts.csv", "model.csv", "--schedule", "ring", "--codec", "fp16",
                      "--local-batch", "32", "-o", "plan.json")
        for result in self.run_ranks(2, program, RACKRAIL_PLAN=str(self.folder / "plan.json"),
                                     RACKRAIL_CLUSTER=str(self.folder / "hosts.csv")):
            self.assertEqual(result.out, "[(90000, 'ring', 'fp16')]\n", str(result))

    def test_a_plan_that_does_not_fit_is_refused_in_one_line(self):
        self.write("hosts.csv", TWO_HOSTS)
        self.write("model.csv", ONE_LAYER)
        self.rackrail("plan", "hosts.csv", "model.csv", "--local-batch", "32", "-o", "plan.json")
        init = ("import sys, rackrail\ntry:\n    rackrail.init(timeout=20)\n"
                "except rackrail.InputError as error:\n    print(error)\n    sys.exit(4)")
        plan = str(self.folder / "plan.json")
        result = self.run_python("-c", init, status=4, RACKRAIL_PLAN=plan, RACKRAIL_CODECS="int8")
        self.assertEqual(result.out, "<environment>: RACKRAIL_CODECS: found 'int8' beside a plan,"
                         " expected one of them: a plan has its codecs\n")
        # Only rank 0 reads it, and the others never begin.
        port = str(harness.free_ports(1))
        result = self.run_python("-c", init, status=4, RACKRAIL_PLAN=plan, RACKRAIL_RANK="0",
                                 RACKRAIL_WORLD_SIZE="3",
                                 RACKRAIL_COORDINATOR="127.0.0.1:" + port)
        self.assertEqual(result.out, plan + ": ranks: found 2, expected 3, as the job has\n")

    def test_the_live_noise_scale_is_that_of_the_ranks_gradients(self):
        # By hand, of 6010 elements: each has 2, of which every second has 3 + s more at each of two ranks.
        steps, batch, kept = 4, 8, 0.9
        small = large = None
        for step in range(steps):
            extra = 3.0 + step
            own = 6010 * 4 + 3005 * (2 * 2 * extra + extra**2)
            mean = 6010 * (2 + extra / 2)**2
            small = own if small is None else kept * small + (1 - kept) * own
            large = mean if large is None else kept * large + (1 - kept) * mean
        squared_gradient = (2 * batch * large - batch * small) / batch
        variance = (small - large) / (1 / batch - 1 / (2 * batch))
        program = self.write("noise.py", LIVE_NOISE.replace("STEPS", str(steps)))
        for result in self.run_ranks(2, program):
            self.assertAlmostEqual(float(result.out) / (variance / squared_gradient), 1, delta=1e-3)

    def test_backward_goes_on_while_buckets_move(self):
        for result in self.run_ranks(2, self.write("overlap.py", OVERLAP)):
            self.assertEqual(result.out, "good\n", str(result))

    def test_models_in_one_backward_pass(self):
        program = self.write("joint.py", JOINT)
        for ranks in (2, 3):
            for result in self.run_ranks(ranks, program, limit=120):
                self.assertEqual(result.out, "good\n", str(result))

    def test_a_model_of_some_ranks_only_is_refused(self):
        program = self.write("groups.py", GROUPS)
        for way in ("register", "state", "hook"):
            for result in self.run_ranks(4, program, way):
                self.assertRegex(result.out, r"\A(InputError: )?process_group: found 2 rank\(s\), expected 4:"
                                 r" [^\n]+\n\Z", str(result))

    def test_a_group_of_all_ranks_is_taken(self):
        for result in self.run_ranks(2, self.write("whole.py", WHOLE)):
            self.assertEqual(result.out, "good\n", str(result))

    def test_another_job_of_pytorch_is_refused(self):
        program = self.write("other.py", OTHER_JOB)
        for rank, result in enumerate(self.run_ranks(2, program, "rank")):
            self.assertEqual(result.out, f"torch.distributed: found rank {1 - rank}, expected {rank}, which"
                             " this process is in rackrail's job\n", str(result))
        for result in self.run_ranks(2, program, "size"):
            self.assertRegex(result.out, r"\Aprocess_group: found 2 rank\(s\), expected 1: [^\n]+\n\Z")

    def test_gradients_of_other_types_are_refused(self):
        for result in self.run_ranks(2, self.write("dtypes.py", TYPES)):
            self.assertEqual(result.out, "summed torch.float16\nInputError: a bucket of torch.float64:"
                             " expected float32, float16 or bfloat16\n", str(result))

    def test_tensors_of_16_bits_are_summed(self):
        for ranks in (1, 3):
            for result in self.run_ranks(ranks, self.write("tensors.py", TENSORS)):
                self.assertEqual(result.out, "good\n", str(result))

    def test_loaders_that_fork(self):
        for result in self.run_ranks(2, self.write("loaders.py", LOADERS)):
            self.assertEqual(result.out, "good\n", str(result))

    def test_control_c_ends_a_backward_pass_that_waits(self):
        first, second = self.run_ranks(2, self.write("interrupted.py", INTERRUPTED))
        self.assertLess(float(first.out.split()[0]), 10, str(first))
        self.assertIn("interrupted", second.out, str(second))

    def test_a_killed_rank_is_an_exception_of_backward(self):
        results = self.run_ranks(3, self.write("lost.py", LOST), status=None)
        for rank in (0, 2):
            self.assertEqual(results[rank].status, 3, str(results[rank]))
            self.assertRegex(results[rank].out,
                             r"\Astep [45]: [^\n]*rank 1 \(pid \d+ on \S+\) was lost")


@unittest.skipUnless(PYTHON, WHY_NOT)
class OnDevice(RankTest):
    PYTHON = PYTHON

    def test_arrays_are_summed_where_they_are(self):
        result = self.run_python(self.write("on_device.py", ON_DEVICE))
        self.assertEqual(result.out, "good\n", str(result))

    def test_buckets_are_summed_behind_what_writes_them_and_before_what_reads_them(self):
        result = self.run_python(self.write("hook_on_device.py", HOOK_ON_DEVICE))
        self.assertEqual(result.out, "good\n", str(result))


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


@unittest.skipUnless(PYTHON, WHY_NOT)
class Example(RankTest):
    PYTHON = PYTHON

    EXAMPLE = harness.SOURCE / "python/examples/digits_ddp.py"

    def assert_learnt(self, result):
        lines = result.out.splitlines()
        self.assertEqual(len(lines), 3, str(result))
        self.assertGreater(float(lines[-1].rpartition("accuracy ")[2].rstrip(" %")), 85)

    def test_the_example_learns(self):
        self.assert_learnt(self.run_ranks(2, self.EXAMPLE, "--model", "cnn", "--epochs", "3")[0])

    def test_a_copy_says_what_it_looks_for_and_takes_it_from_elsewhere(self):
        copy = self.write("there/else/digits_ddp.py", self.EXAMPLE.read_text(encoding="utf-8"))
        result = self.run_python(copy, status=2)
        self.assertEqual(result.err.splitlines()[-1],
                         f"digits_ddp.py: error: found no file {self.folder}/configs/data/digits.csv,"
                         " expected the digits of rackrail's source tree: say --digits"
                         " RACKRAIL/configs/data/digits.csv")
        self.assertNotIn("Traceback", result.err)
        digits = harness.SOURCE / "configs/data/digits.csv"
        results = self.run_ranks(2, copy, "--epochs", "1", "--digits", digits)
        self.assertRegex(results[0].out, r"\Aepoch 1: .*accuracy")

    def test_the_example_learns_under_torchrun(self):
        def torchrun(*command, **options):
            return self.run_python("-m", "torch.distributed.run", "--nproc_per_node", "2",
                                   "--master_port", harness.free_ports(2), *command, **options)
        # The second time for PyTorch 1.13 with Python 3.11 (python/README.md).
        for around in ((), ("--redirects", "9:1", "--tee", "9:1")):
            trial = torchrun(*around, self.write("nothing.py", ""), status=None)
            if trial.status == 0:
                break
        else:
            self.skipTest("torchrun itself fails here: " + trial.err.strip().splitlines()[-1])
        self.assert_learnt(torchrun(*around, self.EXAMPLE, "--model", "cnn", "--epochs", "3"))
        self.assert_no_processes_left()


if __name__ == "__main__":
    harness.main()
