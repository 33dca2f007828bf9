"""Tensor-core product with float32 accumulators; bias and GELU are applied before they are rounded once.

Tiles are visited in groups of rows, so that what of x and of the weight is in use at one time fits into L2.
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_warps=8, num_stages=3),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_warps=8, num_stages=4),
    triton.Config({"BM": 64, "BN": 128, "BK": 64, "GROUP": 8}, num_warps=4, num_stages=4),
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def linear_gelu_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = tl.program_id(0) // (GROUP * tiles_n)
    place = tl.program_id(0) % (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    row = (group * GROUP + place % height) * BM + tl.arange(0, BM)
    column = (place // height) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    # Rows beyond the end load those of the beginning; what comes of them is not stored.
    x_ptrs = x_ptr + (row % m).to(tl.int64)[:, None] * k + inner[None, :]
    weight_ptrs = weight_ptr + (column % n).to(tl.int64)[None, :] * k + inner[:, None]
    sums = tl.zeros([BM, BN], tl.float32)
    for start in range(0, k, BK):
        left = k - start
        x = tl.load(x_ptrs, mask=inner[None, :] < left, other=0.0)
        weight = tl.load(weight_ptrs, mask=inner[:, None] < left, other=0.0)
        sums = tl.dot(x, weight, sums)
        x_ptrs += BK
        weight_ptrs += BK
    sums += tl.load(bias_ptr + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
    y = 0.5 * sums * (1.0 + tl.erf(sums * 0.7071067811865476))
    out_ptrs = out_ptr + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(out_ptrs, y.to(out_ptr.dtype.element_ty), mask=(row < m)[:, None] & (column < n)[None, :])


class ModelNew(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.linear = nn.Linear(inner, columns, dtype=torch.float16)  # holds weight and bias

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        if x.dtype not in (torch.float16, torch.bfloat16) or weight.dtype != x.dtype:
            raise TypeError(f"not supported: {x.dtype} with a weight of {weight.dtype}")
        n, k = weight.shape
        if x.shape[-1] != k:
            raise ValueError(f"{x.shape[-1]} features for a weight of {tuple(weight.shape)}")
        x, weight = x.contiguous(), weight.contiguous()
        out = torch.empty(*x.shape[:-1], n, dtype=x.dtype, device=x.device)
        m = x.numel() // k
        linear_gelu_kernel[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
            x, weight, bias, out, m, n, k
        )
        return out
