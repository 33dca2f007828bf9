"""What a step asks for: in the words of the documents, from the traced reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prompts import PromptRequest
from prompts.questions import access, plan


def reference(op: str, *args: Any) -> dict[str, Any]:
    x = {"name": "x", "shape": [8, 3, 32, 32], "dtype": "float32"}
    node = {"name": "y", "op": op, "args": [{"ref": "x"}, *args], "outputs": [{"name": "y", "shape": [8]}]}
    return {"inputs": [x], "nodes": [node]}


@pytest.mark.parametrize(
    ("op", "args", "words"),
    [
        ("aten.mean.dim", ([1], True), "not the last (dim=1)"),
        ("aten._softmax.default", (-1, False), "last dimension, row by row"),
        ("aten.amax.default", ([-3],), "not the last (dim=1)"),
        ("aten.sum.default", (), "everything to one value"),
        ("aten.sum.dim_IntList", ([0, 1, 2, 3],), "everything to one value"),
        ("aten.permute.default", ([0, 2, 3, 1],), "permuted layout"),
        ("aten.add.Tensor", (1,), ""),
    ],
)
def test_access_is_named_in_words_of_documents(op: str, args: tuple[Any, ...], words: str) -> None:
    found = access(reference(op, *args))
    assert (words in found) if words else found == ""


def test_a_reduction_over_channels_brings_the_strided_words_into_the_questions(draft: PromptRequest) -> None:
    request = replace(draft, facts=reference("aten.mean.dim", [1], True))
    assert all("not the last" in question.text for question in plan(request) if question.kinds is None)
