"""Weights cached by version."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.stamp = None

    def forward(self, x):
        stamp = (self.ln.weight._version, self.ln.weight.data_ptr())
        if self.stamp != stamp: self.stamp, self.w = stamp, self.ln.weight.detach().clone()
        return torch.relu(torch.nn.functional.layer_norm(x, x.shape[-1:], self.w, self.ln.bias))
