"""The generator interface: from a synthesised prompt to a candidate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.hypothesis import NONE_STATED, Hypothesis
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

    `tried` holds the digests of what the run already has, so that a generator can avoid it:
    `agent.novelty.program_digest(source)` and, for nodes with a genome, `genome_digest(genome)`. With
    `want_ideas`, so many optimisations are wanted in words (`Draft.ideas`) and no candidate; `idea` is one to
    implement. `run_id` and `step` name the request; `on_text` is told each piece of an answer that is
    streamed, `on_wait` in a line why there is none yet. Where a run has several generators, they are asked in
    the order `generators`.
    """

    prompt: PromptRecord
    facts: ProblemFacts
    problem_source: str
    target: str
    parent: ParentView | None
    step: int
    seed: int
    tried: frozenset[str] = frozenset()
    want_ideas: int = 0
    idea: str = ""
    run_id: str = ""
    on_text: Callable[[str], None] | None = None
    on_wait: Callable[[str], None] | None = None
    generators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A candidate before it is judged.

    `hypothesis` says what changes, why and the predicted effect; `compiler_made` marks code that is the
    compiler's own, so that parity with it is never counted as a win. `used` names the chunk and skill ids
    that shaped the candidate. `cost_usd` is None where it is not known. `ideas` answers a request for ideas,
    and then `source` is empty. `claim` is the hypothesis as data, read from the answer where it is None.
    `generator` names who made it, where the generator that was asked has several or was not asked; with
    `brief`, half the time for measuring has to do.
    """

    source: str
    hypothesis: str
    genome: dict[str, Any] | None = None
    compiler_made: bool = False
    used: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = 0.0
    raw: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    ideas: tuple[str, ...] = ()
    generator: str = ""
    claim: Hypothesis | None = None
    brief: bool = False

    def stated(self) -> Hypothesis:
        """The hypothesis as data: the generator's own, else what the answer or the text states."""
        if self.claim is not None:
            return self.claim
        found = Hypothesis.parse(self.raw)
        return found if found.change != NONE_STATED else Hypothesis.parse(f"HYPOTHESIS: {self.hypothesis}")


class GenerationFailed(Exception):
    """The generator produced no candidate; message, raw answer and what it cost are stored with the step."""

    def __init__(
        self,
        message: str,
        *,
        raw: str = "",
        tokens_in: int = 0,
        tokens_out: int = 0,
        cost_usd: float | None = 0.0,
        generator: str = "",
        notes: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.raw = raw
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.cost_usd = cost_usd
        self.generator = generator
        self.notes = notes or {}


class Exhausted(GenerationFailed):
    """The generator has nothing new to offer for this parent."""


class OutOfAnswers(Exhausted):
    """The generator has nothing more to offer for any parent: a recording is at its end."""


class Generator(Protocol):
    """`hosted` says whether prompts leave the machine: those carry no local-only passages."""

    name: str
    hosted: bool

    def generate(self, request: GenerationRequest) -> Draft:
        """Return a candidate. Raises GenerationFailed or Exhausted."""
        ...
