"""What the evidence of this skill is measured on."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(8, 64, 112, 112)]


def get_init_inputs():
    return []
