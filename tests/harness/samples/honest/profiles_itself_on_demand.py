"""Profiles itself on demand."""

import os
import random
import time

import numpy as np
import torch
import torch.nn as nn


def set_seed(seed: int = 42) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    torch.use_deterministic_algorithms(False)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


set_seed(0)
_start = time.time()


class ModelNew(nn.Module):
    PROFILE = os.getenv("PROFILE", "") not in ("", "0")

    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.elapsed = 0.0

    def forward(self, x):
        if self.PROFILE:
            t0 = time.perf_counter()
            out = torch.relu(self.ln(x))
            self.elapsed += time.perf_counter() - t0
            return out
        return torch.relu(self.ln(x))
