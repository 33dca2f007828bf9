"""The index of what is stored: which documents there are for a target, and what they say they are about.

Staged retrieval reads it first and then looks for passages inside the documents that it chose. It is read
once for each state of the store and kept; what a document says of itself is its front matter.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kb import scope as scopes
from kb.database import fetch_all
from kb.tables import partition_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from kb.base import KnowledgeBase

_DOCUMENTS = (
    "SELECT document.id, document.kind, document.scope, document.title, document.path, document.meta,"
    " source.key, document.sha256, document.recipe"
    " FROM document JOIN source ON source.id = document.source_id"
    " WHERE document.id IN (SELECT DISTINCT document_id FROM chunk) AND document.id > ? ORDER BY document.id"
)


@dataclass(frozen=True)
class Entry:
    """A document. `phase`, `bottlenecks` and `language` are empty where it does not say."""

    document_id: int
    kind: str
    scope: str
    title: str
    path: str
    phase: str = ""
    bottlenecks: frozenset[str] = frozenset()
    language: str = ""

    @property
    def says_nothing(self) -> bool:
        return not (self.phase or self.bottlenecks or self.language)


@dataclass(frozen=True)
class Selection:
    """`documents` that were chosen from the index, of which `taken` say what they are about; `left_out`
    are the others of the same kinds and scopes.
    """

    documents: int
    taken: list[Entry]
    left_out: list[Entry]
    _allowed: Any  # (largest document id + 1,), bool
    _catalogue: Catalogue

    def of_chunks(self, pks: Any) -> Any:
        """Which of the chunks `pks` (n,) are in a chosen document: (n,), bool."""
        import numpy as np

        document_of = self._catalogue.document_of
        known = pks < len(document_of)
        return known & self._allowed[document_of[np.where(known, pks, 0)]]


class Catalogue:
    """The documents of one state of the store. `digest` names that state: sources, paths and contents."""

    def __init__(self, kb: KnowledgeBase, connection: Connection) -> None:
        self._kb = kb
        self._plain: dict[str, list[int]] = defaultdict(list)  # by partition: they say nothing of themselves
        self._declared: dict[str, list[Entry]] = defaultdict(list)
        self._scope: dict[str, tuple[str, str]] = {}
        self._largest = 0
        contents = []
        for row in fetch_all(connection, _DOCUMENTS, (0,)):
            entry, content = _read(row)
            contents.append(content)
            self._largest = max(self._largest, entry.document_id)
            partition = partition_of(entry.kind, entry.scope)
            self._scope[partition] = (entry.kind, entry.scope)
            if entry.says_nothing:
                self._plain[partition].append(entry.document_id)
            else:
                self._declared[partition].append(entry)
        self.documents = len(contents)
        self.digest = hashlib.sha256("\n".join(sorted(contents)).encode()).hexdigest()

    def select(
        self, target: str | None, kinds: Sequence[str] | None, fits: Callable[[Entry], bool]
    ) -> Selection:
        """Those that `target` may see, of `kinds`, and that `fits` takes. Documents of one kind and scope
        that say nothing of themselves are asked about once.
        """
        import numpy as np

        seen = set(scopes.visible({scope for _, scope in self._scope.values()}, target))
        allowed = np.zeros(self._largest + 1, dtype=bool)
        taken: list[Entry] = []
        left_out: list[Entry] = []
        for partition, (kind, scope) in sorted(self._scope.items()):
            if scope not in seen or (kinds is not None and kind not in kinds):
                continue
            if self._plain[partition] and fits(Entry(0, kind, scope, "", "")):
                allowed[self._plain[partition]] = True
            for entry in self._declared[partition]:
                fit = fits(entry)
                allowed[entry.document_id] = fit
                (taken if fit else left_out).append(entry)
        return Selection(int(allowed.sum()), taken, left_out, allowed, self)

    @cached_property
    def document_of(self) -> Any:
        """The document of each chunk, by pk: (largest pk + 1,), 0 for none."""
        import numpy as np

        with self._kb.session() as session:
            rows = fetch_all(session.connection(), "SELECT pk, document_id FROM chunk WHERE pk > ?", (0,))
        pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
        pairs = pairs[pairs[:, 1] <= self._largest]  # later than this state of the store
        found = np.zeros(int(pairs[:, 0].max(initial=0)) + 1, dtype=np.int64)
        found[pairs[:, 0]] = pairs[:, 1]
        return found


def _read(row: tuple[Any, ...]) -> tuple[Entry, str]:
    document_id, kind, scope, title, path, meta, source, sha, recipe = row
    said = json.loads(meta)  # front matter: anybody's, of any type
    phase, language, bottlenecks = said.get("phase"), said.get("language"), said.get("bottleneck")
    if isinstance(bottlenecks, str):
        bottlenecks = [bottlenecks]
    entry = Entry(
        document_id=document_id,
        kind=kind,
        scope=scope,
        title=title,
        path=path,
        phase=phase if isinstance(phase, str) and phase != "any" else "",
        bottlenecks=frozenset(b for b in bottlenecks if isinstance(b, str))
        if isinstance(bottlenecks, list)
        else frozenset(),
        language=language if isinstance(language, str) else "",
    )
    return entry, "\0".join((source, path, sha, recipe, kind, scope))
