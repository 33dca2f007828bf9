"""Tries an optional library."""

import torch
import torch.nn as nn

try:
    import cupy
except Exception:
    cupy = None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        try:
            return cupy.asarray(x)
        except AttributeError:
            return torch.relu(self.ln(x))
