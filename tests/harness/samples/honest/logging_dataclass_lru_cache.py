"""Logging, dataclass, lru_cache."""

import torch
import torch.nn as nn

import logging, dataclasses, functools, inspect, warnings
log = logging.getLogger('kernel')
@dataclasses.dataclass(frozen=True)
class Tile:
    rows: int = 32
@functools.lru_cache
def tile(n): return Tile(n)
SIGNATURE = inspect.signature(tile)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        log.info('%s', tile(x.shape[0]))
        if x.numel() == 0:
            return x
        return torch.relu(self.ln(x))
