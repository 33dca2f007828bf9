"""`kernelevolve kb adapt`: train on the user's documents, and keep the change only if it helps."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.adaptation.compare import Comparison, compare
from kb.adaptation.examples import StoredPassage, divide
from kb.adaptation.lowrank import set_aside, write_factors
from kb.adaptation.pairs import read_questions, stored_pairs
from kb.adaptation.rivals import stored_passages, with_lexical
from kb.adaptation.training import Recipe, facts_of, recipe_here, train
from kb.embedding import (
    SHIPPED_ADAPTERS,
    OnnxEmbedder,
    SentenceTransformerEmbedder,
    model_folder,
    named_files,
    open_model,
)
from kb.errors import EmbeddingFailed
from kb.locks import adapt_lock
from kb.settings import ENDPOINT

if TYPE_CHECKING:
    from kb.base import KnowledgeBase
    from kb.settings import Settings

_NOT_IN_FILES = ("only a model in files can be adapted", "set KERNELEVOLVE_EMBEDDING_MODEL to a folder")


@dataclass(frozen=True)
class Adapted:
    """What was learnt: `kept` says whether the knowledge base uses it from now on, from `file`."""

    kept: bool
    model_id: str
    file: Path | None
    trained_on: dict[str, int]
    overall: Comparison
    by_kind: dict[str, Comparison] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "kept": self.kept,
            "model": self.model_id,
            "path": None if self.file is None else str(self.file),
            "trained_on": self.trained_on,
            "held_out": self.overall.to_json(),
            "kinds": {kind: c.to_json() for kind, c in self.by_kind.items()},
        }


def adapt(
    kb: KnowledgeBase,
    *,
    questions: Sequence[Path] = (),
    recipe: Recipe | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Adapted:
    """Train, by default as fits this machine, and compare on documents that were kept apart.

    What is kept becomes `<home>/adapters/<model>.safetensors`, which the next open finds. Raises
    NothingToLearn, QuestionsInvalid, StoreLocked while another process adapts, or EmbeddingFailed where the
    model is not one of files on this machine.
    """
    with adapt_lock(kb.home, timeout_s=0.0):
        return _adapt(kb, questions, recipe or recipe_here(), progress or (lambda *_: None))


def adaptable(kb: KnowledgeBase) -> OnnxEmbedder | SentenceTransformerEmbedder:
    """The model that the settings name, whoever answers still.

    Raises EmbeddingFailed where it is not one of files on this machine.
    """
    refuse_endpoint(kb.settings)
    current = kb.serving.named
    if not isinstance(current, OnnxEmbedder | SentenceTransformerEmbedder):
        raise EmbeddingFailed(*_NOT_IN_FILES)
    return current


def refuse_endpoint(settings: Settings) -> None:
    """Before anything is opened, asked or paid for. Raises EmbeddingFailed."""
    if settings.embedding_model.startswith(ENDPOINT):
        raise EmbeddingFailed(*_NOT_IN_FILES)


def _adapt(
    kb: KnowledgeBase,
    questions: Sequence[Path],
    recipe: Recipe,
    told: Callable[[str, int, int], None],
) -> Adapted:
    current = adaptable(kb)
    own = kb.home / "adapters"
    base_adapters = [file for file in current.adapters if file.parent != own]
    pairs = stored_pairs(kb)
    for asked in questions:
        pairs += read_questions(kb, asked, current)
    taught, held = divide(pairs, recipe.pairs, auxiliary=recipe.auxiliary, seed=recipe.seed)
    passages: list[StoredPassage] = []
    if recipe.negatives:
        passages = stored_passages(kb)
        taught = with_lexical(kb, taught, lambda done, total: told("reading", done, total))

    base = SentenceTransformerEmbedder(current.folder, adapters=base_adapters)
    factors = train(base.load(), taught, recipe, lambda done, total: told("training", done, total), passages)
    file = own / f"{base.model_id}.safetensors"
    trial = kb.home / "adapt-trial"  # not in `own`, where a backup would find it
    write_factors(trial / file.name, factors, facts_of(recipe, len(taught)))
    try:
        adapted = open_model(current.folder, [*_folders(base_adapters), trial])
        model_id = adapted.model_id  # of the file where it still is
        overall, by_kind = compare(current, adapted, held, lambda done, total: told("comparing", done, total))
        if overall.better:
            own.mkdir(exist_ok=True)
            set_aside(file)
            (trial / file.name).replace(file)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return Adapted(
        kept=overall.better,
        model_id=model_id if overall.better else current.model_id,
        file=file if overall.better else None,
        trained_on=dict(Counter(p.kind for p in taught)),
        overall=overall,
        by_kind=by_kind,
    )


def _folders(files: Sequence[Path]) -> list[Path]:
    return [file.parent for file in files]


def forget(kb: KnowledgeBase) -> Path | None:
    """Go back to the model as it was before `adapt`; the file that was removed, if there was one.

    No model is loaded: the file may be damaged. Raises StoreLocked while another process adapts.
    """
    with adapt_lock(kb.home, timeout_s=0.0):
        return _forget(kb)


def _forget(kb: KnowledgeBase) -> Path | None:
    name = kb.settings.embedding_model
    if name.startswith(ENDPOINT):
        return None
    base = named_files(model_folder(name), [SHIPPED_ADAPTERS])
    file = kb.home / "adapters" / f"{base.model_id}.safetensors"
    if not file.is_file():
        return None
    set_aside(file)
    file.unlink()
    return file
