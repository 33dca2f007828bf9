"""Context manager by hand."""

import torch
import torch.nn as nn

g = torch.inference_mode(False)
g.__enter__()


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.relu(self.ln(x))
