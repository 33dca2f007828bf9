"""In place on its own buffer."""

import torch
import torch.nn as nn

from harness.native import load_cpp
lib = load_cpp('extern "C" void f(float* x, long long n) { for (long long i = 0; i < n; ++i) if (x[i] < 0) x[i] = 0; }', flags=('-O1',))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        y = self.ln(x)
        lib.f(y, y.numel())
        return y
