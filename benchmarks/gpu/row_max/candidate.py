"""A reduction over (value, index) pairs by torch's rules: NaN beats everything, of equals the first wins."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def better(value, index, other_value, other_index):
    nan, other_nan = value != value, other_value != other_value
    tie = (value == other_value) | (nan & other_nan)
    wins = tl.where(tie, index < other_index, (nan & (other_nan == 0)) | (value > other_value))
    return tl.where(wins, value, other_value), tl.where(wins, index, other_index)


@triton.jit
def row_max_kernel(x_ptr, values_ptr, indices_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    # Places outside of the row lose: they are -inf, and of equals the first wins.
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    value, index = tl.reduce((x, column), 0, better)
    tl.store(values_ptr + row, value)
    tl.store(indices_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype}")
        columns = x.shape[-1]
        if not 0 < columns <= 32768:
            raise ValueError("at most 32768 columns: a row must fit into the registers of a block")
        x = x.contiguous()
        values = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        indices = torch.empty(x.shape[:-1], dtype=torch.int64, device=x.device)
        block = triton.next_power_of_2(columns)
        row_max_kernel[(values.numel(),)](
            x, values, indices, columns, BLOCK=block, num_warps=min(16, max(1, block // 512))
        )
        return values, indices
