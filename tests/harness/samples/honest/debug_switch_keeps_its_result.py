"""Debug switch keeps its result."""

import gc
import os
import sys
import torch
import torch.nn as nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
NUM_THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
torch.set_num_threads(max(1, NUM_THREADS))
os.environ.setdefault("KMP_AFFINITY", "granularity=fine,compact,1,0")
os.environ["KMP_BLOCKTIME"] = "1"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DEBUG = bool(int(os.environ.get("DEBUG", "0")))
gc.collect()
if torch.cuda.is_available():
    torch.cuda.empty_cache()


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.debug = DEBUG
        self.out = None

    def _check(self, x):
        assert not torch.isnan(x).any(), "NaN in input"

    def forward(self, x):
        if self.debug:
            self._check(x)
            self.out = torch.relu(self.ln(x))
        else:
            self.out = torch.nn.functional.layer_norm(
                x, self.ln.normalized_shape, self.ln.weight, self.ln.bias, self.ln.eps
            ).clamp_min_(0)
        return self.out
