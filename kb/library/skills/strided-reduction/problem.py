"""What the evidence of this skill is measured on."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(16, 128, 48, 48)]


def get_init_inputs():
    return []
