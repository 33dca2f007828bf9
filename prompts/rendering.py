"""From a request and the pieces that fit to the text: one Jinja template, a block for each slot."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompts.describe import (
    attempt_line,
    avoid_line,
    example_summary,
    lesson_line,
    parent_summary,
    problem_lines,
    target_lines,
)
from prompts.pieces import SLOTS, Piece
from prompts.quoting import clean, code_block, one_line, spoken
from prompts.request import PromptRequest

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).parent / "templates" / "step.md.j2"
_MAX_LOG_LINES = 40


@cache
def template_text() -> str:
    """The template that new prompts are made from."""
    return _TEMPLATE.read_text(encoding="utf-8")


@cache
def template_sha() -> str:
    """The sha256 of `template_text`."""
    return hashlib.sha256(template_text().encode("utf-8")).hexdigest()


def own_pieces(request: PromptRequest) -> list[Piece]:
    """What the run itself knows, the most important first: the parent's source, its log, then what failed,
    what was learnt, what failed elsewhere, and other candidates, latest first.
    """
    pieces = []
    parent = request.parent
    if parent is not None:
        if parent["source"]:
            pieces.append(Piece("parent", 0, code_block(parent["source"], "python"), "parent: source"))
        log = clean(str(parent.get("log") or "")).strip()
        if log:
            tail = "\n".join(log.splitlines()[-_MAX_LOG_LINES:])
            text = "Log:\n" + code_block(spoken(tail), "text")
            pieces.append(Piece("diagnosis", 0, text, "diagnosis: log"))
    for rank, attempt in enumerate(reversed(request.failed)):
        label = f"failed: step {attempt.get('step')}"
        pieces.append(Piece("failed", rank, "- " + attempt_line(attempt), label))
    for rank, lesson in enumerate(reversed(request.lessons)):
        label = f"failed: lesson of step {lesson.get('step')}"
        pieces.append(Piece("failed", rank, "- " + lesson_line(lesson), label, part="lessons"))
    for rank, known in enumerate(request.avoid):
        label = f"failed: to avoid, {one_line(str(known.get('strategy')), 60)}"
        pieces.append(Piece("failed", rank, "- " + avoid_line(known), label, part="avoid"))
    for rank, example in enumerate(request.examples):
        text = f"{example_summary(example)}\n\n{code_block(str(example['source']), 'python')}"
        label = f"parent: candidate of {one_line(str(example.get('origin')), 60)}"
        pieces.append(Piece("parent", rank, text, label, part="examples"))
    return pieces


def render(request: PromptRequest, pieces: Sequence[Piece], template: str) -> dict[str, str]:
    """Every slot's text, in order. `template` is the template's text."""
    compiled = _compiled(template)
    passages: dict[str, list[str]] = defaultdict(list)
    for piece in pieces:
        passages[piece.place].append(piece.text)
    diagnosis = request.diagnosis
    variables: dict[str, Any] = {
        "facts": {**request.facts, "name": one_line(str(request.facts.get("name", "problem")))},
        "problem_code": code_block(request.problem_source, "python"),
        "problem_facts": problem_lines(request.facts),
        "target": request.target,
        "target_lines": target_lines(request.target_facts),
        "languages": request.target_facts.get("languages") or (),
        "parent": request.parent,
        "parent_summary": parent_summary(request.parent) if request.parent else "",
        "diagnosis": diagnosis,
        "evidence": [one_line(str(line)) for line in (diagnosis or {}).get("evidence") or []],
        "actions": [one_line(str(line)) for line in (diagnosis or {}).get("actions") or []],
        "others": [one_line(str(name), 40) for name in (diagnosis or {}).get("others") or []],
        "want_ideas": request.want_ideas,
        "idea": one_line(request.idea, 600),
        "passages": passages,
    }
    return {
        slot: "".join(compiled.blocks[slot](compiled.new_context(variables))).strip("\n") for slot in SLOTS
    }


def join(slots: dict[str, str]) -> str:
    """The prompt."""
    return "\n\n".join(slots.values()) + "\n"


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # a prompt is not HTML; foreign text goes through quoting.py
    )
    return environment.from_string(template)
