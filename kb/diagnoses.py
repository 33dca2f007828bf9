"""From a diagnosis to questions: in the words that documents have for each kind of trouble."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kb.records import SubQuery

# How documents speak about each kind of trouble; a query in their words finds them.
TROUBLE = {
    "memory": "memory bandwidth bound, fewer passes over memory, keep data in cache, streaming stores",
    "compute": "compute bound, vectorisation, instruction throughput, more accumulators, register tiling",
    "latency": "latency bound, dependency chain, unrolling, more accumulators, prefetch, occupancy",
    "overhead": "launch and threading overhead, small problem, parallel region cost, fewer launches",
    "spill": "register spills to local memory, registers per thread, register pressure, smaller tiles",
    "compile_error": "compile error, missing include, unsupported intrinsic, flags",
    "incorrect": "wrong result, numerical accuracy, accumulation order, NaN, masking, boundary, alignment",
    "timeout": "too slow, never ends, deadlock, infinite loop, serial loop",
    "crash": "crash, segmentation fault, out of bounds, out of memory, pointer, stride, contiguous",
    "rejected": "forbidden, rules for candidates, must not call the reference",
}
_MOST = 12  # questions of one diagnosis


def sub_queries(diagnosis: Mapping[str, Any]) -> list[SubQuery]:
    """One question each for the bottleneck, the error, each piece of evidence and each suggested action.

    `diagnosis` has `bottleneck`, `evidence`, `actions` and, for failures, `error`; what is missing is not
    asked. Empty where there is nothing to ask.
    """
    found: dict[str, SubQuery] = {}
    for purpose, text in _parts(diagnosis):
        plain = " ".join(text.split())
        if plain:
            found.setdefault(plain, SubQuery(plain, purpose))
    return list(found.values())[:_MOST]


def _parts(diagnosis: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    bottleneck = str(diagnosis.get("bottleneck") or "")
    yield f"bottleneck: {bottleneck}", TROUBLE.get(bottleneck, "" if bottleneck == "unknown" else bottleneck)
    yield "the error", str(diagnosis.get("error") or "")
    for key, purpose in (("evidence", "evidence"), ("actions", "suggested action")):
        said = diagnosis.get(key) or []
        for item in said if isinstance(said, list) else [said]:
            yield purpose, item if isinstance(item, str) else _flat(item)


def _flat(item: Any) -> str:
    return " ".join(f"{k} {v}" for k, v in item.items()) if isinstance(item, Mapping) else str(item)
