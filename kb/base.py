"""The knowledge base: one home folder with its database, blobs and indexes."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kb.blobs import BlobStore
from kb.database import open_database
from kb.errors import EmbeddingFailed, HomeUnavailable, IndexUnavailable, StoreLocked
from kb.exact import ExactSearch
from kb.serving import Serving
from kb.settings import Settings
from kb.vectors import VectorIndex

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlmodel import Session

    from kb.asking import Refiner
    from kb.catalogue import Catalogue, Selection
    from kb.embedding import Embedder
    from kb.records import SkillRecord, SubQuery
    from kb.retrieval import QueryResult

_log = logging.getLogger(__name__)
NEXT_INDEX = "chroma-next"  # folder below the home


class KnowledgeBase:
    """Open with `KnowledgeBase.open`; usable as a context manager. Not shared between threads without care:
    every thread takes its own `session()`.

    `notices` collects what a person should know, such as an index that was rebuilt.
    """

    def __init__(self, settings: Settings, engine: Engine, embedder: Embedder | None = None) -> None:
        self.settings = settings
        self.engine = engine
        self.home = settings.home
        self.blobs = BlobStore(settings.home / "blobs")
        self.vectors = VectorIndex(settings.home / "chroma", lock_timeout_s=settings.lock_timeout_s)
        self.serving = Serving(self, embedder)
        self._exact = ExactSearch(self)
        self._refiner: Refiner | None = None
        self._catalogue: tuple[dict[str, tuple[int, int]], Catalogue] | None = None
        self.notices: list[str] = []

    @classmethod
    def open(
        cls, settings: Settings | None = None, *, embedder: Embedder | None = None, repair: bool = True
    ) -> KnowledgeBase:
        """Create or open the home folder, migrate the schema, rebuild what is derived where it was lost.

        `embedder` replaces the model that the settings name. Without `repair` indexes stay as they are.

        Raises HomeUnavailable, StoreLocked, StoreDamaged, StoreFull or StoreTooNew.
        """
        settings = settings or Settings()
        home = settings.home
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HomeUnavailable(
                f"cannot use {home} as home: {error.strerror}", "set KERNELEVOLVE_HOME to a writable folder"
            ) from error
        if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
            raise HomeUnavailable(
                f"cannot read and write {home}", "set KERNELEVOLVE_HOME to a writable folder"
            )
        engine = open_database(home / "kernelevolve.db", timeout_s=settings.lock_timeout_s)
        kb = cls(settings, engine, embedder)
        try:
            if repair:
                kb._repair()
        except BaseException:
            kb.close()
            raise
        return kb

    def session(self) -> Session:
        """A new SQLModel session; commit explicitly. Objects stay readable after the commit."""
        from sqlmodel import Session

        return Session(self.engine, expire_on_commit=False)

    @property
    def embedder(self) -> Embedder:
        """The embedding model that serves; loaded when it is first needed, replaced where it is lost.

        Raises EmbeddingFailed.
        """
        return self.serving.current

    # --- retrieval ---

    def query(
        self,
        text: str,
        *,
        target: str | None = None,
        kinds: Sequence[str] | None = None,
        k: int = 10,
        within: Selection | None = None,
        credited: bool = False,
    ) -> QueryResult:
        """Hybrid retrieval, see `kb.retrieval.query`."""
        from kb.retrieval import query

        return query(self, text, target=target, kinds=kinds, k=k, within=within, credited=credited)

    def catalogue(self) -> Catalogue:
        """The index of the stored documents as they are now; kept while they do not change."""
        from kb.catalogue import Catalogue
        from kb.documents import expected_vectors

        with self.session() as session:
            connection = session.connection()
            connection.exec_driver_sql("BEGIN")  # one state of the database for both
            state = expected_vectors(connection)
            if self._catalogue is None or self._catalogue[0] != state:
                self._catalogue = (state, Catalogue(self, connection))
            return self._catalogue[1]

    def query_many(
        self,
        questions: Sequence[SubQuery],
        *,
        target: str | None = None,
        kinds: Sequence[str] | None = None,
        k: int = 10,
    ) -> QueryResult:
        """Several questions as one, see `kb.asking.query_many`."""
        from kb.asking import query_many

        return query_many(self, questions, target=target, kinds=kinds, k=k)

    @property
    def refiner(self) -> Refiner | None:
        """The models that refine queries (`kb.asking.refine`), if some are configured.

        Raises RefinementFailed.
        """
        from kb.asking import Refiner

        if self._refiner is None:
            self._refiner = Refiner.of(self.settings)
        return self._refiner

    def scopes(self) -> list[str]:
        """The labels that stored documents have, sorted."""
        from sqlalchemy import select
        from sqlmodel import col

        from kb.tables import Document

        with self.session() as session:
            return sorted(session.connection().execute(select(col(Document.scope)).distinct()).scalars())

    def skills(self, target: str | None = None) -> list[SkillRecord]:
        """All skills that `target` may see, by name."""
        from kb.skills import load_skills

        return load_skills(self, target)

    def skill(self, name: str) -> SkillRecord:
        """One skill. Raises NotFound."""
        from kb.skills import load_skill

        return load_skill(self, name)

    def find_skills(self, text: str, *, target: str | None, k: int = 8) -> list[SkillRecord]:
        """The `k` skills that fit `text` best, hard-filtered by target, without those that are retired."""
        from kb.skills import find_skills

        return find_skills(self, text, target=target, k=k)

    # --- derived indexes ---

    def expected_vectors(self) -> dict[str, tuple[int, int]]:
        """What there is of vectors: partition -> (generation, count)."""
        from kb.documents import expected_vectors

        with self.session() as session:
            return expected_vectors(session.connection())

    def indexed_vectors(self) -> dict[str, tuple[int, int]]:
        """What the vector index must hold: everything, or nothing where it is never asked.

        It is filled from half as many passages on as it takes to be asked: nobody waits for it then.
        """
        expected = self.expected_vectors()
        passages = sum(count for _, count in expected.values())
        return expected if 2 * passages > self.settings.exact_passages else {}

    def nearest_passages(
        self, text: str, partitions: Sequence[str], limit: int, within: Selection | None = None
    ) -> tuple[str, list[tuple[str, float]]]:
        """Who searched, "exact" or "chroma", and passage ids with cosine similarity, best first; "none" and
        nothing, with a notice, where the model that made the vectors is lost and the next one is not ready.
        Chroma looks outside `within`, too: the caller leaves out what it finds there.

        Chroma serves scopes with more than `Settings.exact_passages` passages. It is rebuilt, with a notice,
        when it is out of step, and raises IndexUnavailable when that fails: nothing takes its place unseen.
        """
        for last in (False, True):
            embedder = self.serving.answering
            if embedder is None:
                return "none", []
            try:
                vector = embedder.embed([text])[0]
            except EmbeddingFailed as error:
                if not self.serving.without(error):
                    raise
                return "none", []
            expected = self.expected_vectors()
            if self._exact.serves(sum(expected[p][1] for p in partitions if p in expected)):
                allowed = None if within is None else within.of_chunks
                return "exact", self._exact.search(embedder, partitions, vector, limit, allowed)
            try:
                found = self.vectors.search(
                    embedder.model_id, self.indexed_vectors, partitions, vector, limit
                )
            except IndexUnavailable as error:
                if last:
                    raise
                if self.serving.model_id == embedder.model_id:  # else another model began to serve
                    self.rebuild_vectors(f"failed ({error})")
            else:
                break
        return "chroma", found

    def _repair(self) -> None:
        from kb import lexical_index

        with self.session() as session:
            session.connection().exec_driver_sql("BEGIN")  # one state: another process may be writing
            problem = lexical_index.problem(session.connection())
        if problem is not None:
            self.rebuild_lexical(problem)
        with contextlib.suppress(StoreLocked):  # who writes the index leaves it in step
            self.repair_vectors(wait_s=0.0)

    def repair_vectors(self, wait_s: float | None = None) -> None:
        """Make the vector index anew where it is not what the database says.

        Raises StoreLocked where another process writes it for longer than `wait_s`.
        """
        if not self.indexed_vectors():  # nothing to hold: neither index nor model is needed
            return
        problem = self.vectors.check(self.serving.model_id, self.indexed_vectors, wait_s)
        if problem is not None and not self._take_next_index():
            self.rebuild_vectors(problem)

    def next_index(self) -> VectorIndex:
        """The index of the next embedding model, while it is filled."""
        return VectorIndex(self.home / NEXT_INDEX, lock_timeout_s=self.settings.lock_timeout_s)

    def _take_next_index(self) -> bool:
        """Finish what was killed between the change of the model and the exchange of the index."""
        if not (self.home / NEXT_INDEX).is_dir():
            return False
        model = self.serving.model_id
        # Under the lock: documents that are stored meanwhile would be in the index that is replaced.
        with contextlib.closing(self.next_index()) as index, self.vectors.exclusive():
            if index.model() != model or index.check(model, self.indexed_vectors) is not None:
                return False
            self.vectors.adopt(index)
        return True

    def rebuild_lexical(self, reason: str) -> None:
        """Make the lexical index anew from the database, all of it or nothing, and say so."""
        from kb import lexical_index

        self.notice(f"the lexical index {reason}; rebuilding it from the database")
        with self.session() as session:
            session.connection().exec_driver_sql("BEGIN IMMEDIATE")
            lexical_index.rebuild(session.connection())
            session.commit()

    def rebuild(self) -> None:
        """Make both indexes anew from the database, whatever they look like."""
        self.rebuild_lexical("is made anew as asked")
        self.vectors.invalidate()
        if self.indexed_vectors():
            self.rebuild_vectors("is made anew as asked")

    def rebuild_vectors(self, reason: str, *, held: bool = False) -> None:
        """Make the vector index anew from the database, and say so. `held`: the caller excludes others."""
        from kb.documents import read_vectors

        embedder = self.embedder
        self.notice(f"the vector index {reason}; rebuilding it from the database")
        with contextlib.nullcontext() if held else self.vectors.exclusive():
            self.vectors.rebuild(
                embedder.model_id,
                self.indexed_vectors(),
                lambda partition: read_vectors(self, embedder, partition),
            )

    def stats(self) -> dict[str, Any]:
        """Counts of what is stored and the size of the home folder in bytes."""
        from kb.stats import stats

        return stats(self)

    def library_path(self) -> Path:
        """The curated library that ships with the package."""
        return Path(__file__).parent / "library"

    def notice(self, message: str) -> None:
        """Tell a person something that is not an error."""
        _log.warning(message)
        self.notices.append(message)

    def close(self) -> None:
        self.vectors.close()
        self.engine.dispose()

    def __enter__(self) -> KnowledgeBase:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.home)!r})"
