"""0.5 (1 + tanh u) is the logistic function of 2u: one exponential, no cancellation for negative u."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_residual_kernel(x_ptr, residual_ptr, out_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    x = tl.load(x_ptr + index, mask=inside).to(tl.float32)
    residual = tl.load(residual_ptr + index, mask=inside).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = residual + x / (1.0 + tl.exp(-2.0 * u))
    tl.store(out_ptr + index, y.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, residual):
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or x.dtype != residual.dtype:
            raise TypeError(f"not supported: {x.dtype} with {residual.dtype}")
        if x.shape != residual.shape:
            raise ValueError("x and the residual must be of one shape")
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 2048),)
        gelu_residual_kernel[grid](x, residual, out, x.numel(), BLOCK=2048, num_warps=4)
        return out
