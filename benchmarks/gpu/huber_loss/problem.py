"""Mean Huber loss of two long vectors."""

import torch
import torch.nn.functional as F
from torch import nn

elements = 32_000_000


class Model(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, prediction, target):
        return F.huber_loss(prediction, target, delta=self.delta)


def get_inputs():
    return [torch.randn(elements), torch.randn(elements)]


def get_init_inputs():
    return [0.7]
