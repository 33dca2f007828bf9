"""Thread pool."""

import torch
import torch.nn as nn

from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.cat(list(pool.map(lambda c: torch.relu(self.ln(c)), x.chunk(2))))
