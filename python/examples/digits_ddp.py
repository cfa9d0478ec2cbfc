"""Handwritten digits by a small convolutional net or a small transformer, data parallel:

    torchrun --nproc_per_node=2 python/examples/digits_ddp.py --model transformer

An ordinary script for DistributedDataParallel but for the two lines marked "rackrail".
RACKRAIL_CODECS=int8 compresses gradients, RACKRAIL_CLUSTER says what the network looks like."""
import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
import rackrail.torch  # rackrail

DIGITS = Path(__file__).resolve().parent.joinpath("../../configs/data/digits.csv").resolve()


class Transformer(nn.Module):
    """The eight rows of an image are the words of a sentence."""
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(torch.zeros(8, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.encoder(self.embed(images[:, 0]) + self.place).mean(dim=1))


def make_model(name):
    return Transformer() if name == "transformer" else nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10))


def load_digits(file=DIGITS):
    """(training images, labels), (test images, labels): every fifth image is for testing."""
    rows = torch.tensor([[float(x) for x in line.split(",")] for line in file.open()])
    images, labels = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()
    test = torch.arange(len(rows)) % 5 == 0
    return (images[~test], labels[~test]), (images[test], labels[test])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--digits", type=Path, default=DIGITS, metavar="FILE",
                        help="configs/data/digits.csv of rackrail's source tree")
    arguments = parser.parse_args()
    if not arguments.digits.is_file():
        parser.error(f"found no file {arguments.digits}, expected the digits of rackrail's source tree:"
                     " say --digits RACKRAIL/configs/data/digits.csv")
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
