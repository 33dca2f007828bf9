"""Evaluations as JSON documents: what batch files, spool folders and other machines carry."""

from __future__ import annotations

import functools
import math
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from harness.errors import HarnessError
from harness.worker.model import EvaluationRequest


class JobError(HarnessError):
    """A job's description cannot be used; the text says which part."""


def request_from_json(data: Any) -> EvaluationRequest:
    """A request from a JSON object with the names of its fields. Raises JobError for unknown or missing names
    and for values of another type.
    """
    if not isinstance(data, dict):
        raise JobError("a request is a JSON object")
    hints = _hints()
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise JobError(f"unknown fields: {', '.join(map(str, unknown))}", f"known: {', '.join(hints)}")
    missing = [f.name for f in fields(EvaluationRequest) if f.default is MISSING and f.name not in data]
    if missing:
        raise JobError(f"missing fields: {', '.join(missing)}")
    for name, value in data.items():
        if not _fits(value, hints[name]):
            raise JobError(f"{name} cannot be {str(value)[:60]!r}")
    return EvaluationRequest(**data)


def plain(value: Any) -> Any:
    """The value with null for what JSON has no number for: NaN and the infinities."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(EvaluationRequest)


def _fits(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, k) for k in get_args(kind))
    if origin is dict:
        keys, values = get_args(kind)
        return isinstance(value, dict) and all(_fits(k, keys) and _fits(v, values) for k, v in value.items())
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind)
