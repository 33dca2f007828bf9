"""One row stays in the registers of one program; short rows get few warps, so that many are in flight."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def l2_normalize_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    length = tl.sqrt_rn(tl.sum(x * x, axis=0))
    y = x / tl.maximum(length, 1e-12, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + row * columns + column, y.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype not in (torch.float32, torch.bfloat16):
            raise TypeError(f"not supported: {x.dtype}")
        columns = x.shape[-1]
        if columns > 32768:
            raise ValueError("at most 32768 columns: a row must fit into the registers of a block")
        x = x.contiguous()
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        warps = min(16, max(1, block // 512))
        l2_normalize_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=block, num_warps=warps)
        return out
