"""What an ingestion looks at: sources, and the files of folders, patterns, checkouts and archives in them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from ingest import archives, checkout
from ingest.discover import walk
from ingest.errors import Unavailable, Unreadable, in_one_line
from ingest.scope_files import SOURCE_FILE, Facts, ScopeFiles
from kb import KnowledgeBase
from kb.tables import LOCAL_ONLY, UNFINISHED, Document, Source
from kb.upkeep.gc import SCRATCH
from kb.upkeep.sources import below
from kb.wording import counted

_NAMED = 5  # members of an archive in one note
_REPEATED = "there more than once, the last of them is read"


@dataclass(frozen=True)
class Said:
    """What the caller says of everything that is named in one call; None leaves it as it is known."""

    visibility: str | None = None
    scope: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)  # kind, language, version


@dataclass(frozen=True)
class Item:
    """One file to look at.

    `path` is its name inside the source; `location` is where it lies: its path, or an archive's and `!` and
    the member's. `file` is where it is read, below `root`, which for members is their unpacked archive.
    `source` is what is said of the whole source.
    """

    source_id: int
    path: str
    file: Path
    location: str
    root: Path
    source: Facts = field(default_factory=Facts)
    error: str = ""  # why it is not worth reading

    @property
    def key(self) -> tuple[int, str]:
        return self.source_id, self.path


class Collector:
    """Collects items from roots. `problems` are (location, why nothing is known of it now)."""

    def __init__(self, kb: KnowledgeBase, scope_files: ScopeFiles, tell: Callable[[str], None]) -> None:
        self._kb = kb
        self._scope_files = scope_files
        self._tell = tell
        self._max_file = int(kb.settings.max_file_mb * 1e6)
        self._budget = archives.Budget(int(kb.settings.max_archive_mb * 1e6))
        self._scratch = kb.home / SCRATCH
        self._archives = 0
        self._swept: list[tuple[Path, re.Pattern[str] | None]] = []
        self._swept_sources: set[int] = set()  # wholly, wherever they were before
        self._skipped: set[str] = set()  # are there, but nobody asked for them
        self._unlisted: list[str] = []  # of what lies below these nothing is known now
        self.items: dict[tuple[int, str], Item] = {}
        self.problems: list[tuple[str, str]] = []
        self.notes: list[dict[str, Any]] = []

    def close(self) -> None:
        """Remove what was unpacked."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- roots ---

    def add(
        self,
        root: Path,
        said: Said,
        *,
        pattern: re.Pattern[str] | None = None,
        key: str = "",
        name: str = "",
        without: Sequence[str] = (),
    ) -> int:
        """Register a folder or file as source and collect its files. Returns the source's id.

        Of a folder with a `pattern` only the files whose relative path matches are looked at. `key` makes a
        source that keeps its identity when its root moves; `without` names files at the root.
        """
        if not key and self._scope_files.visibility(root if root.is_dir() else root.parent) == LOCAL_ONLY:
            said = replace(said, visibility=LOCAL_ONLY)
        source = self._source(root, said, key, name)
        assert source.id is not None
        if key:
            self._swept_sources.add(source.id)
        if not root.is_dir():
            self._swept.append((root, None))
            self._add(source, root)
            return source.id
        self._swept.append((root, pattern))
        files: Iterable[Path] = self._files(root, source, git=not key)
        files = [f for f in files if f not in {root / n for n in without} and _matches(pattern, f, root)]
        inner = self._sources_inside(Path(source.root), root, said)
        for file in files:
            # A file of a source of its own inside this one stays there.
            self._add(next((s for s in inner if file.is_relative_to(s.root)), source), file)
        return source.id

    def add_unfinished(self, roots: Sequence[tuple[Path, re.Pattern[str] | None]]) -> None:
        """Collect the documents at or below `roots` (all without) that are not stored yet."""
        with self._kb.session() as session:
            rows = session.exec(
                select(Document, Source)
                .join(Source, col(Source.id) == col(Document.source_id))
                .where(col(Document.state).in_(UNFINISHED))
                .order_by(col(Document.id))
            ).all()
        wanted = {}
        places: dict[Path, Source] = {}
        for document, source in rows:
            if roots and not any(_within(document.location, root, pattern) for root, pattern in roots):
                continue
            wanted[document.source_id, document.path] = document.location
            places.setdefault(_on_disk(document.location), source)
        for place, source in places.items():
            self._swept.append((place, None))
            if place.exists() or place.is_symlink():
                self._add(source, place)
        unwanted = self.items.keys() - wanted.keys()
        self._skipped = {self.items.pop(key).location for key in unwanted}

    def covers(self, source_id: int, location: str) -> bool:
        """Whether a document that is not among the items must have vanished."""
        if location in self._skipped or any(below(location, folder) for folder in self._unlisted):
            return False
        # Kernels of runs lie in the home folder, which is passed over in a folder around it.
        home = self._kb.home.resolve()
        at_home = below(location, printable(str(home)))
        return source_id in self._swept_sources or any(
            _within(location, folder, pattern) and (folder.is_relative_to(home) or not at_home)
            for folder, pattern in self._swept
        )

    def _files(self, root: Path, source: Source, *, git: bool) -> Iterator[Path]:
        unlisted: list[Path] = []
        checkouts: list[checkout.Checkout] = []
        home = self._kb.home.resolve()

        def innermost(path: Path) -> checkout.Checkout | None:
            return next((c for c in reversed(checkouts) if path.is_relative_to(c.folder)), None)

        def out_of_checkout(path: Path) -> bool:
            own = innermost(path)
            if own is None or not own.leads_out(path):
                return False
            self.problems.append((printable(str(path)), "a link that leads out of the checkout"))
            return True

        def enter(folder: Path) -> bool:
            if folder.resolve() == home and folder != root:
                return False  # what is stored is no document
            if out_of_checkout(folder):
                return False
            private = git and (folder / SOURCE_FILE).is_file() and folder != root
            if private and self._scope_files.visibility(folder) == LOCAL_ONLY:
                self._source(folder, Said(LOCAL_ONLY), "", "")
            if git and ((folder / ".git").exists() or (folder == root and checkout.inside(folder))):
                try:
                    found = checkout.read(folder)
                except checkout.GitFailed as error:
                    self._note(folder, f"all files are read, not only the tracked ones: {error}")
                    return True
                if found is not None:
                    checkouts.append(found)
            return True

        for file in walk(root, unlisted, enter):
            own = innermost(file)  # a submodule is one entry of the outer checkout
            if own is None or (own.has(file) and not out_of_checkout(file)):
                yield file
        for found in checkouts:
            if found.untracked:
                self._note(
                    found.folder, f"left out, as git does not track them: {counted(found.untracked, 'file')}"
                )
        for folder in unlisted:
            self._unlisted.append(printable(str(folder)))
            self.problems.append((printable(str(folder)), "the folder cannot be listed"))
        version = next((c.commit for c in checkouts if c.folder == root), "")
        if version != source.version and root == Path(source.root):
            with self._kb.session() as session:
                source.version = version
                session.add(source)
                session.commit()

    def _note(self, folder: Path, text: str) -> None:
        self.notes.append({"path": printable(str(folder)), "notes": [text]})

    # --- files and archives ---

    def _add(self, source: Source, file: Path) -> None:
        base = Path(source.root)
        path = _relative(file, base) if file != base else printable(file.name)
        facts = Facts(scope=source.scope or None, **source.defaults)
        item = Item(source.id or 0, path, file, printable(str(file)), base, facts)
        if archives.is_archive(file.name) and file.is_file():
            self._unpack(item)
        else:
            self.items[item.source_id, path] = item

    def _unpack(self, archive: Item) -> None:
        self._tell(f"unpacking {archive.path}")
        if not self._archives:
            self.close()  # what a killed run has left
        self._archives += 1
        folder = self._scratch / str(self._archives)
        try:
            found = archives.unpack(archive.file, folder, self._budget, max_member=self._max_file)
        except Unavailable as error:
            self._unlisted.append(archive.location)
            self.problems.append((archive.location, in_one_line(error)))
            return
        except Unreadable as error:
            self.items[archive.key] = replace(archive, error=in_one_line(error))
            return
        self._scope_files.unpacked(folder, archive.location)
        archive = self._private(archive, folder)
        problems = [(archive.location + "!" + member, why) for member, why in found.problems]
        if found.error:
            problems.append(
                (archive.location, f"{found.error}; {counted(found.members, 'member')} read before")
            )
        self.problems += [(printable(where), why) for where, why in problems]
        for what, members in (("links are not followed", found.links), (_REPEATED, found.repeated)):
            if members:
                self.notes.append({"path": archive.location, "notes": [f"{what}: {_some(members)}"]})
        for file in walk(folder):
            inner = archives.cited(printable(file.relative_to(folder).as_posix()))
            member = replace(
                archive,
                path=f"{archive.path}!{inner}",
                file=file,
                location=f"{archive.location}!{inner}",
                root=folder,
                error="a skill needs a folder on disk: unpack the archive" if file.name == "SKILL.md" else "",
            )
            self.items[member.key] = member

    def _private(self, archive: Item, folder: Path) -> Item:
        """An archive with a scope file that says local-only becomes a source of its own."""
        for file in folder.rglob(SOURCE_FILE):
            if self._scope_files.visibility(file.parent) == LOCAL_ONLY:
                source = self._source(archive.file, Said(LOCAL_ONLY), "", "")
                path = archive.path if source.id == archive.source_id else printable(archive.file.name)
                return replace(archive, source_id=source.id or 0, path=path)
        return archive

    # --- sources ---

    def _sources_inside(self, base: Path, root: Path, said: Said) -> list[Source]:
        """Sources below `base`, the deepest first. What is said of `root` holds for those below it, except
        that "shared" publishes none of them.
        """
        with self._kb.session() as session:
            rows = session.exec(select(Source)).all()
            inside = [s for s in rows if Path(s.root) != base and Path(s.root).is_relative_to(base)]
            for source in inside:
                if source.key == source.root and Path(source.root).is_relative_to(root):
                    if said.visibility == LOCAL_ONLY:
                        source.visibility = LOCAL_ONLY
                    source.scope = said.scope or source.scope
                    source.defaults = {**source.defaults, **said.defaults}
                    session.add(source)
            session.commit()
        return sorted(inside, key=lambda s: (-len(s.root), s.root))

    def _source(self, root: Path, said: Said, key: str, name: str) -> Source:
        """The source of exactly this root; else the nearest known folder around it, unless something else is
        said of this root; else a new one, which inherits from that folder what is not said.
        """
        key = key or printable(str(root))
        with self._kb.session() as session:
            sources = session.exec(select(Source)).all()
            found = next((s for s in sources if s.key == key), None)
            if found is None:
                found = Source(
                    key=key, name=name or printable(root.name or str(root)), root=printable(str(root))
                )
                around = [s for s in sources if root.is_relative_to(s.root) and s.key == s.root]
                if around and key == found.root:
                    nearest = max(around, key=lambda s: len(s.root))
                    found.visibility, found.scope = nearest.visibility, nearest.scope
                    found.defaults = dict(nearest.defaults)
                    if _nothing_new(nearest, said):
                        found = nearest
            if found.key == key:
                found.root = printable(str(root))
                found.visibility = said.visibility or found.visibility
                found.scope = said.scope or found.scope
                found.defaults = {**found.defaults, **said.defaults}
            session.add(found)
            session.commit()
            return found


def _some(members: Sequence[str]) -> str:
    named = ", ".join(printable(member) for member in members[:_NAMED])
    return f"{named} and {len(members) - _NAMED} more" if len(members) > _NAMED else named


def _within(location: str, root: Path, pattern: re.Pattern[str] | None) -> bool:
    folder = printable(str(root))
    return below(location, folder) and _matches(pattern, Path(location), Path(folder))


def _on_disk(location: str) -> Path:
    """The file, or the outermost archive that it is a member of."""
    for match in re.finditer("!", location):
        outer = Path(location[: match.start()])
        if archives.is_archive(outer.name) and outer.is_file():
            return outer
    return Path(location)


def _nothing_new(source: Source, said: Said) -> bool:
    return (
        said.visibility in (None, source.visibility)
        and said.scope in (None, source.scope)
        and {**source.defaults, **said.defaults} == source.defaults
    )


def _matches(pattern: re.Pattern[str] | None, file: Path, root: Path) -> bool:
    """An archive's members match with it."""
    if pattern is None:
        return True
    relative = file.relative_to(root).as_posix()
    return any(pattern.fullmatch(relative[:end]) for end in _ends(relative))


def _ends(relative: str) -> list[int]:
    return [len(relative), *(m.start() for m in re.finditer("!", relative))]


def printable(text: str) -> str:
    """File names that are not UTF-8 reach Python as lone surrogates, which no database stores."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _relative(file: Path, base: Path) -> str:
    return printable(file.relative_to(base).as_posix()) if file.is_relative_to(base) else printable(str(file))
