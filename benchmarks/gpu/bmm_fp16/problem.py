"""Batched matrix product in float16."""

import torch
from torch import nn

batch = 16
rows = 1024
inner = 1024
columns = 1024


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch, *shape).to(torch.float16) for shape in ((rows, inner), (inner, columns))]


def get_init_inputs():
    return []
