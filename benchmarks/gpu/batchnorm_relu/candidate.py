"""Statistics, weight and bias of a channel fold into one factor and one addend, in each program that needs
them: four scalar loads out of the cache, and nothing that could go stale.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def batchnorm_relu_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    channels,
    plane,
    eps,
    BLOCK: tl.constexpr,
):
    pieces = tl.cdiv(plane, BLOCK)
    image_channel = tl.program_id(0) // pieces
    channel = image_channel % channels
    place = (tl.program_id(0) % pieces) * BLOCK + tl.arange(0, BLOCK)
    inside = place < plane
    index = image_channel.to(tl.int64) * plane + place
    factor = tl.load(weight_ptr + channel) * tl.rsqrt(tl.load(variance_ptr + channel) + eps)
    addend = tl.load(bias_ptr + channel) - tl.load(mean_ptr + channel) * factor
    y = tl.load(x_ptr + index, mask=inside) * factor + addend
    tl.store(out_ptr + index, tl.where(y < 0, 0.0, y), mask=inside)  # NaN stays NaN, as in torch.relu


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)  # holds weights, statistics and eps
        self.eval()

    def forward(self, x):
        if self.norm.training:
            raise ValueError("inference only: batch statistics are not computed")
        if x.dtype != torch.float32 or self.norm.weight.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype}")
        if x.dim() != 4 or x.shape[1] != self.norm.num_features:
            raise ValueError(f"no image of {self.norm.num_features} channels: {tuple(x.shape)}")
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels, height, width = x.shape
        plane = height * width
        block = min(2048, triton.next_power_of_2(plane))
        batchnorm_relu_kernel[(batch * channels * triton.cdiv(plane, block),)](
            *(x, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias, out),
            *(channels, plane, self.norm.eps),
            BLOCK=block,
            num_warps=max(1, block // 512),
        )
        return out
