"""What a prompt is synthesised from: plain data, so that a stored step can be rendered again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_FAILURES = ("compile_error", "incorrect", "timeout", "crash", "rejected")


@dataclass(frozen=True)
class PromptRequest:
    """One step's question.

    `facts` is ProblemFacts as JSON; `target_facts` the target's properties. `parent` (None for a draft) has
    `step`, `source`, `status`, `hypothesis` and, where they exist, `speedup`, `speedup_ci`, `candidate_ms`,
    `log`. `diagnosis` has `bottleneck`, `evidence`, `actions`, `error` for failures, and `others`,
    bottlenecks that can wait. `depth` counts the candidates of the lineage, the parent included: the deeper,
    the more specific is what is retrieved. What else the step is to know of, each empty by default:

    - `failed`: attempts that did not help, oldest first: `step`, `outcome`, `hypothesis`, `error`
    - `lessons`: hypotheses that were measured: `step`, `hypothesis`, `verdict`
    - `avoid`: what failed on this problem in other runs: `strategy`, `why`
    - `examples`: other candidates: `origin`, `status`, `speedup`, `hypothesis`, `source`, `skills` (names)

    With `want_ideas`, the prompt asks for so many optimisations in words and for no candidate; `idea` is the
    one that the step implements. `local_only` in any of these mappings marks what was shaped by local-only
    passages. `model` is the model that will read the prompt; where its tokenizer is known, that counts.
    `hosted` is True when the prompt may leave this machine, which is assumed unless the caller knows better.
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
    depth: int = 0
    lessons: list[dict[str, Any]] = field(default_factory=list)
    avoid: list[dict[str, Any]] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)
    want_ideas: int = 0
    idea: str = ""
    model: str = ""

    @property
    def bottleneck(self) -> str:
        """The dominant one; empty for a draft and where nothing is known."""
        found = str((self.diagnosis or {}).get("bottleneck") or "")
        return "" if found == "unknown" else found

    @property
    def failing(self) -> bool:
        """Whether the parent is no correct candidate, so that the step is a repair."""
        return bool((self.diagnosis or {}).get("error")) or self.bottleneck in _FAILURES
