"""A softmax small enough for Triton's interpreter, with a row length that is no power of two."""

import torch
from torch import nn

ROWS = 64
COLUMNS = 1000


class Model(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits / self.temperature, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [4.0 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[float]:
    return [0.7]
