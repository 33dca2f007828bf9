"""Frames of a generator."""

import torch
import torch.nn as nn

def g(): yield
f = g().gi_frame


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.relu(self.ln(x))
