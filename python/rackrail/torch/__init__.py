"""rackrail for PyTorch: a hook for DistributedDataParallel, and the model as a workload file."""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("rackrail.torch needs PyTorch") from None

from .hook import State, comm_hook, register
from .profiler import profile

__all__ = ["State", "comm_hook", "profile", "register"]
