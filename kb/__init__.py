"""The knowledge base: tables, stores, embedding, retrieval and the curated library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kb.records import Hit, SkillRecord

if TYPE_CHECKING:
    from kb.base import KnowledgeBase
    from kb.settings import Settings

__all__ = ["Hit", "KnowledgeBase", "Settings", "SkillRecord"]


def __getattr__(name: str) -> Any:
    # Pydantic and SQLAlchemy are imported when they are used, not by `import kb`.
    if name == "KnowledgeBase":
        from kb.base import KnowledgeBase

        return KnowledgeBase
    if name == "Settings":
        from kb.settings import Settings

        return Settings
    raise AttributeError(name)
