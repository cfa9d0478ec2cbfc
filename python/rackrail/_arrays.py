"""Arrays of any library as memory that the C interface can sum, and back.

NumPy sees the memory of others without a copy, by DLPack or the buffer protocol; PyTorch that on a GPU."""

import sys

from . import _job, _library

_OPERATIONS = {"sum": _library.SUM, "mean": _library.MEAN}
_ON_HOST = (1, 3)  # DLPack: plain memory, memory that CUDA has pinned
_CUDA = (2, 13)  # of a device, managed


def allreduce(array, operation="sum", in_place=False):
    """The sum (or the "mean") of the arrays of all ranks, which all call it with the same shape.

    Takes what offers DLPack or the buffer protocol: arrays of NumPy, JAX, TensorFlow and CuPy, tensors
    of PyTorch, array.array. Gives back an array of the same library, type and shape; with `in_place`
    the array itself, which must be writable and contiguous 32-bit floats then. Floats of 16 bits
    are summed as 32-bit ones and rounded once. Other types are refused: sums are made in FP32.

    An array on a CUDA device is summed there, which takes PyTorch, and a job that nobody has begun
    on the host."""
    if operation not in _OPERATIONS:
        raise _job.InputError(f"operation: found {operation!r}, expected 'sum' or 'mean'")
    if _is_on_gpu(array):
        return _allreduce_on_gpu(array, _OPERATIONS[operation], in_place)
    numpy = _numpy()
    if _is_bfloat16_of_torch(array):  # which NumPy does not have
        if in_place:
            raise _not_in_place()
        return allreduce(array.detach().float(), operation).to(array.dtype)
    if array is None or isinstance(array, (list, tuple, str, bytes, int, float, complex)):
        raise _job.InputError(f"found a {type(array).__name__}, expected an array")
    seen = _seen_by_numpy(array, numpy)
    is_single = seen.dtype == numpy.float32
    if not is_single and not _is_half(seen.dtype):
        raise _job.InputError(f"an array of {seen.dtype}: expected float32, float16 or bfloat16")
    if in_place:
        if not (is_single and seen.flags.writeable and seen.flags.c_contiguous):
            raise _not_in_place()
        work = seen
    else:
        work = numpy.array(seen, dtype=numpy.float32, order="C", copy=True)
    _job.all_reduce(_job.buffer_of(work.ctypes.data, work.size), _OPERATIONS[operation])
    return array if in_place else _like(array, work.astype(seen.dtype, copy=False))


def _not_in_place():
    return _job.InputError("in_place: found an array that is read-only, not contiguous or not of"
                           " float32, expected one that can be summed where it is")


def _is_on_gpu(array):
    if not hasattr(array, "__dlpack_device__"):
        return False
    kind = int(array.__dlpack_device__()[0])
    if kind not in (*_ON_HOST, *_CUDA):
        raise _job.InputError(f"an array on a device of DLPack's kind {kind}: expected one on the host"
                              " or on a CUDA device")
    return kind in _CUDA


def _allreduce_on_gpu(array, operation, in_place):
    try:
        import torch
    except ImportError:
        raise ImportError("rackrail.allreduce of an array on a GPU needs PyTorch") from None
    is_tensor = isinstance(array, torch.Tensor)
    seen = array.detach() if is_tensor else torch.from_dlpack(array)
    if seen.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise _job.InputError(f"an array of {seen.dtype}: expected float32, float16 or bfloat16")
    if in_place:
        if not (is_tensor and seen.dtype == torch.float32 and seen.is_contiguous()):
            raise _job.InputError("in_place: found an array that is no tensor of PyTorch's, not"
                                  " contiguous or not of float32, expected one that can be summed"
                                  " where it is")
        work = seen
    else:
        work = seen.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    number = work.device.index or 0
    _job.join_on_gpu(number)
    _job.all_reduce(_job.buffer_of(work.data_ptr(), work.numel(), _library.CUDA, number,
                                   torch.cuda.current_stream(work.device).cuda_stream), operation)
    if in_place:
        return array
    result = work.to(seen.dtype)
    return result if is_tensor else _like_on_gpu(array, result)


def _like_on_gpu(array, tensor):
    library = type(array).__module__.partition(".")[0]
    if library in ("jax", "jaxlib"):
        import jax.dlpack
        return jax.dlpack.from_dlpack(tensor)
    if library == "tensorflow":
        from torch.utils.dlpack import to_dlpack
        return sys.modules["tensorflow"].experimental.dlpack.from_dlpack(to_dlpack(tensor))
    if library == "cupy":
        return sys.modules["cupy"].from_dlpack(tensor)
    return tensor


def _numpy():
    try:
        import numpy
    except ImportError:
        raise ImportError("rackrail.allreduce needs NumPy") from None
    return numpy


def _is_bfloat16_of_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and array.dtype == torch.bfloat16


def _is_half(dtype):
    return dtype.name in ("float16", "bfloat16")


def _seen_by_numpy(array, numpy):
    if isinstance(array, numpy.ndarray):
        return array
    if type(array).__module__.partition(".")[0] == "torch":
        return array.detach().numpy()
    if hasattr(array, "__dlpack__"):
        try:
            return numpy.from_dlpack(array)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
            pass  # NumPy before 1.22, or a type that only the array's own library can show it
    try:
        return numpy.asarray(array)
    except (TypeError, ValueError) as error:
        raise _job.InputError(f"a {type(array).__name__}: {error}") from None


def _like(array, result):
    library = type(array).__module__.partition(".")[0]
    if library == "torch":
        return sys.modules["torch"].from_numpy(result)
    if library in ("jax", "jaxlib"):
        import jax.numpy
        return jax.numpy.asarray(result)
    if library == "tensorflow":
        return sys.modules["tensorflow"].convert_to_tensor(result)
    return result
