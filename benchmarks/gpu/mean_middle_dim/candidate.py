"""A program adds up the positions of 128 neighbouring features, 32 positions at a time: whole 512-byte rows,
no exchange between lanes until the end.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_middle_kernel(x_ptr, out_ptr, positions, features, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    pieces = tl.cdiv(features, COLUMNS)
    image = (tl.program_id(0) // pieces).to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % pieces) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (column < features)[None, :]
    x_ptr += image * positions * features
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, positions, ROWS):
        index = (start + row).to(tl.int64) * features + column[None, :]
        total += tl.load(x_ptr + index, mask=inside & (start + row < positions), other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / positions
    tl.store(out_ptr + image * features + column, mean.to(out_ptr.dtype.element_ty), mask=column < features)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"not supported: {x.dtype}")
        if x.dim() != 3:
            raise ValueError("three dimensions are needed")
        x = x.contiguous()
        batch, positions, features = x.shape
        out = torch.empty(batch, features, dtype=x.dtype, device=x.device)
        grid = (batch * triton.cdiv(features, 128),)
        mean_middle_kernel[grid](x, out, positions, features, ROWS=32, COLUMNS=128, num_warps=4)
        return out
