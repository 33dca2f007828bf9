"""One row stays in the registers of one program, so that centring before squaring costs no second read."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def var_mean_kernel(x_ptr, variance_ptr, mean_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(variance_ptr + row, tl.sum(centred * centred, axis=0) / (columns - 1))


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype}")
        columns = x.shape[-1]
        if not 1 < columns <= 32768:
            raise ValueError("2 to 32768 columns: a row must fit into the registers of a block")
        x = x.contiguous()
        variance = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        mean = torch.empty_like(variance)
        block = triton.next_power_of_2(columns)
        warps = min(16, max(1, block // 512))
        var_mean_kernel[(mean.numel(),)](x, variance, mean, columns, BLOCK=block, num_warps=warps)
        return variance, mean
