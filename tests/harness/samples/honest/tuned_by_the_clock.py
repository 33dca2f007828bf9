"""Tuned by the clock."""

import time

import torch
import torch.nn as nn

import time


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.best = None
        self.run = lambda x, n: torch.cat([torch.relu(self.ln(c)) for c in x.chunk(n)])

    def forward(self, x):
        if self.best is None:
            took = []
            for n in (1, 2):
                t = time.perf_counter()
                self.run(x, n)
                took.append((time.perf_counter() - t, n))
            self.best = min(took)[1]
        return self.run(x, self.best)
