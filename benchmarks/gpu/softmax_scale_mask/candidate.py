"""One row stays in the registers of one program; the mask is shared by the heads of an image."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_scale_mask_kernel(
    scores_ptr, mask_ptr, out_ptr, scale, heads, queries, keys, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    mask_row = row // (heads * queries) * queries + row % queries
    key = tl.arange(0, BLOCK)
    inside = key < keys
    scores = tl.load(scores_ptr + row * keys + key, mask=inside, other=float("-inf")).to(tl.float32) * scale
    hidden = tl.load(mask_ptr + mask_row * keys + key, mask=inside, other=1)
    scores = tl.where(hidden != 0, float("-inf"), scores)
    # A row that is hidden altogether becomes NaN, as it does in torch.
    weights = tl.exp(scores - tl.max(scores, axis=0))
    y = weights / tl.sum(weights, axis=0)
    tl.store(out_ptr + row * keys + key, y.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores, mask):
        if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16) or mask.dtype != torch.bool:
            raise TypeError(f"not supported: {scores.dtype} with a mask of {mask.dtype}")
        batch, heads, queries, keys = scores.shape
        if mask.shape != (batch, 1, queries, keys):
            raise ValueError(f"a mask of {tuple(mask.shape)} for scores of {tuple(scores.shape)}")
        if keys > 32768:
            raise ValueError("at most 32768 keys: a row must fit into the registers of a block")
        if self.scale <= 0:
            raise ValueError("the scale must be positive: what lies outside of a row is scaled with it")
        scores, mask = scores.contiguous(), mask.contiguous()
        out = torch.empty_like(scores)
        block = triton.next_power_of_2(keys)
        softmax_scale_mask_kernel[(batch * heads * queries,)](
            *(scores, mask, out, self.scale, heads, queries, keys),
            BLOCK=block,
            num_warps=min(16, max(1, block // 512)),
        )
        return out
