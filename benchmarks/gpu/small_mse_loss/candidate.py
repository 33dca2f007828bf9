"""One program does it all: a second launch would cost more than the rest of the device can save."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mse_kernel(prediction_ptr, target_ptr, out_ptr, total, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, total, BLOCK):
        index = start + lane
        inside = index < total
        error = tl.load(prediction_ptr + index, mask=inside, other=0.0)
        error -= tl.load(target_ptr + index, mask=inside, other=0.0)
        squares += error * error
    tl.store(out_ptr, tl.sum(squares, axis=0) / total)


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        if prediction.dtype != torch.float32 or target.dtype != torch.float32:
            raise TypeError(f"not supported: {prediction.dtype} with {target.dtype}")
        if prediction.shape != target.shape:
            raise ValueError("prediction and target must be of one shape")
        if not 0 < prediction.numel() < 2**24:
            raise ValueError("up to 2^24 elements: one program adds them up")
        prediction, target = prediction.contiguous(), target.contiguous()
        out = torch.empty((), dtype=torch.float32, device=prediction.device)
        mse_kernel[(1,)](prediction, target, out, prediction.numel(), BLOCK=8192, num_warps=16)
        return out
