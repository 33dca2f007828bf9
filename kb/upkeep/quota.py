"""The disk quota of the home folder: whoever writes asks first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kb.errors import QuotaExceeded
from kb.stats import home_bytes

if TYPE_CHECKING:
    from kb.base import KnowledgeBase

_RESCAN_S = 5.0  # walking a large home takes a second


class Quota:
    """Compares what the home folder holds with `KERNELEVOLVE_QUOTA`. Without that it costs nothing."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._home = kb.home
        self._limit = kb.settings.quota
        self._used = 0
        self._scanned = float("-inf")

    def reserve(self, wanted: int = 0) -> None:
        """Announce a write of about `wanted` bytes. Raises QuotaExceeded instead of letting it through."""
        if self._limit is None:
            return
        if time.monotonic() - self._scanned > _RESCAN_S or self._used + wanted > self._limit:
            self._used, self._scanned = home_bytes(self._home), time.monotonic()
        if self._used + wanted > self._limit:
            raise QuotaExceeded(
                f"{self._home} holds {readable(self._used)} of its quota of {readable(self._limit)}"
                + (f", and {readable(wanted)} more are needed" if wanted else ""),
                "free some with `kernelevolve kb gc` or `kb remove SOURCE`, or raise KERNELEVOLVE_QUOTA",
            )
        self._used += wanted


def readable(size: float) -> str:
    """Bytes for people: 512 B, 3.4 MB, 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError
