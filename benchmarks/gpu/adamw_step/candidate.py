"""All four tensors are read once and all three results written once; scalars are folded on the host."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def adamw_kernel(
    parameter_ptr,
    gradient_ptr,
    mean_ptr,
    square_ptr,
    new_parameter_ptr,
    new_mean_ptr,
    new_square_ptr,
    total,
    decay,
    step_size,
    square_scale,
    beta1,
    rest1,
    beta2,
    rest2,
    eps,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    parameter = tl.load(parameter_ptr + index, mask=inside)
    gradient = tl.load(gradient_ptr + index, mask=inside)
    mean = tl.load(mean_ptr + index, mask=inside)
    square = tl.load(square_ptr + index, mask=inside, other=1.0)
    mean = beta1 * mean + rest1 * gradient
    square = beta2 * square + rest2 * gradient * gradient
    update = step_size * mean / (tl.sqrt_rn(square * square_scale) + eps)
    tl.store(new_parameter_ptr + index, parameter * decay - update, mask=inside)
    tl.store(new_mean_ptr + index, mean, mask=inside)
    tl.store(new_square_ptr + index, square, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, lr, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        self.decay = 1 - lr * weight_decay
        self.step_size = lr / (1 - beta1**step)
        self.square_scale = 1 / (1 - beta2**step)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def forward(self, parameter, gradient, mean, square):
        tensors = [parameter, gradient, mean, square]
        if any(t.dtype != torch.float32 for t in tensors):
            raise TypeError("float32 only")
        if any(t.shape != parameter.shape for t in tensors):
            raise ValueError("all four tensors must be of one shape")
        tensors = [t.contiguous() for t in tensors]
        results = [torch.empty_like(tensors[0]) for _ in range(3)]
        total = parameter.numel()
        adamw_kernel[(triton.cdiv(total, 1024),)](
            *tensors,
            *results,
            total,
            *(self.decay, self.step_size, self.square_scale),
            *(self.beta1, 1 - self.beta1, self.beta2, 1 - self.beta2, self.eps),
            BLOCK=1024,
            num_warps=4,
        )
        return tuple(results)
