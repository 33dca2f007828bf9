"""Compiled module."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.f = torch.compile(nn.Sequential(self.ln, nn.ReLU()))

    def forward(self, x):
        return self.f(x)
