"""Weights cross the bus as int8 and are widened in registers; their scale is applied to the float32 sums,
where it costs one product per output. The few tokens are the narrow side of a tensor-core tile.
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [
    triton.Config({"BN": 32, "BK": 256}, num_warps=4, num_stages=4),
    triton.Config({"BN": 64, "BK": 256}, num_warps=4, num_stages=4),
    triton.Config({"BN": 32, "BK": 512}, num_warps=4, num_stages=3),
]


@triton.autotune(configs=CONFIGS, key=["tokens", "n", "k"])
@triton.jit
def int8_linear_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    out_ptr,
    tokens,
    n,
    k,
    TOKENS: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    pieces = tl.cdiv(tokens, TOKENS)
    token = (tl.program_id(0) % pieces) * TOKENS + tl.arange(0, TOKENS)
    column = (tl.program_id(0) // pieces) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    # Rows beyond the end load those of the beginning; what comes of them is not stored.
    x_ptrs = x_ptr + (token % tokens).to(tl.int64)[:, None] * k + inner[None, :]
    weight_ptrs = weight_ptr + (column % n).to(tl.int64)[:, None] * k + inner[None, :]
    sums = tl.zeros([TOKENS, BN], tl.float32)
    for start in range(0, k, BK):
        inside = inner[None, :] < k - start
        x = tl.load(x_ptrs, mask=inside, other=0.0)
        weight = tl.load(weight_ptrs, mask=inside, other=0)
        sums = tl.dot(x, tl.trans(weight.to(x.dtype)), sums)
        x_ptrs += BK
        weight_ptrs += BK
    sums *= tl.load(scale_ptr + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
    out_ptrs = out_ptr + token.to(tl.int64)[:, None] * n + column[None, :]
    keep = (token < tokens)[:, None] & (column < n)[None, :]
    tl.store(out_ptrs, sums.to(out_ptr.dtype.element_ty), mask=keep)


class ModelNew(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (columns, inner), dtype=torch.int8))
        self.scale = nn.Parameter((0.5 + torch.rand(columns)).to(torch.float16) / (73 * inner**0.5))

    def forward(self, x):
        if x.dtype not in (torch.float16, torch.bfloat16) or self.scale.dtype != x.dtype:
            raise TypeError(f"not supported: {x.dtype} with a scale of {self.scale.dtype}")
        if self.weight.dtype != torch.int8 or x.shape[-1] != self.weight.shape[1]:
            raise ValueError(f"{tuple(x.shape)} with a weight {tuple(self.weight.shape)} {self.weight.dtype}")
        x, weight = x.contiguous(), self.weight.contiguous()
        n, k = weight.shape
        tokens = x.numel() // k
        out = torch.empty(*x.shape[:-1], n, dtype=x.dtype, device=x.device)
        height = min(64, max(16, triton.next_power_of_2(tokens)))
        int8_linear_kernel[lambda meta: (triton.cdiv(tokens, height) * triton.cdiv(n, meta["BN"]),)](
            x, weight, self.scale, out, tokens, n, k, TOKENS=height
        )
        return out
