"""What a prompt may show its model, by the rule of `kb.privacy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kb.records import Hit, SkillRecord
from prompts.request import PromptRequest

_LISTS = {"failed": "attempt", "lessons": "lesson", "avoid": "experience", "examples": "candidate"}


def presentable(request: PromptRequest) -> tuple[PromptRequest, list[str]]:
    """The request as its model may see it, and what was withheld of it.

    A candidate that was written from local-only passages may repeat them, in its hypothesis as in its source.
    """
    if not request.hosted:
        return request, []
    parent, withheld = request.parent, []
    if parent is not None and parent.get("local_only"):
        withheld.append(f"source and hypothesis of step {parent['step']}")
        parent = {**parent, "source": "", "hypothesis": "", "log": ""}
        request = replace(request, parent=parent, diagnosis=_without_words(request.diagnosis))
    shown: dict[str, Any] = {}
    for name, what in _LISTS.items():
        entries = getattr(request, name)
        shown[name] = [entry for entry in entries if not entry.get("local_only")]
        withheld += [f"{what} of {_whence(entry)}" for entry in entries if entry.get("local_only")]
    return replace(request, **shown), withheld


def shaped_by_local_only(request: PromptRequest, passages: Sequence[Hit | SkillRecord]) -> bool:
    """Whether what a model answers to this request may repeat local-only text."""
    earlier = [entry for name in _LISTS for entry in getattr(request, name)]
    earlier += [request.parent] if request.parent else []
    return any(p.local_only for p in passages) or any(e.get("local_only") for e in earlier)


def _whence(entry: dict[str, Any]) -> str:
    return f"step {entry['step']}" if "step" in entry else str(entry.get("origin") or "another run")


def _without_words(diagnosis: dict[str, Any] | None) -> dict[str, Any] | None:
    """Without lines that quote the candidate: a compiler's error does."""
    if not diagnosis or not diagnosis.get("error"):
        return diagnosis
    return {**diagnosis, "error": "", "evidence": []}
