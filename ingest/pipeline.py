"""Ingestion: find files, skip what is unchanged, parse, embed, store; forget what vanished.

An interruption at any moment leaves whole documents behind; the next run continues and ends in the same state
as one that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path

from sqlalchemy import select
from sqlmodel import col

from ingest import chunking, inference, ocr, patterns, reading
from ingest.collect import Collector, Item, Said
from ingest.discover import walk
from ingest.document import Loader
from ingest.errors import IngestError, PathMissing, Unavailable, Unreadable, in_one_line
from ingest.labels import InferredScopes, Labels, NewLabels
from ingest.loaders.markdown import KINDS
from ingest.reading import read_bytes
from ingest.registry import content_of, load_file, loaders
from ingest.report import IngestReport, Progress, ProgressCallback
from ingest.runs import PREFIX, RunFolder, names_run, write_run
from ingest.scope_files import VISIBILITIES, Facts, ScopeFiles
from ingest.twins import find_twins
from kb import KnowledgeBase
from kb import scope as scopes
from kb.documents import DocumentWriter, NewDocument
from kb.embedding import Embedder
from kb.errors import EmbeddingFailed, SkillInvalid
from kb.locks import home_lock
from kb.tables import LOCAL_ONLY, Document, DocumentState, Skill
from kb.upkeep.quota import Quota

# Enough for full batches of the embedding model, few enough that progress is visible and a kill cheap.
_BATCH_CHUNKS = 256
_BATCH_FAILURES = 200


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
    defaults: Mapping[str, str] | None = None,
    retry_failed: bool = False,
    progress: ProgressCallback | None = None,
) -> IngestReport:
    """Bring the knowledge base in line with files, folders, archives and patterns such as `docs/**/*.md`;
    `run:ID` stands for the best kernels of a run.

    `scope` is the label of documents that do not name one in their front matter, `defaults` may have their
    kind, language and version, `visibility` is "shared" or "local-only". What is not said of a known source
    stays as it is; a new one has no scope of its own and is shared. With `retry_failed`, only documents that
    are not yet stored are looked at, those at or below `paths` or all of them. Files that cannot be read are
    listed in the report's `failed`; the others continue.

    Raises PathMissing before anything is changed, SourceFileInvalid, StoreLocked when another ingestion takes
    too long, QuotaExceeded when the home folder would grow too large.
    """
    said = Said(visibility, scopes.normalise(scope) if scope else None, dict(defaults or {}))
    _check(said)
    roots = [_root(str(path)) for path in paths if not names_run(path)]
    searches = [str(path).removeprefix(PREFIX) for path in paths if names_run(path)]
    run = Ingestion(kb, progress=progress)
    with run.exclusive():
        if retry_failed:
            kernels = [write_run(kb, search).folder.resolve() for search in searches]
            run.add_unfinished([*roots, *((folder, None) for folder in kernels)])
        else:
            for folder, pattern in roots:
                run.add(folder, said, pattern)
            for search in searches:
                run.add_run(write_run(kb, search), said)
        return run.finish()


def _check(said: Said) -> None:
    if said.visibility not in (None, *VISIBILITIES):
        raise IngestError(f"unknown visibility {said.visibility!r}", f"one of {', '.join(VISIBILITIES)}")
    kind = said.defaults.get("kind")
    if kind is not None and kind not in KINDS:
        raise IngestError(f"unknown kind {kind!r}", f"one of {', '.join(KINDS)}")


def _root(text: str) -> tuple[Path, re.Pattern[str] | None]:
    """A path as it is, or the folder and the rest of a pattern. Raises PathMissing."""
    if not text.strip():  # an unset variable of a shell would otherwise mean the current folder
        raise PathMissing("an empty path", "name a file or folder; . is the current one")
    path = Path(text).expanduser()
    if path.exists() or path.is_symlink():
        try:
            return path.resolve(), None
        except RuntimeError:
            raise PathMissing(
                f"{path} is a link that leads in a circle", "name what it should lead to"
            ) from None
    if not patterns.is_pattern(text):
        raise PathMissing(f"{path} does not exist", "check the path")
    folder, expression = patterns.split(text)
    folder = folder.resolve()
    if not any(expression.fullmatch(f.relative_to(folder).as_posix()) for f in walk(folder)):
        raise PathMissing(f"no file matches {text}", "** stands for any number of folders: docs/**/*.md")
    return folder, expression


class Ingestion:
    """One run: roots are added, then `finish` does the work. Use inside `exclusive`."""

    def __init__(self, kb: KnowledgeBase, *, progress: ProgressCallback | None = None) -> None:
        self._kb = kb
        self._progress = progress or (lambda _: None)
        self._scope_files = ScopeFiles()
        self._collector = Collector(
            kb, self._scope_files, lambda text: self._progress(Progress(0, 0, message=text))
        )
        self._items = self._collector.items
        self._writer = DocumentWriter(kb)
        self._labels = Labels(kb)
        self._inferred = InferredScopes()
        self._new_labels = NewLabels(kb)
        self._failures: list[tuple[int, str, str, str]] = []
        self._quota = Quota(kb)
        self._report = IngestReport()
        self._twins: dict[Path, list[str]] = {}  # notebook -> names of the files that repeat it
        self._pages = 0
        self._started = time.monotonic()
        self._registry = json.dumps([(x.name, x.version, x.priority) for x in loaders()])

    def exclusive(self, needless: Callable[[], bool] | None = None) -> AbstractContextManager[bool]:
        """One ingestion at a time per home; the second one waits and says so, until it is `needless`: then
        the value is False.
        """
        return home_lock(
            self._kb.home,
            timeout_s=self._kb.settings.lock_timeout_s,
            waiting=lambda message: self._progress(Progress(0, 0, message=message)),
            needless=needless,
        )

    def add(self, root: Path, said: Said, pattern: re.Pattern[str] | None = None) -> int:
        """Register a folder or file as source and collect its files. Returns the source's id."""
        return self._collector.add(root, said, pattern=pattern)

    def add_library(self, root: Path, name: str, without: Sequence[str], visibility: str = "shared") -> int:
        """A source that keeps its identity when its root moves; `without` names files at the root."""
        return self._collector.add(root, Said(visibility), key=name, name=name, without=without)

    def add_run(self, written: RunFolder, said: Said) -> int:
        """The kernels of a run; they hold for its target and stay here where what made them must."""
        visibility = LOCAL_ONLY if written.local_only else said.visibility
        said = replace(said, visibility=visibility, scope=said.scope or written.target)
        key = f"{PREFIX}{written.run_id}"
        return self._collector.add(written.folder.resolve(), said, key=key, name=key)

    def add_unfinished(self, roots: Sequence[tuple[Path, re.Pattern[str] | None]]) -> None:
        """Collect the documents at or below `roots` (all without) that are not stored yet."""
        self._collector.add_unfinished(roots)

    @cached_property
    def _embedder(self) -> Embedder:
        """What cuts the documents of this run: to ask which model answers reads the database."""
        return self._kb.embedder

    # --- the work ---

    def finish(self) -> IngestReport:
        try:
            return self._finish()
        finally:
            self._collector.close()

    def _finish(self) -> IngestReport:
        self._quota.reserve()
        self._leave_out_twins()
        known = self._known()
        items = [self._items[k] for k in sorted(self._items)]
        # What vanished goes first: a skill that moved must not collide with itself.
        self._forget_vanished(known)
        for location, error in self._collector.problems:
            self._report_failure(location, error)
        self._writer.announce([(i.source_id, i.path, i.location) for i in items if i.key not in known])
        batch: list[NewDocument] = []
        waiting = 0
        for done, item in enumerate(items, start=1):
            document = self._examine(item, known.get(item.key))
            if document is not None:
                batch.append(document)
                waiting += len(document.chunks)
            if waiting >= _BATCH_CHUNKS:
                self._store(batch, known)
                batch, waiting = [], 0
            self._progress(Progress(done, len(items), item.path, self._report.chunks, self._pages))
        self._store(batch, known)
        self._record_failures()
        self._report.notes += [*self._collector.notes, *self._new_labels.notes()]
        self._report.inferred = self._inferred.to_json()
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
            locations = {item.location for item in self._items.values()}
            gone = [
                (i, (source_id, path))
                for i, source_id, path, location in rows
                if (source_id, path) not in self._items
                and (location in locations or self._collector.covers(source_id, location))
            ]
        self._writer.remove([i for i, _ in gone if i is not None])
        for _, key in gone:
            known.pop(key, None)
        self._report.removed += len(gone)

    def _examine(self, item: Item, known: _Known | None) -> NewDocument | None:
        """Read and parse a file unless it is as it was; record a failure instead of raising."""
        if item.error:
            self._fail(item, item.error)
            return None
        try:
            data = read_bytes(item.file, int(self._kb.settings.max_file_mb * 1e6))
            sha256 = hashlib.sha256(data).hexdigest()
            facts = self._scope_files.about(item.file, item.location)
            if known is not None and self._complete(known) and known.sha256 == sha256:
                loader = next((x for x in loaders() if x.name == known.loader), None)
                if loader is not None and known.recipe == self._recipe(loader, item, facts):
                    self._report.unchanged += 1
                    if known.state == DocumentState.NEEDS_OCR:
                        self._report.needs_ocr.append(item.location)
                    return None
            return self._parse(item, data, sha256, facts)
        except (Unreadable, SkillInvalid) as error:
            if known is not None and isinstance(error, Unavailable):
                self._report_failure(item.location, in_one_line(error))
            else:
                self._fail(item, in_one_line(error))
        except RecursionError:
            self._fail(item, "nested too deeply")
        return None

    def _complete(self, known: _Known) -> bool:
        """Nothing more can be had from the file as it is. Scanned pages are read once there is OCR."""
        if known.state == DocumentState.NEEDS_OCR:
            return not ocr.available()
        return known.state == DocumentState.EMBEDDED

    def _parse(self, item: Item, data: bytes, sha256: str, facts: Facts) -> NewDocument:
        file = content_of(item.file, data, item.root)
        loader, loaded = load_file(file)
        text = file.text if loaded.text is None else loaded.text
        sections, chunks = chunking.chunk_document(loaded, text.split("\n"), self._embedder)
        self._pages += len(loaded.page_starts)
        if loaded.needs_ocr:
            self._report.needs_ocr.append(item.location)
        elif not chunks:
            raise Unreadable("no text in it")
        if loaded.notes:
            self._report.notes.append({"path": item.path, "notes": loaded.notes})
        labels = self._labels.decide(item, facts, loaded, text)
        self._inferred.add(item.location, labels)
        self._new_labels.add(item.location, labels)
        return NewDocument(
            source_id=item.source_id,
            path=item.path,
            location=item.location,
            sha256=sha256,
            recipe=self._recipe(loader, item, facts),
            text=text,
            loader=loader.name,
            kind=labels.kind,
            scope=labels.scope,
            inferred=labels.inferred,
            title=loaded.title.encode("utf-8", "replace").decode(),
            size=len(data),
            meta=labels.meta | ({"twins": twins} if (twins := self._twins.get(item.file)) else {}),
            notes=loaded.notes,
            sections=sections,
            chunks=chunks,
            state=DocumentState.NEEDS_OCR if loaded.needs_ocr else DocumentState.EMBEDDED,
            skill=loaded.skill,
            traces=loaded.traces,
        )

    def _recipe(self, loader: Loader, item: Item, facts: Facts) -> str:
        """Everything but the file's bytes that its chunks depend on."""
        digest = hashlib.sha256()
        parts = [self._registry, reading.VERSION, chunking.VERSION, inference.VERSION]
        parts += [self._embedder.cutting, *astuple(item.source), *astuple(facts)]
        parts += self._twins.get(item.file, [])
        parts.append(item.location)  # skills and the library know where they lie
        digest.update(json.dumps(parts).encode())
        for dependency in loader.dependencies(item.file, item.root):
            digest.update(f"{dependency.name}\x00".encode("utf-8", "surrogateescape"))
            try:
                digest.update(hashlib.sha256(dependency.read_bytes()).digest())
            except OSError:
                digest.update(b"unreadable")
        return digest.hexdigest()

    def _store(self, batch: list[NewDocument], known: dict[tuple[int, str], _Known]) -> None:
        self._record_failures()  # first: what is no skill any more gives up its name
        batch = self._without_taken_names(batch)
        self._quota.reserve(sum(_footprint(document) for document in batch))
        self._writer.parsed(batch)
        try:
            self._writer.write(batch)
        except EmbeddingFailed as error:
            self._writer.parsed(batch, str(error))
            raise
        for document in batch:
            before = known.get((document.source_id, document.path))
            if before is None or before.state in (DocumentState.PENDING, DocumentState.PARSED):
                self._report.added += 1
            else:
                self._report.updated += 1
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
                item = Item(*here, Path(document.location), document.location, Path(document.location))
                self._fail(item, f"a skill named {name!r} exists already in {location}")
        return kept

    def _report_failure(self, location: str, error: str) -> None:
        self._report.failed.append({"path": location, "error": error})

    def _fail(self, item: Item, error: str) -> None:
        """Report a file, and forget what it held before."""
        self._report_failure(item.location, error)
        self._failures.append((item.source_id, item.path, item.location, error))
        if len(self._failures) >= _BATCH_FAILURES:
            self._record_failures()

    def _record_failures(self) -> None:
        self._writer.fail(self._failures)
        self._failures = []


def _footprint(document: NewDocument) -> int:
    """About how many bytes a document takes: text as blob, chunks, index and passages, vectors twice."""
    passages = sum(len(chunk.passages) for chunk in document.chunks)
    return 5 * len(document.text) + 8_000 * passages + 4_000
