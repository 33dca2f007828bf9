"""A group lies in one piece of memory: up to 16384 elements of it stay in registers, a larger one is walked
three times (mean, variance, result), the second and third time mostly out of the L2 cache.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def normalised(x, mean, scale, weight_ptr, bias_ptr, channel, inside):
    weight = tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    y = (x - mean) * scale * weight + bias
    return y / (1.0 + tl.exp(-y))


@triton.jit
def groupnorm_silu_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    groups,
    channels_of_group,
    plane,
    eps,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Tiles are [channels, places], so that a channel's weight is loaded once for its row."""
    size = channels_of_group * plane
    start = tl.program_id(0).to(tl.int64) * size
    first_channel = tl.program_id(0) % groups * channels_of_group
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    kind = out_ptr.dtype.element_ty
    if WHOLE:
        inside = (row < channels_of_group) & (column < plane)
        index = start + row * plane + column
        x = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(tl.sum(x, axis=1), axis=0) / size
        centred = tl.where(inside, x - mean, 0.0)
        scale = tl.rsqrt(tl.sum(tl.sum(centred * centred, axis=1), axis=0) / size + eps)
        y = normalised(x, mean, scale, weight_ptr, bias_ptr, first_channel + row, row < channels_of_group)
        tl.store(out_ptr + index, y.to(kind), mask=inside)
    else:
        # One channel after another; ROWS is 1.
        total = tl.zeros([ROWS, COLUMNS], tl.float32)
        for channel in range(channels_of_group):
            for place in range(0, plane, COLUMNS):
                index = start + channel * plane + place + row + column
                total += tl.load(x_ptr + index, mask=place + column < plane, other=0.0).to(tl.float32)
        mean = tl.sum(tl.sum(total, axis=1), axis=0) / size
        squares = tl.zeros([ROWS, COLUMNS], tl.float32)
        for channel in range(channels_of_group):
            for place in range(0, plane, COLUMNS):
                inside = place + column < plane
                index = start + channel * plane + place + row + column
                centred = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32) - mean
                squares += tl.where(inside, centred * centred, 0.0)
        scale = tl.rsqrt(tl.sum(tl.sum(squares, axis=1), axis=0) / size + eps)
        for channel in range(channels_of_group):
            for place in range(0, plane, COLUMNS):
                inside = place + column < plane
                index = start + channel * plane + place + row + column
                x = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32)
                y = normalised(x, mean, scale, weight_ptr, bias_ptr, first_channel + channel + row, row < 1)
                tl.store(out_ptr + index, y.to(kind), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)  # holds the weights, the number of groups and eps

    def forward(self, x):
        weight, bias = self.norm.weight, self.norm.bias
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or x.dtype != weight.dtype:
            raise TypeError(f"not supported: {x.dtype} with weights of {weight.dtype}")
        if x.dim() < 3 or x.shape[1] != weight.numel():
            raise ValueError(f"no image of {weight.numel()} channels: {tuple(x.shape)}")
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        groups = self.norm.num_groups
        channels_of_group, plane = channels // groups, x[0, 0].numel()
        if channels_of_group * plane >= 2**31:
            raise ValueError("a group must have less than 2^31 elements")
        rows, columns = triton.next_power_of_2(channels_of_group), triton.next_power_of_2(plane)
        whole = rows * columns <= 16384
        if not whole:
            rows, columns = 1, min(4096, columns)
        groupnorm_silu_kernel[(batch * groups,)](
            *(x, weight, bias, out, groups, channels_of_group, plane, self.norm.eps),
            WHOLE=whole,
            ROWS=rows,
            COLUMNS=columns,
            num_warps=min(16, max(4, rows * columns // 1024)),
            maxnreg=64,  # two blocks of 16 warps share a multiprocessor: one loads while the other sums
        )
        return out
