"""Mean over the middle dimension: pooling over the positions of a sequence."""

import torch
from torch import nn

batch = 128
positions = 512
features = 512


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


def get_inputs():
    return [torch.randn(batch, positions, features)]


def get_init_inputs():
    return []
