"""Code made by string template."""

from string import Template

import torch
import torch.nn as nn

TEMPLATE = Template(
    """
def ${name}(x, w, b, eps: float):
    m = x.mean(${dim}, keepdim=True)
    v = (x - m).pow(2).mean(${dim}, keepdim=True)
    return ${act}((x - m) / torch.sqrt(v + eps) * w + b)
"""
)
_ns = {"torch": torch}
exec(TEMPLATE.substitute(name="ln_act", dim="-1", act="torch.relu"), _ns)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)

    def forward(self, x):
        return _ns["ln_act"](x, self.ln.weight, self.ln.bias, self.ln.eps)
