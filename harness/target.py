"""Targets: the places a kernel can run. Other packages add theirs through the entry-point group
`kernelevolve.targets`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import Any

from harness.errors import TargetUnknown

GROUP = "kernelevolve.targets"
# Our own, as `module:factory`: a packed worker has no metadata to look entry points up in.
BUILT_IN = ("harness.targets.amd:amd", "harness.targets.cpu:cpu", "harness.targets.nvidia:nvidia")
Availability = tuple[bool, str]


@dataclass(frozen=True)
class Target:
    """A place a kernel runs.

    `limits` are hard (bytes, threads, registers; keys as in `harness/targets/nvidia.py`); `facts` are what a
    kernel writer wants to know, for people and prompts. `device` is torch's name for the kind of device.
    `probe` says whether this machine has it, and if not, why; `compile_probe` says the same of a compiler
    for it, which suffices for the verdict `compiled`. `find_devices` lists what CUDA_VISIBLE_DEVICES calls
    each of this machine's devices of the kind (None: there is nothing to choose). `triton` is what Triton
    calls the target: its back end, the architecture, and the threads of a warp.
    """

    name: str
    vendor: str
    architecture: str
    languages: tuple[str, ...]
    limits: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str | float] = field(default_factory=dict)
    device: str = "cpu"
    probe: Callable[[], Availability] = field(default=lambda: (True, ""), repr=False, compare=False)
    triton: tuple[str, int | str, int] | None = None
    compile_probe: Callable[[], Availability] = field(
        default=lambda: (False, "nothing here compiles for it"), repr=False, compare=False
    )
    find_devices: Callable[[], Sequence[str | None]] = field(
        default=lambda: (None,), repr=False, compare=False
    )

    def available(self) -> Availability:
        """Whether candidates can be run here, and one line why not."""
        return self.probe()

    def compiles(self) -> Availability:
        """Whether candidates can be compiled here for a device that is elsewhere, and one line why not."""
        return self.compile_probe()

    def plain(self) -> dict[str, Any]:
        """What a worker process must know of it, as JSON values."""
        names = ("name", "vendor", "architecture", "limits", "facts", "triton")
        return {name: getattr(self, name) for name in names}


@functools.cache
def _targets() -> tuple[dict[str, Target], dict[str, str]]:
    """Targets by name, and why what other packages announce could not be taken, by entry point."""
    found: dict[str, Target] = {}
    broken: dict[str, str] = {}
    for module, _, name in (b.partition(":") for b in BUILT_IN):
        found |= _made(getattr(import_module(module), name))
    for entry in metadata.entry_points(group=GROUP):
        if entry.value in BUILT_IN:
            continue
        try:
            made = _made(entry.load())
        except Exception as error:  # another package's code: it must not take our own targets away
            broken[entry.value] = f"{type(error).__name__}: {error}"
            continue
        taken = sorted(set(made) & set(found))
        if taken:
            broken[entry.value] = f"{', '.join(taken)}: the name is taken"
        else:
            found |= made
    return dict(sorted(found.items())), broken


def _made(factory: Callable[[], Target | Iterable[Target]]) -> dict[str, Target]:
    made = factory()
    return {target.name: target for target in ([made] if isinstance(made, Target) else made)}


def list_targets() -> list[Target]:
    """All targets of installed packages, by name."""
    return list(_targets()[0].values())


def broken_targets() -> dict[str, str]:
    """Entry points of other packages that could not be used, with one line why."""
    return dict(_targets()[1])


def get_target(name: str) -> Target:
    """Raises TargetUnknown."""
    targets, broken = _targets()
    if name not in targets:
        hint = f"one of: {', '.join(targets)}"
        if broken:
            hint += "; not usable: " + "; ".join(f"{where} ({why})" for where, why in broken.items())
        raise TargetUnknown(f"unknown target {name!r}", hint)
    return targets[name]
