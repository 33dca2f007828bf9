"""What the evidence of this skill is measured on."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target)


def get_inputs():
    return [torch.randn(1024, 8192), torch.randint(0, 8192, (1024,))]


def get_init_inputs():
    return []
