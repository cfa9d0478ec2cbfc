"""Trains the example's model twice with the same data and start: by DDP with Gloo, and by DDP with
rackrail's hook. Rank 0 prints what became of both as JSON.

    ddp_program.py MODEL STEPS EVALUATED      accuracy is a mean over the last EVALUATED evaluations
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import rackrail
import rackrail.torch

sys.path.insert(0, str(Path(os.environ["RACKRAIL_SOURCE_DIR"]) / "python/examples"))
import digits_torch  # noqa: E402

LOCAL_BATCH = 32
EVALUATE_EVERY = 5


def make_model(name):
    """An example's, or "wide": three layers, whose matrices are a bucket each, of 64 Ki elements or more."""
    if name != "wide":
        return digits_torch.make_model(name)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1024, bias=False), nn.ReLU(),
                         nn.Linear(1024, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 64, bias=False))


def train(name, steps, evaluated, state):
    torch.manual_seed(1)
    model = DistributedDataParallel(make_model(name), bucket_cap_mb=0.15)
    if state is not None:
        model.register_comm_hook(state, rackrail.torch.comm_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    (images, labels), (test_images, test_labels) = digits_torch.load_digits()
    generator = torch.Generator().manual_seed(dist.get_rank() + 7)
    losses, accuracies, same = [], [], True
    for step in range(steps):
        batch = torch.randint(len(images), (LOCAL_BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
        if step >= steps - evaluated * EVALUATE_EVERY and step % EVALUATE_EVERY == 0:
            guesses = model(test_images).argmax(dim=1)
            accuracies.append(float((guesses == test_labels).float().mean()))
        if step % 20 == 0:
            same = same and ranks_agree(model)
    return {"losses": losses, "accuracy": sum(accuracies) / max(1, len(accuracies)), "same": same}


def ranks_agree(model):
    """Whether all ranks hold the same bits."""
    own = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    of_rank_0 = own.clone()
    dist.broadcast(of_rank_0, 0)
    agree = torch.tensor([float(torch.equal(own, of_rank_0))])
    dist.all_reduce(agree, op=dist.ReduceOp.MIN)
    return bool(agree[0])


def main():
    name, steps, evaluated = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # as small as the others: then there are several
    dist.init_process_group("gloo")
    gloo = train(name, steps, evaluated, None)
    state = rackrail.torch.State(noise_scale=True)
    hook = train(name, steps, evaluated, state)
    result = {"gloo": gloo, "hook": hook, "steps": state.steps, "planned": state.is_planned,
              "noise_scale": state.noise_scale(LOCAL_BATCH), "buckets": rackrail.describe()}
    if dist.get_rank() == 0:
        print(json.dumps(result))
    rackrail.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
