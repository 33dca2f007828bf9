"""Load inline below tmp."""

import os
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.makedirs("/tmp/ln_relu_build", exist_ok=True)
os.environ["TORCH_EXTENSIONS_DIR"] = "/tmp/ln_relu_ext"

cpp_source = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor ln_relu(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const int64_t n = x.size(-1), m = x.numel() / n;
    const float *xp = x.data_ptr<float>(), *wp = w.data_ptr<float>(), *bp = b.data_ptr<float>();
    float* yp = y.data_ptr<float>();
    #pragma omp parallel for
    for (int64_t i = 0; i < m; ++i) {
        double s = 0, q = 0;
        for (int64_t j = 0; j < n; ++j) s += xp[i * n + j];
        const double mean = s / n;
        for (int64_t j = 0; j < n; ++j) { double d = xp[i * n + j] - mean; q += d * d; }
        const float r = 1.0 / std::sqrt(q / n + eps);
        for (int64_t j = 0; j < n; ++j) {
            float v = (float)(xp[i * n + j] - mean) * r * wp[j] + bp[j];
            yp[i * n + j] = v > 0 ? v : 0;
        }
    }
    return y;
}
"""

ln_relu_ext = load_inline(
    name="ln_relu_ext",
    cpp_sources=[cpp_source],
    functions=["ln_relu"],
    extra_cflags=["-O3", "-fopenmp", "-march=native"],
    extra_ldflags=["-fopenmp"],
    build_directory="/tmp/ln_relu_build",
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.ext = ln_relu_ext

    def forward(self, x):
        return self.ext.ln_relu(x, self.ln.weight, self.ln.bias, self.ln.eps)
