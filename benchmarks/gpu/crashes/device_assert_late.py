"""As device_assert, but only from the twentieth call on: after correctness, within timed calls."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit(debug=True)
def affine_kernel(x_ptr, out_ptr, total, limit, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    x = tl.load(x_ptr + index, mask=inside, other=0.0)
    tl.device_assert((index != 4242) | (x > limit), "not a large number")
    tl.store(out_ptr + index, 2 * x + 1, mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = x.contiguous()
        out = torch.empty_like(x)
        limit = -1e30 if self.calls < 20 else 1e30
        affine_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), limit, BLOCK=1024)
        return out
