"""rackrail.allreduce on NumPy arrays and other buffers, by several processes."""

import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("numpy")
SUMS = """
import array, numpy as np, rackrail
rank, ranks = rackrail.rank(), rackrail.world_size()
def of(r, n): return np.arange(n, dtype=np.float32) % 50 + r
def total(n): return sum(of(r, n) for r in range(ranks))
for n in (1, 3, 1000, 5000, 300_001):
    mine = of(rank, n)
    result = rackrail.allreduce(mine)
    assert result.dtype == np.float32 and result.shape == (n,), result
    assert (result == total(n)).all(), n
    assert (mine == of(rank, n)).all(), "the argument was changed"
    same = rackrail.allreduce(mine, "mean", in_place=True)
    assert same is mine and np.allclose(mine, total(n) / ranks, rtol=1e-6, atol=0)
shaped = of(rank, 24).reshape(2, 3, 4).transpose(2, 0, 1)  # not contiguous
assert (rackrail.allreduce(shaped) == total(24).reshape(2, 3, 4).transpose(2, 0, 1)).all()
half = of(rank, 100).astype(np.float16)
result = rackrail.allreduce(half)
assert result.dtype == np.float16 and (result == total(100).astype(np.float16)).all()
assert rackrail.allreduce(np.float32(rank + 1)) == ranks * (ranks + 1) / 2
buffer = array.array("f", of(rank, 7))
assert (rackrail.allreduce(buffer) == total(7)).all()
rackrail.allreduce(memoryview(buffer), in_place=True)
assert list(buffer) == list(total(7))

class Foreign:  # DLPack and nothing else
    __module__ = "elsewhere"
    def __init__(self, values): self._values = values
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **options): return self._values.__dlpack__(**options)
assert (rackrail.allreduce(Foreign(of(rank, 9))) == total(9)).all()
assert (rackrail.allreduce(Foreign(of(rank, 9).reshape(3, 3))) == total(9).reshape(3, 3)).all()
class Shown(Foreign):  # what NumPy does not know, its own library shows it
    def __dlpack__(self, **options): raise BufferError("no type of DLPack's")
    def __array__(self, dtype=None): return self._values
assert (rackrail.allreduce(Shown(of(rank, 9))) == total(9)).all()
rackrail.shutdown()
print("good")
"""
# What stands in for libraries that are not here: their arrays offer DLPack, and are made by the
# function that the real ones are made by.
JAX = {"jax/__init__.py": "", "jax/numpy.py": """
from jaxlib import Array
def asarray(values): return Array(values)
""", "jaxlib.py": """
class Array:
    def __init__(self, values): self.values = values
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **options): return self.values.__dlpack__(**options)
"""}
TENSORFLOW = {"tensorflow/__init__.py": """
from tensorflow.ops import EagerTensor
def convert_to_tensor(values): return EagerTensor(values)
""", "tensorflow/ops.py": """
class EagerTensor:
    def __init__(self, values): self.values = values
    def __array__(self, dtype=None): return self.values
"""}
STAND_INS = """
import sys
sys.path.insert(0, "stand-ins")
import numpy as np, rackrail
import jax.numpy, jaxlib, tensorflow
rank, ranks = rackrail.rank(), rackrail.world_size()
for make, kind in ((jax.numpy.asarray, jaxlib.Array),
                   (tensorflow.convert_to_tensor, tensorflow.EagerTensor)):
    array = make(np.full((2, 3), rank + 1, np.float32))
    total = rackrail.allreduce(array, "mean")
    assert type(total) is kind and total.values.shape == (2, 3), total
    assert (total.values == (ranks + 1) / 2).all() and (array.values == rank + 1).all()
rackrail.shutdown()
print("good")
"""
REFUSED = """
import numpy as np, rackrail
def refused(part, *arguments, **options):
    try:
        rackrail.allreduce(*arguments, **options)
    except rackrail.InputError as error:
        assert part in str(error) and "\\n" not in str(error), error
        return
    raise SystemExit(f"accepted: {part}")
floats = np.zeros(4, np.float32)
refused("float64", np.zeros(4))
refused("int32", np.zeros(4, np.int32))
refused("found a list, expected an array", [1.0, 2.0])
refused("'max'", floats, "max")
refused("in_place", np.zeros(4, np.float16), in_place=True)
refused("in_place", np.zeros((4, 4), np.float32)[:, 1], in_place=True)
floats.flags.writeable = False
refused("in_place", floats, in_place=True)
class OnDevice:
    def __dlpack_device__(self): return (10, 0)
refused("kind 10", OnDevice())
rackrail.rank()
try:
    rackrail.init()
except rackrail.InputError as error:
    assert "called before" in str(error)
else:
    raise SystemExit("a second init")
assert rackrail.allreduce(np.ones(3, np.float32)).tolist() == [rackrail.world_size()] * 3
rackrail.shutdown()
try:
    rackrail.rank()
except rackrail.Error as error:
    assert "shutdown" in str(error)
print("good")
"""
ALONE = """
import rackrail
from rackrail import _job
def refused(expected, kind, **options):
    try:
        rackrail.init(**options)
    except rackrail.Error as error:
        assert type(error) is kind and str(error).startswith(expected), repr(error)
        assert "\\n" not in str(error) and not rackrail.is_initialized()
        return
    raise SystemExit(f"accepted: {options}")
refused("transport: found 'nonsense', expected one of", rackrail.InputError, transport="nonsense")
refused("nope.csv: ", rackrail.InputError, cluster="nope.csv")
refused("rank 0 is to ", rackrail.Error, device="cuda", device_id=99)  # which no machine has
_job.plan([300, 20])
assert rackrail.describe() == [{"elements": n, "schedule": "none", "codec": "none", "error": 0}
                                for n in (300, 20)]
print("good")
"""
COMPRESSED = """
import numpy as np, rackrail
from rackrail import _job, _library
rank, ranks = rackrail.rank(), rackrail.world_size()
def of(r): return np.random.default_rng(r).standard_normal(300_000, np.float32)
mean = sum(of(r).astype(float) for r in range(ranks)) / ranks
result = of(rank)
bucket = _job.plan([300_000])
_job.start(bucket, _job.buffer_of(result.ctypes.data, result.size), _library.MEAN)
_job.wait(bucket)
(planned,) = rackrail.describe()
assert planned["codec"].startswith("int8"), planned
error = np.linalg.norm(result - mean) / np.linalg.norm(mean)
assert 0.005 < planned["error"] < 0.1 and 0.5 < error / planned["error"] < 1.1, (error, planned)
rackrail.shutdown()
print("good")
"""
UNCAUGHT = """
import numpy as np, rackrail
if rackrail.rank() == 1:
    rackrail.allreduce(np.ones(10, np.float32))
    raise ValueError("no more data")
try:  # the end may come while the others are still in the first one
    rackrail.allreduce(np.ones(10, np.float32))
    rackrail.allreduce(np.ones(10, np.float32))
except rackrail.PeerLost as error:
    print(error)
"""
ABORTED = UNCAUGHT.replace('raise ValueError("no more data")',
                           'import sys; rackrail.abort("no more data"); sys.exit(3)')
KILLED = UNCAUGHT.replace('raise ValueError("no more data")', "import os; os.kill(os.getpid(), 9)")
# Rank 1 comes late, or not at all.
INTERRUPTED = """
import os, signal, sys, threading, time, numpy as np, rackrail
def interrupt_after(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
def interrupted(call):
    start = time.monotonic()
    interrupt_after(1)
    try:
        call()
    except KeyboardInterrupt:
        seconds = time.monotonic() - start
        assert 1 <= seconds < 10, seconds
    else:
        raise SystemExit("not interrupted")
if sys.argv[1] == "init":
    interrupted(lambda: rackrail.init(rank=1, world_size=2, coordinator="127.0.0.1:1", timeout=60))
    try:
        rackrail.init()
    except rackrail.InputError as error:
        print(error)
    sys.exit()
ones = np.ones(10, np.float32)
rackrail.allreduce(ones)
if sys.argv[1] == "sum":
    if rackrail.rank() == 0:
        interrupted(lambda: rackrail.allreduce(ones))
        try:
            rackrail.allreduce(ones)
        except rackrail.Error as error:
            print(error)
    else:
        try:
            time.sleep(5)
            rackrail.allreduce(ones)
        except rackrail.PeerLost as error:
            print(error)
    sys.exit()
# Where Python hears of it by itself, or does something else, the job goes on.
if rackrail.rank() == 0:
    interrupted(lambda: time.sleep(20))
    other = threading.Thread(target=rackrail.allreduce, args=(ones,))
    other.start()
    interrupted(lambda: other.join())
    other.join()
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    interrupt_after(1)
else:
    time.sleep(5)
    rackrail.allreduce(ones)
    time.sleep(3)
rackrail.allreduce(ones)
if rackrail.rank() == 0:
    assert heard == [1]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    child = os.fork()  # whose signals are its own
    if child == 0:
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(1)
else:
    time.sleep(3)
rackrail.allreduce(ones)
if rackrail.rank() == 0:
    assert os.waitpid(child, 0)[1] == 0
print("good")
"""

# Python's handler runs before the thread that watches does: what the program calls next is not ended.
HANDLED = """
import os, signal, sys, time
from rackrail._interrupts import Watch
ended = []
watch = Watch(lambda: ended.append(True))
watch.begin()
sys.setswitchinterval(1)
for _ in range(3):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        with watch.call():
            time.sleep(0.7)
print(ended)
"""


@unittest.skipUnless(PYTHON, WHY_NOT)
class AllReduce(RankTest):
    PYTHON = PYTHON

    def program(self, text):
        return self.write("program.py", text)

    def test_sums(self):
        program = self.program(SUMS)
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                for result in self.run_ranks(ranks, program):
                    self.assertEqual(result.out, "good\n", str(result))

    def test_compressed_sums_are_as_far_off_as_the_model_says(self):
        self.write("slow.csv", "source,target,bandwidth,latency\n" + "".join(
            f"host{host},switch,100 Mbit/s,10 us\n" for host in range(3)))
        for result in self.run_ranks(3, self.program(COMPRESSED), RACKRAIL_CODECS="int8",
                                     RACKRAIL_CLUSTER="slow.csv"):
            self.assertEqual(result.out, "good\n", str(result))

    def test_without_a_launcher_the_job_is_one_process(self):
        self.assertEqual(self.run_python(self.program(SUMS)).out, "good\n")

    def test_a_job_of_one_refuses_what_one_of_several_ranks_would(self):
        result = self.run_python(self.program(ALONE))
        self.assertEqual(result.out, "good\n", str(result))

    def test_arrays_of_other_libraries_come_back_as_such(self):
        for name, text in {**JAX, **TENSORFLOW}.items():
            file = self.folder / "stand-ins" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for result in self.run_ranks(2, self.program(STAND_INS)):
            self.assertEqual(result.out, "good\n", str(result))

    def test_what_is_refused(self):
        for result in self.run_ranks(2, self.program(REFUSED)):
            self.assertEqual(result.out, "good\n", str(result))

    def test_an_exception_of_one_rank_is_told_to_the_others(self):
        results = self.run_ranks(3, self.program(UNCAUGHT), status=None)
        self.assertEqual(results[1].status, 1)
        for rank in (0, 2):
            self.assertRegex(results[rank].out,
                             r"\Arank 1 \(pid \d+ on .*\) failed: ValueError: no more data\n\Z")
            self.assertEqual((results[rank].status, results[rank].err), (0, ""))

    def test_a_rank_that_aborts_and_exits_is_told_to_the_others_at_once(self):
        first, second = self.run_ranks(2, self.program(ABORTED), status=None)
        self.assertRegex(first.out, r"\Arank 1 \(pid \d+ on .*\) failed: no more data\n\Z", str(first))
        self.assertEqual((first.status, second.status), (0, 3), str(second))
        self.assertLess(max(first.seconds, second.seconds), 20)

    def test_control_c_ends_an_init_that_waits(self):
        result = self.run_python(self.program(INTERRUPTED), "init")
        self.assertEqual(result.out, "rackrail.init() was interrupted\n", str(result))

    def test_control_c_ends_a_sum_that_waits_and_the_others_hear_of_it(self):
        first, second = self.run_ranks(2, self.program(INTERRUPTED), "sum")
        self.assertEqual((first.out, first.err), ("the job was interrupted\n", ""), str(first))
        self.assertRegex(second.out, r"\Arank 0 \(pid \d+ on .*\) failed: interrupted\n\Z", str(second))

    def test_control_c_elsewhere_is_the_programs(self):
        for result in self.run_ranks(2, self.program(INTERRUPTED), "elsewhere"):
            self.assertEqual((result.out, result.err), ("good\n", ""), str(result))

    def test_a_call_after_control_c_was_heard_goes_on(self):
        result = self.run_python(self.program(HANDLED))
        self.assertEqual((result.out, result.err), ("[]\n", ""), str(result))

    def test_a_killed_rank_is_missed_by_the_others(self):
        results = self.run_ranks(3, self.program(KILLED), status=None)
        for rank in (0, 2):
            self.assertRegex(results[rank].out, r"\Arank 1 \(pid \d+ on .*\) was lost: .*\n\Z")


if __name__ == "__main__":
    harness.main()
