"""Scope, kind, language, version and licence of a document: who says it, in order of precedence.

A person's correction (`kernelevolve kb scope`), the document itself, the caller, the nearest
`kernelevolve-source.toml`, and for the scope at last the content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from posixpath import commonpath
from typing import TYPE_CHECKING, Any

from ingest.collect import Item
from ingest.document import LoadedDocument
from ingest.inference import infer_scope
from ingest.scope_files import Facts
from kb import scope as scopes
from kb.labels import confirm_new
from kb.upkeep.rescope import corrected, corrections

if TYPE_CHECKING:
    from kb import KnowledgeBase

_UNSAID = "document"  # the kind of whatever says nothing about itself


@dataclass(frozen=True)
class Labelled:
    """`inferred` says why the scope was concluded from the content; empty where somebody said it."""

    scope: str
    kind: str
    meta: dict[str, Any] = field(default_factory=dict)
    inferred: str = ""


class Labels:
    """Decides with the corrections that are on record when it is made."""

    def __init__(self, kb: KnowledgeBase) -> None:
        with kb.session() as session:
            self._corrections = corrections(session)

    def decide(self, item: Item, facts: Facts, loaded: LoadedDocument, text: str) -> Labelled:
        """`facts` is what scope files say about the item."""
        meta = dict(loaded.meta)
        for key in ("language", "version"):
            said = getattr(item.source, key) or getattr(facts, key)
            if said is not None and not meta.get(key):
                meta[key] = said
        if facts.license is not None and not (meta.get("license") or meta.get("licence")):
            meta["license"] = facts.license
        kind = loaded.kind
        if kind == _UNSAID and "kind" not in loaded.meta:
            kind = item.source.kind or facts.kind or _UNSAID
        scope = (
            corrected(self._corrections, item.location) or loaded.scope or item.source.scope or facts.scope
        )
        if scope:
            return Labelled(scope, kind, meta)
        name = PurePosixPath(item.path).name
        guess = infer_scope(text, f"{name} {loaded.title}", item.path)
        if guess is None:
            return Labelled(scopes.GENERIC, kind, meta)
        return Labelled(guess.scope, kind, meta, guess.why)


@dataclass
class InferredScopes:
    """Collects what was inferred in a run, one entry for each folder and scope."""

    _found: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, location: str, labelled: Labelled) -> None:
        if labelled.inferred:
            folder = str(PurePosixPath(location).parent)
            self._found.setdefault((folder, labelled.scope), []).append((location, labelled.inferred))

    def to_json(self) -> list[dict[str, Any]]:
        """[{path, scope, documents, why}]; `path` is the document's own where it is the only one."""
        return [
            {
                "path": documents[0][0] if len(documents) == 1 else folder,
                "scope": scope,
                "documents": len(documents),
                "why": documents[0][1],
            }
            for (folder, scope), documents in sorted(self._found.items())
        ]


class NewLabels:
    """Collects the scope labels that nothing had before this run: a mistyped one hides what it stands at."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._stored = kb.scopes()
        self._said: dict[str, str | None] = {}  # looked up once: thousands of documents share a few labels
        self._found: dict[str, list[str]] = {}

    def add(self, location: str, labelled: Labelled) -> None:
        if labelled.inferred:
            return
        scope = labelled.scope
        if scope not in self._said:
            self._said[scope] = confirm_new(scope, self._stored)
        if self._said[scope] is not None:
            self._found.setdefault(scope, []).append(location)

    def notes(self) -> list[dict[str, Any]]:
        """[{path, notes}], one for each label, in the form of an ingestion's notes."""
        found = []
        for scope, locations in sorted(self._found.items()):
            path = locations[0] if len(locations) == 1 else commonpath(locations)
            said = f"{self._said[scope]} (`kernelevolve kb scope PATH LABEL` corrects it)"
            found.append({"path": path, "notes": [said]})
        return found
