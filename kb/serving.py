"""Which embedding model answers, and which one takes its place.

The database names the model that serves: all vectors of the index are of it, and documents that are stored
get theirs from it. Where the settings name another, that one is *next*: the old one goes on until every
passage has a vector of the next (`kb/reembed.py`), then the two change places in one transaction.
"""

from __future__ import annotations

import threading
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


def open_embedder(
    settings: Settings, name: str | None = None, base_url: str | None = None, model_id: str = ""
) -> Embedder:
    """The model called `name`, of an endpoint at `base_url`; without them, the one that the settings name.

    `model_id` is what is known of the model from before: an endpoint is not asked again, and of adapters only
    those are applied that make it up. Raises EmbeddingFailed.
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
        )
    from kb.embedding import load_embedder

    return load_embedder(name, settings.home / "adapters", model_id)


def label(name: str, base_url: str = "") -> str:
    """A model's name for people."""
    return f"{name or 'the bundled model'}{f' at {base_url}' if base_url else ''}"


class Serving:
    """The models of one knowledge base. `given` replaces the one that the settings name."""

    def __init__(self, kb: KnowledgeBase, given: Embedder | None) -> None:
        self._kb = kb
        self._given = given
        self._wanted = given
        self._current: Embedder | None = None
        self._next: Embedder | None = None
        self._barred: LocalOnly | None = None  # why the one that the settings name cannot be the next
        self._decided_on = ""  # the id of the serving model that all of this was decided for
        self._lock = threading.Lock()
        self.record = ModelRecord(kb)

    @property
    def current(self) -> Embedder:
        """The model that answers, as the database says at this moment. Raises EmbeddingFailed."""
        row = self.record.serving()
        with self._lock:
            while self._current is None or (row is not None and row.model != self._decided_on):
                self._current = self._decide(row)
                row = self.record.serving()
                # Another process may have changed over while this one decided: then decide again.
                self._decided_on = self._current.model_id if row is not None else ""
            return self._current

    @property
    def model_id(self) -> str:
        """The id of the model that answers; where it is on record nothing is loaded for it."""
        row = self.record.serving()
        return row.model if row is not None else self.current.model_id

    @property
    def next(self) -> Embedder | None:
        """The model that the settings name, where another one answers still."""
        return self._next if self.current is not None else None

    def asked_anew(self) -> Embedder | None:
        """The next model, asked again who it is; None where the settings name the one that answers.

        Raises LocalOnly, EmbeddingFailed.
        """
        with self._lock:
            self._wanted = self._given or open_embedder(self._kb.settings)
            self._current = None
        found = self.next
        if self._barred is not None:
            raise self._barred
        return found

    def claim(self, session: Session, embedder: Embedder) -> None:
        """Called before vectors of `embedder` are written: the first ones put it on record.

        Raises ModelChanged where another one serves.
        """
        row = self.record.serving()
        if row is None:
            self.record.begin(session.connection(), self._row(embedder, serving=True))
        elif row.model != embedder.model_id:
            raise ModelChanged("another embedding model serves by now", "run the command again")

    def prepare(self, embedder: Embedder) -> EmbeddingModel:
        """Have `embedder` be the next model."""
        return self.record.prepare(self._row(embedder, serving=False))

    def switch(self, embedder: Embedder) -> None:
        """Have `embedder` serve. The caller holds the lock of the vector index."""
        self.record.serve(self._row(embedder, serving=True))

    # --- deciding ---

    def _decide(self, row: EmbeddingModel | None) -> Embedder:
        self._next = self._barred = None
        wanted = self._want()
        with self._kb.session() as session:
            stored = session.connection().execute(select(col(Passage.id)).limit(1)).first() is not None
        if not stored:
            if row is not None and row.model != wanted.model_id:
                self._replace(wanted)
            return wanted
        row = row or self._from_before(wanted)
        if row.model == wanted.model_id:
            self.record.forget_next()
            return wanted
        try:
            # An endpoint is asked whether it is there and the same; files are taken as they were then.
            known = "" if row.name.startswith(ENDPOINT) else row.model
            old = open_embedder(self._kb.settings, row.name, row.base_url, known)
            if old.model_id != row.model:
                raise EmbeddingFailed(f"{label(row.name, row.base_url)} is another model by now")
        except EmbeddingFailed as error:
            self._go_without(row, wanted, error)
            return wanted
        self._announce(row, wanted)
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

    def _go_without(self, row: EmbeddingModel, wanted: Embedder, error: EmbeddingFailed) -> None:
        """The old model cannot answer any more: the next one must, whatever there is to embed first."""
        with self._kb.session() as session:
            self._keep_local(session, wanted)
            done, total = count(session.connection(), wanted.model_id)
        old, new = self._labels(row)
        self._kb.notice(
            f"{old} made the vectors and cannot be used ({error}): "
            f"{total - done} of {total} passages are embedded with {new} before it answers; "
            "an interruption loses nothing"
        )
        self._replace(wanted)

    def _announce(self, row: EmbeddingModel, wanted: Embedder) -> None:
        """Put the next model on record and say how far it is."""
        old, new = self._labels(row)
        try:
            with self._kb.session() as session:
                self._keep_local(session, wanted)
        except LocalOnly as error:
            self._barred = error
            self._kb.notice(f"{old} answers, not {new}: {error}")
            return
        self._next = wanted
        known = self.record.next()
        if known is None or known.model != wanted.model_id:
            known = self.prepare(wanted)
        if known.serving:
            return  # another process has changed over meanwhile
        stopped = f" (it stopped: {known.error})" if known.error else ""
        how_far = f"{known.done} of {known.total} passages are embedded with {new}{stopped}"
        self._kb.notice(f"{how_far}; {old} answers until all are")

    def _replace(self, embedder: Embedder) -> None:
        with self._kb.vectors.exclusive():  # nobody is between `claim` and the end of a change
            self.switch(embedder)

    @staticmethod
    def _keep_local(session: Session, embedder: Embedder) -> None:
        from kb.documents import keep_local

        keep_local(session, embedder, session.exec(select_rows(Source.id)).all())

    def _row(self, embedder: Embedder, *, serving: bool) -> EmbeddingModel:
        name, url = self._name(), self._kb.settings.embedding_base_url
        return EmbeddingModel(model=embedder.model_id, name=name, base_url=url, serving=serving)

    def _name(self) -> str:
        """As it holds in any folder."""
        name = self._kb.settings.embedding_model
        folder = Path(name).expanduser()
        return str(folder.resolve()) if name and folder.is_dir() else name

    def _labels(self, row: EmbeddingModel) -> tuple[str, str]:
        """The old model's name and the new one's, which differ in what is said of them at least."""
        old = label(row.name, row.base_url)
        new = label(self._name(), self._kb.settings.embedding_base_url)
        return (f"{old} as it was", f"{new} as it is now") if old == new else (old, new)
