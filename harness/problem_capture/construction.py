"""With what a module was constructed, and Python text that constructs the same again."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

from harness.errors import ProblemError
from harness.worker.values import DTYPES, dtype_name

LITERAL_LIMIT = 4096  # elements of a tensor among the arguments
_RECORD = "_kernelevolve_constructed_with"  # in a module's own dictionary: (args, kwargs)


def record_constructors() -> None:
    """Remembers the arguments of every module that is constructed from now on in this process."""

    def new(cls: type[nn.Module], *args: Any, **kwargs: Any) -> nn.Module:
        above = super(nn.Module, cls).__new__
        made = above(cls) if above is object.__new__ else above(cls, *args, **kwargs)
        made.__dict__[_RECORD] = (args, kwargs)
        return made

    nn.Module.__new__ = new  # type: ignore[method-assign, assignment]


def arguments_of(module: nn.Module, given: Any = None) -> inspect.BoundArguments:
    """The constructor's arguments: given (a sequence or a mapping), else recorded, else none.

    Raises ProblemError where they do not fit, or are not known and the constructor needs some.
    """
    name = type(module).__qualname__
    signature = inspect.signature(type(module).__init__)
    if given is None:
        args, kwargs = module.__dict__.get(_RECORD, ((), {}))
    else:
        args, kwargs = ((), dict(given)) if isinstance(given, dict) else (tuple(given), {})
    try:
        return signature.bind(module, *args, **kwargs)
    except TypeError as error:
        if given is None and _RECORD not in module.__dict__:
            hint = "give them as init=…, or call record_constructors() before the module is made"
            raise ProblemError(f"the constructor arguments of {name} are not known ({error})", hint) from None
        raise ProblemError(f"{name} cannot be constructed: {error}", "give all its arguments") from None


def is_plain(value: Any) -> bool:
    """Whether a problem's get_init_inputs() may hand this to the worker as it is."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(v) for key, v in value.items())
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, torch.dtype)


def render(value: Any, name_of: Callable[[Any], str]) -> str:
    """Text of an equal value. `name_of` makes a class or function available and says what it is called.

    Raises ProblemError for something that has no such text.
    """

    def inner(part: Any) -> str:
        return render(part, name_of)

    if isinstance(value, enum.Enum):
        return f"{name_of(type(value))}.{value.name}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or value is Ellipsis or isinstance(value, bool | int | float | complex | str | bytes):
        return "..." if value is Ellipsis else repr(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return str(value)
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, torch.device):
        return f'torch.device("{value.type}")'
    if isinstance(value, slice):
        return f"slice({', '.join(map(inner, (value.start, value.stop, value.step)))})"
    if type(value) is tuple:
        return f"({', '.join(map(inner, value))}{',' if len(value) == 1 else ''})"
    if type(value) in (list, set) and (value or type(value) is list):
        left, right = "[]" if isinstance(value, list) else "{}"
        return f"{left}{', '.join(map(inner, value))}{right}"
    if type(value) is dict:
        return "{" + ", ".join(f"{inner(k)}: {inner(v)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.Tensor) and value.numel() <= LITERAL_LIMIT and value.dtype in DTYPES.values():
        return f"torch.tensor({inner(value.tolist())}, dtype=torch.{dtype_name(value.dtype)})"
    if isinstance(value, nn.Module):
        return f"{name_of(type(value))}({_call(arguments_of(value), inner)})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        parts = (f"{name}={inner(getattr(value, name))}" for name in fields)
        return f"{name_of(type(value))}({', '.join(parts)})"
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return name_of(value)
    raise ProblemError(
        f"a value of type {type(value).__qualname__} cannot be written into a file",
        "use plain values, dataclasses, modules or functions of a file",
    )


def call_text(arguments: inspect.BoundArguments, name_of: Callable[[Any], str]) -> str:
    """The arguments of a constructor, without `self`, as they stand between its parentheses."""
    return _call(arguments, lambda value: render(value, name_of))


def _call(arguments: inspect.BoundArguments, text: Callable[[Any], str]) -> str:
    named = (f"{key}={text(value)}" for key, value in arguments.kwargs.items())
    return ", ".join([*map(text, arguments.args[1:]), *named])
