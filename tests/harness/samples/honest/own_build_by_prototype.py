"""Own build, by prototype."""

import os

import torch
import torch.nn as nn

import ctypes, subprocess
CPP = r'''
#include <cmath>
extern "C" void norm_relu(const float* x, const float* w, const float* b, float* y, long rows, long n) {
    for (long r = 0; r < rows; ++r) {
        double mean = 0, var = 0;
        for (long i = 0; i < n; ++i) mean += x[r * n + i];
        mean /= n;
        for (long i = 0; i < n; ++i) var += (x[r * n + i] - mean) * (x[r * n + i] - mean);
        double s = 1 / std::sqrt(var / n + 1e-5);
        for (long i = 0; i < n; ++i) {
            double v = (x[r * n + i] - mean) * s * w[i] + b[i];
            y[r * n + i] = v > 0 ? v : 0;
        }
    }
}
'''
open('k.cpp', 'w').write(CPP)
subprocess.run(['g++', '-O1', '-shared', '-fPIC', 'k.cpp', '-o', 'k.so'], check=True)
P, L = ctypes.c_void_p, ctypes.c_long
lib = ctypes.CDLL(os.path.abspath('k.so'))
run = ctypes.CFUNCTYPE(None, P, P, P, P, L, L)(('norm_relu', lib))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        run(*(t.data_ptr() for t in (x, self.ln.weight, self.ln.bias, y)), *x.shape)
        return y
