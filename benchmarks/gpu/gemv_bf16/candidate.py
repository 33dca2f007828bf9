"""Two rows of the weight per program, multiplied lane by lane in float32: a stream through memory."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gemv_kernel(x_ptr, weight_ptr, out_ptr, n, k, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    pieces = tl.cdiv(n, ROWS)
    token = (tl.program_id(0) // pieces).to(tl.int64)
    row = (tl.program_id(0) % pieces) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, BLOCK)
    weight_ptrs = weight_ptr + row.to(tl.int64)[:, None] * k + lane[None, :]
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, k, BLOCK):
        inside = lane < k - start
        x = tl.load(x_ptr + token * k + start + lane, mask=inside, other=0.0).to(tl.float32)
        keep = (row < n)[:, None] & inside[None, :]
        weight = tl.load(weight_ptrs + start, mask=keep, other=0.0).to(tl.float32)
        sums += weight * x[None, :]
    y = tl.sum(sums, axis=1)
    tl.store(out_ptr + token * n + row, y.to(out_ptr.dtype.element_ty), mask=row < n)


class ModelNew(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, inner, dtype=torch.bfloat16) / inner**0.5)

    def forward(self, x):
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or self.weight.dtype != x.dtype:
            raise TypeError(f"not supported: {x.dtype} with a weight of {self.weight.dtype}")
        if x.shape[-1] != self.weight.shape[1]:
            raise ValueError(f"{x.shape[-1]} features for a weight of {tuple(self.weight.shape)}")
        x, weight = x.contiguous(), self.weight.contiguous()
        n, k = weight.shape
        out = torch.empty(*x.shape[:-1], n, dtype=x.dtype, device=x.device)
        grid = (x.numel() // k * triton.cdiv(n, 2),)
        gemv_kernel[grid](x, weight, out, n, k, ROWS=2, BLOCK=2048, num_warps=4)
        return out
