"""The generator interface: from a synthesised prompt to a candidate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.worker.model import ProblemFacts
from prompts.record import PromptRecord


@dataclass(frozen=True)
class ParentView:
    """What a generator may know of the node it starts from (None for a draft from the root)."""

    node_id: str
    source: str
    evaluation: dict[str, Any]
    diagnosis: dict[str, Any]
    genome: dict[str, Any] | None
    generator: str


@dataclass(frozen=True)
class GenerationRequest:
    """One step: the prompt, the parent and everything random that the step may use (`seed`).

    `tried` holds the digests of the genomes and sources that the run already has, so that a generator can avoid them.
    """

    prompt: PromptRecord
    facts: ProblemFacts
    problem_source: str
    target: str
    parent: ParentView | None
    step: int
    seed: int
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Draft:
    """A candidate before it is judged.

    `hypothesis` says what changes, why and the predicted effect; `compiler_made` marks code that is the
    compiler's own, so that parity with it is never counted as a win. `used` names the chunk and skill ids that
    shaped the candidate.
    """

    source: str
    hypothesis: str
    genome: dict[str, Any] | None = None
    compiler_made: bool = False
    used: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    raw: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


class GenerationFailed(Exception):  # noqa: N818 - an outcome of a step, not a programming error
    """The generator produced no candidate; the message is stored with the step."""


class Exhausted(GenerationFailed):
    """The generator has nothing new to offer for this parent."""


class Generator(Protocol):
    name: str

    def generate(self, request: GenerationRequest) -> Draft:
        """Return a candidate. Raises GenerationFailed or Exhausted."""
        ...
