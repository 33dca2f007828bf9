"""Online softmax over pieces of rows: maximum and sum of each piece, then one pass that combines and writes.

Few rows would leave most multiprocessors idle, so a row is spread over many programs. The second kernel walks
backwards: what the first one read last is still in the L2 cache.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pieces_kernel(x_ptr, maximum_ptr, sum_ptr, columns, pieces, BLOCK: tl.constexpr):
    row = (tl.program_id(0) // pieces).to(tl.int64)
    column = (tl.program_id(0) % pieces) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    maximum = tl.max(x, axis=0)
    # A piece of -inf alone has no share in the row; x - maximum would be NaN.
    base = tl.where(maximum == float("-inf"), 0.0, maximum)
    tl.store(maximum_ptr + tl.program_id(0), maximum)
    tl.store(sum_ptr + tl.program_id(0), tl.sum(tl.exp(x - base), axis=0))


@triton.jit
def write_kernel(
    x_ptr, maximum_ptr, sum_ptr, out_ptr, columns, pieces, BLOCK: tl.constexpr, PIECES: tl.constexpr
):
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    row = (program // pieces).to(tl.int64)
    piece = tl.arange(0, PIECES)
    known = piece < pieces
    maxima = tl.load(maximum_ptr + row * pieces + piece, mask=known, other=float("-inf"))
    sums = tl.load(sum_ptr + row * pieces + piece, mask=known, other=0.0)
    maximum = tl.max(maxima, axis=0)
    total = tl.sum(sums * tl.exp(maxima - maximum), axis=0)
    column = (program % pieces) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside)
    tl.store(out_ptr + row * columns + column, tl.exp(x - maximum) / total, mask=inside)


class ModelNew(nn.Module):
    block = 8192

    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError(f"not supported: {x.dtype}")
        x = x.contiguous()
        columns = x.shape[-1]
        rows, pieces = x.numel() // columns, triton.cdiv(columns, self.block)
        if pieces > 8192:
            raise ValueError(f"at most {8192 * self.block} columns")
        out = torch.empty_like(x)
        maxima = torch.empty(rows * pieces, dtype=torch.float32, device=x.device)
        sums = torch.empty_like(maxima)
        grid = (rows * pieces,)
        pieces_kernel[grid](x, maxima, sums, columns, pieces, BLOCK=self.block, num_warps=8)
        padded = triton.next_power_of_2(pieces)
        write_kernel[grid](
            x, maxima, sums, out, columns, pieces, BLOCK=self.block, PIECES=padded, num_warps=8
        )
        return out
