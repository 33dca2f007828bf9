"""What a running search tells those who watch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.graph import SearchNode


@dataclass(frozen=True)
class RunStarted:
    """`done` steps of `steps` are behind a resumed run; `eager_ms` is the reference's time."""

    run_id: str
    problem: str
    target: str
    done: int
    steps: int
    time_limit_s: float | None
    eager_ms: float | None
    resumed: bool


@dataclass(frozen=True)
class StepStarted:
    """A parent was chosen (None: a draft from the specification)."""

    step: int
    parent_step: int | None
    reason: str


@dataclass(frozen=True)
class PromptReady:
    """The prompt is written; `passages` retrieved texts are in it."""

    step: int
    tokens: int
    passages: int
    withheld: int


@dataclass(frozen=True)
class Writing:
    """An answer is being streamed; `characters` of it are here."""

    step: int
    characters: int


@dataclass(frozen=True)
class Noted:
    """Something about a model that people should know: a parameter it does not take, that it was down."""

    step: int
    text: str


@dataclass(frozen=True)
class Generated:
    """A candidate exists and goes to the judge."""

    step: int
    hypothesis: str


@dataclass(frozen=True)
class Evaluated:
    """`best` is the best node after this step."""

    step: int
    node: SearchNode
    is_best: bool
    best: SearchNode | None
    elapsed_s: float


@dataclass(frozen=True)
class Skipped:
    """A step that led to no candidate: `outcome` is duplicate, no_candidate or exhausted."""

    step: int
    outcome: str
    reason: str
    elapsed_s: float


@dataclass(frozen=True)
class Ideas:
    """A step that named optimisations in words, to be implemented by later ones."""

    step: int
    ideas: tuple[str, ...]
    elapsed_s: float


@dataclass(frozen=True)
class Verifying:
    """The winner is measured again, longer."""

    node: SearchNode


@dataclass(frozen=True)
class Stopped:
    """The run ended, with its reason."""

    run_id: str
    reason: str
    result: dict[str, Any]


SearchEvent = (
    RunStarted
    | StepStarted
    | PromptReady
    | Writing
    | Noted
    | Generated
    | Evaluated
    | Skipped
    | Ideas
    | Verifying
    | Stopped
)
