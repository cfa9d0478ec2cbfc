"""The digits as tensors of PyTorch, and two models that learn them."""
import torch
from torch import nn

from digits import DIGITS


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
