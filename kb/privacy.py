"""What may leave this machine: the rule, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kb.records import Hit, SkillRecord

Passage = TypeVar("Passage", Hit, SkillRecord)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def admit(found: Sequence[Passage], *, hosted: bool) -> tuple[list[Passage], list[Passage]]:
    """(admitted, withheld): passages of local-only sources are withheld from hosted models."""
    withheld = [item for item in found if hosted and item.local_only]
    return [item for item in found if not (hosted and item.local_only)], withheld


def is_this_machine(url: str) -> bool:
    """Whether a server at `url` is on this machine and is reached without a proxy; all others are hosted."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxied = bool(proxies.get(parts.scheme) or proxies.get("all"))
    return parts.hostname in _LOOPBACK and not (proxied and not proxy_bypass(parts.hostname))
