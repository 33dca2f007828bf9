"""Flash attention: online softmax over tiles of keys, in base two, with float32 sums.

Tiles left of the diagonal need no mask; the few on it get one. Of each head the longest rows come first.
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [
    triton.Config({"BM": 128, "BN": 128}, num_warps=8, num_stages=2),
    triton.Config({"BM": 128, "BN": 64}, num_warps=8, num_stages=3),
    triton.Config({"BM": 64, "BN": 64}, num_warps=4, num_stages=3),
]


@triton.jit
def attend(
    sums,
    total,
    peak,
    q,
    k_ptr,
    v_ptr,
    row,
    first,
    last,
    positions,
    scale,
    BN: tl.constexpr,
    SIZE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Goes on over keys `first` to `last`; peak and scores are in units of log 2."""
    place = tl.arange(0, SIZE)
    for start in range(first, last, BN):
        key = start + tl.arange(0, BN)
        k_ptrs = k_ptr + key[None, :] * SIZE + place[:, None]
        v_ptrs = v_ptr + key[:, None] * SIZE + place[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=(key < positions)[None, :], other=0.0)
        else:
            k = tl.load(k_ptrs)
        scores = tl.dot(q, k) * scale
        if MASKED:
            scores = tl.where(row[:, None] >= key[None, :], scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None]
        if MASKED:
            v = tl.load(v_ptrs, mask=(key < positions)[:, None], other=0.0)
        else:
            v = tl.load(v_ptrs)
        sums = tl.dot(weights.to(v.dtype), v, sums)
        peak = new_peak
    return sums, total, peak


@triton.autotune(configs=CONFIGS, key=["positions", "SIZE"])
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, positions, scale, BM: tl.constexpr, BN: tl.constexpr, SIZE: tl.constexpr
):
    tl.static_assert(BM % BN == 0)
    tiles = tl.cdiv(positions, BM)
    head = (tl.program_id(0) // tiles).to(tl.int64) * positions * SIZE
    top = (tiles - 1 - tl.program_id(0) % tiles) * BM
    row = top + tl.arange(0, BM)
    place = tl.arange(0, SIZE)
    index = head + row.to(tl.int64)[:, None] * SIZE + place[None, :]
    q = tl.load(q_ptr + index, mask=(row < positions)[:, None], other=0.0)
    sums = tl.zeros([BM, SIZE], tl.float32)
    total = tl.zeros([BM], tl.float32)
    peak = tl.full([BM], float("-inf"), tl.float32)
    k_ptr += head
    v_ptr += head
    sums, total, peak = attend(
        sums, total, peak, q, k_ptr, v_ptr, row, 0, top, positions, scale, BN, SIZE, False
    )
    last = min(top + BM, positions)
    sums, total, peak = attend(
        sums, total, peak, q, k_ptr, v_ptr, row, top, last, positions, scale, BN, SIZE, True
    )
    out = (sums / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + index, out, mask=(row < positions)[:, None])


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        if q.dtype not in (torch.float16, torch.bfloat16) or {k.dtype, v.dtype} != {q.dtype}:
            raise TypeError(f"not supported: {q.dtype}, {k.dtype}, {v.dtype}")
        if q.dim() != 4 or k.shape != q.shape or v.shape != q.shape:
            raise ValueError("q, k and v must be of one shape [batch, heads, positions, size]")
        batch, heads, positions, size = q.shape
        if size not in (16, 32, 64, 128):
            raise ValueError(f"heads of size {size}: 16, 32, 64 or 128 are supported")
        if positions * size >= 2**31:
            raise ValueError("a head must have less than 2^31 elements")
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        scale = size**-0.5 * 1.4426950408889634
        attention_kernel[lambda meta: (batch * heads * triton.cdiv(positions, meta["BM"]),)](
            q, k, v, out, positions, scale, SIZE=size
        )
        return out
