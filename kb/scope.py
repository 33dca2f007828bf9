"""Which documents a target may see. A document carries one label; the filter is hard."""

from __future__ import annotations

from collections.abc import Iterable

GENERIC = "generic"

# What a family of targets sees besides `generic`, the target's own label and the family's. A family is
# what stands before the colon (`nvidia:sm_90` -> `nvidia`); the labels of documentation collections are
# target names as well. Never another vendor's.
FAMILIES: dict[str, frozenset[str]] = {
    "cpu": frozenset({"triton"}),
    "nvidia": frozenset({"nvidia-cute", "triton"}),
    "nvidia-cute": frozenset({"nvidia"}),
    "amd": frozenset({"amd-hip", "triton"}),
    "amd-hip": frozenset({"amd"}),
    "triton": frozenset(),
    "aws-neuron": frozenset(),
    "tenstorrent": frozenset(),
    "tpu": frozenset({"tpu/gpu-pallas"}),
    "pallas": frozenset({"tpu/gpu-pallas"}),
    "tpu/gpu-pallas": frozenset({"tpu", "pallas"}),
    "opencl": frozenset(),
    "intel": frozenset({"opencl", "triton"}),
}


def normalise(label: str) -> str:
    """Labels are compared in lower case without surrounding blanks; an empty one is `generic`."""
    return label.strip().lower() or GENERIC


def visible_scopes(target: str) -> frozenset[str]:
    """The labels that `target` may see. An unknown target sees its own label and `generic`, nothing else."""
    target = normalise(target)
    family = target.split(":", 1)[0]
    return frozenset({GENERIC, family, target}) | FAMILIES.get(family, frozenset())


def visible(labels: Iterable[str], target: str | None) -> list[str]:
    """Those of the stored `labels` that `target` may see, sorted; all of them without a target."""
    if target is None:
        return sorted(labels)
    return sorted(set(labels) & visible_scopes(target))
