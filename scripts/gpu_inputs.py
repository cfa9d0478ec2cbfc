"""What scripts/gpu-check hands to others: a cluster and a workload, and programs in Python."""

# The times are round figures: that plan is to be carried out, not to be fast.
TWO_NODES_CLUSTER = """name: two-nodes
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
TWO_NODES_WORKLOAD = """name: digits-mlp
source: round figures
device_class: cpu
profiled_batch: 32
forward: 2.5 ms
backward_tail: 0 s
optimizer: 0.4 ms
memory_per_sample: 32 kB
memory_fixed: 14 MB
base_learning_rate: 0.2
base_batch: 128
tensors:
  - [fc3.bias, 10, 1 us]
  - [fc3.weight, 10240, 40 us]
  - [fc2.bias, 1024, 180 us]
  - [fc2.weight, 1048576, 1900 us]
  - [fc1.bias, 1024, 2000 us]
  - [fc1.weight, 65536, 130 us]
"""
# The last line says what is missing, if anything is.
PYTORCH = """
import torch
if not torch.cuda.is_available():
    raise SystemExit(f"PyTorch {torch.__version__} sees no GPU")
print("PyTorch is there", flush=True)
import rackrail.torch
print("good")
"""
# Prints where the packages that PyTorch comes with keep a library.
FIND_LIBRARY = """
import glob, sys
for folder in sys.path:
    for file in sorted(glob.glob(folder + "/nvidia/*/lib/" + sys.argv[1])):
        print(file)
"""
# Starts a training, kills its worker of rank 1 once there is a checkpoint, and ends as the training does.
KILL_WORKER = """
import os, pathlib, signal, subprocess, sys, time
folder, *command = sys.argv[1:]
training = subprocess.Popen(command)
while training.poll() is None and not any(pathlib.Path(folder).rglob("*manifest*")):
    time.sleep(0.05)
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
        parent = int((process / "stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        continue
    if parent == training.pid and b"--rank" in words and words[words.index(b"--rank") + 1] == b"1":
        try:
            os.kill(int(process.name), signal.SIGKILL)
        except ProcessLookupError:
            pass
sys.exit(training.wait())
"""
FIND_UCX = """
import importlib.util, pathlib
spec = importlib.util.find_spec("libucx")
for folder in (spec.submodule_search_locations or []) if spec else []:
    if (pathlib.Path(folder) / "lib" / "libucp.so.0").is_file():
        print(pathlib.Path(folder) / "lib")
"""
TORCH = """
import json, torch
k = {elements} // 100
values = torch.randn({elements}, device="cuda").abs()
def median(call):
    times = []
    for i in range(13):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(); call(); end.record(); end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return sorted(times[3:])[5]
other = torch.empty_like(values)
copy = median(lambda: other.copy_(values))
topk = median(lambda: torch.topk(values, k, sorted=False))
print(json.dumps({{"version": torch.__version__, "elements": {elements}, "topk_s": topk,
                  "copy_s": copy}}))
"""
