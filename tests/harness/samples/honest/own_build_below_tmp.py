"""Own build below tmp."""

import ctypes
import hashlib
import os
import subprocess
import torch
import torch.nn as nn

SRC = r"""
#include <math.h>
#ifdef __cplusplus
extern "C"
#endif
void ln_relu(const float* x, const float* w, const float* b, float* y, long m, long n, float eps) {
    for (long i = 0; i < m; ++i) {
        double s = 0, q = 0;
        for (long j = 0; j < n; ++j) s += x[i * n + j];
        double mean = s / n;
        for (long j = 0; j < n; ++j) { double d = x[i * n + j] - mean; q += d * d; }
        float r = 1.0 / sqrt(q / n + eps);
        for (long j = 0; j < n; ++j) {
            float v = (float)(x[i * n + j] - mean) * r * w[j] + b[j];
            y[i * n + j] = v > 0 ? v : 0;
        }
    }
}
"""


def _build():
    key = hashlib.md5(SRC.encode()).hexdigest()[:8]
    so = f"/tmp/ln_relu_{key}.so"
    if not os.path.exists(so):
        src = f"/tmp/ln_relu_{key}.c"
        with open(src, "w") as f:
            f.write(SRC)
        subprocess.check_call(["gcc", "-O3", "-fPIC", "-shared", src, "-o", so, "-lm"])
    lib = ctypes.CDLL(so)
    lib.ln_relu.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_float]
    lib.ln_relu.restype = None
    return lib


_lib = None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        global _lib
        if _lib is None:
            _lib = _build()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        _lib.ln_relu(x.data_ptr(), self.ln.weight.data_ptr(), self.ln.bias.data_ptr(), y.data_ptr(), x.numel() // n, n, self.ln.eps)
        return y
