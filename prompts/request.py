"""What a prompt is synthesised from: plain data, so that a stored step can be rendered again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PromptRequest:
    """One step's question.

    `facts` is ProblemFacts as JSON; `target_facts` the target's properties. `parent` (None for a draft) has
    `step`, `source`, `status`, `hypothesis` and, where they exist, `speedup`, `speedup_ci`, `candidate_ms`,
    `log`. `diagnosis` has `bottleneck`, `evidence`, `actions`, and `error` for failures. `failed` lists
    earlier attempts, oldest first: `step`, `outcome`, `hypothesis`, `error`. `local_only` marks a parent or
    an attempt that was shaped by local-only passages. `hosted` is True when the prompt may leave this
    machine, which is assumed unless the caller knows better. With `want_ideas`, the prompt asks for so many
    optimisations in words and for no candidate; `idea` is the one that the step implements.
    """

    problem_source: str
    facts: dict[str, Any]
    target: str
    target_facts: dict[str, Any] = field(default_factory=dict)
    parent: dict[str, Any] | None = None
    diagnosis: dict[str, Any] | None = None
    failed: list[dict[str, Any]] = field(default_factory=list)
    budget_tokens: int = 16_000
    step: int = 0
    hosted: bool = True
    want_ideas: int = 0
    idea: str = ""
