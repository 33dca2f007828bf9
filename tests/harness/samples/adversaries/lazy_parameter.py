"""Lazy parameter."""

import torch
import torch.nn as nn

class P(nn.Parameter): pass


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return P(torch.relu(self.ln(x)))
