"""One program per piece of a row: the bias needs no division to be found, and x is read once."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    pieces = tl.cdiv(columns, BLOCK)
    row = tl.program_id(0) // pieces
    column = (tl.program_id(0) % pieces) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    index = row.to(tl.int64) * columns + column
    x = tl.load(x_ptr + index, mask=inside).to(tl.float32)
    x += tl.load(bias_ptr + column, mask=inside).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + index, y.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        columns = x.shape[-1]
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or x.dtype != self.bias.dtype:
            raise TypeError(f"not supported: {x.dtype} with a bias of {self.bias.dtype}")
        if self.bias.shape != (columns,):
            raise ValueError(f"{columns} columns, but a bias of {tuple(self.bias.shape)}")
        x = x.contiguous()
        out = torch.empty_like(x)
        block = min(4096, triton.next_power_of_2(columns))
        grid = (x.numel() // columns * triton.cdiv(columns, block),)
        bias_gelu_kernel[grid](x, self.bias, out, columns, BLOCK=block, num_warps=max(1, block // 512))
        return out
