"""What a store answers by similarity, and whose vectors it holds."""

from __future__ import annotations

from sqlmodel import select

from kb import KnowledgeBase
from kb.tables import Embedding

TEXTS = [f"paragraph {i} about {word}" for i, word in enumerate(("tiling", "loads", "spills", "banks"))]
ALL = {f"{i}.md" for i in range(len(TEXTS))}


def answers(kb: KnowledgeBase) -> set[str]:
    return {h.path for h in kb.query("paragraph about tiling", k=20).hits if h.why["similarity"] is not None}


def vectors_of(kb: KnowledgeBase) -> dict[str, int]:
    with kb.session() as session:
        models = [row.model for row in session.exec(select(Embedding)).all()]
    return {model: models.count(model) for model in models}
