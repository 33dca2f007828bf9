"""The one torch call behind a sample of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from harness.worker.trial import all_finite


class Unfit(Exception):
    """A sample or a text of it that makes no problem; says why in one line."""


@dataclass(frozen=True)
class Call:
    """A torch function with a sample's arguments. `text`: how the function is written; `finite`: whether
    its results are.
    """

    text: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    finite: bool

    @property
    def tensors(self) -> list[torch.Tensor]:
        return list(tensors_in((self.args, self.kwargs)))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def call_of(op: Any, sample: Any) -> Call:
    """The call that the database makes for a sample, as torch names it.

    Many of its operators are anonymous functions: what they call is seen by running them. Raises Unfit.
    """
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    if any(t.layout is not torch.strided for t in tensors_in((args, kwargs))):
        raise Unfit("it takes a sparse tensor")
    copies = _copied((args, kwargs))
    try:
        with _Recorder() as recorder:
            result = op.op(*copies[0], **copies[1])
    except Exception as error:  # an operator of another device, or of a library that is not there
        raise Unfit(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    finite = all_finite([t for t in tensors_in(result) if t.layout is torch.strided])
    if _public(op.name) is op.op:
        return Call(f"torch.{op.name}", args, kwargs, finite)
    if len(recorder.calls) != 1:
        raise Unfit("the database composes it of several calls")
    func, args, kwargs = recorder.calls[0]
    name = resolve_name(func) or str(func)
    if name.startswith("aten."):
        name = f"torch.ops.{name}"
    if not name.startswith("torch."):
        raise Unfit("torch has no public name for it")
    return Call(name, args, kwargs, finite)


class _Recorder(TorchFunctionMode):
    """Notes the outermost calls of torch functions that return tensors, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _copied((tuple(args), dict(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        if any(True for _ in tensors_in(result)):
            self.calls.append((func, *before))
        return result


def _copied(value: Any) -> Any:
    """Copies of all tensors, strides kept; equal ones become two."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if isinstance(value, dict):
        return {key: _copied(v) for key, v in value.items()}
    return value


def _public(name: str) -> Any:
    place: Any = torch
    for part in name.split("."):
        place = getattr(place, part, None)
    return place
