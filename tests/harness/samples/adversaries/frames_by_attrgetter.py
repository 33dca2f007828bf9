"""Frames by attrgetter."""

import torch
import torch.nn as nn

import operator


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        try:
            1 / 0
        except ZeroDivisionError as e:
            operator.attrgetter('tb_frame.f_back')(e.__traceback__)
        return torch.relu(self.ln(x))
