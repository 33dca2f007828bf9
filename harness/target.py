"""Targets: the places a kernel can run. Other packages add theirs through the entry-point group
`kernelevolve.targets`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module, metadata

from harness.errors import TargetUnknown

GROUP = "kernelevolve.targets"
# Our own, as `module:factory`: a packed worker has no metadata to look entry points up in.
BUILT_IN = ("harness.targets.cpu:cpu", "harness.targets.nvidia:nvidia")
Availability = tuple[bool, str]


@dataclass(frozen=True)
class Target:
    """A place a kernel runs.

    `limits` are hard (bytes, threads); `facts` are what a kernel writer wants to know, for people and
    prompts. `device` is torch's name for the kind of device. `probe` says whether this machine has it, and if
    not, why.
    """

    name: str
    vendor: str
    architecture: str
    languages: tuple[str, ...]
    limits: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str | float] = field(default_factory=dict)
    device: str = "cpu"
    probe: Callable[[], Availability] = field(default=lambda: (True, ""), repr=False, compare=False)

    def available(self) -> Availability:
        """Whether candidates can be run here, and one line why not."""
        return self.probe()


@functools.cache
def _targets() -> dict[str, Target]:
    found: dict[str, Target] = {}
    factories = [
        getattr(import_module(module), name) for module, _, name in (b.partition(":") for b in BUILT_IN)
    ]
    factories += [e.load() for e in metadata.entry_points(group=GROUP) if e.value not in BUILT_IN]
    for make in factories:
        made: Target | Iterable[Target] = make()
        for target in [made] if isinstance(made, Target) else made:
            found[target.name] = target
    return dict(sorted(found.items()))


def list_targets() -> list[Target]:
    """All targets of installed packages, by name."""
    return list(_targets().values())


def get_target(name: str) -> Target:
    """Raises TargetUnknown."""
    targets = _targets()
    if name not in targets:
        raise TargetUnknown(f"unknown target {name!r}", f"one of: {', '.join(targets)}")
    return targets[name]
