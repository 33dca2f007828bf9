"""Compiled without graph breaks."""

import torch
import torch.nn as nn

torch.set_float32_matmul_precision("highest")
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = False


@torch.compile(fullgraph=True, dynamic=False)
def _norm(x, w, b, eps: float):
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    return torch.relu((x - mean) * torch.rsqrt(var + eps) * w + b)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return _norm(x, self.ln.weight, self.ln.bias, self.ln.eps)
