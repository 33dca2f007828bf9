"""Scaled, masked softmax over attention scores, as in an encoder whose sequences are padded to one length.

The mask is added before the softmax and is the same for every head and query of a sequence: it is
broadcast, so a kernel that writes it out at full size throws bandwidth away.
"""

import math

import torch
from torch import nn

BATCH = 4
HEADS = 8
LENGTH = 512
HEAD_SIZE = 64


class Model(nn.Module):
    def __init__(self, head_size: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(head_size)

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores * self.scale + mask, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1))
    padded = torch.arange(LENGTH)[None, :] >= lengths
    mask = torch.zeros(BATCH, LENGTH).masked_fill(padded, -1e4)[:, None, None, :]
    return [8.0 * torch.randn(BATCH, HEADS, LENGTH, LENGTH), mask]


def get_init_inputs() -> list[int]:
    return [HEAD_SIZE]
