"""What a prompt may show its model, by the rule of `kb.privacy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kb.records import Hit, SkillRecord
from prompts.request import PromptRequest


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
    failed = [attempt for attempt in request.failed if not attempt.get("local_only")]
    withheld += [f"attempt of step {a.get('step')}" for a in request.failed if a.get("local_only")]
    return replace(request, failed=failed), withheld


def shaped_by_local_only(request: PromptRequest, passages: Sequence[Hit | SkillRecord]) -> bool:
    """Whether what a model answers to this request may repeat local-only text."""
    earlier = [*request.failed, *([request.parent] if request.parent else [])]
    return any(p.local_only for p in passages) or any(e.get("local_only") for e in earlier)


def _without_words(diagnosis: dict[str, Any] | None) -> dict[str, Any] | None:
    """Without lines that quote the candidate: a compiler's error does."""
    if not diagnosis or not diagnosis.get("error"):
        return diagnosis
    return {**diagnosis, "error": "", "evidence": []}
