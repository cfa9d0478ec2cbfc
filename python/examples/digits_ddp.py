"""Handwritten digits by a small convolutional net or a small transformer, data parallel:

    torchrun --nproc_per_node=2 python/examples/digits_ddp.py --model transformer

An ordinary script for DistributedDataParallel but for the two lines marked "rackrail".
RACKRAIL_CODECS=int8 compresses gradients, RACKRAIL_CLUSTER says what the network looks like."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
import rackrail.torch  # rackrail
import digits
from digits_torch import load_digits, make_model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn")
    parser.add_argument("--epochs", type=int, default=5)
    digits.add_argument(parser)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(make_model(arguments.model))
    rackrail.torch.register(model)  # rackrail
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    (images, labels), (test_images, test_labels) = load_digits(arguments.digits)
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        per_rank = len(order) // dist.get_world_size()
        mine = order[dist.get_rank() * per_rank:][:per_rank]
        for batch in mine.split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        accuracy = (model(test_images).argmax(dim=1) == test_labels).float().mean()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
