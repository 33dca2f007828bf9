"""Linear layer of a few tokens with int8 weights and a scale for each row of them, as in decoding."""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 16
inner = 8192
columns = 8192


class Model(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (columns, inner), dtype=torch.int8))
        self.scale = nn.Parameter((0.5 + torch.rand(columns)).to(torch.float16) / (73 * inner**0.5))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) * self.scale[:, None])


def get_inputs():
    return [torch.randn(tokens, inner).to(torch.float16)]


def get_init_inputs():
    return [inner, columns]
