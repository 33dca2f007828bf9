"""From a module and example inputs to a self-contained problem file that was seen to do the same."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.errors import ProblemError
from harness.problem import check_source
from harness.problem_capture.construction import arguments_of
from harness.problem_capture.verify import Expected, verify
from harness.problem_capture.writing import problem_text
from harness.worker.values import Unsupported, describe_layout, pack

SEED = 1


@dataclass(frozen=True)
class Captured:
    """What was written. `packages`: installed packages beside torch that the file imports."""

    path: Path
    name: str
    packages: list[str] = field(default_factory=list)


def capture(
    module: nn.Module | Callable[..., Any],
    inputs: Any,
    path: str | Path,
    *,
    init: Sequence[Any] | Mapping[str, Any] | None = None,
    at: str = "",
    notes: str = "",
    overwrite: bool = False,
    texts: Mapping[str, str] | None = None,
) -> Captured:
    """Writes a problem file for a module (or a function) and its example inputs.

    `inputs`: one tensor, a sequence of positional arguments, or a mapping by argument name. `init`: the
    constructor's arguments, likewise; not needed where `record_constructors()` ran before the module was
    made, or where there are none. `at`: the dotted name of a submodule to capture instead, with what it is
    given when the module is called. `notes` goes into META. `texts`: for some arguments by name the
    expression that draws them; the others are drawn like their values.

    The file holds the source of the class with all that it needs from its own program, draws inputs of the
    same shapes, dtypes, strides and kinds of values, and was loaded by a new process where it gave the same
    outputs for the same weights and inputs. Raises ProblemError; then nothing is written.
    """
    target = Path(path).expanduser()
    if target.exists() and not overwrite:
        raise ProblemError(f"{target} exists already", "choose another name, or overwrite it")
    if not target.parent.is_dir():
        raise ProblemError(f"{target.parent} is not a folder", "make it first")
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    bound = _bind(module, inputs)
    if at:
        module, bound = _part(module, bound, at)
        texts = {}  # they were about the whole module's arguments
    constructed = arguments_of(module, init) if isinstance(module, nn.Module) else None
    bound = _copied(bound)
    text, packages = problem_text(module, constructed, bound, texts or {}, notes)
    check_source(text, "the captured problem")
    verify(text, _expected(module, bound))
    partial = target.with_name(target.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return Captured(target, _name(module), packages)


def _name(module: Any) -> str:
    return str(getattr(module, "__qualname__", type(module).__qualname__))


def _bind(module: Any, inputs: Any) -> inspect.BoundArguments:
    if not callable(module):
        raise ProblemError(
            f"a {type(module).__name__} is neither a module nor a function", "name an nn.Module or a function"
        )
    signature = inspect.signature(module.forward if isinstance(module, nn.Module) else module)
    try:
        if isinstance(inputs, Mapping):
            bound = signature.bind(**inputs)
        else:
            bound = signature.bind(*([inputs] if isinstance(inputs, torch.Tensor) else inputs))
    except TypeError as error:
        message = f"the inputs do not fit {_name(module)}: {error}"
        raise ProblemError(message, f"it takes {signature}") from None
    if set(bound.kwargs) & _positional(signature):  # an argument in front of these was left out
        bound.apply_defaults()
    return bound


def _positional(signature: inspect.Signature) -> set[str]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {name for name, parameter in signature.parameters.items() if parameter.kind is kind}


def _part(module: Any, bound: inspect.BoundArguments, at: str) -> tuple[nn.Module, inspect.BoundArguments]:
    """A part of a module, and what it was called with first."""
    if not isinstance(module, nn.Module):
        raise ProblemError(f"a function has no part {at}", "name a module")
    try:
        part = module.get_submodule(at)
    except AttributeError as error:
        parts = ", ".join([name for name, _ in module.named_modules() if name][:8])
        raise ProblemError(f"{_name(module)} has no part {at}: {error}", f"parts: {parts}") from None
    seen: list[inspect.BoundArguments] = []

    def look(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not seen:
            seen.append(_copied(inspect.signature(part.forward).bind(*args, **kwargs)))

    handle = part.register_forward_pre_hook(look, with_kwargs=True)
    try:
        _call(module, bound)
    finally:
        handle.remove()
    if not seen:
        raise ProblemError(f"{at} is not called for these inputs", "give inputs for which it is")
    if set(seen[0].kwargs) & _positional(seen[0].signature):
        seen[0].apply_defaults()
    return part, seen[0]


def _copied(bound: inspect.BoundArguments) -> inspect.BoundArguments:
    """The same arguments with copies of their tensors on the CPU, strides kept; equal ones stay one."""
    done: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in done:
                done[id(value)] = _tensor_copy(value)
            return done[id(value)]
        if isinstance(value, list | tuple):
            return [*map(copied, value)] if isinstance(value, list) else tuple(map(copied, value))
        if isinstance(value, dict):
            return {key: copied(v) for key, v in value.items()}
        return value

    made = inspect.BoundArguments(bound.signature, type(bound.arguments)())
    made.arguments.update((key, copied(value)) for key, value in bound.arguments.items())
    return made


def _tensor_copy(tensor: torch.Tensor) -> torch.Tensor:
    try:
        span = describe_layout([tensor], contiguous=False)[0]["span"]
    except Unsupported as error:
        raise ProblemError(f"an input cannot be captured: {error}", "give plain dense tensors") from None
    if not span:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    whole = tensor.detach().as_strided((span,), (1,), tensor.storage_offset())
    return whole.cpu().clone().as_strided(tensor.shape, tensor.stride())


def _call(module: Any, bound: inspect.BoundArguments) -> Any:
    torch.manual_seed(SEED)
    with torch.no_grad():
        return module(*bound.args, **bound.kwargs)


def _expected(module: Any, bound: inspect.BoundArguments) -> Expected:
    """What the file has to reproduce: the module itself is called, on copies, on the CPU."""
    state: dict[str, torch.Tensor] = {}
    if isinstance(module, nn.Module):
        module = copy.deepcopy(module).cpu()
        state = {k: t.clone() for k, t in module.state_dict().items() if isinstance(t, torch.Tensor)}
    arguments = _copied(bound)
    try:
        structure, results = pack(_call(module, bound))
    except Unsupported as error:
        hint = "a problem returns tensors, plain values, and lists and dicts of them"
        raise ProblemError(f"what {_name(module)} returns cannot be compared: {error}", hint) from None
    if not results:
        raise ProblemError(f"{_name(module)} returns no tensor", "a problem's outputs are tensors")
    inputs = [*arguments.args, *arguments.kwargs.values()]
    return Expected(state, inputs, structure, results, SEED)
