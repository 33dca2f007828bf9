"""Every program of the kernel waits for a flag that nobody sets."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def affine_kernel(x_ptr, out_ptr, flag_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    flag = tl.load(flag_ptr, volatile=True)
    while flag == 0:
        flag = tl.load(flag_ptr, volatile=True)
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + index, 2 * x + 1, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        flag = torch.zeros(1, dtype=torch.int32, device=x.device)
        affine_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, flag, x.numel(), BLOCK=1024)
        return out
