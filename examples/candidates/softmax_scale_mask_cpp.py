"""C++ for ../problems/softmax_scale_mask.py: scale, mask and softmax in one walk over each row.

The first pass reads the scores from memory, adds the mask of the row's sequence and finds the maximum; the
row is then in cache for the exponential and the scaling. The mask is read in place, never expanded.
"""

import math

import torch
from torch import nn

from harness.native import load_cpp

CPP_SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <ke_math.h>

extern "C" void scaled_masked_softmax(const float* scores, const float* mask, float* out, int64_t rows,
                                      int64_t columns, int64_t rows_per_mask, float scale) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = scores + r * columns;
    const float* m = mask + r / rows_per_mask * columns;
    float* o = out + r * columns;
    float peak = -INFINITY;
#pragma omp simd reduction(max : peak)
    for (int64_t i = 0; i < columns; ++i) {
      o[i] = x[i] * scale + m[i];
      peak = o[i] > peak ? o[i] : peak;
    }
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < columns; ++i) {
      o[i] = ke_exp(o[i] - peak);
      total += o[i];
    }
    const float inverse = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) o[i] *= inverse;
  }
}
"""
lib = load_cpp(CPP_SOURCE)


class ModelNew(nn.Module):
    def __init__(self, head_size: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(head_size)

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = scores.contiguous()
        batch, heads, queries, keys = scores.shape
        if mask.shape != (batch, 1, 1, keys):
            raise ValueError(f"expected a mask of shape {(batch, 1, 1, keys)}, got {tuple(mask.shape)}")
        out = torch.empty_like(scores)
        lib.scaled_masked_softmax(
            scores, mask.contiguous(), out, batch * heads * queries, keys, heads * queries, self.scale
        )
        return out
