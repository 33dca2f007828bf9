"""The vector index: Chroma collections, one per partition (kind and scope), derived from SQL.

Layout: `<home>/chroma/manifest.json` names the live folder and says what its collections hold. A rebuild
fills a new folder and then switches the manifest, so that a reader never sees half an index. Chroma hangs
when two processes open one folder at the same time and may crash on files that were tampered with; therefore
everything happens under a file lock, and the files must look as the last writer left them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import IndexOutOfStep, IndexUnavailable, KnowledgeBaseError, StoreFull
from kb.locks import file_lock
from kb.vector_manifest import Expected, Manifest, fingerprint, writer

if TYPE_CHECKING:
    from kb.embedding import Vectors

_SCHEMA = 1
_BATCH = 2000  # Chroma refuses more than 5461 records at once
# Near-exact search: the graphs are small, and the order of insertion must not show in the results.
_HNSW = {"space": "cosine", "ef_construction": 200, "ef_search": 200, "max_neighbors": 32}

# Yields (ids, vectors) batches of a partition from SQL.
Reader = Callable[[str], Iterator[tuple[list[str], "Vectors"]]]


def collection_name(partition: str, model: str) -> str:
    """A valid Chroma name: letters, digits and dashes, unique per partition and model."""
    slug = re.sub(r"[^a-z0-9]+", "-", partition.lower()).strip("-")[:40] or "x"
    return f"ke-{slug}-{hashlib.sha256(partition.encode()).hexdigest()[:8]}-{model[:8]}"


class VectorIndex:
    """Search and upkeep. `check` tells whether `rebuild` is due."""

    def __init__(self, root: Path, *, lock_timeout_s: float) -> None:
        self._root = root
        self._lock_timeout_s = lock_timeout_s
        self._client: Any = None
        self._open_as: tuple[str, dict[str, list[int]]] | None = None
        self._loaded: set[str] = set()  # partitions whose files this process has read
        self._collections: dict[str, Any] = {}
        self._failed = ""  # the folder on which Chroma failed, whatever its files look like

    # --- state ---

    def check(self, model: str, expected: Callable[[], Expected], wait_s: float | None = None) -> str | None:
        """Why the index is not what SQL says, or None. Reads manifest and file sizes, not Chroma.

        Raises StoreLocked where another process writes it for longer than `wait_s`.
        """
        self._make_folder()
        with self._locked(
            shared=True, wait_s=wait_s
        ):  # or a writer would be caught between its commit and the index
            return self._problem(model, expected())

    def _problem(self, model: str, expected: Expected) -> str | None:
        if not any(n for _, n in expected.values()):
            return None  # whatever it holds, it is not asked
        manifest = self._manifest()
        if manifest is None:
            return "is missing" if not any(self._root.glob("*")) else "has no readable manifest"
        if manifest.model != model:
            return "was made by another embedding model"
        if not manifest.matches(model, expected):
            return "does not hold what the database says"
        return manifest.untouched(self._root)

    # --- writing ---

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold this around the commit of a change to SQL and the `apply` that follows it."""
        self._make_folder()
        with self._locked(shared=False):
            yield

    def apply(
        self,
        model: str,
        before: Expected,
        after: Expected,
        removed: Mapping[str, Sequence[str]],
        added: Mapping[str, tuple[list[str], Vectors]],
    ) -> None:
        """Bring the index from the state `before` to `after`. The caller holds `exclusive`.

        Raises IndexOutOfStep when it was not in the state `before`, IndexUnavailable or StoreFull.
        """
        with self._guarded("updating"):
            manifest = self._manifest()
            if manifest is None and not any(count for _, count in before.values()):
                manifest = Manifest(folder=self._new_folder(), model=model)
            elif manifest is None or not manifest.matches(model, before):
                raise IndexOutOfStep("the vector index does not hold what the database says")
            self._connect(manifest)
            for partition, ids in removed.items():
                collection = self._collection(partition, model, create=True)
                for i in range(0, len(ids), _BATCH):
                    collection.delete(ids=list(ids[i : i + _BATCH]))
            for partition, (ids, vectors) in added.items():
                self._upsert(self._collection(partition, model, create=True), ids, vectors)
            self._commit(manifest, after)

    def rebuild(self, model: str, wanted: Expected, read: Reader) -> None:
        """Make the whole index anew from SQL in a fresh folder, then switch to it.

        The caller holds `exclusive`.
        """
        with self._guarded("rebuilding"):
            live = self._manifest()
            if self._problem(model, wanted) is None and live is not None and live.folder != self._failed:
                return  # another process did it while we waited
            manifest = Manifest(folder=self._new_folder(), model=model)
            self._connect(manifest)
            for partition, (_, count) in wanted.items():
                if count:
                    collection = self._collection(partition, model, create=True)
                    for ids, vectors in read(partition):
                        self._upsert(collection, ids, vectors)
            self._commit(manifest, wanted)
            self._drop_leftovers(manifest)

    def fill(self, model: str, expected: Expected, read: Reader) -> None:
        """Bring the index to `expected`, partition by partition; those that are so already are kept."""
        with self.exclusive(), self._guarded("filling"):
            manifest = self._manifest()
            usable = manifest is not None and manifest.model == model
            if manifest is None or not usable or manifest.untouched(self._root):
                manifest = Manifest(folder=self._new_folder(), model=model)
            self._connect(manifest)
            for partition in [*manifest.collections]:
                if manifest.collections[partition] != list(expected.get(partition, ())):
                    self._client.delete_collection(collection_name(partition, model))
                    self._collections.pop(collection_name(partition, model), None)
                    del manifest.collections[partition]
            for partition, (generation, count) in expected.items():
                if count and partition not in manifest.collections:
                    for ids, vectors in read(partition):
                        self._upsert(self._collection(partition, model, create=True), ids, vectors)
                    held = {p: (g, n) for p, (g, n) in manifest.collections.items()}
                    self._commit(manifest, {**held, partition: (generation, count)})
            self._commit(manifest, {p: (g, n) for p, (g, n) in manifest.collections.items()})
            self._drop_leftovers(manifest)

    def adopt(self, other: VectorIndex) -> None:
        """Take what `other` holds in place of its own. The caller holds `exclusive`."""
        with other.exclusive(), self._guarded("exchanging"):
            manifest = other._manifest()
            if manifest is None:
                raise IndexOutOfStep("the vector index that was prepared is gone")
            for index in (self, other):
                index.close()
            (other._root / manifest.folder).rename(self._root / manifest.folder)
            self._write(manifest)
            (other._root / "manifest.json").unlink()
            self._drop_leftovers(manifest)

    def _make_folder(self) -> None:
        if self._root.is_file():  # in place of what can be made anew
            self._root.unlink(missing_ok=True)
        self._root.mkdir(parents=True, exist_ok=True)

    def _drop_leftovers(self, manifest: Manifest) -> None:
        for leftover in self._root.iterdir():
            if leftover.is_dir() and leftover.name != manifest.folder:
                shutil.rmtree(leftover, ignore_errors=True)

    def invalidate(self) -> None:
        """Have the next `rebuild` make everything anew."""
        with self.exclusive():
            self.drop()

    def drop(self) -> None:
        """Hold nothing. The folder stays until it is tidied up; the caller holds `exclusive`."""
        self.close()
        (self._root / "manifest.json").unlink(missing_ok=True)

    @staticmethod
    def _upsert(collection: Any, ids: list[str], vectors: Vectors) -> None:
        for i in range(0, len(ids), _BATCH):
            collection.upsert(ids=ids[i : i + _BATCH], embeddings=vectors[i : i + _BATCH])

    def _commit(self, manifest: Manifest, expected: Expected) -> None:
        manifest.collections = {p: [g, n] for p, (g, n) in expected.items() if n}
        self._write(manifest)
        self._open_as = manifest.identity

    def _write(self, manifest: Manifest) -> None:
        manifest.files, manifest.writer = fingerprint(self._root / manifest.folder), writer()
        partial = self._root / f"manifest.{os.getpid()}.partial"
        with partial.open("w") as file:
            json.dump({"schema": _SCHEMA, **vars(manifest)}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._root / "manifest.json")

    # --- reading ---

    def search(
        self,
        model: str,
        expected: Callable[[], Expected],
        partitions: Sequence[str],
        vector: Vectors,
        limit: int,
    ) -> list[tuple[str, float]]:
        """The nearest passages of `partitions` as (passage id, cosine similarity), best first.

        Raises IndexOutOfStep when the index is not what the database says, IndexUnavailable when it fails.
        """
        answer = self._search(model, expected, partitions, vector, limit, load=False)
        if answer is None:
            answer = self._search(model, expected, partitions, vector, limit, load=True)
        return sorted(answer or [], key=lambda hit: (-hit[1], hit[0]))[:limit]

    def _search(
        self,
        model: str,
        expected: Callable[[], Expected],
        partitions: Sequence[str],
        vector: Vectors,
        limit: int,
        *,
        load: bool,
    ) -> list[tuple[str, float]] | None:
        """None when collections must be loaded first: loading writes to the files, so it excludes others."""
        self._make_folder()
        with self._locked(shared=not load), self._guarded("searching"):
            wanted = expected()
            held = [p for p in partitions if wanted.get(p, (0, 0))[1]]
            if not held:
                return []
            manifest = self._manifest()
            if manifest is None or not manifest.matches(model, wanted):
                raise IndexOutOfStep("the vector index does not hold what the database says")
            if load:
                self._load(manifest, model, held, vector)
            elif self._open_as != manifest.identity or not self._loaded.issuperset(held):
                return None
            return [
                hit
                for partition in held
                for hit in _nearest(
                    self._collection(partition, model), vector, min(limit, wanted[partition][1])
                )
            ]

    def contents(self, model: str) -> Iterator[tuple[str, list[str], Vectors]]:
        """Everything the index holds, in batches of (partition, passage ids, their vectors).

        Raises IndexOutOfStep where it has no manifest, or another model's, IndexUnavailable when it fails.
        """
        import numpy as np

        with self.exclusive(), self._guarded("reading"):
            manifest = self._manifest()
            if manifest is None or manifest.model != model:
                raise IndexOutOfStep("the vector index does not hold what the database says")
            self._connect(manifest)
            for partition in sorted(manifest.collections):
                collection = self._collection(partition, model)
                for offset in range(0, collection.count(), _BATCH):
                    found = collection.get(limit=_BATCH, offset=offset, include=["embeddings"])
                    yield partition, found["ids"], np.asarray(found["embeddings"], dtype=np.float32)
            self._write(manifest)  # Chroma may rewrite its files as it reads them

    def model(self) -> str | None:
        """The embedding model that the live index was made by."""
        manifest = self._manifest()
        return manifest.model if manifest else None

    def folders(self) -> tuple[Path | None, list[Path]]:
        """The live folder, and those that an interrupted or replaced rebuild has left behind."""
        manifest = self._manifest()
        live = self._root / manifest.folder if manifest else None
        return live, [f for f in sorted(self._root.glob("*")) if f.is_dir() and f != live]

    def _load(self, manifest: Manifest, model: str, partitions: Sequence[str], vector: Vectors) -> None:
        """Have Chroma read its files, which must be as they were left; it may rewrite them doing so."""
        if self._open_as != manifest.identity and (why := manifest.untouched(self._root)):
            raise IndexOutOfStep(f"the vector index {why}")
        self._connect(manifest)
        for partition in partitions:
            if partition not in self._loaded:
                collection = self._collection(partition, model)
                if collection.count() != manifest.collections[partition][1]:
                    self._failed = manifest.folder
                    raise IndexOutOfStep("the vector index lost some of its vectors")
                _nearest(collection, vector, 1)
                self._loaded.add(partition)
        self._write(manifest)

    # --- Chroma ---

    def _connect(self, manifest: Manifest) -> None:
        """Have a client on the manifest's folder; another process's writes make a new one necessary."""
        if self._client is not None and self._open_as == manifest.identity:
            return
        self.close()
        import chromadb
        from chromadb.config import Settings

        self._open_as = manifest.identity  # before the client: a failure to open is this folder's failure
        self._client = chromadb.PersistentClient(
            str(self._root / manifest.folder), settings=Settings(anonymized_telemetry=False)
        )

    def _collection(self, partition: str, model: str, *, create: bool = False) -> Any:
        name = collection_name(partition, model)
        if name not in self._collections:
            # No embedding function: Chroma's default one would try to download a model.
            if create:
                self._collections[name] = self._client.get_or_create_collection(
                    name, embedding_function=None, configuration={"hnsw": _HNSW}
                )
            else:
                self._collections[name] = self._client.get_collection(name, embedding_function=None)
        return self._collections[name]

    def close(self) -> None:
        self._collections.clear()
        self._loaded.clear()
        self._open_as = None
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

    # --- files ---

    def _manifest(self) -> Manifest | None:
        try:
            data = json.loads((self._root / "manifest.json").read_text())
            if data.pop("schema") != _SCHEMA:
                return None
            manifest = Manifest(**data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return manifest if (self._root / manifest.folder / "chroma.sqlite3").is_file() else None

    def _new_folder(self) -> str:
        name = uuid.uuid4().hex[:12]
        (self._root / name).mkdir(parents=True)
        return name

    def _locked(self, *, shared: bool, wait_s: float | None = None) -> AbstractContextManager[bool]:
        path = self._root.with_suffix(".lock")
        what = "writing the vector index"
        timeout_s = self._lock_timeout_s if wait_s is None else wait_s
        return file_lock(path, timeout_s=timeout_s, what=what, shared=shared)

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        """Chroma's many exceptions, Rust panics among them, become one typed error."""
        try:
            yield
        except (KnowledgeBaseError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            self._failed = self._open_as[0] if self._open_as else ""
            self.close()
            if (isinstance(error, OSError) and error.errno in (28, 122)) or "disk is full" in str(error):
                raise StoreFull(
                    f"no space left while {doing} the vector index", "free some disk space"
                ) from error
            why = (str(error).splitlines() or [""])[0] or type(error).__name__
            raise IndexUnavailable(
                f"the vector index failed while {doing}: {why}",
                f"remove {self._root} and run the command again; it is rebuilt from the database",
            ) from error


def _nearest(collection: Any, vector: Vectors, limit: int) -> list[tuple[str, float]]:
    answer = collection.query(query_embeddings=vector.reshape(1, -1), n_results=limit, include=["distances"])
    ids, distances = answer["ids"][0], answer["distances"][0]
    return [(i, 1.0 - float(d)) for i, d in zip(ids, distances, strict=True)]
