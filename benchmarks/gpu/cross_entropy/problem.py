"""Mean cross entropy of a language model's logits."""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 1024
vocabulary = 32000


class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)


def get_inputs():
    return [2 * torch.randn(tokens, vocabulary), torch.randint(vocabulary, (tokens,))]


def get_init_inputs():
    return []
