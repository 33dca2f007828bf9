"""What the database knows of embedding models: which one serves, which one is next and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select, update
from sqlmodel import col
from sqlmodel import select as select_rows

from kb.tables import Embedding, EmbeddingModel, Passage, now

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from kb.base import KnowledgeBase


class ModelRecord:
    """Every call is a transaction of its own, but for those that are given a connection."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb

    def rows(self) -> list[EmbeddingModel]:
        """At most two, the next model first."""
        with self._kb.session() as session:
            return list(session.exec(select_rows(EmbeddingModel).order_by(col(EmbeddingModel.serving))))

    def serving(self) -> EmbeddingModel | None:
        return next((row for row in self.rows() if row.serving), None)

    def next(self) -> EmbeddingModel | None:
        return next((row for row in self.rows() if not row.serving), None)

    def begin(self, connection: Connection, row: EmbeddingModel) -> None:
        """The model of an empty store, or of one from before models were on record."""
        connection.execute(delete(EmbeddingModel))
        connection.execute(insert(EmbeddingModel), [{**row.model_dump(), "serving": True}])

    def serve(self, row: EmbeddingModel) -> None:
        """Have this model serve, and no other be next."""
        with self._kb.session() as session:
            self.begin(session.connection(), row)
            session.commit()

    def prepare(self, row: EmbeddingModel) -> EmbeddingModel:
        """Have this model be next in place of any other, from where it is.

        Where it serves by now, as another process has finished it, its row is given back as it is.
        """
        with self._kb.session() as session:
            connection = session.connection()
            row.done, row.total = count(connection, row.model)
            connection.execute(delete(EmbeddingModel).where(col(EmbeddingModel.serving).is_(False)))
            serving = session.get(EmbeddingModel, row.model)  # after the write, which others wait for
            if serving is not None:
                session.commit()
                return serving
            connection.execute(insert(EmbeddingModel), [row.model_dump()])
            session.commit()
        return row

    def advance(self, model: str, done: int, total: int, error: str = "") -> bool:
        """Note how far `model` is; False where it is not the next one any more."""
        with self._kb.session() as session:
            changed = session.connection().execute(
                update(EmbeddingModel)
                .where(col(EmbeddingModel.model) == model, col(EmbeddingModel.serving).is_(False))
                .values(done=done, total=total, error=error, updated=now())
            )
            session.commit()
            return bool(changed.rowcount)

    def forget_next(self) -> None:
        if self.next() is not None:
            with self._kb.session() as session:
                session.connection().execute(
                    delete(EmbeddingModel).where(col(EmbeddingModel.serving).is_(False))
                )
                session.commit()


def count(connection: Connection, model: str) -> tuple[int, int]:
    """(texts of passages that have a vector of `model`, texts of passages)."""
    hashes = select(col(Passage.text_hash)).distinct().subquery()
    total = connection.execute(select(func.count()).select_from(hashes)).scalar_one()
    done = connection.execute(
        select(func.count())
        .select_from(hashes)
        .join(Embedding, (col(Embedding.text_hash) == hashes.c.text_hash) & (col(Embedding.model) == model))
    ).scalar_one()
    return done, total
