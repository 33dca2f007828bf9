"""Numpy."""

import torch
import torch.nn as nn

import numpy as np


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.from_numpy(np.maximum(self.ln(x).numpy(), 0))
