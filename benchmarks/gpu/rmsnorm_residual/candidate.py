"""Sum, norm and scale in one pass; the sum is rounded first, since what is normalised is what is returned."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rmsnorm_residual_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, hidden_ptr, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    hidden = (x + residual).to(hidden_ptr.dtype.element_ty)
    tl.store(hidden_ptr + row + column, hidden, mask=inside)
    wide = hidden.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / columns + eps)
    tl.store(out_ptr + row + column, (wide * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns, dtype=torch.bfloat16))
        self.eps = eps

    def forward(self, x, residual):
        kinds = {x.dtype, residual.dtype, self.weight.dtype}
        if len(kinds) > 1 or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"not supported: {kinds}")
        columns = x.shape[-1]
        if x.shape != residual.shape or self.weight.shape != (columns,) or columns > 32768:
            raise ValueError("x and residual of one shape, with a weight for each column (at most 32768)")
        x, residual = x.contiguous(), residual.contiguous()
        out, hidden = torch.empty_like(x), torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        rmsnorm_residual_kernel[(x.numel() // columns,)](
            *(x, residual, self.weight, out, hidden, columns, self.eps),
            BLOCK=block,
            num_warps=min(16, max(1, block // 512)),
        )
        return out, hidden
