"""The knowledge base: one home folder with its database, blobs and indexes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kb.blobs import BlobStore
from kb.database import open_database
from kb.errors import HomeUnavailable
from kb.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlmodel import Session

_log = logging.getLogger(__name__)


class KnowledgeBase:
    """Open with `KnowledgeBase.open`; usable as a context manager. Not shared between threads without care:
    every thread takes its own `session()`.

    `notices` collects what a person should know, such as an index that was rebuilt.
    """

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings = settings
        self.engine = engine
        self.home = settings.home
        self.blobs = BlobStore(settings.home / "blobs")
        self.notices: list[str] = []

    @classmethod
    def open(cls, settings: Settings | None = None) -> KnowledgeBase:
        """Create or open the home folder, migrate the schema.

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
        return cls(settings, open_database(home / "kernelevolve.db", timeout_s=settings.lock_timeout_s))

    def session(self) -> Session:
        """A new SQLModel session; commit explicitly. Objects stay readable after the commit."""
        from sqlmodel import Session

        return Session(self.engine, expire_on_commit=False)

    def library_path(self) -> Path:
        """The curated library that ships with the package."""
        return Path(__file__).parent / "library"

    def notice(self, message: str) -> None:
        """Tell a person something that is not an error."""
        _log.warning(message)
        self.notices.append(message)

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> KnowledgeBase:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.home)!r})"
