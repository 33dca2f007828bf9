"""Ingestion: find files, skip what is unchanged, parse, embed, store; forget what vanished.

An interruption at any moment leaves whole documents behind; the next run continues and ends in the same state
as one that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlmodel import col
from sqlmodel import select as select_rows

from ingest import chunking, ocr
from ingest.discover import ScopeFiles, walk
from ingest.document import Loader
from ingest.errors import IngestError, PathMissing, Unavailable, Unreadable
from ingest.reading import read_bytes
from ingest.registry import content_of, load_file, loaders
from ingest.report import IngestReport, Progress, ProgressCallback
from ingest.twins import find_twins
from kb import KnowledgeBase
from kb import scope as scopes
from kb.documents import DocumentWriter, NewDocument
from kb.errors import SkillInvalid
from kb.locks import home_lock
from kb.tables import Document, DocumentState, Skill, Source

LOCAL_ONLY = "local-only"
VISIBILITIES = ("shared", LOCAL_ONLY)
# Enough for full batches of the embedding model, few enough that progress is visible and a kill cheap.
_BATCH_CHUNKS = 64


@dataclass(frozen=True)
class _Item:
    """One file to look at. `path` is its name inside the source; `scope` is the source's, if it has one."""

    source_id: int
    path: str
    file: Path
    scope: str | None
    root: Path


@dataclass(frozen=True)
class _Known:
    document_id: int
    sha256: str
    recipe: str
    loader: str
    state: str


def ingest_paths(
    kb: KnowledgeBase,
    paths: Sequence[str | Path],
    *,
    scope: str | None = None,
    visibility: str | None = None,
    progress: ProgressCallback | None = None,
) -> IngestReport:
    """Bring the knowledge base in line with files and folders.

    `scope` is the label of documents that do not name one in their front matter. `visibility` is
    "shared" or "local-only". Without them a known source keeps what it has; a new one has no scope of its own
    and is shared. Files that cannot be read are listed in the report's `failed`; the others continue.
    Raises PathMissing before anything is changed, StoreLocked when another ingestion takes too long.
    """
    if visibility is not None and visibility not in VISIBILITIES:
        raise IngestError(f"unknown visibility {visibility!r}", f"one of {', '.join(VISIBILITIES)}")
    roots = [Path(p).expanduser() for p in paths]
    for root in roots:
        if not root.exists() and not root.is_symlink():
            raise PathMissing(f"{root} does not exist", "check the path")
    label = scopes.normalise(scope) if scope else None
    run = Ingestion(kb, progress=progress)
    with run.exclusive():
        for root in roots:
            run.add_root(root.resolve(), visibility, label)
        return run.finish()


class Ingestion:
    """One run: roots are added, then `finish` does the work. Use inside `exclusive`."""

    def __init__(self, kb: KnowledgeBase, *, progress: ProgressCallback | None = None) -> None:
        self._kb = kb
        self._progress = progress or (lambda _: None)
        self._scope_files = ScopeFiles()
        self._writer = DocumentWriter(kb)
        self._report = IngestReport()
        self._items: dict[tuple[int, str], _Item] = {}
        self._swept: list[Path] = []  # folders whose vanished documents are forgotten
        self._swept_sources: set[int] = set()  # the same for whole sources, wherever they were before
        self._unlisted: list[Path] = []  # folders of which nothing is known now, so nothing is forgotten
        self._twins: dict[Path, list[str]] = {}  # notebook -> names of the files that repeat it
        self._pages = 0
        self._started = time.monotonic()
        self._registry = json.dumps([(x.name, x.version, x.priority) for x in loaders()])

    def exclusive(self) -> AbstractContextManager[None]:
        """One ingestion at a time per home; the second one waits and says so."""
        return home_lock(
            self._kb.home,
            timeout_s=self._kb.settings.lock_timeout_s,
            waiting=lambda message: self._progress(Progress(0, 0, message=message)),
        )

    # --- what to look at ---

    def add_root(
        self,
        root: Path,
        visibility: str | None = None,
        scope: str | None = None,
        *,
        key: str = "",
        name: str = "",
        without: Sequence[str] = (),
    ) -> int:
        """Register a folder or file as source and collect its files. Returns the source's id.

        `key` makes a source that keeps its identity when its root moves; `without` names files at the root.
        """
        source = self._source(root, visibility, scope, key, name)
        assert source.id is not None
        base = Path(source.root)
        if key:
            self._swept_sources.add(source.id)
        if not root.is_dir():
            self._add(source, root)
            return source.id
        self._swept.append(root)
        inner = self._sources_inside(base, root, visibility, scope)
        left_out = {root / name for name in without}
        for file in (f for f in walk(root, self._unlisted) if f not in left_out):
            # A file of a source of its own inside this one stays there.
            self._add(next((s for s in inner if file.is_relative_to(s.root)), source), file)
        return source.id

    def _add(self, source: Source, file: Path) -> None:
        base = Path(source.root)
        path = _relative(file, base) if file != base else printable(file.name)
        self._items[(source.id or 0, path)] = _Item(source.id or 0, path, file, source.scope or None, base)

    def _sources_inside(
        self, base: Path, root: Path, visibility: str | None, scope: str | None
    ) -> list[Source]:
        """Sources below `base`, the deepest first. What is said of `root` holds for those below it, except
        that "shared" publishes none of them.
        """
        with self._kb.session() as session:
            rows = session.exec(select_rows(Source)).all()
            inside = [s for s in rows if Path(s.root) != base and Path(s.root).is_relative_to(base)]
            for source in inside:
                if source.key == source.root and Path(source.root).is_relative_to(root):
                    source.visibility = visibility if visibility == LOCAL_ONLY else source.visibility
                    source.scope = scope or source.scope
                    session.add(source)
            session.commit()
        return sorted(inside, key=lambda s: (-len(s.root), s.root))

    def _source(self, root: Path, visibility: str | None, scope: str | None, key: str, name: str) -> Source:
        """The source of exactly this root; else the nearest known folder around it, unless something else is
        said of this root; else a new one, which inherits from that folder what is not said.
        """
        key = key or printable(str(root))
        with self._kb.session() as session:
            sources = session.exec(select_rows(Source)).all()
            found = next((s for s in sources if s.key == key), None)
            if found is None:
                found = Source(
                    key=key, name=name or printable(root.name or str(root)), root=printable(str(root))
                )
                around = [s for s in sources if root.is_relative_to(s.root) and s.key == s.root]
                if around and key == found.root:
                    nearest = max(around, key=lambda s: len(s.root))
                    found.visibility, found.scope = nearest.visibility, nearest.scope
                    if visibility in (None, nearest.visibility) and scope in (None, nearest.scope):
                        found = nearest
            if found.key == key:
                found.root = printable(str(root))
                found.visibility = visibility or found.visibility
                found.scope = scope or found.scope
            session.add(found)
            session.commit()
            return found

    # --- the work ---

    def finish(self) -> IngestReport:
        self._leave_out_twins()
        known = self._known()
        items = [self._items[k] for k in sorted(self._items)]
        # What vanished goes first: a skill that moved must not collide with itself.
        self._forget_vanished(known)
        for folder in self._unlisted:
            self._report_failure(folder, "the folder cannot be listed")
        batch: list[NewDocument] = []
        for done, item in enumerate(items, start=1):
            document = self._examine(item, known.get((item.source_id, item.path)))
            if document is not None:
                batch.append(document)
            if sum(len(d.chunks) for d in batch) >= _BATCH_CHUNKS:
                self._store(batch, known)
                batch = []
            self._progress(Progress(done, len(items), item.path, self._report.chunks, self._pages))
        self._store(batch, known)
        self._report.elapsed_s = round(time.monotonic() - self._started, 3)
        return self._report

    def _leave_out_twins(self) -> None:
        """The text twin of a notebook is not indexed; the notebook's record and the report name it."""
        by_source: dict[int, list[Path]] = {}
        for item in self._items.values():
            by_source.setdefault(item.source_id, []).append(item.file)
        twins = {source: find_twins(files) for source, files in by_source.items()}
        for key, item in list(self._items.items()):
            notebook = twins[item.source_id].get(item.file)
            if notebook is not None:
                del self._items[key]
                self._twins.setdefault(notebook, []).append(item.file.name)
                note = f"the same as {notebook.name}, which is indexed"
                self._report.notes.append({"path": item.path, "notes": [note]})

    def _known(self) -> dict[tuple[int, str], _Known]:
        d = Document
        with self._kb.session() as session:
            rows = session.connection().execute(
                select(
                    col(d.source_id), col(d.path),
                    col(d.id), col(d.sha256), col(d.recipe), col(d.loader), col(d.state),
                )
            )  # fmt: skip
            return {(s, p): _Known(i or 0, *rest) for s, p, i, *rest in rows}

    def _forget_vanished(self, known: dict[tuple[int, str], _Known]) -> None:
        with self._kb.session() as session:
            rows = session.connection().execute(
                select(col(Document.id), col(Document.source_id), col(Document.path), col(Document.location))
            )
            # A file that got a source of its own leaves the one it was in, with that one's visibility.
            locations = {printable(str(item.file)) for item in self._items.values()}
            gone = [
                (i, (source_id, path))
                for i, source_id, path, location in rows
                if (source_id, path) not in self._items
                and not any(Path(location).is_relative_to(folder) for folder in self._unlisted)
                and (
                    source_id in self._swept_sources
                    or location in locations
                    or any(Path(location).is_relative_to(folder) for folder in self._swept)
                )
            ]
        self._writer.remove([i for i, _ in gone if i is not None])
        for _, key in gone:
            known.pop(key, None)
        self._report.removed += len(gone)

    def _examine(self, item: _Item, known: _Known | None) -> NewDocument | None:
        """Read and parse a file unless it is as it was; record a failure instead of raising."""
        try:
            data = read_bytes(item.file, int(self._kb.settings.max_file_mb * 1e6))
            sha256 = hashlib.sha256(data).hexdigest()
            label = self._scope_files.scope_of(item.file)
            if known is not None and self._complete(known) and known.sha256 == sha256:
                loader = next((x for x in loaders() if x.name == known.loader), None)
                if loader is not None and known.recipe == self._recipe(loader, item, label):
                    self._report.unchanged += 1
                    if known.state == DocumentState.NEEDS_OCR:
                        self._report.needs_ocr.append(printable(str(item.file)))
                    return None
            return self._parse(item, data, sha256, label)
        except (Unreadable, SkillInvalid) as error:
            if known is not None and isinstance(error, Unavailable):
                self._report_failure(item.file, str(error))
            else:
                self._fail(item, str(error))
        except RecursionError:
            self._fail(item, "nested too deeply")
        return None

    def _complete(self, known: _Known) -> bool:
        """Nothing more can be had from the file as it is. Scanned pages are read once there is OCR."""
        if known.state == DocumentState.NEEDS_OCR:
            return not ocr.available()
        return known.state == DocumentState.EMBEDDED

    def _parse(self, item: _Item, data: bytes, sha256: str, label: str | None) -> NewDocument:
        file = content_of(item.file, data, item.root)
        loader, loaded = load_file(file)
        text = file.text if loaded.text is None else loaded.text
        sections, chunks = chunking.chunk_document(loaded, text.split("\n"), self._kb.embedder)
        self._pages += len(loaded.page_starts)
        if loaded.needs_ocr:
            self._report.needs_ocr.append(printable(str(item.file)))
        elif not chunks:
            raise Unreadable("no text in it")
        if loaded.notes:
            self._report.notes.append({"path": item.path, "notes": loaded.notes})
        return NewDocument(
            source_id=item.source_id,
            path=item.path,
            location=printable(str(item.file)),
            sha256=sha256,
            recipe=self._recipe(loader, item, label),
            text=text,
            loader=loader.name,
            kind=loaded.kind,
            # What the document says of itself, then what the caller says, then the scope file.
            scope=loaded.scope or item.scope or label or scopes.GENERIC,
            title=loaded.title.encode("utf-8", "replace").decode(),
            size=len(data),
            meta=loaded.meta | ({"twins": twins} if (twins := self._twins.get(item.file)) else {}),
            notes=loaded.notes,
            sections=sections,
            chunks=chunks,
            state=DocumentState.NEEDS_OCR if loaded.needs_ocr else DocumentState.EMBEDDED,
            skill=loaded.skill,
            traces=loaded.traces,
        )

    def _recipe(self, loader: Loader, item: _Item, label: str | None) -> str:
        """Everything but the file's bytes that its chunks depend on."""
        digest = hashlib.sha256()
        parts = [self._registry, chunking.VERSION, self._kb.embedder.model_id, item.scope, label]
        parts += self._twins.get(item.file, [])
        parts.append(printable(str(item.file)))  # skills and the library know where they lie
        digest.update(json.dumps(parts).encode())
        for dependency in loader.dependencies(item.file, item.root):
            digest.update(f"{dependency.name}\x00".encode("utf-8", "surrogateescape"))
            try:
                digest.update(hashlib.sha256(dependency.read_bytes()).digest())
            except OSError:
                digest.update(b"unreadable")
        return digest.hexdigest()

    def _store(self, batch: list[NewDocument], known: dict[tuple[int, str], _Known]) -> None:
        batch = self._without_taken_names(batch)
        self._writer.write(batch)
        for document in batch:
            if (document.source_id, document.path) in known:
                self._report.updated += 1
            else:
                self._report.added += 1
            self._report.chunks += len(document.chunks)

    def _without_taken_names(self, batch: list[NewDocument]) -> list[NewDocument]:
        """Two skills of one name: the first stays, the other is reported."""
        if not any(d.skill for d in batch):
            return batch
        with self._kb.session() as session:
            rows = session.connection().execute(
                select(col(Skill.name), col(Document.source_id), col(Document.path), col(Document.location))
                .where(col(Skill.document_id) == col(Document.id))
            )  # fmt: skip
            taken = {name: ((source_id, path), location) for name, source_id, path, location in rows}
        kept = []
        for document in batch:
            here = (document.source_id, document.path)
            name = document.skill.name if document.skill else None
            owner, location = taken.setdefault(name, (here, document.location)) if name else (here, "")
            if owner == here:
                kept.append(document)
            else:
                file = Path(document.location)
                item = _Item(*here, file, None, file)
                self._fail(item, f"a skill named {name!r} exists already in {location}")
        return kept

    def _report_failure(self, file: Path, error: str) -> None:
        self._report.failed.append({"path": printable(str(file)), "error": error})

    def _fail(self, item: _Item, error: str) -> None:
        """Report a file, and forget what it held before."""
        self._report_failure(item.file, error)
        self._writer.fail(item.source_id, item.path, printable(str(item.file)), error)


def printable(text: str) -> str:
    """File names that are not UTF-8 reach Python as lone surrogates, which no database stores."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _relative(file: Path, base: Path) -> str:
    return printable(file.relative_to(base).as_posix()) if file.is_relative_to(base) else printable(str(file))
