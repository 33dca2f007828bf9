"""Cross-entropy of each token over a vocabulary: the last step of training or scoring a language model.

Only one number per row is kept, so a fused kernel reads the logits and writes almost nothing; eager
PyTorch writes the whole table of log-probabilities first and then picks one entry from each row.
"""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 2048
VOCABULARY = 8192


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, targets, reduction="none")


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs() -> list[int]:
    return []
