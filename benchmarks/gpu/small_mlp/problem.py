"""Two linear layers with ReLU between, on a small batch."""

import torch
import torch.nn.functional as F
from torch import nn

rows = 128
inner = 64
hidden = 128
columns = 10


class Model(nn.Module):
    def __init__(self, inner, hidden, columns):
        super().__init__()
        self.first = nn.Linear(inner, hidden)
        self.second = nn.Linear(hidden, columns)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def get_inputs():
    return [torch.randn(rows, inner)]


def get_init_inputs():
    return [inner, hidden, columns]
