import torch, triton
import triton.language as tl
@triton.jit
def kernel(x, scale, y, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.maximum(v, 0.0) * tl.load(scale + i % N), mask=i < n)
