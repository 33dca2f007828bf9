"""No mask, and 64 blocks too many: what lies behind the result in memory is overwritten."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def affine_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < total, other=0.0)
    tl.store(out_ptr + index, 2 * x + 1)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        affine_kernel[(triton.cdiv(x.numel(), 1024) + 64,)](x, out, x.numel(), BLOCK=1024)
        return out
