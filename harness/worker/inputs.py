"""Changes of input values, made by the judge in shared memory: other distributions, and small edits in
place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

EDIT_SHARE = 0.002
EDIT_LIMIT = 8192  # elements; below torch's grain size, so that the judge's own threads stay asleep

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def signed(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Zero mean and a wider spread: uniform [0, 1) inputs hide a missing ReLU or a low-precision product."""
    values = flat.float()
    spread = _scale(values - values.mean())
    return (
        torch.randn(values.shape, generator=generator, device=flat.device).mul_(1.5 * spread).to(flat.dtype)
    )


def heavy_tailed(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mostly small values and a few that are large, of both signs, at most 30 times the usual size."""
    values = flat.float()
    normal = torch.randn(values.shape, generator=generator, device=flat.device)
    return normal.mul_(torch.exp(0.75 * normal.abs())).clamp_(-30, 30).mul_(_scale(values)).to(flat.dtype)


DISTRIBUTIONS: dict[str, Change] = {"zero mean": signed, "heavy tails": heavy_tailed}


def _scale(values: torch.Tensor) -> float:
    scale = float(values.double().square().mean().sqrt()) if values.numel() else 0.0
    return scale if 0 < scale < 1e6 else 1.0


def rewrite(flats: Sequence[torch.Tensor], contents: Sequence[torch.Tensor]) -> None:
    """Whole new contents for one slot."""
    for flat, value in zip(flats, contents, strict=True):
        flat.copy_(value)


@dataclass(frozen=True)
class Edit:
    """New values for a few elements of some input tensors of one slot, and the seed of the call that
    follows.
    """

    slot: int
    seed: int
    changes: tuple[tuple[int, torch.Tensor, torch.Tensor], ...]

    def apply(self, flats: Sequence[Sequence[torch.Tensor]]) -> Edit:
        """Writes the values into memory and returns the edit that takes them back.

        The version counters of another process's tensors over this memory do not move.
        """
        undo = []
        for tensor, where, values in self.changes:
            flat = flats[self.slot][tensor]
            undo.append((tensor, where, flat[where]))
            flat[where] = values
        return Edit(self.slot, self.seed, tuple(undo))


def sparse_edit(flats: Sequence[Sequence[torch.Tensor]], slot: int, generator: torch.Generator) -> Edit:
    """Copies values between positions of the same tensor, so that each stays in the range its problem allows.

    Floating tensors only, unless there are none: an edited index or offset might not be a valid one.
    """
    tensors = flats[slot]
    chosen = [i for i, t in enumerate(tensors) if t.is_floating_point() and t.numel() > 1]
    chosen = chosen or [i for i, t in enumerate(tensors) if t.numel() > 1]
    changes = []
    for i in chosen:
        size = tensors[i].numel()
        count = min(EDIT_LIMIT, max(1, int(size * EDIT_SHARE)))
        where = torch.unique(_positions(size, (count,), generator))
        source = _positions(size, where.shape, generator)
        changes.append((i, where, tensors[i][source].clone()))
    seed = int(_positions(1 << 31, (1,), generator))
    return Edit(slot, seed, tuple(changes))


def _positions(size: int, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randint(size, tuple(shape), generator=generator, device=generator.device)
