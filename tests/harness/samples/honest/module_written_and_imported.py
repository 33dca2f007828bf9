"""Module written and imported."""

import importlib.util
import os
import sys
import tempfile
import textwrap

import torch
import torch.nn as nn


def _load_source(name: str, source: str):
    """Triton needs a file to read the kernel's source from."""
    folder = tempfile.mkdtemp(prefix="codegen_")
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w") as f:
        f.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _source(act: str) -> str:
    body = {"relu": "tl.maximum(y, 0.0)", "none": "y"}[act]
    return textwrap.dedent(
        f"""
        import triton
        import triton.language as tl


        @triton.jit
        def kernel(x_ptr, w_ptr, b_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
            row = tl.program_id(0)
            cols = tl.arange(0, BLOCK)
            mask = cols < N
            x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
            mean = tl.sum(x, axis=0) / N
            d = tl.where(mask, x - mean, 0.0)
            rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N + eps)
            y = d * rstd * tl.load(w_ptr + cols, mask=mask) + tl.load(b_ptr + cols, mask=mask)
            tl.store(y_ptr + row * N + cols, {body}, mask=mask)
        """
    )


_mod = _load_source("generated_ln", _source("relu"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty_like(x)
        _mod.kernel[(x.numel() // n,)](x, self.ln.weight, self.ln.bias, y, n, self.ln.eps, BLOCK=1 << (n - 1).bit_length())
        return y
