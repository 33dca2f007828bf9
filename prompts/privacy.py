"""The one place that decides which passages may leave this machine."""

from __future__ import annotations

from collections.abc import Sequence

from kb.records import Hit


def admit(hits: Sequence[Hit], *, hosted: bool) -> tuple[list[Hit], list[Hit]]:
    """(admitted, withheld): passages of local-only sources are withheld from hosted models."""
    withheld = [hit for hit in hits if hosted and hit.local_only]
    return [hit for hit in hits if not (hosted and hit.local_only)], withheld
