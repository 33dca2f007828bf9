"""Causal attention in float16."""

import torch
import torch.nn.functional as F
from torch import nn

batch = 4
heads = 16
positions = 2048
head_size = 128


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(batch, heads, positions, head_size).to(torch.float16) for _ in range(3)]


def get_init_inputs():
    return []
