"""What may leave this machine: the rules, in one place.

A chat model sees local-only passages where it is on this machine; they are embedded where the endpoint is
on this machine or in its private network. `kb.documents.embed_texts` and the callers of `admit` enforce that.
"""

from __future__ import annotations

import ipaddress
import socket
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


def is_private(url: str) -> bool:
    """Whether `url` leads to this machine or its private network, whatever name it has there."""
    host = urlsplit(url).hostname or ""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):  # nobody knows it: it cannot be said to be near
        return False
    return bool(found) and all(_is_private(str(address)) for address in found)


def _is_private(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_loopback or ip.is_private or ip.is_link_local
