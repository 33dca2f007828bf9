"""What a CUDA device reaches: `python -m harness.worker.device.ceilings` prints it as one JSON object.

In a process of its own, since a device's context costs memory on it for as long as the process lives.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from harness.worker.device import driver as device

SIZES = {torch.float32: 6144, torch.float16: 8192, torch.bfloat16: 8192}


def measure() -> dict[str, Any]:
    """`bandwidth_gb_s`: a large copy, bytes read plus written; `*_gflop_s`: 2 n^3 / t of a matrix product.
    `fp32` is computed in full, `tf32` by the tensor cores.
    """
    device.start()
    found: dict[str, Any] = {"device": device.name(), "bandwidth_gb_s": device.copy_rate() / 1e9}
    for key, dtype, tf32 in (
        ("fp32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("fp16", torch.float16, False),
        ("bf16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        found[f"{key}_gflop_s"] = device.matrix_rate("cuda", SIZES[dtype], dtype) / 1e9
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()))
