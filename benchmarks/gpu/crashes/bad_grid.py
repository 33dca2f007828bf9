"""Asks for more blocks along the second axis than a launch can have."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def affine_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + index, 2 * x + 1, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        affine_kernel[(1, triton.cdiv(x.numel(), 32))](x, out, x.numel(), BLOCK=32)
        return out
