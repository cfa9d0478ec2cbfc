"""DistributedDataParallel's gradients by rackrail's plans.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, rackrail.torch.comm_hook)

DDP chooses its buckets, and changes them after the first step to the order in which gradients
become ready. So the first two steps are summed in FP32 by the plan that every job has; at the end
of the second one all ranks plan for exactly these buckets, with the times at which they became
ready, and from the third step on each bucket moves by its own routes and codecs. Should the buckets
change later, the same happens again.

Backward goes on meanwhile: the hook starts a bucket and returns a future, which a thread of this
module completes. What goes wrong becomes the future's exception, so backward() raises it."""

import queue
import threading
import time

import torch

from .. import _job, _library

_STEPS_UNTIL_SETTLED = 2
_SMOOTHING = 0.9  # of the two norms behind the noise scale, per step


class State:
    """What the hook remembers of one model. A process with several models has one for each.

    With noise_scale=True it watches the gradients' norms, for noise_scale(): two more reads of each
    bucket in a step."""

    def __init__(self, *, noise_scale=False):
        self._watches_noise = noise_scale
        self._norms = None  # smoothed: (of this rank's gradient, of the mean), squared
        self._norms_of_step = []  # the same of each bucket, where its gradient lies
        self._sizes = []  # of the buckets of this step so far
        self._times = []
        self._last_sizes = None  # of the step before
        self._planned_sizes = None
        self._first = None  # number of the first planned bucket
        self._is_planned_step = False
        self._steps = 0
        self._tasks = queue.SimpleQueue()
        self._thread = None

    @property
    def is_planned(self):
        """Whether buckets move by a plan of their own yet."""
        return self._planned_sizes is not None

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
        _join(tensor)  # an error is the caller's
        if index == 0:
            self._begin_step()
        if index != len(self._sizes):
            raise _job.Error(f"DDP gave bucket {index} after bucket {len(self._sizes) - 1}")
        self._sizes.append(tensor.numel())
        self._times.append(time.perf_counter_ns())
        if self._is_planned_step and (index >= len(self._planned_sizes) or
                                      tensor.numel() != self._planned_sizes[index]):
            self._is_planned_step = False  # from here on, on all ranks alike
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="rackrail", daemon=True)
            self._thread.start()
        # With a GPU's tensor, what comes after the future is behind the sum on its streams.
        future = (torch.futures.Future(devices=[tensor.device]) if tensor.is_cuda
                  else torch.futures.Future())
        work = _Work(tensor)
        own_norm = work.squared_norm() if self._watches_noise else None
        planned = None
        if self._is_planned_step:
            planned = self._first + index
            _job.start(planned, work.buffer, _library.MEAN)
        self._tasks.put((future, work, own_norm, planned, bucket.is_last()))
        return future

    def _begin_step(self):
        self._last_sizes = self._sizes or None
        self._sizes, self._times = [], []
        self._norms_of_step = []
        self._is_planned_step = self.is_planned

    def _work(self):
        while True:
            future, work, own_norm, planned, is_last = self._tasks.get()
            try:
                if planned is None:
                    _job.all_reduce(work.buffer, _library.MEAN)
                else:
                    _job.wait(planned)
                if self._watches_noise:
                    self._norms_of_step.append((own_norm, work.squared_norm()))
                if is_last:
                    # Before the future is there, so that no call of the program comes between.
                    self._end_step()
                future.set_result(work.result())
            except Exception as error:  # whatever it is, it is the future's
                future.set_exception(error)

    def _end_step(self):
        self._steps += 1
        if self._watches_noise:
            # Not read before, which would make backward wait for the device.
            latest = [sum(map(float, norms)) for norms in zip(*self._norms_of_step)]
            self._norms = [_SMOOTHING * a + (1 - _SMOOTHING) * b
                           for a, b in zip(self._norms or latest, latest)]
        settled = self._steps == _STEPS_UNTIL_SETTLED or self._sizes == self._last_sizes
        if (self._steps >= _STEPS_UNTIL_SETTLED and settled and
                self._sizes != self._planned_sizes):
            self._first = _job.plan(self._sizes, [at - self._times[0] for at in self._times])
            self._planned_sizes = list(self._sizes)


def _join(tensor):
    """Makes this process a rank if it is none yet: on the tensor's GPU, if it has one."""
    if tensor.is_cuda:
        _job.join_on_gpu(tensor.device.index or 0)
    _job.rank()


class _Work:
    """A bucket's memory as 32-bit floats: its own, or a copy where it has 16 bits."""

    def __init__(self, tensor):
        self._tensor = tensor
        self._floats = tensor if tensor.dtype == torch.float32 else tensor.float()
        device, number, stream = _library.HOST, 0, None
        if tensor.device.type != "cpu":
            device, number = _library.CUDA, tensor.device.index or 0
        if tensor.is_cuda:
            stream = torch.cuda.current_stream(tensor.device).cuda_stream
        self.buffer = _job.buffer_of(self._floats.data_ptr(), self._floats.numel(), device, number,
                                     stream)

    def squared_norm(self):
        """As a tensor beside it: nobody waits for a device."""
        return torch.dot(self._floats, self._floats)

    def result(self):
        if self._floats is not self._tensor:
            self._tensor.copy_(self._floats)
            if self._floats.is_cuda:
                # Its memory is of the stream that made it, which would give it to others at once.
                self._floats.record_stream(torch.cuda.current_stream(self._floats.device))
        return self._tensor


def _mean_over_ranks(values):
    floats = torch.tensor(values, dtype=torch.float32)
    _job.all_reduce(_job.buffer_of(floats.data_ptr(), floats.numel()), _library.MEAN)
    return floats.tolist()


_default_state = None


def comm_hook(state, bucket):
    """For DistributedDataParallel.register_comm_hook(state, comm_hook): the mean over all ranks.
    `state` is a State; None stands for one that the process has, for programs with one model."""
    global _default_state
    if state is None:
        if _default_state is None:
            _default_state = State()
        state = _default_state
    return state.reduce(bucket)
