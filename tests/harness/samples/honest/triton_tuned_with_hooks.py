"""Triton tuned with hooks."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

from typing import Any, Dict, Optional


def _zero(nargs: Dict[str, Any], reset_only: bool = False) -> None:
    if nargs.get("y_ptr") is not None:
        nargs["y_ptr"].zero_()


def get_configs():
    return [triton.Config({"ROWS": r}, num_warps=w, num_stages=2, pre_hook=_zero) for r in (1, 2) for w in (2, 4)]


def prune(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["ROWS"] <= max(1, named_args["M"])]


@triton.autotune(configs=get_configs(), key=["M", "N"], prune_configs_by={"early_config_prune": prune})
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["N"])})
@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0)
    b = tl.load(b_ptr + cols, mask=cols < N, other=0.0)
    for i in tl.static_range(ROWS):
        row = pid * ROWS + i
        mask = (cols < N) & (row < M)
        x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, axis=0) / N
        d = tl.where(mask, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N + eps)
        tl.store(y_ptr + row * N + cols, tl.maximum(d * rstd * w + b, 0.0), mask=mask)


class ModelNew(nn.Module):
    """Fused LayerNorm + ReLU."""

    def __init__(self, dim: int, eps: Optional[float] = 1e-5) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(dim, eps=eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_contiguous(), "input must be contiguous"
        M, N = x.numel() // x.shape[-1], x.shape[-1]
        y = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(M, meta["ROWS"]),)
        kernel[grid](x, self.ln.weight, self.ln.bias, y, M, N, self.ln.eps)
        return y
