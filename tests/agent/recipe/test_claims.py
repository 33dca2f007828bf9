"""What the recipe predicts: from the traffic that a fusion saves, and from what the roofline leaves."""

from __future__ import annotations

import pytest

from agent.recipe import claims
from harness.worker.model import GraphNode, ProblemFacts, TensorSpec


def test_a_fusion_predicts_the_traffic_that_it_saves():
    x = TensorSpec("x", (1000,), "float32", (1,))
    ops = ["aten.mul.Tensor", "aten.view.default", "aten.exp.default"]
    nodes = [GraphNode(op, op, [], {}, [x]) for op in ops]
    facts = ProblemFacts("p", [x], [], [], [x], nodes, [], bytes_min=8000)
    claim = claims.fusion("fuse", facts)
    assert claim.predicted == pytest.approx((2**0.5, 2.0))  # one intermediate is neither written nor read


def test_advice_predicts_no_more_than_the_roofline_leaves():
    near, far = ({"roofline": {"fraction": share}} for share in (0.8, 0.1))
    assert claims.advised_change("c", "b", near).predicted == pytest.approx((1.02, 1.25))
    assert claims.advised_change("c", "b", far).predicted == pytest.approx((1.02, 1.5))
    unknown = claims.advised_change("c", "b", {})
    assert (unknown.predicted, unknown.faster) == (None, True)
    assert claims.repair("c", "incorrect").correct
