"""Looking at the best hits once more, together with the question: the protocol, and a local cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from kb.errors import RefinementFailed
from kb.privacy import admit
from kb.records import Hit

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

RERANKED = 20  # of the best hits; as many as chat models order well at once (Sun et al. 2023, "RankGPT")


class Reranker(Protocol):
    """`hosted` says whether passages leave this machine."""

    @property
    def name(self) -> str: ...

    @property
    def hosted(self) -> bool: ...

    def order(self, question: str, passages: Sequence[str]) -> list[int]:
        """Every index into `passages` once, the best first. Raises RefinementFailed or ModelError."""
        ...


def rerank(reranker: Reranker, question: str, hits: Sequence[Hit]) -> list[Hit]:
    """The first `RERANKED` of `hits` in the reranker's order; the others follow as they were.

    What may not leave this machine keeps its place, unseen. `why.rerank` has the reranker's place among what
    it saw (None: unseen) and the place that the hit had before.
    """
    top, rest = list(hits[:RERANKED]), hits[RERANKED:]
    seen, _ = admit(top, hosted=reranker.hosted)
    order = reranker.order(question, [f"{hit.section}\n{hit.text}" for hit in seen]) if len(seen) > 1 else [0]
    free = iter([(place, seen[index]) for place, index in enumerate(order[: len(seen)], start=1)])
    visible = {hit.chunk_id for hit in seen}
    before = {hit.chunk_id: place for place, hit in enumerate(top, start=1)}
    arranged = []
    for hit in top:
        place, chosen = next(free) if hit.chunk_id in visible else (None, hit)
        said = {"by": reranker.name, "place": place, "before": before[chosen.chunk_id]}
        arranged.append(replace(chosen, why=chosen.why | {"rerank": said}))
    return [replace(hit, rank=rank) for rank, hit in enumerate([*arranged, *rest], start=1)]


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder from a folder or, by its name, from the local cache."""

    hosted = False

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def _model(self) -> CrossEncoder:
        from sentence_transformers import CrossEncoder

        try:
            model: CrossEncoder = CrossEncoder(self.name, local_files_only=True)
        except Exception as error:
            raise RefinementFailed(
                f"the cross-encoder {self.name} cannot be loaded: {' '.join(str(error).split())[:200]}",
                "give a folder or a model that is in the local cache; `query --no-rerank` asks without it",
            ) from error
        if model.num_labels != 1:
            raise RefinementFailed(
                f"{self.name} has {model.num_labels} outputs: it is a classifier, no reranker",
                "give a cross-encoder with one output",
            )
        return model

    def order(self, question: str, passages: Sequence[str]) -> list[int]:
        scores = self._model.predict([(question, passage) for passage in passages], show_progress_bar=False)
        values = [round(float(score), 6) for score in scores]
        if not all(map(math.isfinite, values)):
            raise RefinementFailed(f"{self.name} gives scores that are no numbers", "check the model")
        return sorted(range(len(values)), key=lambda index: -values[index])
