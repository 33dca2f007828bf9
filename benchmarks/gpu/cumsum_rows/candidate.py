"""A parallel scan of 2048 columns at a time; longer rows carry the total of one piece into the next."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    carried = 0.0
    for start in range(0, columns, BLOCK):
        column = start + lane
        inside = column < columns
        x = tl.load(x_ptr + row + column, mask=inside, other=0.0)
        tl.store(out_ptr + row + column, carried + tl.associative_scan(x, 0, add), mask=inside)
        carried += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype}")
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        block = min(2048, triton.next_power_of_2(columns))
        warps = max(1, block // 512)
        cumsum_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=block, num_warps=warps)
        return out
