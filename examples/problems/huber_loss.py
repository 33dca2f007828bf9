"""Huber loss of each sample with importance weights: the update step of a replay-based reinforcement learner.

The error is computed for every output of every sample, bent where it is large, averaged per sample and
weighted. Eager PyTorch keeps the table of errors; a fused kernel keeps one sum for each row.
"""

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES = 12288
OUTPUTS = 1024


class Model(nn.Module):
    def __init__(self, delta: float) -> None:
        super().__init__()
        self.delta = delta

    def forward(self, prediction: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        loss = F.huber_loss(prediction, target, reduction="none", delta=self.delta)
        return loss.mean(dim=-1) * weight


def get_inputs() -> list[torch.Tensor]:
    prediction = torch.randn(SAMPLES, OUTPUTS)
    return [prediction, prediction + 2.0 * torch.randn(SAMPLES, OUTPUTS), torch.rand(SAMPLES)]


def get_init_inputs() -> list[float]:
    return [1.0]
