"""Host code writes to address zero: the process is gone."""

import ctypes

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.memset(0, 1, 8)
        return 2 * x + 1
