"""A small network in PyTorch with the losses of elements, to compare ours with.

    python3 torch_losses.py OUT

OUT is a folder. model.pt2 is the network before the first step, x.npy and y.npy are samples and targets from 0 to 1, as numpy.save writes
them. losses.json has the losses of three steps of gradient descent on the first eight samples, for each loss from the same weights.
"""
import copy
import json
import pathlib
import sys

import numpy as np
import torch
from torch import nn

from torch_export import export

LOSSES = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "bce": nn.BCEWithLogitsLoss()}
STEPS, RATE, BATCH = 3, 0.2, 8


class Network(nn.Module):
    """A convolution and two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(2, 4, 3, 1, 1), nn.Linear(64, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(torch.flatten(torch.relu(self.conv(x)), 1))))


def descend(model, criterion, x, y):
    """Returns the losses before each step."""
    losses = []
    for _ in range(STEPS):
        model.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
    return losses


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    model, x, y = Network().train(), torch.randn(BATCH + 2, 2, 4, 4), torch.rand(BATCH + 2, 3)
    y[:, 1] = (y[:, 1] > 0.5).float()
    np.save(out / "x.npy", x.numpy())
    np.save(out / "y.npy", y.numpy())
    export(copy.deepcopy(model), x[:BATCH], out, "pt2", True)
    losses = {name: descend(copy.deepcopy(model), c, x[:BATCH], y[:BATCH]) for name, c in LOSSES.items()}
    (out / "losses.json").write_text(json.dumps({"torch": torch.__version__, "rate": RATE, "batch": BATCH, "losses": losses}) + "\n")


if __name__ == "__main__":
    main()
