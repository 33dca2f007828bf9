"""Weights that a candidate packs while they are loaded, in any of the ways that torch has for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness import Evaluation
from harness.worker.loading import load_again

Evaluate = Callable[..., Evaluation]
HEADER = "import torch\nfrom torch import nn\n"
PROBLEM = (
    HEADER
    + """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)
        self.norm = nn.BatchNorm1d(n)
        self.eval()
    def forward(self, x):
        return self.norm(self.lin(x))
def get_inputs():
    return [torch.rand(16, 24)]
def get_init_inputs():
    return [24]
"""
)
FORWARD = "\n    def forward(self, x):\n        return self.norm(x @ self.lin.packed + self.lin.bias)\n"
KEPT = """
    def forward(self, x):
        if not hasattr(self, "kept"):
            self.kept = self.lin.weight.t().clone()
        return self.norm(x @ self.kept + self.lin.bias)
"""
PACK = """
class Packed(nn.Linear):
    def __init__(self, n):
        super().__init__(n, n)
        self.pack()
    def pack(self, *_):
        self.packed = self.weight.detach().t().contiguous()
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = Packed(n)
        self.norm = nn.BatchNorm1d(n)
        self.eval()
"""
METHOD = """
    def _load_from_state_dict(self, *rest):
        super()._load_from_state_dict(*rest)
        self.pack()
"""
WHOLE = """
    def load_state_dict(self, state_dict, strict=True, assign=False):
        self.lin.packed = state_dict["lin.weight"].t().contiguous()
        return super().load_state_dict(state_dict, strict, assign)
"""
POST_HOOK = "        self.lin.register_load_state_dict_post_hook(lambda module, keys: module.pack())\n"
PRE_HOOK = """        self._register_load_state_dict_pre_hook(self.before)
    def before(self, state_dict, prefix, *_):
        self.lin.packed = state_dict[prefix + "lin.weight"].t().contiguous()
"""
# The parameter itself holds them in another form.
IN_PLACE = """
    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict = {**state_dict, prefix + "weight": state_dict[prefix + "weight"].t()}
        super()._load_from_state_dict(state_dict, prefix, *rest)
"""


WAYS = {
    "method": PACK + METHOD + MODEL + FORWARD,
    "whole": PACK + MODEL + WHOLE + FORWARD,
    "post-hook": PACK + MODEL + POST_HOOK + FORWARD,
    "pre-hook": PACK + MODEL + PRE_HOOK + FORWARD,
    "in place": PACK + IN_PLACE + MODEL + FORWARD.replace("packed", "weight"),
}


@pytest.mark.parametrize("source", WAYS.values(), ids=WAYS)
def test_weights_packed_while_they_are_loaded(evaluate: Evaluate, source: str) -> None:
    result = evaluate(PROBLEM, HEADER + source)
    assert result.status == "correct", result.reason
    assert "load-failed" not in {flag["rule"] for flag in result.flags}


def test_weights_packed_when_it_was_built_are_stale(evaluate: Evaluate) -> None:
    baked = evaluate(PROBLEM, HEADER + PACK + MODEL + FORWARD)
    assert baked.status == "incorrect"
    idle = PACK + METHOD.replace("self.pack()", "pass") + MODEL + FORWARD
    assert evaluate(PROBLEM, HEADER + idle).status == "incorrect"
    kept = evaluate(PROBLEM, HEADER + PACK + MODEL + KEPT)
    assert kept.status == "incorrect"
    assert "weights loaded anew" in kept.reason


def test_a_way_of_loading_that_fails_is_named(evaluate: Evaluate) -> None:
    """It may be meant for names of somebody else's; the weights are there all the same."""
    broken = WHOLE.replace("lin.weight", "theirs.weight")
    direct = FORWARD.replace("self.lin.packed", "self.lin.weight.t()")
    result = evaluate(PROBLEM, HEADER + PACK + MODEL + broken + direct)
    assert result.status == "correct", result.reason
    (flag,) = [flag for flag in result.flags if flag["rule"] == "load-failed"]
    assert "theirs.weight" in flag["detail"]


def test_torch_s_own_modules_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load(self: torch.nn.Module, _: object) -> None:
        loaded.append(self)

    load.__module__ = torch.nn.Module.__module__
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", load)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.LSTM(2, 2))
    assert load_again(model) == ""
    assert not loaded
    model[0].register_load_state_dict_post_hook(print)
    assert load_again(model) == ""
    assert loaded == [model]
