"""From a step's situation to its prompt: diagnose, decide what to ask, retrieve, budget, render."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from kb.catalogue import Catalogue, Selection
from kb.privacy import Passage, admit
from kb.records import Hit, SkillRecord
from prompts.errors import BudgetTooSmall
from prompts.pieces import Piece, fit
from prompts.privacy import presentable, shaped_by_local_only
from prompts.questions import Question, plan
from prompts.quoting import data_block
from prompts.record import Composition, Consulted, PromptRecord, Provenance
from prompts.rendering import join, own_pieces, render, template_sha, template_text
from prompts.request import PromptRequest
from prompts.staging import LEVELS, Stage, level_of, ordered
from prompts.tokens import counter_for

_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)
_LEVELLED = {"guidance", "document"}  # rules, facts and samples are as specific as they are
_AT_ONCE = 2  # questions
_SPARE = 2  # times as many hits are looked at as are shown, for the more specific ones among them


class Answer(Protocol):
    @property
    def hits(self) -> Sequence[Hit]: ...


class Knowledge(Protocol):
    """What the synthesizer asks of `kb.KnowledgeBase`."""

    def catalogue(self) -> Catalogue: ...

    def query(
        self,
        text: str,
        *,
        target: str | None = None,
        kinds: Sequence[str] | None = None,
        k: int = 10,
        within: Selection | None = None,
        credited: bool = False,
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
        counter, template = counter_for(request.model), template_text()
        needed = counter.count(join(render(request, [], template)))
        if needed > request.budget_tokens:
            raise BudgetTooSmall(
                f"problem, constraints and output format need {needed} tokens of {request.budget_tokens}",
                f"set the prompt budget to {needed} or more",
            )
        catalogue = self._knowledge.catalogue()
        stage = Stage(request, catalogue)
        found = _Retrieval(self._knowledge, request, stage)
        own = own_pieces(request)
        kept, cut = fit(own, found.pieces, request.budget_tokens - needed, counter.count)
        while True:
            slots = render(request, kept, template)
            prompt = join(slots)
            tokens = counter.count(prompt)
            if tokens <= request.budget_tokens or not kept:
                break
            cut.insert(0, kept.pop())  # a tokenizer may make more of the whole than of its parts
        sources = [piece.source for piece in kept if piece.source is not None]
        return PromptRecord(
            prompt=prompt,
            tokens=tokens,
            slots=slots,
            provenance=[piece.provenance for piece in kept if piece.provenance is not None],
            digest=hashlib.sha256(prompt.encode("utf-8")).hexdigest(),
            cut=[piece.label for piece in cut],
            hits=[source for source in sources if isinstance(source, Hit)],
            skills=[source for source in sources if isinstance(source, SkillRecord)],
            withheld=[*withheld, *found.withheld],
            local_only=not request.hosted and shaped_by_local_only(request, sources),
            tokenizer=counter.name,
            level=LEVELS[level_of(request)],
            consulted=found.consulted,
            deferred=stage.deferred,
            composition=Composition.of(request, kept, own, template_sha(), catalogue.digest),
        )


class _Retrieval:
    """The passages of a step, question by question: documents from the index first, then passages in them."""

    def __init__(self, knowledge: Knowledge, request: PromptRequest, stage: Stage) -> None:
        self._knowledge = knowledge
        self._request = request
        self._seen: set[str] = set()
        self._secret: dict[str, None] = {}
        self.pieces: list[Piece] = []
        self.consulted: list[Consulted] = []
        asked = []
        for question in plan(request):
            within = None
            if question.kinds is not None:
                within = stage.choose(question.kinds)
                self.consulted.append(
                    Consulted(question.slot, question.purpose, question.text, within.documents)
                )
            if within is None or within.documents:
                asked.append((question, within))
        # Side by side: a question waits for the database and the embedding model in turn.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(lambda pair: self._ask(*pair), asked))
        for (question, _), (found, secret) in zip(asked, answers, strict=True):
            self._secret.update((citation, None) for citation in secret)
            self._take(question, found)

    def _ask(
        self, question: Question, within: Selection | None
    ) -> tuple[Sequence[Hit | SkillRecord], list[str]]:
        """What a question brings, and the citations of what is withheld."""
        if question.kinds is None or within is None:
            return self._skills(question)
        return self._hits(question, question.kinds, within)

    @property
    def withheld(self) -> list[str]:
        return list(self._secret)

    def _take(self, question: Question, found: Sequence[Hit | SkillRecord]) -> None:
        for item in found:
            if item.chunk_id not in self._seen:
                self._seen.add(item.chunk_id)
                rank = sum(piece.slot == question.slot for piece in self.pieces)
                self.pieces.append(_passage(item, question, rank, len(self._seen)))

    def _hits(
        self, question: Question, kinds: Sequence[str], within: Selection
    ) -> tuple[list[Hit], list[str]]:
        def ask(k: int) -> Sequence[Hit]:
            return self._knowledge.query(
                question.text, target=self._request.target, kinds=kinds, k=k, within=within, credited=True
            ).hits

        if not set(kinds) <= _LEVELLED:
            return self._admitted(ask, question.k)
        found, secret = self._admitted(ask, question.k * _SPARE)
        return ordered(found, self._request)[: question.k], secret

    def _skills(self, question: Question) -> tuple[list[SkillRecord], list[str]]:
        def ask(k: int) -> Sequence[SkillRecord]:
            return self._knowledge.find_skills(question.text, target=self._request.target, k=k)

        return self._admitted(ask, question.k)

    def _admitted(self, ask: Callable[[int], Sequence[Passage]], k: int) -> tuple[list[Passage], list[str]]:
        """The `k` best passages that may be shown, and the citations of those that may not.

        What is withheld takes no place: more is asked for until there are enough or nothing is left.
        """
        wanted = k
        while True:
            found = ask(wanted)
            admitted, withheld = admit(found, hosted=self._request.hosted)
            if len(admitted) >= k or len(found) < wanted:
                return admitted[:k], [item.citation for item in withheld]
            wanted *= 2


def passage_text(item: Hit | SkillRecord) -> str:
    """What of a passage is shown."""
    if isinstance(item, Hit):
        return item.text
    body = _FRONT_MATTER.sub("", item.body)  # it says the name and the description again
    return f"{item.name}: {item.description}\n\n{body}"


def _passage(item: Hit | SkillRecord, question: Question, rank: int, number: int) -> Piece:
    why: dict[str, Any] = {**item.why, "asked_for": question.purpose, "query": question.text}
    ref = f"R{number}"
    return Piece(
        slot=question.slot,
        rank=rank,
        text=data_block(passage_text(item), ref=ref, citation=item.citation),
        label=f"{question.slot}: {item.citation}",
        provenance=Provenance(question.slot, item.chunk_id, item.citation, item.score, why),
        source=item,
        ref=ref,
    )
