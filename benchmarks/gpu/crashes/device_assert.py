"""An assertion in the kernel fails: the device's context is lost."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit(debug=True)
def affine_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    x = tl.load(x_ptr + index, mask=inside, other=0.0)
    tl.device_assert((index != 4242) | (x > 1e30), "not a large number")
    tl.store(out_ptr + index, 2 * x + 1, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        affine_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
