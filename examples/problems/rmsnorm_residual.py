"""RMSNorm of a sublayer's output, added to the residual stream (post-norm language models).

Each token's vector is divided by its root mean square, scaled by a learned weight and added to the
stream. The eager form makes a tensor for the square, the product, the scaled vector and the sum.
"""

import torch
from torch import nn

TOKENS = 4096
FEATURES = 2048


class Model(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return residual + x * scale * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, FEATURES)]


def get_init_inputs() -> list[float]:
    return [FEATURES, 1e-6]
