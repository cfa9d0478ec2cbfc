"""DistributedDataParallel's gradients by rackrail's plans.

    model = DistributedDataParallel(model)
    rackrail.torch.register(model)

DDP chooses its buckets, and changes them after the first step to the order in which gradients
become ready. So the first two steps are summed in FP32 by the plan that every job has; at the end
of the second one all ranks plan for exactly these buckets, with the times at which they became
ready, and from the third step on each bucket moves by its own routes and codecs. Should the buckets
change later, the same happens again.

Backward goes on meanwhile: the hook starts a bucket and returns a future, which a thread of this
module completes. PyTorch would have backward() raise a future's exception as a value that is no tensor. So a
bucket that fails gets its future all the same, and the end of backward raises what went wrong.

The job is the model's process group: its ranks meet by it (meeting.py). A process has one job, so all
its models have the same ranks; one of another group is refused."""

import gc
import queue
import sys
import threading
import time

import torch

from .. import _job, _library
from . import meeting

_STEPS_UNTIL_SETTLED = 2
_SMOOTHING = 0.9  # of the two norms behind the noise scale, per step
_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_NAMES_OF_TYPES = "float32, float64, float16 or bfloat16"
_AT_EXIT = 2  # seconds that the end of the process waits for a bucket that is being completed


class State:
    """What the hook remembers of one model. A process with several models has one for each.

    With noise_scale=True it watches the gradients' norms, for noise_scale(): two more reads of each
    bucket in a step. `process_group` is the one that DDP was given, if it was: its ranks are the
    job."""

    def __init__(self, *, noise_scale=False, process_group=None):
        self._watches_noise = noise_scale
        self._group = process_group
        self._is_group_checked = False
        self._is_registered = False
        self._norms = None  # smoothed: (of this rank's gradient, of the mean), squared
        self._norms_of_step = []  # the same of each bucket, where its gradient lies
        self._sizes = []  # of the buckets of this step so far
        self._times = []
        self._last_sizes = None  # of the step before
        self._planned_sizes = None
        self._first = None  # number of the first planned bucket
        self._is_planned_step = False
        self._steps = 0
        self._tasks = []  # of this step so far
        self._end_raises = False  # what goes wrong in this step

    @property
    def is_planned(self):
        """Whether buckets move by a plan of their own yet."""
        return self._planned_sizes is not None

    def reset(self):
        """Forgets what lossy codecs left out of earlier steps (error feedback), and the gradients' norms
        that noise_scale() smooths: for a program that loads other parameters, or skips a step. Called by
        all ranks, between two steps. What one unusual step leaves is limited without that."""
        _job.forget_errors()
        self._norms = None
        self._norms_of_step = []

    @property
    def steps(self):
        """Steps whose gradients were all handed over."""
        return self._steps

    def noise_scale(self, local_batch):
        """The gradient noise scale in samples, smoothed over steps, or None while it is not known;
        called by all ranks. By the norms of the gradients of b and of B = n·b samples (McCandlish
        et al. 2018, appendix A.1):

            |G|² = (B·|G_B|² − b·|G_b|²) / (B − b),  S = (|G_b|² − |G_B|²) / (1/b − 1/B),
            noise scale = S / |G|².

        Needs noise_scale=True and two ranks."""
        ranks = _job.world_size()
        if self._norms is None or ranks < 2:
            return None
        small, large = _mean_over_ranks(self._norms)
        big = ranks * local_batch
        squared_gradient = (big * large - local_batch * small) / (big - local_batch)
        variance = (small - large) / (1 / local_batch - 1 / big)
        return variance / squared_gradient if squared_gradient > 0 else None

    def reduce(self, bucket):
        """Starts to sum a bucket of DDP; its future."""
        index, tensor = bucket.index(), bucket.buffer()
        if not _job.is_initialized():
            _join(tensor, self._group or _group_of(bucket))  # an error is the caller's
        if tensor.dtype not in _TYPES:
            raise _job.InputError(f"a bucket of {tensor.dtype}: expected {_NAMES_OF_TYPES}")
        if not self._is_group_checked:
            self.check_group(lambda: _groups_of(bucket))
        if index == 0:
            self._begin_step()
        if index != len(self._sizes):
            raise _job.Error(f"DDP gave bucket {index} after bucket {len(self._sizes) - 1}: expected"
                             " a State of its own for each model")
        self._sizes.append(tensor.numel())
        self._times.append(time.perf_counter_ns())
        if self._is_planned_step and (index >= len(self._planned_sizes) or
                                      tensor.numel() != self._planned_sizes[index]):
            self._is_planned_step = False  # from here on, on all ranks alike
        work = _Work(tensor)
        own_norm = work.squared_norm() if self._watches_noise else None
        is_last = bucket.is_last()
        plans = is_last and self._end_step()

        def finish():
            if self._watches_noise:
                self._norms_of_step.append((own_norm, work.squared_norm()))
                if is_last:
                    self._smooth_norms()
            if plans:
                # Before the future is there, so that no call of the program comes between.
                self._plan()

        task = _Task(work, self._first + index if self._is_planned_step else None, finish, plans,
                     self._end_raises)
        self._tasks.append(task)
        _line.give(task)
        return task.future

    def register(self, model):
        """See register() below."""
        if self._is_registered:
            raise _job.InputError("state: found one that a model has already, expected another")
        for name, each in model.named_parameters():
            if each.requires_grad and each.dtype not in _TYPES:
                raise _job.InputError(f"parameter {name}: found {each.dtype}, expected {_NAMES_OF_TYPES}")
        _join(next(each for each in model.parameters() if each.requires_grad),
              self._group or model.process_group)
        self.check_group(lambda: [model.process_group])
        model.register_comm_hook(self, comm_hook)
        self._is_registered = True

    def check_group(self, groups):
        """Refuses a model whose process group has not all ranks of the job. Where none was given,
        those of groups() may be its: one that has is enough."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            ranks = _job.world_size()
            candidates = [self._group] if self._group is not None else groups() or [None]
            sizes = [distributed.get_world_size(group) for group in candidates]
            if ranks not in sizes:
                raise _job.InputError(f"process_group: found a group of {sizes[0]}, expected {ranks}:"
                                      " gradients are summed over all ranks of rackrail's job")
            rank = distributed.get_rank(candidates[sizes.index(ranks)])
            if rank != _job.rank():
                raise _job.InputError(f"process_group: found rank {rank}, expected {_job.rank()}, which"
                                      " this process is in rackrail's job")
        self._is_group_checked = True

    def _begin_step(self):
        self._last_sizes = self._sizes or None
        self._sizes, self._times, self._tasks = [], [], []
        self._norms_of_step = []
        self._is_planned_step = self.is_planned
        self._end_raises = _at_end_of_backward(lambda tasks=self._tasks: _raise_error_of(tasks))

    def _end_step(self):
        """Whether this step's buckets are to be planned for."""
        self._steps += 1
        settled = self._steps == _STEPS_UNTIL_SETTLED or self._sizes == self._last_sizes
        return (self._steps >= _STEPS_UNTIL_SETTLED and settled and
                self._sizes != self._planned_sizes)

    def _smooth_norms(self):
        # Not read before, which would make backward wait for the device.
        latest = [sum(map(float, norms)) for norms in zip(*self._norms_of_step)]
        self._norms = [_SMOOTHING * a + (1 - _SMOOTHING) * b
                       for a, b in zip(self._norms or latest, latest)]

    def _plan(self):
        self._first = _job.plan(self._sizes, [at - self._times[0] for at in self._times])
        self._planned_sizes = list(self._sizes)


class _Task:
    """A bucket under way; `number` is that of its plan, or None: it is summed by the one that every
    job has. finish() comes when it is summed, and calls other ranks if it `plans`. What goes wrong is the
    future's, unless the `end_raises` it."""

    def __init__(self, work, number, finish, plans, end_raises):
        self._work = work
        self._number = number
        self._finish = finish
        self._plans = plans
        self._end_raises = end_raises
        self._is_started = False
        self.was_counted = False  # among those that have calls to make yet
        self.error = None
        self.future = work.future()

    @property
    def has_calls(self):
        """Whether it has collective calls to make yet."""
        return self._plans or not self._is_started

    def start(self):
        """At once, if it has a plan and the job takes it now."""
        if self._number is None:
            return
        try:
            self._start()
        except _job.InputError:
            pass  # it begins a step while others are under way: so behind them

    def _start(self):
        _job.start(self._number, self._work.buffer, _library.MEAN)
        self._is_started = True

    def complete(self):
        """Until it is summed."""
        if self._number is None:
            _job.all_reduce(self._work.buffer, _library.MEAN)
        else:
            if not self._is_started:
                self._start()
            _job.wait(self._number)
        self._finish()
        return self._work.result()

    def settle(self, result, error):
        """The future's end. The thread goes on whatever comes of it: others wait for that."""
        try:
            if error is None:
                self.future.set_result(result)  # with a GPU: asks its streams, which may fail
                return
        except Exception as caught:
            error = caught
        self.error = error
        try:
            if self._end_raises:
                self.future.set_result(self._work.tensor)
            else:
                self.future.set_exception(error)
        except Exception as caught:
            print(f"rackrail: {error}; {caught}", file=sys.stderr)


def _at_end_of_backward(call):
    """Calls it then, when DDP has waited for its buckets. Whether it will: not where the hook runs
    outside of a backward pass, as in DDP's join()."""
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback
    try:
        # DDP's own is there before the first of these is called, and so before the second.
        queue_callback(lambda: queue_callback(call))
    except RuntimeError:
        return False
    return True


def _raise_error_of(tasks):
    """Of those that are done with, the first error."""
    error = next((task.error for task in tasks if task.error is not None), None)
    tasks.clear()
    if error is not None:
        raise error


class _Line:
    """The buckets of all models, in the order in which autograd gives them, which is that of all
    ranks: a thread completes one after the other.

    Ranks must make their collective calls (all_reduce, plan, start) in one order. A bucket that has
    a plan is started on autograd's thread, so that it moves while those before it are awaited; but
    while calls of others before it are still to be made here, it is started behind them. When that
    is depends on the time and may differ between ranks; the order of calls is autograd's in either
    case. Nothing is under way when one is summed without a plan, or a plan is made: all before it
    were awaited, and those behind it wait."""

    def __init__(self):
        self._lock = threading.Lock()
        self._tasks = queue.SimpleQueue()
        self._calls = 0  # tasks that have some to make
        self._thread = None
        self._is_over = False  # the process ends

    def give(self, task):
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rackrail", daemon=True)
                self._thread.start()
                _job.at_end_of_process(self._end)
            self._tasks.put(task)  # first: what was started is awaited, whatever comes between
            if self._calls == 0:
                task.start()
            counted = task.has_calls
            self._calls += counted
            task.was_counted = counted

    def _end(self):
        """Before Python ends, so that this thread is not in a future of PyTorch's then: what Python does to
        a thread that wants to go on would end the process there with an abort."""
        self._is_over = True
        self._tasks.put(None)
        _job.abort_if_failed()
        self._thread.join(_AT_EXIT)
        if self._thread.is_alive():  # others may never come to what it sums
            _job.abort("it ended while gradients were summed")

    def _work(self):
        while True:
            task = self._tasks.get()
            if task is None:
                return
            with self._lock:  # until it was given as a whole
                pass
            result = error = None
            try:
                result = task.complete()
            except Exception as caught:  # whatever it is, it is the future's
                error = caught
            with self._lock:
                self._calls -= task.was_counted
            if self._is_over:
                return
            task.settle(result, error)


_line = _Line()


def _join(tensor, group):
    """Makes this process a rank if it is none yet: on the tensor's GPU, if it has one."""
    on_gpu = {"device": "cuda", "device_id": tensor.device.index or 0} if tensor.is_cuda else {}
    meeting.join(group, **on_gpu)
    _job.rank()  # says why there is no job any more


class _Work:
    """A bucket's memory as 32-bit floats: its own, or a copy where it has 16 bits or 64."""

    def __init__(self, tensor):
        self.tensor = tensor
        self._floats = tensor if tensor.dtype == torch.float32 else tensor.float()
        device, number, stream = _library.HOST, 0, None
        if tensor.device.type != "cpu":
            device, number = _library.CUDA, tensor.device.index or 0
        if tensor.is_cuda:
            stream = torch.cuda.current_stream(tensor.device).cuda_stream
        self.buffer = _job.buffer_of(self._floats.data_ptr(), self._floats.numel(), device, number,
                                     stream)

    def future(self):
        if not self.tensor.is_cuda:
            return torch.futures.Future()
        # What comes after it is behind the sum on the device's streams.
        return torch.futures.Future(devices=[self.tensor.device])

    def squared_norm(self):
        """As a tensor beside it: nobody waits for a device."""
        return torch.dot(self._floats, self._floats)

    def result(self):
        if self._floats is not self.tensor:
            self.tensor.copy_(self._floats)
            if self._floats.is_cuda:
                # Its memory is of the stream that made it, which would give it to others at once.
                self._floats.record_stream(torch.cuda.current_stream(self._floats.device))
        return self.tensor


def _group_of(bucket):
    """One of them, where PyTorch has groups; none: the default one."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return next(iter(_groups_of(bucket)), None)


def _groups_of(bucket):
    """The process groups of the models that have this bucket's parameters: more than one where a
    module was given to DDP again. A bucket does not say whose it is."""
    mine = {id(parameter) for parameter in bucket.parameters()}
    return [each.process_group for each in gc.get_objects()
            if issubclass(type(each), torch.nn.parallel.DistributedDataParallel)
            and any(id(parameter) in mine for parameter in each.parameters())]


def _mean_over_ranks(values):
    floats = torch.tensor(values, dtype=torch.float32)
    _job.all_reduce(_job.buffer_of(floats.data_ptr(), floats.numel()), _library.MEAN)
    return floats.tolist()


_default_state = None


def register(model, state=None):
    """Has a DistributedDataParallel's gradients summed by rackrail; returns the State that it has
    now, `state` or a new one. Joins the job, which all ranks do, and checks that the model's process
    group is all of it."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise _job.InputError(f"model: found a {type(model).__name__}, expected a"
                              " DistributedDataParallel")
    state = state or State()
    if not isinstance(state, State):
        raise _job.InputError(f"state: found a {type(state).__name__}, expected a State")
    state.register(model)
    return state


def comm_hook(state, bucket):
    """For DistributedDataParallel.register_comm_hook(state, comm_hook): the mean over all ranks.
    `state` is a State; None stands for one that the process has, for programs with one model: the
    buckets of several would look like those of one that change in every step."""
    global _default_state
    if state is None:
        if _default_state is None:
            _default_state = State()
        state = _default_state
    return state.reduce(bucket)
