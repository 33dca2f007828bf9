"""Own build, loaded through ctypes from a relative path, beside a library operator."""

import torch
import torch.nn as nn

import ctypes, subprocess
CPP = r'''
extern "C" void clamp(float* x, long n) {
    for (long i = 0; i < n; ++i) if (x[i] < 0) x[i] = 0;
}
'''
open('k.cpp', 'w').write(CPP)
subprocess.run(['g++', '-O1', '-shared', '-fPIC', 'k.cpp', '-o', 'k.so'], check=True)
P, L = ctypes.c_void_p, ctypes.c_long
run = ctypes.CDLL('./k.so').clamp
run.argtypes = [P, L]
run.restype = None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        y = self.ln(x).contiguous()
        run(y.data_ptr(), y.numel())
        return y
