"""Attention scores: scale, mask, softmax."""

import torch
from torch import nn

batch = 8
heads = 12
queries = 512
keys = 512


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores, mask):
        return torch.softmax((scores * self.scale).masked_fill(mask, float("-inf")), dim=-1)


def get_inputs():
    return [4 * torch.randn(batch, heads, queries, keys), torch.rand(batch, 1, queries, keys) < 0.3]


def get_init_inputs():
    return [0.125]
