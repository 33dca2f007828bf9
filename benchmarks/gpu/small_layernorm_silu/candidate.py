"""One launch, one row per program."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layernorm_silu_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + column, mask=inside)
    bias = tl.load(bias_ptr + column, mask=inside)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    y = centred * tl.rsqrt(variance + eps) * weight + bias
    tl.store(out_ptr + row * columns + column, y / (1.0 + tl.exp(-y)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)  # holds weight, bias and eps

    def forward(self, x):
        weight, bias = self.norm.weight, self.norm.bias
        if x.dtype != torch.float32 or weight.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype} with weights of {weight.dtype}")
        columns = x.shape[-1]
        if weight.shape != (columns,) or columns > 32768:
            raise ValueError(f"{columns} columns with {weight.numel()} weights (at most 32768)")
        x = x.contiguous()
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        layernorm_silu_kernel[(x.numel() // columns,)](
            *(x, weight, bias, out, columns, self.norm.eps),
            BLOCK=block,
            num_warps=min(16, max(1, block // 256)),
        )
        return out
