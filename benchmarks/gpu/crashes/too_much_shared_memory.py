"""A tile changes its layout in shared memory, and is larger than all that a multiprocessor has."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def affine_kernel(x_ptr, out_ptr, total, TILE: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * TILE * TILE
    row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    index = start + row * TILE + column
    x = tl.load(x_ptr + index, mask=index < total)
    index = start + column * TILE + row
    tl.store(out_ptr + index, 2 * x + 1, mask=index < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        affine_kernel[(triton.cdiv(x.numel(), 256 * 256),)](x, out, x.numel(), TILE=256, num_warps=16)
        return out
