"""Token embedding followed by layer normalisation."""

import torch
from torch import nn

tokens = 32768
vocabulary = 32768
width = 1024


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, token):
        return self.norm(self.embedding(token))


def get_inputs():
    return [torch.randint(vocabulary, (tokens,))]


def get_init_inputs():
    return [vocabulary, width]
