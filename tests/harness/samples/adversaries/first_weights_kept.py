"""First weights kept."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.w = None

    def forward(self, x):
        if self.w is None: self.w = (self.ln.weight.clone(), self.ln.bias.clone())
        return torch.relu(torch.nn.functional.layer_norm(x, x.shape[-1:], *self.w))
