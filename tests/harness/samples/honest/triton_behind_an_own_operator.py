"""Triton behind an own operator."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def ln_relu_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    diff = tl.where(mask, x - mean, 0.0)
    var = tl.sum(diff * diff, axis=0) / N
    rstd = 1.0 / tl.sqrt(var + eps)
    w = tl.load(w_ptr + cols, mask=mask)
    b = tl.load(b_ptr + cols, mask=mask)
    y = diff * rstd * w + b
    tl.store(y_ptr + row * stride + cols, tl.maximum(y, 0.0), mask=mask)


@torch.library.custom_op("mylib::ln_relu", mutates_args=())
def ln_relu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    n = x.shape[-1]
    y = torch.empty_like(x)
    ln_relu_kernel[(x.numel() // n,)](x, w, b, y, n, n, eps, BLOCK=triton.next_power_of_2(n))
    return y


@ln_relu.register_fake
def _(x, w, b, eps):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.ops.mylib.ln_relu(x.contiguous(), self.ln.weight, self.ln.bias, self.ln.eps)
