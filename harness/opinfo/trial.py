"""Does a problem made of a sample run as the sample does?"""

from __future__ import annotations

import time
from typing import Any

import torch

from harness.opinfo.calls import Unfit
from harness.worker.trial import all_finite
from harness.worker.values import Unsupported, describe_layout, pack

RUN_LIMIT_S = 2.0
OUTPUT_SHARE = 16  # how many times as many elements an output may have as the inputs were to have


def accept(text: str, elements: int, *, finite: bool) -> None:
    """Runs a problem's text under two seeds; `finite`: its outputs have to be. Raises Unfit."""
    space: dict[str, Any] = {"__name__": "problem"}
    exec(compile(text, "problem.py", "exec"), space)
    model = space["Model"]()
    for seed in (1, 2):
        torch.manual_seed(seed)
        start = time.perf_counter()
        try:
            inputs = space["get_inputs"]()
            with torch.no_grad():
                _, outputs = pack(model(*inputs))
            describe_layout(outputs, contiguous=True)
        except Unsupported as error:
            raise Unfit(str(error)) from None
        except Exception as error:
            raise Unfit(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None
        if time.perf_counter() - start > RUN_LIMIT_S:
            raise Unfit(f"it takes more than {RUN_LIMIT_S:g} s")
        count = sum(t.numel() for t in outputs)
        if not count:
            raise Unfit("it returns no tensor with elements")
        if elements and count > OUTPUT_SHARE * elements:
            raise Unfit(f"it returns {count} elements")
        if finite and not all_finite(outputs):
            raise Unfit("inputs that are drawn like the sample's lead to NaN or infinity")
