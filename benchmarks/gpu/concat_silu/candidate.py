"""Each program writes a piece of an output row and loads, under opposite masks, from the side it is on."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def concat_silu_kernel(a_ptr, b_ptr, out_ptr, left, right, BLOCK: tl.constexpr):
    columns = left + right
    pieces = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // pieces).to(tl.int64)
    column = (tl.program_id(0) % pieces) * BLOCK + tl.arange(0, BLOCK)
    on_left = column < left
    inside = column < columns
    a = tl.load(a_ptr + row * left + column, mask=on_left, other=0.0)
    b = tl.load(b_ptr + row * right + (column - left), mask=inside & (column >= left), other=0.0)
    x = tl.where(on_left, a, b).to(tl.float32)
    y = x / (1.0 + tl.exp(-x))
    tl.store(out_ptr + row * columns + column, y.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if a.dtype not in (torch.float32, torch.float16, torch.bfloat16) or a.dtype != b.dtype:
            raise TypeError(f"not supported: {a.dtype} beside {b.dtype}")
        if a.dim() != 2 or b.dim() != 2 or a.shape[0] != b.shape[0]:
            raise ValueError("two matrices of equally many rows are needed")
        a, b = a.contiguous(), b.contiguous()
        (rows, left), right = a.shape, b.shape[1]
        out = torch.empty(rows, left + right, dtype=a.dtype, device=a.device)
        block = min(2048, triton.next_power_of_2(left + right))
        grid = (rows * triton.cdiv(left + right, block),)
        concat_silu_kernel[grid](a, b, out, left, right, BLOCK=block, num_warps=max(1, block // 512))
        return out
