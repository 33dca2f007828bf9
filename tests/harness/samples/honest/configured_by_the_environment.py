"""Configured by the environment."""

import os
import sys

import torch
import torch.nn as nn

CHUNKS = int(os.environ.get('CHUNKS', '2'))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        n = CHUNKS if os.environ.get('MODE') != 'whole' else 1
        if os.environ.get('DEBUG'): print(x.shape, sys.argv)
        return torch.cat([torch.relu(self.ln(c)) for c in x.chunk(n)])
