"""Tensors and buckets of a device that PyTorch pretends to have: streams and events in their order."""

import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")
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
def join(group, device, device_id):
    assert group is None and device == "cuda"
    joined.append(device_id)
hook.meeting.join, _job.rank = join, lambda: 0
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


@unittest.skipUnless(PYTHON, WHY_NOT)
class OnDevice(RankTest):
    PYTHON = PYTHON

    def test_arrays_are_summed_where_they_are(self):
        result = self.run_python(self.write("on_device.py", ON_DEVICE))
        self.assertEqual(result.out, "good\n", str(result))

    def test_buckets_are_summed_behind_what_writes_them_and_before_what_reads_them(self):
        result = self.run_python(self.write("hook_on_device.py", HOOK_ON_DEVICE))
        self.assertEqual(result.out, "good\n", str(result))


if __name__ == "__main__":
    harness.main()
