"""Which embedding model answers, and which one takes its place.

The database names the model that serves: all vectors of the index are of it, and documents that are stored
get theirs from it. Where the settings name another, that one is *next*: the old one goes on until every
passage has a vector of the next (`kb/reembed.py`), then the two change places in one transaction.

An old model may be lost: its folder is gone or holds another one, its server is switched off. Where little is
stored, or documents are to be stored, for which vectors must be made, the next one then serves at once.
Otherwise words alone find passages until it serves, and notices say so.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlmodel import col
from sqlmodel import select as select_rows

from kb.errors import EmbeddingFailed, LocalOnly, ModelChanged
from kb.model_record import ModelRecord, count
from kb.settings import ENDPOINT
from kb.tables import EmbeddingModel, Passage, Source

if TYPE_CHECKING:
    from sqlmodel import Session

    from kb.base import KnowledgeBase
    from kb.embedding import Embedder
    from kb.settings import Settings


_AT_ONCE = 500  # passages: three seconds of two cores
_BY_WORDS = "words alone find passages"


def open_embedder(
    settings: Settings,
    name: str | None = None,
    base_url: str | None = None,
    model_id: str = "",
    *,
    patient: bool = True,
) -> Embedder:
    """The model called `name`, of an endpoint at `base_url`; without them, the one that the settings name.

    `model_id` is what is known of the model from before: an endpoint is not asked again, and of adapters only
    those are applied that make it up. One that is not `patient` gives up soon on an endpoint.

    Raises EmbeddingFailed.
    """
    name = settings.embedding_model if name is None else name
    if name.startswith(ENDPOINT):
        from kb.embedding_endpoint import EndpointEmbedder

        return EndpointEmbedder(
            name.removeprefix(ENDPOINT),
            settings.embedding_base_url if base_url is None else base_url,
            window=settings.embedding_window,
            timeout_s=settings.embedding_timeout_s,
            model_id=model_id,
            patient=patient,
        )
    from kb.embedding import load_embedder

    return load_embedder(name, settings.home / "adapters", model_id)


def label(name: str, base_url: str = "") -> str:
    """A model's name for people."""
    return f"{name or 'the bundled model'}{f' at {base_url}' if base_url else ''}"


@dataclass(frozen=True)
class _Decision:
    """Who answers. `on` is the id of the serving model that it was made for; empty: none was on record."""

    on: str
    answers: Embedder | None  # None: `lost` says why the one that serves cannot
    next: Embedder | None = None
    barred: LocalOnly | None = None  # why the one that the settings name cannot be the next
    lost: EmbeddingFailed | None = None


class Serving:
    """The models of one knowledge base. `given` replaces the one that the settings name."""

    def __init__(self, kb: KnowledgeBase, given: Embedder | None) -> None:
        self._kb = kb
        self._given = given
        self._wanted = given
        self._decision: _Decision | None = None
        self._silent = ""  # the old model that was said not to answer
        self._lock = threading.Lock()
        self.record = ModelRecord(kb)

    @property
    def answering(self) -> Embedder | None:
        """The model that answers, as the database says now; None where it is lost and the next one not ready.

        Raises EmbeddingFailed.
        """
        with self._lock:
            return self._settled().answers

    @property
    def lost(self) -> EmbeddingFailed | None:
        """Why the model that serves cannot answer, where that is so."""
        with self._lock:
            return self._settled().lost

    @property
    def current(self) -> Embedder:
        """The model that answers and makes the vectors of new documents; one that is lost is replaced for it.

        Raises EmbeddingFailed.
        """
        with self._lock:
            decision = self._settled()
            if decision.answers is not None:
                return decision.answers
            self._decision = self._gone_without(self._want(), decision.lost)
            return self._want()

    @property
    def named(self) -> Embedder:
        """The model that the settings name, whoever answers. Raises EmbeddingFailed."""
        with self._lock:
            return self._want()

    def without(self, error: EmbeddingFailed) -> bool:
        """Whether a question is answered without the serving model, which raised `error`, because another one
        is about to take its place. Says so once.
        """
        with self._lock:
            decision = self._settled()
        if decision.next is None or decision.answers is None:
            return False
        if self._silent != decision.on:
            self._silent = decision.on
            self._kb.notice(f"the old embedding model does not answer ({error}): until then {_BY_WORDS}")
        return True

    def _settled(self) -> _Decision:
        row = self.record.serving()
        while self._decision is None or (row is not None and row.model != self._decision.on):
            decision = self._decide(row)
            row = self.record.serving()
            # Another process may have changed over while this one decided: then decide again.
            self._decision = decision if row is not None else replace(decision, on="")
        return self._decision

    @property
    def model_id(self) -> str:
        """The id of the model that answers; where it is on record nothing is loaded for it."""
        row = self.record.serving()
        return row.model if row is not None else self.current.model_id

    @property
    def next(self) -> Embedder | None:
        """The model that the settings name, where another one serves still."""
        with self._lock:
            return self._settled().next

    def asked_anew(self) -> Embedder | None:
        """The next model, asked again who it is; None where the settings name the one that answers.

        Raises LocalOnly, EmbeddingFailed.
        """
        with self._lock:
            self._wanted = self._given or open_embedder(self._kb.settings)
            self._decision = None
            decision = self._settled()
        if decision.barred is not None:
            raise decision.barred
        return decision.next

    def claim(self, session: Session, embedder: Embedder) -> None:
        """Called before vectors of `embedder` are written: the first ones put it on record.

        Raises ModelChanged where another one serves.
        """
        row = self.record.serving()
        if row is None:
            self._keep_files(embedder)
            self.record.begin(session.connection(), self._row(embedder, serving=True))
        elif row.model != embedder.model_id:
            raise ModelChanged("another embedding model serves by now", "run the command again")

    def prepare(self, embedder: Embedder) -> EmbeddingModel:
        """Have `embedder` be the next model."""
        return self.record.prepare(self._row(embedder, serving=False))

    def switch(self, embedder: Embedder) -> None:
        """Have `embedder` serve. The caller holds the lock of the vector index."""
        self._keep_files(embedder)
        self.record.serve(self._row(embedder, serving=True))

    # --- deciding ---

    def _decide(self, row: EmbeddingModel | None) -> _Decision:
        wanted = self._want()
        with self._kb.session() as session:
            stored = session.connection().execute(select(col(Passage.id)).limit(1)).first() is not None
        if not stored:
            if row is not None and row.model != wanted.model_id:
                self._replace(wanted)
            return _Decision(wanted.model_id, wanted)
        row = row or self._from_before(wanted)
        if row.model == wanted.model_id:
            self.record.forget_next()
            self._keep_files(wanted)
            return _Decision(row.model, wanted)
        old, lost = None, None
        try:
            old = self._former(row)
        except EmbeddingFailed as error:
            lost = error
            with self._kb.session() as session:
                done, total = count(session.connection(), wanted.model_id)
            if total - done <= _AT_ONCE:
                return self._gone_without(wanted, lost)
        return self._announced(row, wanted, old, lost)

    def _former(self, row: EmbeddingModel) -> Embedder:
        """The model on record: files as they were then, an endpoint as it is, which its first answer tells.

        Raises EmbeddingFailed where it cannot be had any more.
        """
        settings, name = self._kb.settings, label(row.name, row.base_url)
        if row.name.startswith(ENDPOINT) and (row.name, row.base_url) == self._address():
            raise EmbeddingFailed(f"{name} is another model by now")
        old = open_embedder(settings, row.name, row.base_url, row.model, patient=False)
        if old.model_id != row.model:
            raise EmbeddingFailed(f"{name} is another model by now")
        self._keep_files(old)
        return old

    def _want(self) -> Embedder:
        """The model that the settings name. What is on record of an endpoint is not asked for again."""
        if self._wanted is None:
            settings = self._kb.settings
            known = ""
            if settings.embedding_model.startswith(ENDPOINT):
                asked = (settings.embedding_model, settings.embedding_base_url)
                same = [row.model for row in self.record.rows() if (row.name, row.base_url) == asked]
                known = same[0] if same else ""
            self._wanted = open_embedder(settings, model_id=known)
        return self._wanted

    def _from_before(self, wanted: Embedder) -> EmbeddingModel:
        """A store from before models were on record: its index says which one it is."""
        made_by = self._kb.vectors.model() or wanted.model_id
        row = self._row(wanted, serving=True)
        if made_by != row.model:  # perhaps the bundled one
            row = EmbeddingModel(model=made_by, name="", serving=True)
        self.record.serve(row)
        return row

    def _gone_without(self, wanted: Embedder, lost: EmbeddingFailed | None) -> _Decision:
        """Have the next model serve before its vectors are there: whoever needs them makes them."""
        with self._kb.session() as session:
            self._keep_local(session, wanted)
            done, total = count(session.connection(), wanted.model_id)
        row = self.record.serving()
        old, new = self._labels(row) if row is not None else ("another model", label(*self._address()))
        self._kb.notice(
            f"{old} made the vectors and cannot be used ({lost}): {total - done} of {total} passages are "
            f"embedded with {new} first; an interruption loses nothing"
        )
        self._replace(wanted)
        return _Decision(wanted.model_id, wanted)

    def _announced(
        self, row: EmbeddingModel, wanted: Embedder, old: Embedder | None, lost: EmbeddingFailed | None
    ) -> _Decision:
        """Put the next model on record and say how far it is. `old` answers, if it is not `lost`.

        Raises LocalOnly where neither may answer.
        """
        before, after = self._labels(row)
        try:
            with self._kb.session() as session:
                self._keep_local(session, wanted)
        except LocalOnly as error:
            if old is None:
                raise
            self._kb.notice(f"{before} answers, not {after}: {error}")
            return _Decision(row.model, old, barred=error)
        known = self.record.next()
        if known is None or known.model != wanted.model_id:
            known = self.prepare(wanted)
        decision = _Decision(row.model, old, wanted, lost=lost)
        if known.serving:
            return decision  # another process has changed over meanwhile
        stopped = f" (it stopped: {known.error})" if known.error else ""
        how_far = f"{known.done} of {known.total} passages are embedded with {after}{stopped}"
        if lost is None:
            self._kb.notice(f"{how_far}; {before} answers until all are")
        else:
            self._kb.notice(
                f"{how_far}; {before} made the vectors and cannot be used ({lost}): until all are {_BY_WORDS}"
            )
        return decision

    def _replace(self, embedder: Embedder) -> None:
        with self._kb.vectors.exclusive():  # nobody is between `claim` and the end of a change
            self.switch(embedder)

    @staticmethod
    def _keep_local(session: Session, embedder: Embedder) -> None:
        from kb.documents import keep_local

        keep_local(session, embedder, session.exec(select_rows(Source.id)).all())

    def _keep_files(self, embedder: Embedder) -> None:
        """The changes that ship with the package are others in its next version; those that made the stored
        vectors must be there until all is embedded anew.
        """
        from kb.adaptation.lowrank import keep
        from kb.folder_model import FolderModel

        if isinstance(embedder, FolderModel):
            try:
                keep(embedder.adapters, embedder.identities, self._kb.home / "adapters")
            except OSError as error:
                self._kb.notice(f"the adapter of the embedding model cannot be kept: {error}")

    def _row(self, embedder: Embedder, *, serving: bool) -> EmbeddingModel:
        name, url = self._address()
        return EmbeddingModel(model=embedder.model_id, name=name, base_url=url, serving=serving)

    def _address(self) -> tuple[str, str]:
        """What the settings name, as it holds in any folder, and where it is served."""
        name = self._kb.settings.embedding_model
        folder = Path(name).expanduser()
        name = str(folder.resolve()) if name and folder.is_dir() else name
        return name, self._kb.settings.embedding_base_url

    def _labels(self, row: EmbeddingModel) -> tuple[str, str]:
        """The old model's name and the new one's, which differ in what is said of them at least."""
        old = label(row.name, row.base_url)
        new = label(*self._address())
        return (f"{old} as it was", f"{new} as it is now") if old == new else (old, new)
