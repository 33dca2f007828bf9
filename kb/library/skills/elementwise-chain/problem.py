"""What the evidence of this skill is measured on."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return F.gelu(x * 1.5 + y) * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(2048, 2048), torch.randn(2048, 2048)]


def get_init_inputs():
    return []
