"""From a step's situation to its prompt: diagnose, decide what to ask, retrieve, budget, render."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kb.privacy import Passage, admit
from kb.records import Hit, SkillRecord
from prompts.describe import attempt_line, parent_summary, problem_lines, target_lines
from prompts.errors import BudgetTooSmall
from prompts.pieces import SLOTS, Piece, fit
from prompts.privacy import presentable, shaped_by_local_only
from prompts.questions import Question, plan
from prompts.quoting import clean, code_block, data_block, one_line
from prompts.record import PromptRecord, Provenance
from prompts.request import PromptRequest
from prompts.tokens import TOKENIZER_NAME, count_tokens

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"
_MAX_LOG_LINES = 40


class Answer(Protocol):
    @property
    def hits(self) -> Sequence[Hit]: ...


class Knowledge(Protocol):
    """What the synthesizer asks of `kb.KnowledgeBase`."""

    def query(
        self, text: str, *, target: str | None = None, kinds: Sequence[str] | None = None, k: int = 10
    ) -> Answer: ...

    def find_skills(self, text: str, *, target: str, k: int = 8) -> list[SkillRecord]: ...


class Synthesizer:
    """Writes the prompt of one step from one Jinja template with computed slots.

    The same request against the same knowledge base gives the same text, byte for byte.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge

    def synthesize(self, request: PromptRequest) -> PromptRecord:
        """The prompt with its provenance. Raises BudgetTooSmall when the parts that stay do not fit."""
        request, withheld = presentable(request)
        passages, secret = self._retrieve(request)
        base = _render(request, [])
        needed = count_tokens(_join(base))
        if needed > request.budget_tokens:
            raise BudgetTooSmall(
                f"problem, constraints and output format need {needed} tokens of {request.budget_tokens}",
                f"set the prompt budget to {needed} or more",
            )
        kept, cut = fit(_own_pieces(request), passages, request.budget_tokens - needed)
        slots = _render(request, kept)
        prompt = _join(slots)
        sources = [piece.source for piece in kept if piece.source is not None]
        return PromptRecord(
            prompt=prompt,
            tokens=count_tokens(prompt),
            slots=slots,
            provenance=[piece.provenance for piece in kept if piece.provenance is not None],
            digest=hashlib.sha256(prompt.encode("utf-8")).hexdigest(),
            cut=[piece.label for piece in cut],
            hits=[source for source in sources if isinstance(source, Hit)],
            skills=[source for source in sources if isinstance(source, SkillRecord)],
            withheld=[*withheld, *secret],
            local_only=not request.hosted and shaped_by_local_only(request, sources),
            tokenizer=TOKENIZER_NAME,
        )

    def _retrieve(self, request: PromptRequest) -> tuple[list[Piece], list[str]]:
        bottleneck = str((request.diagnosis or {}).get("bottleneck", ""))
        pieces: list[Piece] = []
        withheld: dict[str, None] = {}
        seen: set[str] = set()
        for question in plan(request):
            found: Sequence[Hit | SkillRecord]
            if question.kinds is None:
                found, secret = self._skills(question, request)
            else:
                hits, secret = self._hits(question, question.kinds, request)
                found = _dominant_first(hits, bottleneck)
            withheld.update((citation, None) for citation in secret)
            for item in found:
                if item.chunk_id not in seen:
                    seen.add(item.chunk_id)
                    rank = sum(piece.slot == question.slot for piece in pieces)
                    pieces.append(_passage(item, question, rank, len(seen)))
        return pieces, list(withheld)

    def _hits(
        self, question: Question, kinds: Sequence[str], request: PromptRequest
    ) -> tuple[list[Hit], list[str]]:
        def ask(k: int) -> Sequence[Hit]:
            return self._knowledge.query(question.text, target=request.target, kinds=kinds, k=k).hits

        return _admitted(ask, question.k, hosted=request.hosted)

    def _skills(self, question: Question, request: PromptRequest) -> tuple[list[SkillRecord], list[str]]:
        def ask(k: int) -> Sequence[SkillRecord]:
            return self._knowledge.find_skills(question.text, target=request.target, k=k)

        return _admitted(ask, question.k, hosted=request.hosted)


def _admitted(
    ask: Callable[[int], Sequence[Passage]], k: int, *, hosted: bool
) -> tuple[list[Passage], list[str]]:
    """The `k` best passages that may be shown, and the citations of those that may not.

    What is withheld takes no place: more is asked for until there are enough or nothing is left.
    """
    wanted = k
    while True:
        found = ask(wanted)
        admitted, withheld = admit(found, hosted=hosted)
        if len(admitted) >= k or len(found) < wanted:
            return admitted[:k], [item.citation for item in withheld]
        wanted *= 2


def _dominant_first(hits: Sequence[Hit], bottleneck: str) -> list[Hit]:
    """Documents about the dominant bottleneck first, those about other bottlenecks only last."""

    def group(hit: Hit) -> int:
        about = hit.meta.get("bottleneck")  # front matter: anybody's, of any type
        labels = about if isinstance(about, list) else [about]
        if not about or not bottleneck:
            return 1
        return 0 if bottleneck in labels else 2

    return sorted(hits, key=group)


def _passage(item: Hit | SkillRecord, question: Question, rank: int, number: int) -> Piece:
    body = item.text if isinstance(item, Hit) else f"{item.name}: {item.description}\n\n{item.body}"
    ref = f"R{number}"
    why = {**item.why, "asked_for": question.purpose, "query": question.text}
    return Piece(
        slot=question.slot,
        rank=rank,
        text=data_block(body, ref=ref, citation=item.citation),
        label=f"{question.slot}: {item.citation}",
        provenance=Provenance(question.slot, item.chunk_id, item.citation, item.score, why),
        source=item,
    )


def _own_pieces(request: PromptRequest) -> list[Piece]:
    """What the run itself knows: the parent's source, its log, then what failed, latest first."""
    pieces = []
    parent = request.parent
    if parent is not None:
        if parent["source"]:
            pieces.append(Piece("parent", 0, code_block(parent["source"], "python"), "parent: source"))
        log = clean(str(parent.get("log") or "")).strip()
        if log:
            tail = "\n".join(log.splitlines()[-_MAX_LOG_LINES:])
            pieces.append(Piece("diagnosis", 0, "Log:\n" + code_block(tail, "text"), "diagnosis: log"))
    for rank, attempt in enumerate(reversed(request.failed)):
        pieces.append(
            Piece("failed", rank, "- " + attempt_line(attempt), f"failed: step {attempt.get('step')}")
        )
    return pieces


def _render(request: PromptRequest, pieces: Sequence[Piece]) -> dict[str, str]:
    """Every slot's text, in the template's order."""
    template = _template()
    diagnosis = request.diagnosis
    variables: dict[str, Any] = {
        "facts": {**request.facts, "name": one_line(str(request.facts.get("name", "problem")))},
        "problem_code": code_block(request.problem_source, "python"),
        "problem_facts": problem_lines(request.facts),
        "target": request.target,
        "target_lines": target_lines(request.target_facts),
        "languages": request.target_facts.get("languages") or (),
        "want_ideas": request.want_ideas,
        "idea": one_line(request.idea, 600),
        "parent": request.parent,
        "parent_summary": parent_summary(request.parent) if request.parent else "",
        "diagnosis": diagnosis,
        "evidence": [one_line(str(line)) for line in (diagnosis or {}).get("evidence") or []],
        "actions": [one_line(str(line)) for line in (diagnosis or {}).get("actions") or []],
        "passages": {slot: [p.text for p in pieces if p.slot == slot] for slot in SLOTS},
    }
    return {
        slot: "".join(template.blocks[slot](template.new_context(variables))).strip("\n") for slot in SLOTS
    }


def _join(slots: dict[str, str]) -> str:
    return "\n\n".join(slots.values()) + "\n"


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # a prompt is not HTML; foreign text goes through quoting.py
    )
    return environment.get_template("step.md.j2")
