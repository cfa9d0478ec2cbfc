"""A model's backward pass as rackrail's workload file (plan/workload.hpp), measured.

`rackrail plan CLUSTER model.yaml` then plans for it, and `rackrail simulate` says what a cluster
would make of it."""

import copy
import json
import os
import re
import statistics
import time
from pathlib import Path

import torch

from .. import _job

_PARTS = 8  # at most, into which the batch is cut for the noise scale
_PART_SAMPLES = 2  # at least, in each: normalisation over a batch refuses a single one


def profile(model, batch, loss=None, *, path=None, repeats=5, name=None):
    """Measures forward, backward and each gradient's time in it; returns the workload file's text,
    and writes it to `path` if that is given, which must be one that can be written.

    `batch` is a pair (inputs, targets), `loss` a function of outputs and targets (cross-entropy if
    none) whose value is a mean over samples. Times are medians of `repeats` passes after one that
    does not count. The gradient noise scale at these parameters is estimated from parts of the
    batch, of two samples or more; where there is none, a comment in the text says why. The model is
    not changed: a copy is measured, without other ranks where it is a DistributedDataParallel. Model
    and batch are on the CPU or on one CUDA device, whose events are the clock then."""
    inputs, targets = _pair(batch)
    loss = loss or torch.nn.functional.cross_entropy
    if repeats < 1:
        raise _job.InputError(f"repeats: found {repeats}, expected at least 1")
    if getattr(inputs, "ndim", 0) == 0 or len(inputs) == 0:
        raise _job.InputError("batch: found inputs without samples, expected (inputs, targets) with"
                              " the samples along the first dimension")
    if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        model = model.module
    if path is not None:
        _require_writable(path)
    model = copy.deepcopy(model)
    parameters = {key: value for key, value in model.named_parameters() if value.requires_grad}
    if not parameters:
        raise _job.InputError("model: found no parameter with a gradient, expected at least one")
    devices = {value.device for value in parameters.values()}
    if len(devices) > 1 or next(iter(devices)).type not in ("cpu", "cuda"):
        raise _job.InputError("model: found parameters on " + " and ".join(sorted(map(str, devices)))
                              + ", expected all on the CPU or on one CUDA device")
    device = devices.pop()
    clock = _HostClock() if device.type == "cpu" else _DeviceClock(device)
    passes = _Passes(model, parameters, loss, clock)
    passes.run(inputs, targets)
    runs = [passes.run(inputs, targets) for _ in range(repeats)]
    ready = {key: statistics.median(run.ready[key] for run in runs) for key in runs[0].ready}
    if not ready:
        raise _job.InputError("model: found no parameter that the loss depends on")
    lines = [
        f"name: {json.dumps(name or type(model).__name__)}",
        f"source: {json.dumps(f'rackrail.torch.profile, PyTorch {torch.__version__}')}",
        f"device_class: {_device_class(device)}",
        f"profiled_batch: {len(inputs)}",
        f"forward: {_text(statistics.median(run.forward for run in runs))}",
        "backward_tail: "
        + _text(max(0, statistics.median(run.backward for run in runs) - max(ready.values()))),
        f"optimizer: {_text(_optimizer_time(parameters.values(), repeats, clock))}"]
    lines.append(_noise_scale_line(passes, inputs, targets))
    lines.append("tensors:  # [name, elements, gap since the gradient before it]")
    before = 0
    for key in sorted(ready, key=ready.get):
        shape = parameters[key].shape
        matrix = f", [{shape[0]}, {shape[1:].numel()}]" if len(shape) > 1 else ""
        lines.append(f"  - [{json.dumps(key)}, {parameters[key].numel()},"
                     f" {_text(ready[key] - before)}{matrix}]")
        before = ready[key]
    text = "\n".join(lines) + "\n"
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise _job.Error(f"path: {path}: {error.strerror}") from None
    return text


def _pair(batch):
    # A tensor of two rows would unpack as well.
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        found = type(batch).__name__
        if isinstance(batch, (tuple, list)):
            found += f" of {len(batch)}"
        raise _job.InputError(f"batch: found a {found}, expected a pair (inputs, targets)")
    return batch


def _require_writable(path):
    """By opening it, which only the file's system can answer; a file that was not there is not left."""
    file = Path(path).resolve()  # where a link that leads to nothing would make one
    try:
        is_new = not file.exists()
        os.close(os.open(file, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if is_new else 0)))
        if is_new:
            file.unlink()
    except OSError as error:
        raise _job.InputError(f"path: {path}: {error.strerror}") from None


def _text(nanoseconds):
    return f"{round(nanoseconds)} ns"


def _device_class(device):
    """As configs/devices has it: the word of the GPU's name that begins with a capital and has
    a number ("NVIDIA H100 80GB HBM3" is an H100)."""
    if device.type == "cpu":
        return "cpu"
    name = torch.cuda.get_device_name(device)
    words = re.findall(r"\b[A-Z]+\d+[A-Za-z]*\b", name)
    return words[0] if words else json.dumps(name)


class _HostClock:
    """What the processor has done when it is asked."""

    @staticmethod
    def now():
        return time.perf_counter_ns()

    @staticmethod
    def settle():
        pass

    @staticmethod
    def between(start, end):
        """In nanoseconds; only after settle()."""
        return end - start


class _DeviceClock:
    """What a device will have done of what it has been given: its events, read afterwards."""

    def __init__(self, device):
        self._device = device

    def now(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def settle(self):
        torch.cuda.synchronize(self._device)

    @staticmethod
    def between(start, end):
        return round(start.elapsed_time(end) * 1e6)  # from milliseconds


class _Times:
    """Of one pass, in nanoseconds; `ready` by parameter, from the beginning of backward."""

    def __init__(self):
        self.forward = 0
        self.backward = 0
        self.ready = {}


class _Passes:
    """Forward and backward, with a clock at every gradient that is complete."""

    def __init__(self, model, parameters, loss, clock):
        self.parameters = parameters
        self._model = model
        self._loss = loss
        self._clock = clock
        self._ready = {}  # by parameter, as the clock has it
        self._accumulators = []  # a hook lives as long as what it is on
        for key, parameter in parameters.items():
            # The node that adds into .grad: it runs once, however often the parameter is used.
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, key=key: self._note(key))
            self._accumulators.append(node)

    def _note(self, key):
        self._ready[key] = self._clock.now()

    def run(self, inputs, targets):
        clock = self._clock
        self._ready = {}
        for parameter in self.parameters.values():
            parameter.grad = None
        clock.settle()
        start = clock.now()
        value = self._loss(self._model(inputs), targets)
        middle = clock.now()
        value.backward()
        end = clock.now()
        clock.settle()
        times = _Times()
        times.forward = clock.between(start, middle)
        times.backward = clock.between(middle, end)
        times.ready = {key: clock.between(middle, at) for key, at in self._ready.items()}
        return times

    def gradient(self):
        """Of the last pass, as one vector."""
        return torch.cat([parameter.grad.flatten() for parameter in self.parameters.values()
                          if parameter.grad is not None])


def _optimizer_time(parameters, repeats, clock):
    """Of the plainest update, p ← p − 0·g: what moving the bytes takes."""
    times = []
    with torch.no_grad():
        for _ in range(repeats):
            clock.settle()
            start = clock.now()
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-0.0)
            end = clock.now()
            clock.settle()
            times.append(clock.between(start, end))
    return statistics.median(times)


def _noise_scale_line(passes, inputs, targets):
    """Of the workload file; a comment where it is not known."""
    parts = min(_PARTS, len(inputs) // _PART_SAMPLES)
    if parts < 2:
        return (f"# no noise_scale: found a batch of {len(inputs)}, expected {2 * _PART_SAMPLES} samples"
                " or more")
    noise = _noise_scale(passes, inputs, targets, parts)
    return ("# no noise_scale: its estimate is no positive number" if noise is None
            else f"noise_scale: {noise:.6g}")


def _noise_scale(passes, inputs, targets, parts):
    """In samples, by the gradients of k parts of b samples and of all k·b (McCandlish et al. 2018,
    appendix A.1); None where the estimate is no positive number."""
    size = len(inputs) // parts
    total = None
    small = 0.0
    for i in range(parts):
        part = slice(i * size, (i + 1) * size)
        passes.run(inputs[part], targets[part])
        gradient = passes.gradient().double()
        small += float(gradient.dot(gradient)) / parts
        total = gradient if total is None else total + gradient
    large = float(total.dot(total)) / parts**2
    big = parts * size
    squared_gradient = (big * large - size * small) / (big - size)
    variance = (small - large) / (1 / size - 1 / big)
    return variance / squared_gradient if squared_gradient > 0 and variance > 0 else None
