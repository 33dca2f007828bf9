"""One program per position of a sequence: its angles are loaded once for the heads of both q and k."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rotate(x_ptr, out_ptr, heads, half, cos, sin, HEADS: tl.constexpr, HALF: tl.constexpr):
    """All heads of one position; `cos` and `sin` are pairs, of the lower and the upper half of a head."""
    head = tl.arange(0, HEADS)[:, None]
    place = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (place < half)
    index = head * 2 * half + place
    low = tl.load(x_ptr + index, mask=inside).to(tl.float32)
    high = tl.load(x_ptr + index + half, mask=inside).to(tl.float32)
    kind = out_ptr.dtype.element_ty
    tl.store(out_ptr + index, (low * cos[0] - high * sin[0]).to(kind), mask=inside)
    tl.store(out_ptr + index + half, (high * cos[1] + low * sin[1]).to(kind), mask=inside)


@triton.jit
def rotary_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    new_q_ptr,
    new_k_ptr,
    positions,
    query_heads,
    key_heads,
    half,
    QUERY_HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, HALF)[None, :]
    inside = place < half
    angle = (start % positions) * 2 * half + place
    cos = (
        tl.load(cos_ptr + angle, mask=inside).to(tl.float32),
        tl.load(cos_ptr + angle + half, mask=inside).to(tl.float32),
    )
    sin = (
        tl.load(sin_ptr + angle, mask=inside).to(tl.float32),
        tl.load(sin_ptr + angle + half, mask=inside).to(tl.float32),
    )
    q_start = start * query_heads * 2 * half
    rotate(q_ptr + q_start, new_q_ptr + q_start, query_heads, half, cos, sin, QUERY_HEADS, HALF)
    k_start = start * key_heads * 2 * half
    rotate(k_ptr + k_start, new_k_ptr + k_start, key_heads, half, cos, sin, KEY_HEADS, HALF)


class ModelNew(nn.Module):
    def forward(self, q, k, cos, sin):
        kinds = {t.dtype for t in (q, k, cos, sin)}
        if len(kinds) > 1 or q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"not supported: {kinds}")
        batch, positions, query_heads, size = q.shape
        key_heads = k.shape[2]
        if k.shape != (batch, positions, key_heads, size) or size % 2:
            raise ValueError("q and k must be [batch, positions, heads, even size]")
        if cos.shape != (positions, size) or sin.shape != cos.shape:
            raise ValueError("cos and sin must be [positions, size]")
        q, k, cos, sin = q.contiguous(), k.contiguous(), cos.contiguous(), sin.contiguous()
        new_q, new_k = torch.empty_like(q), torch.empty_like(k)
        rotary_kernel[(batch * positions,)](
            *(q, k, cos, sin, new_q, new_k, positions, query_heads, key_heads, size // 2),
            QUERY_HEADS=triton.next_power_of_2(query_heads),
            KEY_HEADS=triton.next_power_of_2(key_heads),
            HALF=triton.next_power_of_2(size // 2),
            num_warps=4,
        )
        return new_q, new_k
