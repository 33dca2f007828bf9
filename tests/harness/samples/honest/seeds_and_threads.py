"""Seeds and threads."""

import torch
import torch.nn as nn

torch.manual_seed(3)
torch.set_num_threads(2)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.relu(self.ln(x))
