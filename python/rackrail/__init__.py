"""rackrail: gradients summed by plans that know the network.

    import rackrail
    mean = rackrail.allreduce(array, "mean")       # NumPy, JAX, TensorFlow, PyTorch

    import rackrail.torch                          # DistributedDataParallel
    rackrail.torch.register(model)

All processes of a job call the same functions in the same order. See python/README.md."""

from ._arrays import allreduce
from ._job import (Error, InputError, PeerLost, abort, describe, init, is_initialized, rank,
                   shutdown, world_size)
from ._library import VERSION as __version__

__all__ = ["Error", "InputError", "PeerLost", "abort", "allreduce", "describe", "init",
           "is_initialized", "rank", "shutdown", "world_size", "__version__"]
