"""Rotary position embedding of queries and keys in bfloat16, with fewer key heads than query heads."""

import torch
from torch import nn

batch = 4
positions = 2048
query_heads = 16
key_heads = 8
head_size = 128


class Model(nn.Module):
    def rotate(self, x, cos, sin):
        low, high = x.chunk(2, dim=-1)
        return x * cos[:, None, :] + torch.cat([-high, low], dim=-1) * sin[:, None, :]

    def forward(self, q, k, cos, sin):
        return self.rotate(q, cos, sin), self.rotate(k, cos, sin)


def get_inputs():
    angle = 100 * torch.rand(positions, head_size)
    return [
        torch.randn(batch, positions, query_heads, head_size, dtype=torch.bfloat16),
        torch.randn(batch, positions, key_heads, head_size, dtype=torch.bfloat16),
        torch.cos(angle).to(torch.bfloat16),
        torch.sin(angle).to(torch.bfloat16),
    ]


def get_init_inputs():
    return []
