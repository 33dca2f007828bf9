"""What makes a problem weak: what would pass for its output without being it.

Runs in the reference child, on trusted code alone, with the same comparison that candidates are held to.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from harness.worker.child import float_state
from harness.worker.compare import Tolerance, compare
from harness.worker.inputs import DISTRIBUTIONS, sparse_edit
from harness.worker.reference import perturbed
from harness.worker.trial import all_finite, same_bytes
from harness.worker.values import pack, unpack

Finding = dict[str, str]
Tensors = list[torch.Tensor]

BUDGET_S = 60.0  # from here on no further check is begun
MANY = 16  # inputs or weights looked at one by one
_SEED = 0


class Subject:
    """A reference with what it takes. Runs leave no trace in inputs, parameters or buffers.

    `make` constructs another instance as this one was constructed; `draw` maps a seed to arguments.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        make: Callable[[], torch.nn.Module],
        draw: Callable[[int], list[Any]],
        tolerance: Tolerance,
    ) -> None:
        self.model, self.make, self.draw, self.tolerance = model, make, draw, tolerance
        self.state = {name: t.detach().clone() for name, t in float_state(model).items()}
        self.structure, self.tensors = pack(draw(1))
        self.exact = True  # the reference can be run in double precision, as far as is known

    def run(
        self, tensors: Sequence[torch.Tensor], model: torch.nn.Module | None = None, *, restore: bool = True
    ) -> Tensors:
        """Copies of what the reference (or another instance of it) returns for these tensors."""
        model = self.model if model is None else model
        torch.manual_seed(_SEED)
        try:
            with torch.no_grad():
                _, results = pack(model(*unpack(self.structure, [t.clone() for t in tensors])))
            return [t.detach().clone() for t in results]
        finally:
            if restore:
                self.restore(model)

    def restore(self, model: torch.nn.Module) -> None:
        with torch.no_grad():
            for name, tensor in float_state(model).items():
                if name in self.state:
                    tensor.copy_(self.state[name])

    def fresh(self) -> torch.nn.Module:
        """Another instance with the same state."""
        model = self.make()
        self.restore(model)
        return model

    def takes(self, tensors: Sequence[torch.Tensor]) -> Tensors | None:
        """The outputs, where the reference returns with finite ones."""
        try:
            outputs = self.run(tensors)
        except Exception:  # whatever the reference's domain makes it raise
            return None
        return outputs if all_finite(outputs) else None

    def run_double(self, tensors: Sequence[torch.Tensor]) -> Tensors | None:
        """The outputs in double precision, where the reference can be run that way."""
        if not self.exact:
            return None
        try:
            wide = copy.deepcopy(self.model).double()
            floating = [t.double() if t.is_floating_point() else t for t in tensors]
            torch.manual_seed(_SEED)
            with torch.no_grad():
                _, results = pack(wide(*unpack(self.structure, [t.clone() for t in floating])))
        except Exception:
            self.exact = False
            return None
        return results

    def passes(self, mine: Tensors, theirs: Tensors, double: Tensors | None = None) -> bool:
        """Whether the judge would take these outputs for the reference's."""
        if [(t.shape, t.dtype) for t in mine] != [(t.shape, t.dtype) for t in theirs]:
            return False
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            exact = double[i] if double is not None and double[i].shape == b.shape else None
            exact = exact if exact is not None and exact.dtype == torch.float64 else None
            if compare(a, b, self.tolerance, exact).problem:
                return False
        return True


def constancy(subject: Subject) -> tuple[list[Finding], bool, bool]:
    """Does the output repeat for equal inputs and seeds? Findings; whether calls of one instance agree; and
    whether first calls of several do.

    What differs by rounding alone (a sum in no fixed order) counts as equal. Parameters and buffers stay as
    the first call leaves them: where the second depends on that, so will a caller's.
    """
    first, second = subject.run(subject.tensors, restore=False), subject.run(subject.tensors)
    if _alike(first, second) and same_bytes(first, second):
        return [], True, True
    if subject.passes(second, first):
        return [finding("rounding-noise", "info", "outputs for equal inputs differ by rounding")], True, True
    ours, theirs = (subject.run(subject.tensors, subject.fresh()) for _ in range(2))
    if subject.passes(ours, theirs):
        detail = "the reference's output depends on its earlier calls"
        return [finding("stateful-output", "warning", detail)], False, True
    detail = "the reference gives another output for equal inputs and seeds"
    return [finding("random-output", "warning", detail)], False, False


def dependence(subject: Subject) -> list[Finding]:
    """Does the output depend on the inputs, and, more than the tolerance hides, on each of them?"""
    first = subject.run(subject.tensors)
    _, others = pack(subject.draw(2))
    if not _alike(subject.tensors, others):
        return []
    if _alike(first, new := subject.run(others)) and same_bytes(first, new):
        return [finding("constant-output", "warning", "the reference's output does not depend on its inputs")]
    found = []
    for i in range(len(others)) if 1 < len(others) <= MANY else ():
        if same_bytes([others[i]], [subject.tensors[i]]):
            continue
        mixed = [*subject.tensors[:i], others[i], *subject.tensors[i + 1 :]]
        if subject.passes(subject.run(mixed), first):
            detail = f"the reference's output does not depend on input {i}"
            found.append(finding("input-does-not-matter", "warning", detail))
    return found


def glance(subject: Subject) -> tuple[list[Finding], bool, bool]:
    """What shows in a few calls: effects of forward, and whether its output depends on its inputs alone and
    on all of them. Also: whether calls agree, and whether first calls of several instances do.
    """
    found = _effects(subject)
    unsteady, repeats, restarts = constancy(subject)
    return [*found, *unsteady, *(dependence(subject) if repeats else [])], repeats, restarts


def check(subject: Subject) -> list[Finding]:
    """All that is weak about a problem. Severities: `warning` where the judge's own inputs do not tell a
    wrong candidate apart either, `info` where only the problem's inputs do not.
    """
    deadline = time.monotonic() + BUDGET_S
    found, repeats, _ = glance(subject)
    if not all_finite(subject.run(subject.tensors)):
        found.append(finding("non-finite-output", "info", "NaN or infinity among the reference's outputs"))
    if not repeats:
        return found
    for what, look in (("weights", _weights), ("what passes for the output", _substitutes)):
        if time.monotonic() > deadline:
            found.append(finding("check-cut-short", "info", f"no time was left to look at {what}"))
        else:
            found += look(subject)
    return found


def _effects(subject: Subject) -> list[Finding]:
    """Changes that forward makes to what it is given and to its state."""
    found = []
    arguments = unpack(subject.structure, given := [t.clone() for t in subject.tensors])
    torch.manual_seed(_SEED)
    with torch.no_grad():
        subject.model(*arguments)
    if not same_bytes(subject.tensors, given):
        found.append(finding("mutates-inputs", "info", "the reference changes its inputs"))
    now = float_state(subject.model)
    changed = [name for name, t in subject.state.items() if not same_bytes([t], [now[name].detach()])]
    if changed:
        found.append(
            finding("mutates-state", "info", f"the reference's forward changes {', '.join(changed[:4])}")
        )
    subject.restore(subject.model)
    return found


def _weights(subject: Subject) -> list[Finding]:
    """Does the output depend on the weights, and on each parameter?"""
    names = [name for name, t in subject.state.items() if t.is_floating_point() and t.numel()]
    if not names:
        return []
    first = subject.run(subject.tensors)
    original = subject.state
    parameters = {name for name, _ in subject.model.named_parameters()}

    def with_changed(chosen: Sequence[str]) -> Tensors:
        changed = dict(original)
        generator = torch.Generator(original[chosen[0]].device).manual_seed(7)
        for name in chosen:
            changed[name] = perturbed(original[name], generator, parameter=name in parameters)
        subject.state = changed
        subject.restore(subject.model)
        try:
            return subject.run(subject.tensors)
        finally:
            subject.state = original
            subject.restore(subject.model)

    if subject.passes(with_changed(names), first):
        detail = "the reference's output does not depend on its weights"
        return [finding("weights-do-not-matter", "warning", detail)]
    if len(names) > MANY:
        return []
    idle = [name for name in names if name in parameters and subject.passes(with_changed([name]), first)]
    if not idle:
        return []
    detail = f"the reference's output does not depend on {', '.join(idle)}"
    return [finding("weight-does-not-matter", "info", detail)]


def _substitutes(subject: Subject) -> list[Finding]:
    """Does something pass for the output that needs no work?"""
    passed: dict[str, list[bool]] = {}
    for tensors, others in _distributions(subject):
        theirs, stale = subject.takes(tensors), subject.takes(others)
        if theirs is None or stale is None:
            continue
        double = subject.run_double(tensors)
        cheap = {
            "zeros-pass": [torch.zeros_like(t) for t in theirs],
            "constant-passes": [torch.full_like(t, float(_mean(t))) for t in stale],
            "another-inputs-output-passes": stale,
        }
        identity = _identity(tensors, theirs)
        if identity is not None:
            cheap["identity-passes"] = identity
        for rule, mine in cheap.items():
            passed.setdefault(rule, []).append(subject.passes(mine, theirs, double))
        edited = _edited(subject, tensors)
        if edited is not None:
            double = subject.run_double(edited[0])
            passed.setdefault("edits-do-not-show", []).append(subject.passes(theirs, edited[1], double))
    found = []
    for rule, results in passed.items():
        if all(results):
            found.append(finding(rule, "warning", _MEANING[rule]))
        elif results[0]:
            detail = f"{_MEANING[rule]} on the problem's own inputs, not on others that the judge makes"
            found.append(finding(rule, "info", detail))
    return found


_MEANING = {
    "zeros-pass": "an output of zeros is accepted",
    "constant-passes": "an output of one constant is accepted",
    "another-inputs-output-passes": "the output for other inputs is accepted",
    "identity-passes": "an input, returned as it is, is accepted",
    "edits-do-not-show": "the output from before a few elements of the inputs changed is accepted",
}


def _distributions(subject: Subject) -> Iterator[tuple[Tensors, Tensors]]:
    """Pairs of input sets: as the problem draws them, then as the judge does."""
    (_, first), (_, second) = (pack(subject.draw(seed)) for seed in (3, 4))
    yield first, second
    for change in DISTRIBUTIONS.values():
        yield (_changed(first, change, 5), _changed(second, change, 6))


def _changed(tensors: Tensors, change: Callable[..., torch.Tensor], seed: int) -> Tensors:
    made = []
    for i, tensor in enumerate(tensors):
        generator = torch.Generator(tensor.device).manual_seed(seed + 97 * i)
        flat = tensor.reshape(-1)
        value = change(flat, generator) if tensor.is_floating_point() and tensor.numel() else flat
        made.append(value.reshape(tensor.shape))
    return made


def _edited(subject: Subject, tensors: Tensors) -> tuple[Tensors, Tensors] | None:
    """The inputs with a few elements exchanged, and the outputs for them."""
    made = [t.clone(memory_format=torch.contiguous_format) for t in tensors]
    generator = torch.Generator(made[0].device).manual_seed(8)
    sparse_edit([[t.view(-1) for t in made]], 0, generator).apply([[t.view(-1) for t in made]])
    outputs = subject.takes(made)
    return None if outputs is None else (made, outputs)


def _identity(tensors: Tensors, outputs: Tensors) -> Tensors | None:
    """For each output an input of its shape and dtype, if there is one for all of them."""
    chosen = [next((t for t in tensors if (t.shape, t.dtype) == (o.shape, o.dtype)), None) for o in outputs]
    return None if any(t is None for t in chosen) else [t for t in chosen if t is not None]


def _mean(tensor: torch.Tensor) -> float:
    if not tensor.numel() or tensor.is_complex():
        return 0.0
    return float(tensor.double().mean())


def _alike(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return [(t.shape, t.dtype) for t in first] == [(t.shape, t.dtype) for t in second]


def finding(rule: str, severity: str, detail: str) -> Finding:
    return {"rule": rule, "severity": severity, "detail": detail}
