"""Calls of torch functions are named, and operations counted as torch's own counter does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from harness.worker.evidence.calls import CallLog


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda: t(5, 7) @ t(7, 3),
        lambda: torch.bmm(t(2, 5, 7), t(2, 7, 3)),
        lambda: torch.addmm(t(3), t(5, 7), t(7, 3)),
        lambda: functional.linear(t(2, 5, 7), t(3, 7), t(3)),
        lambda: functional.conv2d(t(2, 4, 9, 9), t(6, 2, 3, 3), groups=2),
        lambda: functional.conv_transpose2d(t(2, 4, 9, 9), t(4, 6, 3, 3)),
    ],
)
def test_operations_are_those_of_torch(call: Callable[[], Any]) -> None:
    with FlopCounterMode(display=False) as counter:
        call()
    with CallLog() as log:
        call()
    assert log.operations == counter.get_total_flops() > 0


def test_calls_are_named_and_questions_are_not() -> None:
    x = t(4, 4)
    with CallLog() as log:
        torch.relu_(x.view(16)).data_ptr()
        _ = x.shape, x[0]
        functional.leaky_relu(x)
        torch.ops.aten.mm(x, x)
    assert log.names == ["aten::view", "aten::relu_", "aten::leaky_relu", "aten::mm"]


def test_attention_counts_both_of_its_products() -> None:
    with CallLog() as log:
        functional.scaled_dot_product_attention(t(2, 3, 8, 16), t(2, 3, 8, 16), t(2, 3, 8, 16))
    assert log.operations == 2 * (2 * 3 * 8 * 8 * 16) * 2
