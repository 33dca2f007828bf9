"""Tensors as expressions that draw others of their kind."""

from __future__ import annotations

import math

import pytest
import torch

from harness.problem_capture.tensors import expression, helpers

INFINITE = float("inf")


def drawn(tensor: torch.Tensor) -> torch.Tensor:
    text = expression(tensor)
    space = {"torch": torch}
    for source in helpers(text):
        exec(source, space)
    torch.manual_seed(5)
    return eval(text, space)


def made(make: str) -> torch.Tensor:
    torch.manual_seed(1)
    return eval(make, {"torch": torch, "inf": INFINITE})


@pytest.mark.parametrize(
    "make",
    [
        "torch.randn(8, 1024)",
        "torch.randn(64, 48).t()",
        "torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)",
        "torch.randn(3, 4, 5, 6).permute(0, 2, 1, 3)",
        "torch.randn(1, 40).expand(4, 40)",
        "torch.randn(8, 16)[:, ::2]",
        "torch.randn(100).unfold(0, 10, 1)",
        "torch.randn(500, dtype=torch.bfloat16) * 3 + 7",
        "torch.randn(50).to(torch.float8_e4m3fn)",
        "torch.randn(40, dtype=torch.complex64)",
        "torch.rand(6, 7) < 0.3",
        "torch.randint(0, 9, (33,)).to(torch.uint16)",
        "torch.randint(0, 100, (300,)).float()",
        "torch.randn(1000).exp()",
        "torch.tensor(3.5)",
        "torch.tensor(7)",
        "torch.empty(0, 3)",
        "torch.tensor([float('nan'), 1.0])",
        "torch.nn.functional.one_hot(torch.arange(40) % 5, 5).float()",
    ],
)
def test_shape_dtype_and_strides_are_kept(make: str) -> None:
    tensor = made(make)
    other = drawn(tensor)
    assert (other.shape, other.dtype, other.stride()) == (tensor.shape, tensor.dtype, tensor.stride())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        ("torch.randn(8, 1024)", "torch.randn(8, 1024)"),
        ("torch.rand(8, 1024)", "torch.rand(8, 1024)"),
        ("torch.zeros(3)", "torch.zeros(3)"),
        ("torch.randn(64, 64).softmax(-1)", "torch.randn(64, 64).softmax(-1)"),
        ("torch.randperm(100)", "torch.randperm(100)"),
    ],
)
def test_common_kinds_read_as_one_would_write_them(make: str, text: str) -> None:
    assert expression(made(make)) == text


@pytest.mark.parametrize(
    "make",
    [
        "torch.ones(5, 5, dtype=torch.bool).tril()",
        "torch.full((6, 6), -inf).triu(1)",
        "torch.arange(12).expand(3, 12)",
        "torch.tensor([0, 3, 7, 7, 12])",
        "torch.full((2, 2), 2.5)",
    ],
)
def test_structure_is_kept_exactly(make: str) -> None:
    assert torch.equal(drawn(made(make)), made(make))


def test_values_keep_their_range_and_spread() -> None:
    index = drawn(made("torch.randint(20, 50257, (4, 512))"))
    assert int(index.min()) >= 20
    assert int(index.max()) < 50257
    positive = made("torch.randn(4000).exp()")
    other = drawn(positive)
    assert float(other.min()) > 0
    assert math.isclose(float(other.median()), float(positive.median()), rel_tol=0.1)
    shifted = drawn(made("torch.randn(4000) * 3 + 7"))
    assert math.isclose(float(shifted.mean()), 7, rel_tol=0.05)
    assert math.isclose(float(shifted.std()), 3, rel_tol=0.1)


def test_scaled_shapes_keep_the_kind_of_values() -> None:
    text = expression(made("torch.rand(5, 5) * 18 - 9"), (100, 3))
    values = eval(text, {"torch": torch})
    assert values.shape == (100, 3)
    assert -9 <= float(values.min()) < -5 < 5 < float(values.max()) <= 9
