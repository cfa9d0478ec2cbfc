"""DistributedDataParallel with rackrail's hook: models, groups, plans, and what goes wrong; on CPUs."""

import unittest

from ranks import RankTest, harness, python_with

PYTHON, WHY_NOT = python_with("torch")
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
    except rackrail.PeerLost as error:
        print(f"step {step}: {error}", flush=True)
        if dist.get_rank() == 0:  # who has the coordinator, which the others hear of it by
            time.sleep(2)
        os._exit(3)
"""
# As a script does that passes by a batch whose loss is not finite.
SKIPPED = """
import time, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
rackrail.torch.register(model)
try:
    for step in range(8):
        if step == 5 and dist.get_rank() == 1:
            continue
        model(torch.ones(4, 300)).sum().backward()
        start = time.monotonic()
except rackrail.PeerLost as error:
    print(f"{time.monotonic() - start:.1f} {error}", flush=True)
"""
# Ranks with unlike numbers of batches: who has none left sums zeros for the others (DDP's join), outside
# of any backward pass.
JOINED = """
import torch, torch.distributed as dist, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(30, 1, bias=False))
rackrail.torch.register(model)
with model.join(divide_by_initial_world_size=True):
    for step in range(4 + 3 * rank):
        model.zero_grad()
        model(torch.full((1, 30), float(ranks))).sum().backward()
        assert (model.module.weight.grad == (ranks if step < 4 else 1)).all(), step
print("good")
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
# Rank 0 is half a second early, but in the first step, where ranks have met to begin the job.
assert dist.get_rank() == 1 or all(map(all, state.open_at_end[1:])), state.open_at_end
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
if way == "register":
    rackrail.torch.register(model)
elif way == "state":
    whole = torch.nn.parallel.DistributedDataParallel(model.module)  # which it could be as well
    state = rackrail.torch.State(process_group=model.process_group)
    model.register_comm_hook(state, rackrail.torch.comm_hook)
else:
    model.register_comm_hook(None, rackrail.torch.comm_hook)
for step in range(4):
    model.zero_grad()
    model(torch.full((1, 4), float(rank + step))).sum().backward()
    expected = 2 * (rank // 2) + 0.5 + step
    assert (model.module.weight.grad == expected).all(), (rank, model.module.weight.grad)
assert (rackrail.rank(), rackrail.world_size()) == (rank % 2, 2)
try:
    rackrail.torch.register(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1)))
except rackrail.InputError as error:
    print(error)
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
# Before anything is summed.
DOUBLES = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
for state, dtype in ((None, torch.complex64), ("x", torch.float32)):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.module[1].weight = torch.nn.Parameter(torch.zeros(1, 4, dtype=dtype))
    try:
        rackrail.torch.register(model, state)
    except rackrail.InputError as error:
        print(error)
rackrail.shutdown()
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
    model.register_comm_hook(rackrail.torch.State(), rackrail.torch.comm_hook)
    model(torch.full((12,), 2 * rank, dtype=dtype)).backward()
    assert (model.module.w.grad == ranks - 1).all() and model.module.w.grad.dtype == dtype
    print("summed", dtype)
class Bucket:  # which Gloo would not let DDP make
    def index(self): return 0
    def buffer(self): return torch.zeros(3, dtype=torch.complex64)
try:
    rackrail.torch.State().reduce(Bucket())
except rackrail.InputError as error:
    print(error)
rackrail.shutdown()
"""
# One batch with gradients 10,000 times too large, then one with infinite ones: how far the next gradients are
# from the exact means, and that nothing is left of a step once that is asked for.
SPIKE = """
import sys, torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
size, resets = 200_000, sys.argv[1] == "reset"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(size, 1, bias=False))
state = rackrail.torch.register(model)
generator = torch.Generator().manual_seed(rank)
likeness = []
for step in range(14):
    x = torch.randn(1, size, generator=generator) + 0.3
    x *= {6: 1e4, 10: float("inf")}.get(step, 1)
    exact = x.clone()
    dist.all_reduce(exact)
    model.zero_grad()
    model(x).sum().backward()
    likeness.append(torch.nn.functional.cosine_similarity(model.module.weight.grad, exact).item())
    if resets and step == 5:
        state.reset()
assert rackrail.describe()[0]["codec"] != "none", rackrail.describe()
print(min(likeness[3:6]), min(likeness[7:10]), min(likeness[11:]))
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
# The same gradient in each step. What a step does not send is sent later, so the mean over steps comes near it
# everywhere; without error feedback all but the largest tenth would never be sent.
FEEDBACK = """
import torch, torch.distributed as dist, rackrail, rackrail.torch
dist.init_process_group("gloo")
rank, ranks, steps = dist.get_rank(), dist.get_world_size(), 42
model = torch.nn.Linear(70000, 1, bias=False)
model = torch.nn.parallel.DistributedDataParallel(model)
model.register_comm_hook(None, rackrail.torch.comm_hook)
own = 1 + torch.rand(1, 70000, generator=torch.Generator().manual_seed(rank))
mean = own.clone()
dist.all_reduce(mean)
total, first = torch.zeros(70000), None
for step in range(steps):
    model.zero_grad()
    model(own).sum().backward()
    if step >= 2:  # before, there is no plan
        total += model.module.weight.grad[0]
        first = (total != 0).sum().item() if first is None else first
assert [b["codec"] for b in rackrail.describe()] == ["topk:density=0.1"], rackrail.describe()
assert first < 70000 / 3, first
relative = total / (steps - 2) / (mean[0] / ranks)
assert 0.6 < relative.min() and relative.max() < 1.2, (relative.min(), relative.max())
print("good")
"""
TWO_HOSTS = """source,target,bandwidth,latency
host0,switch,1 Gbit/s,10 us
host1,switch,1 Gbit/s,10 us
"""
ONE_LAYER = """name,parameters,bytes_per_parameter,forward_us,backward_us
weight,90000,4,100,200
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


@unittest.skipUnless(PYTHON, WHY_NOT)
class Hook(RankTest):
    PYTHON = PYTHON

    def test_several_models_types_and_sums_between(self):
        for ranks in (1, 2):
            for result in self.run_ranks(ranks, self.write("mixed.py", MIXED)):
                self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_what_a_codec_leaves_out_is_sent_later(self):
        for result in self.run_ranks(2, self.write("feedback.py", FEEDBACK), RACKRAIL_CODECS="topk:density=0.1"):
            self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_one_unusual_gradient_does_not_spoil_the_next(self):
        program = self.write("spike.py", SPIKE)
        for codec in ("int8", "fp8", "topk:density=0.1"):
            for way in ("keep", "reset"):
                for result in self.run_ranks(2, program, way, RACKRAIL_CODECS=codec):
                    usual, after_large, after_infinite = map(float, result.out.split())
                    self.assertGreater(after_large, usual - 0.1, f"{codec}: {result}")
                    self.assertGreater(after_infinite, usual - 0.1, f"{codec}: {result}")

    @harness.slow
    def test_a_plan_that_was_made_before(self):
        self.write("hosts.csv", TWO_HOSTS)
        self.write("model.csv", ONE_LAYER)
        program = self.write("planned.py", PLANNED)
        self.rackrail("plan", "hosts.csv", "model.csv", "--schedule", "ring", "--codec", "fp16",
                      "--local-batch", "32", "-o", "plan.json")
        for result in self.run_ranks(2, program, RACKRAIL_PLAN=str(self.folder / "plan.json"),
                                     RACKRAIL_CLUSTER=str(self.folder / "hosts.csv")):
            self.assertEqual(result.out, "[(90000, 'ring', 'fp16')]\n", str(result))

    @harness.slow
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

    @harness.slow
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

    @harness.slow
    def test_backward_goes_on_while_buckets_move(self):
        for result in self.run_ranks(2, self.write("overlap.py", OVERLAP)):
            self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_models_in_one_backward_pass(self):
        program = self.write("joint.py", JOINT)
        for ranks in (2, 3):
            for result in self.run_ranks(ranks, program, limit=120):
                self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_a_model_of_some_ranks_is_summed_over_these_and_one_of_others_is_refused(self):
        program = self.write("groups.py", GROUPS)
        for way in ("register", "state", "hook"):
            for result in self.run_ranks(4, program, way):
                self.assertRegex(result.out, r"\Aprocess_group: found a group of 4, expected 2: [^\n]+\n\Z",
                                 str(result))

    @harness.slow
    def test_a_group_of_all_ranks_is_taken(self):
        for result in self.run_ranks(2, self.write("whole.py", WHOLE)):
            self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_another_job_of_pytorch_is_refused(self):
        program = self.write("other.py", OTHER_JOB)
        for rank, result in enumerate(self.run_ranks(2, program, "rank")):
            self.assertEqual(result.out, f"process_group: found rank {1 - rank}, expected {rank}, which"
                             " this process is in rackrail's job\n", str(result))
        for result in self.run_ranks(2, program, "size"):
            self.assertRegex(result.out, r"\Aprocess_group: found a group of 2, expected 1: [^\n]+\n\Z")

    @harness.slow
    def test_gradients_of_other_types_are_refused(self):
        for result in self.run_ranks(2, self.write("dtypes.py", TYPES)):
            self.assertRegex(result.out, r"\Asummed torch.float16\nsummed torch.float64\n"
                             r"[^\n]*a bucket of torch.complex64: expected float32,[^\n]*\n\Z", str(result))

    @harness.slow
    def test_a_model_that_cannot_be_summed_is_not_registered(self):
        for result in self.run_ranks(2, self.write("doubles.py", DOUBLES)):
            self.assertEqual(result.out, "parameter module.1.weight: found torch.complex64, expected float32,"
                             " float64, float16 or bfloat16\nstate: found a str, expected a State\n", str(result))

    @harness.slow
    def test_tensors_of_16_bits_are_summed(self):
        for ranks in (1, 3):
            for result in self.run_ranks(ranks, self.write("tensors.py", TENSORS)):
                self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_loaders_that_fork(self):
        for result in self.run_ranks(2, self.write("loaders.py", LOADERS)):
            self.assertEqual(result.out, "good\n", str(result))

    @harness.slow
    def test_control_c_ends_a_backward_pass_that_waits(self):
        first, second = self.run_ranks(2, self.write("interrupted.py", INTERRUPTED))
        self.assertLess(float(first.out.split()[0]), 10, str(first))
        self.assertIn("interrupted", second.out, str(second))

    def test_ranks_with_unlike_numbers_of_batches(self):
        for result in self.run_ranks(2, self.write("joined.py", JOINED)):
            self.assertEqual(result.out, "good\n", str(result))

    def test_a_rank_that_skips_a_batch_is_named_when_it_ends(self):
        first, _ = self.run_ranks(2, self.write("skipped.py", SKIPPED), status=None)
        seconds, line = first.out.split(" ", 1)
        self.assertLess(float(seconds), 10)
        self.assertRegex(line, r"\Arank 1 \(pid \d+ on \S+\) ended at least a step before "
                               r"rank 0 \(pid \d+ on \S+\), which waits for it: did they have unequal numbers of batches\?\n\Z")

    def test_a_killed_rank_is_an_exception_of_backward(self):
        results = self.run_ranks(3, self.write("lost.py", LOST), status=None)
        for rank in (0, 2):
            self.assertEqual(results[rank].status, 3, str(results[rank]))
            self.assertRegex(results[rank].out,
                             r"\Astep [45]: rank 1 \(pid \d+ on \S+\) was lost")


if __name__ == "__main__":
    harness.main()
