#!/usr/bin/env python3
"""rackrail's Python package with PyTorch, by ranks that share one GPU (or, for tests, are on CPUs):

    torch_check.py [--ranks 2] [--device cuda] [--path staged] [--codec none] [--steps 24]
    torch_check.py --arrays jax          # or cupy

Sums arrays on the GPU, given as tensors and by DLPack, which a stream has not finished writing yet; trains
by DistributedDataParallel with Gloo's all-reduce and with rackrail.torch.comm_hook, whose gradients are
late likewise, and compares the losses: equal within 1e-5 of the first, with a lossy codec within a tenth
of what was learnt. Profiles the model: gradients become ready from its last layer to its first, the times
between them are the device's, and their sum is no more than what backward takes. With --path hybrid, pairs
of ranks stand for hosts. The process group is Gloo's, since NCCL refuses two ranks on one device of one process
group. With --arrays, sums arrays of that library on the GPU instead, which must come back as its own. Rank 0
prints one line of JSON.

Exit status: 0 all is right, 1 something is not, 2 bad arguments. Needs rackrail and torch on PYTHONPATH.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import sys
import tempfile
import time

LATE_CYCLES = 20_000_000  # some 10 ms of a GPU
SIZES = (1, 1000, 300_001)  # of arrays
FEATURES, CLASSES, WIDTH, BATCH = 64, 10, 256, 128
EXACT = 1e-5        # of the first loss
NEAR = 0.1          # of what was learnt
NOT_COUNTED = 4     # steps: DDP's buckets settle, and are planned for
LEAST_LATE_S = 0.005  # of two layers that are late by LATE_CYCLES each
PAIRS = """name: pairs
device_classes:
  cpu: {{ memory: 40 GB }}
node_types:
  node:
    gpus: 2
    device_class: cpu
    nvlink: {{ bandwidth: 100 GB/s, latency: 1 us }}
    pcie: {{ bandwidth: 20 GB/s, latency: 1 us, gpus_per_switch: 2 }}
    nics: {{ count: 1, link: tcp }}
racks: {{ count: {racks}, hosts: 1, type: node }}
network:
  wiring: leaf-spine
  core: {{ count: 1, bandwidth: 40 Gbit/s, latency: 2 us }}
"""


class Wrong(Exception):
    """What is not as it must be, in one line."""


def require(condition, what):
    if not condition:
        raise Wrong(what)


class Foreign:
    """An array of nobody's, that offers DLPack and nothing else."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__(**options)


def keep_busy(torch, device):
    """What is enqueued next happens later than whoever does not wait for the stream would look."""
    if device.type == "cuda":
        torch.cuda._sleep(LATE_CYCLES)


def on_other_stream(torch, device):
    """A context: work goes on a stream that is not the default one."""
    if device.type == "cuda":
        return torch.cuda.stream(torch.cuda.Stream(device))
    return torch.no_grad()


def check_arrays(torch, rackrail, device):
    rank, ranks = rackrail.rank(), rackrail.world_size()
    total = ranks * (ranks + 1) / 2
    for size in SIZES:
        pattern = (torch.arange(size, device=device) % 50 + 1).float()
        with on_other_stream(torch, device):
            for name, sums in (
                    ("a tensor in place", lambda t: rackrail.allreduce(t, in_place=True)),
                    ("a tensor", rackrail.allreduce),
                    ("DLPack", lambda t: rackrail.allreduce(Foreign(t)))):
                mine = torch.zeros(size, device=device)
                keep_busy(torch, device)
                mine.copy_(pattern * (rank + 1))
                result = torch.as_tensor(sums(mine))
                require(result.device.type == device.type, f"{name}: its sum is on {result.device}")
                require(torch.equal(result, total * pattern), f"{name} of {size} floats: a wrong sum")
            half = rackrail.allreduce(pattern.to(torch.float16) * (rank + 1), "mean")
            require(half.dtype == torch.float16
                    and torch.equal(half, (total / ranks * pattern).to(torch.float16)),
                    f"{size} floats of 16 bits: a wrong mean")


def check_foreign_arrays(torch, rackrail, device, name):
    """Arrays of another library; its version."""
    if name == "jax":
        import jax
        library, kind = jax, jax.Array
        make = jax.device_put
    else:
        import cupy
        library, kind = cupy, cupy.ndarray
        make = cupy.asarray
    rank, ranks = rackrail.rank(), rackrail.world_size()
    for size in SIZES:
        pattern = (torch.arange(size, device=device) % 50 + 1).float()
        mine = make((pattern * (rank + 1)).cpu().numpy())
        result = rackrail.allreduce(mine)
        require(isinstance(result, kind), f"a sum of {name}'s arrays is a {type(result).__name__}")
        require(torch.equal(torch.from_dlpack(result), ranks * (ranks + 1) / 2 * pattern),
                f"{size} floats of {name}: a wrong sum")
        require(torch.equal(torch.from_dlpack(mine), pattern * (rank + 1)),
                f"{size} floats of {name} are not what they were")
    return library.__version__


def make_model(torch, device):
    class Late(torch.autograd.Function):
        """Itself; gradients pass it late."""

        @staticmethod
        def forward(ctx, values):
            return values.clone()

        @staticmethod
        def backward(ctx, gradient):
            keep_busy(torch, device)
            return gradient.clone()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(FEATURES, WIDTH)
            self.second = torch.nn.Linear(WIDTH, WIDTH)
            self.last = torch.nn.Linear(WIDTH, CLASSES)

        def forward(self, values):
            hidden = Late.apply(torch.relu(self.first(values)))
            return self.last(Late.apply(torch.relu(self.second(hidden))))

    torch.manual_seed(1)
    return Net().to(device)


def train(torch, dist, steps, device, hook):
    """Losses by step, the median time of a step, whether all ranks end with the same bits."""
    model = torch.nn.parallel.DistributedDataParallel(make_model(torch, device), bucket_cap_mb=0.15)
    if hook is not None:
        model.register_comm_hook(*hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(dist.get_rank() + 7)
    losses, times = [], []
    for _ in range(steps):
        inputs = torch.randn(BATCH, FEATURES, generator=generator)
        targets = (inputs @ teacher).argmax(dim=1).to(device)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach().cpu()
        times.append(time.perf_counter() - began)
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    own = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu()
    of_rank_0 = own.clone()
    dist.broadcast(of_rank_0, 0)
    return {"losses": losses, "step_s": statistics.median(times[NOT_COUNTED:]),
            "agree": bool(torch.equal(own, of_rank_0))}


def compare(gloo, hook, codec):
    require(hook["agree"], "ranks end with different parameters")
    first, last = gloo["losses"][0], gloo["losses"][-1]
    require(last < 0.9 * first, f"nothing was learnt, from a loss of {first} to {last}")
    if codec == "none":
        worst = max(abs(a - b) for a, b in zip(gloo["losses"], hook["losses"]))
        require(worst <= EXACT * first, f"losses differ from Gloo's by {worst:.3g}")
    else:
        require(gloo["losses"] != hook["losses"], f"{codec} has left no trace")
        require(abs(hook["losses"][-1] - last) <= NEAR * (first - last),
                f"the last loss is {hook['losses'][-1]:.4f}, Gloo's {last:.4f}")


def check_profile(torch, rackrail, device):
    """Seconds until the last gradient is ready, and of the backward pass."""
    from rackrail.torch import profiler
    model = make_model(torch, device)
    inputs = torch.randn(BATCH, FEATURES, device=device)
    targets = torch.randint(CLASSES, (BATCH,), device=device)
    text = rackrail.torch.profile(model, (inputs, targets), repeats=3)
    names = re.findall(r'^  - \["([a-z.]+)", [0-9]+, [0-9]+ ns', text, re.MULTILINE)
    layers = list(dict.fromkeys(name.split(".")[0] for name in names))
    require(len(names) == len(list(model.parameters())) and layers == ["last", "second", "first"],
            f"profile: gradients become ready in the order {names}")
    clock = profiler._DeviceClock(device) if device.type == "cuda" else profiler._HostClock()
    passes = profiler._Passes(model, dict(model.named_parameters()), torch.nn.functional.cross_entropy, clock)
    times = passes.run(inputs, targets)
    ready = sorted(times.ready.values())
    require(0 < ready[0] and ready[-1] <= times.backward,
            f"profile: gradients are ready after {ready} ns of a backward pass of {times.backward} ns")
    if device.type == "cuda":
        require(ready[-1] * 1e-9 > LEAST_LATE_S,
                f"profile: gradients that a GPU has late are ready after {ready[-1]} ns")
    return ready[-1] * 1e-9, times.backward * 1e-9


def run_rank(options):
    import torch
    import torch.distributed as dist

    import rackrail
    import rackrail.torch

    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    torch.set_num_threads(1)
    if device.type == "cuda":
        rackrail.init(device="cuda", device_id=0, timeout=60)
    if options.arrays:
        version = check_foreign_arrays(torch, rackrail, device, options.arrays)
        if rackrail.rank() == 0:
            print(json.dumps({"library": options.arrays, "version": version, "ranks": options.ranks,
                              "path": options.path}), flush=True)
        rackrail.shutdown()
        return
    check_arrays(torch, rackrail, device)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # as small as the others: then there are several
    dist.init_process_group("gloo")
    gloo = train(torch, dist, options.steps, device, None)
    state = rackrail.torch.State()
    hook = train(torch, dist, options.steps, device, (state, rackrail.torch.comm_hook))
    compare(gloo, hook, options.codec)
    require(state.is_planned, "buckets were never planned for")
    ready, backward = check_profile(torch, rackrail, device) if dist.get_rank() == 0 else (0, 0)
    dist.barrier()
    buckets = rackrail.describe()
    require(len(buckets) > 1, f"found {len(buckets)} bucket, expected several")
    if dist.get_rank() == 0:
        print(json.dumps({
            "torch": torch.__version__, "device": options.device, "path": options.path,
            "codec": options.codec, "ranks": options.ranks, "steps": options.steps,
            "buckets": len(buckets), "first_loss": hook["losses"][0], "last_loss": hook["losses"][-1],
            "gloo_last_loss": gloo["losses"][-1], "step_s": hook["step_s"],
            "gloo_step_s": gloo["step_s"], "profiled_ready_s": ready, "backward_s": backward}), flush=True)
    rackrail.shutdown()
    dist.destroy_process_group()


def free_ports():
    """The first of two in a row, of those that the system gives to nobody by itself."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
                return port
            except OSError:
                pass


def variables_of(rank, options, port):
    variables = {
        "RANK": rank, "WORLD_SIZE": options.ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": options.ranks,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
        "RACKRAIL_CODECS": options.codec}
    if options.device == "cuda":
        # NCCL's are needed before PyTorch has threads; see python/README.md.
        variables.update({
            "RACKRAIL_SHARE_GPU": 1, "RACKRAIL_GPU_PATH": options.path,
            "NCCL_HOSTID": f"rackrail-rank-{rank}", "NCCL_NET": "Socket", "NCCL_MNNVL_ENABLE": 0,
            "NCCL_SOCKET_IFNAME": "lo",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false"})  # or JAX takes three quarters of the memory
        if options.path == "direct":
            variables["CUDA_MODULE_LOADING"] = "EAGER"  # python/README.md says why
    if options.cluster:
        variables["RACKRAIL_CLUSTER"] = options.cluster
    return {name: str(value) for name, value in variables.items()}


def start_rank(rank, options, port):
    """Its process: a fork of this one, which has no threads."""
    process = os.fork()
    if process != 0:
        return process
    status = 1
    try:
        os.environ.update(variables_of(rank, options, port))
        run_rank(options)
        status = 0
    except Exception as error:  # all that a rank can say before it ends
        print(f"torch_check: rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        sys.stdout.flush()
        os._exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--path", choices=("auto", "nccl", "direct", "staged", "hybrid"), default="staged")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--arrays", choices=("jax", "cupy"))
    options = parser.parse_args()
    if options.steps <= NOT_COUNTED:
        parser.error(f"--steps: found {options.steps}, expected more than {NOT_COUNTED}, which are"
                     " not counted")
    if options.path == "hybrid" and (options.ranks < 4 or options.ranks % 2 != 0):
        parser.error(f"--path hybrid: found {options.ranks} ranks, expected pairs of them, two or more")
    with tempfile.TemporaryDirectory() as folder:
        options.cluster = None
        if options.path == "hybrid":
            options.cluster = os.path.join(folder, "pairs.yaml")
            with open(options.cluster, "w") as file:
                file.write(PAIRS.format(racks=options.ranks // 2))
        return run_ranks(options)


def run_ranks(options):
    port = free_ports()
    left = {start_rank(rank, options, port) for rank in range(options.ranks)}
    is_good = True
    while left:
        process, status = os.wait()
        left.discard(process)
        if status != 0 and is_good:
            is_good = False
            time.sleep(1)  # for the others to say why
            for other in left:
                os.kill(other, signal.SIGKILL)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
