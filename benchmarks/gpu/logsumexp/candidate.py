"""One row stays in the registers of one program, so that maximum and sum need a single read."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    maximum = tl.max(x, axis=0)
    # Where the maximum is infinite so is the result: inf - inf must not make it NaN.
    base = tl.where(tl.abs(maximum) == float("inf"), 0.0, maximum)
    tl.store(out_ptr + row, base + tl.log(tl.sum(tl.exp(x - base), axis=0)))


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype}")
        columns = x.shape[-1]
        if columns > 32768:
            raise ValueError("at most 32768 columns: a row must fit into the registers of a block")
        x = x.contiguous()
        out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(columns)
        logsumexp_kernel[(out.numel(),)](
            x, out, columns, BLOCK=block, num_warps=min(16, max(1, block // 512))
        )
        return out
