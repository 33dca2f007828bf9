"""Persistent programs, one for each multiprocessor, fed by the bulk tensor copy engine through descriptors;
the residual is added to the float32 accumulators.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

BM, BN, BK, GROUP = 128, 256, 64, 8


@triton.jit
def linear_residual_kernel(
    x_desc,
    weight_desc,
    residual_ptr,
    out_desc,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        group = tile // (GROUP * tiles_n)
        place = tile % (GROUP * tiles_n)
        height = min(tiles_m - group * GROUP, GROUP)
        top = (group * GROUP + place % height) * BM
        left = (place // height) * BN
        # What lies outside of a matrix is read as zero and not written.
        sums = tl.zeros([BM, BN], tl.float32)
        for start in range(0, k, BK):
            x = x_desc.load([top, start])
            weight = weight_desc.load([left, start])
            sums = tl.dot(x, weight.T, sums)
        row = top + tl.arange(0, BM)
        column = left + tl.arange(0, BN)
        residual_ptrs = residual_ptr + row.to(tl.int64)[:, None] * n + column[None, :]
        residual = tl.load(residual_ptrs, mask=(row < m)[:, None] & (column < n)[None, :], other=0.0)
        out_desc.store([top, left], (sums + residual.to(tl.float32)).to(residual.dtype))


def programs(device):
    """As many as there are multiprocessors, since a tile needs nearly all of one's shared memory."""
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count


class ModelNew(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, inner, dtype=torch.bfloat16) / inner**0.5)

    def forward(self, x, residual):
        kinds = {x.dtype, residual.dtype, self.weight.dtype}
        if len(kinds) > 1 or x.dtype not in (torch.float16, torch.bfloat16):
            raise TypeError(f"not supported: {kinds}")
        n, k = self.weight.shape
        if x.shape[-1] != k or residual.shape != (*x.shape[:-1], n):
            raise ValueError(f"x {tuple(x.shape)}, residual {tuple(residual.shape)}, weight {(n, k)}")
        if k % 8 or n % 8:
            raise ValueError("rows must be a multiple of 16 bytes long: the copy engine wants that")
        x, residual, weight = x.contiguous(), residual.contiguous(), self.weight.detach().contiguous()
        out = torch.empty_like(residual)
        m = x.numel() // k
        x_desc = TensorDescriptor.from_tensor(x.view(m, k), [BM, BK])
        weight_desc = TensorDescriptor.from_tensor(weight, [BN, BK])
        out_desc = TensorDescriptor.from_tensor(out.view(m, n), [BM, BN])
        grid = (min(programs(x.device), triton.cdiv(m, BM) * triton.cdiv(n, BN)),)
        linear_residual_kernel[grid](
            *(x_desc, weight_desc, residual, out_desc, m, n, k),
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP=GROUP,
            num_warps=8,
            num_stages=3,
        )
        return out
