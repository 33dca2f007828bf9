"""When are two candidates the same program? Digests that ignore names, comments and formatting."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from agent.novelty.c_code import normalise_c
from agent.novelty.python_code import normal_form

__all__ = ["genome_digest", "normalise_c", "program_digest"]


@lru_cache(maxsize=64)  # a step asks several times about one source
def program_digest(source: str) -> str:
    """sha256 of the candidate up to names bound in it, comments, docstrings, formatting and order of imports.

    C-like source inside strings is compared token by token, up to the names declared there. Attributes,
    methods and what is known by its name from elsewhere stay: they are an interface (state-dict keys,
    exported functions, keywords of libraries). Text that is no Python is hashed as it is.
    """
    try:
        return _sha256("program:" + normal_form(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _sha256("text:" + source)


def genome_digest(genome: dict[str, Any]) -> str:
    """sha256 of a genome's canonical JSON."""
    return _sha256("genome:" + json.dumps(genome, sort_keys=True, separators=(",", ":"), allow_nan=False))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
