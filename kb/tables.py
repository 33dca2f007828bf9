"""All tables. SQL is the truth; the lexical indexes (`chunk_fts_*`) and the vector index are derived from it.

The schema is created by Alembic (`kb/migrations`), never by `create_all`: a test compares the two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, Column, DateTime, ForeignKey, Index, LargeBinary, TypeDecorator, UniqueConstraint
from sqlmodel import Field, SQLModel


class UtcDateTime(TypeDecorator[datetime]):
    """SQLite forgets time zones; what comes back is always aware and in UTC."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Any) -> datetime | None:
        return value.astimezone(UTC).replace(tzinfo=None) if value else None

    def process_result_value(self, value: datetime | None, _dialect: Any) -> datetime | None:
        return value.replace(tzinfo=UTC) if value else None


def now() -> datetime:
    return datetime.now(UTC)


def _created() -> Any:
    return Field(default_factory=now, sa_type=UtcDateTime, nullable=False)


def _json(default: type[dict[str, Any]] | type[list[Any]] = dict) -> Any:
    return Field(default_factory=default, sa_type=JSON, nullable=False)


def _parent(column: str, **kwargs: Any) -> Any:
    return Field(
        sa_column=Column(ForeignKey(column, ondelete="CASCADE"), nullable=False, index=True, **kwargs)
    )


class DocumentState(StrEnum):
    """How far ingestion has come with a document."""

    PENDING = "pending"  # found, not read yet
    PARSED = "parsed"  # read and cut; what retrieval sees of it is still the earlier version, or nothing
    EMBEDDED = "embedded"
    NEEDS_OCR = "needs_ocr"  # embedded, but for pages that are images of text
    FAILED = "failed"


UNFINISHED = (DocumentState.PENDING, DocumentState.PARSED, DocumentState.FAILED)  # nothing of them is stored


def partition_of(kind: str, scope: str) -> str:
    """One lexical index and one vector collection per kind and scope: no filter costs or loses a hit."""
    return f"{kind}@{scope}"


def scope_of(partition: str) -> str:
    """The inverse of `partition_of`."""
    return partition.split("@", 1)[1]


class RunState(StrEnum):
    """What became of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


# --- knowledge ---

LOCAL_ONLY = "local-only"  # a source's visibility: nothing of it leaves this machine


class Source(SQLModel, table=True):
    """Something that was ingested as a whole: a folder, a single file, the curated library."""

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True)  # the resolved root, or a fixed name such as "library" that survives a move
    name: str
    root: str
    visibility: str = "shared"  # "shared" | "local-only"
    scope: str = ""  # what the caller said last; empty: scope files and the documents themselves decide
    digest: str = ""  # of the whole content; lets an unchanged library skip the walk
    defaults: dict[str, Any] = _json()  # kind, language, version that the caller said last
    version: str = ""  # the commit of a git checkout
    created: datetime = _created()


class Document(SQLModel, table=True):
    """One file. `path` is relative to the source's root; `location` is where it lies on this machine."""

    __table_args__ = (UniqueConstraint("source_id", "path"),)

    id: int | None = Field(default=None, primary_key=True)
    source_id: int = _parent("source.id")
    path: str
    location: str = Field(index=True)
    state: str = DocumentState.PENDING
    error: str = ""
    sha256: str = ""  # of the file's bytes
    recipe: str = ""  # digest of loader version, scope and chunking: what else the chunks depend on
    text_sha: str = ""  # blob with the decoded text that the line numbers refer to
    loader: str = ""
    kind: str = "document"
    scope: str = Field(default="generic", index=True)
    inferred: str = ""  # why the scope was concluded from the content; empty where somebody said it
    title: str = ""
    meta: dict[str, Any] = _json()
    notes: list[Any] = _json(list)  # what the loader had to assume, such as a guessed encoding
    size: int = 0
    created: datetime = _created()
    updated: datetime = _created()


class Section(SQLModel, table=True):
    """A heading and its own text. `heading_path` joins the headings above it with ` › `."""

    id: int | None = Field(default=None, primary_key=True)
    document_id: int = _parent("document.id")
    ordinal: int
    heading_path: str
    start_line: int
    end_line: int
    page: int | None = None
    rendered: bool = False  # its chunks' text was made from the lines, instead of being them


class ScopeCorrection(SQLModel, table=True):
    """A person's last word on the scope of a file, or of everything below a folder, wherever it is kept."""

    __tablename__ = "scope_correction"

    location: str = Field(primary_key=True)
    scope: str


class Chunk(SQLModel, table=True):
    """The lexical unit (parent): at most 1600 characters of consecutive lines of one section."""

    __table_args__ = (Index("ix_chunk_partition", "kind", "scope"),)

    pk: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True)  # sha256 of source, path, ordinal and text
    document_id: int = _parent("document.id")
    section_id: int = _parent("section.id")
    ordinal: int
    scope: str
    kind: str
    breadcrumb: str
    text: str
    start_line: int
    end_line: int
    page: int | None = None


class Passage(SQLModel, table=True):
    """The vector unit (child): at most 220 tokens of the embedding model, breadcrumb included."""

    id: str = Field(primary_key=True)
    chunk_pk: int = _parent("chunk.pk")
    partition: str = Field(index=True)  # kind@scope: the vector collection that holds it
    ordinal: int
    text: str
    text_hash: str = Field(index=True)


class Embedding(SQLModel, table=True):
    """A vector, cached by what was embedded and by which model; float32, little endian."""

    text_hash: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    vector: bytes = Field(sa_type=LargeBinary)


class EmbeddingModel(SQLModel, table=True):
    """The model that answers, and the one that is being prepared to take its place; at most one of each."""

    __tablename__ = "embedding_model"

    model: str = Field(primary_key=True)  # as in Embedding
    name: str  # as a setting would say it; folders absolute
    base_url: str = ""
    serving: bool = False
    done: int = 0  # texts of passages that have a vector of it, as of `updated`
    total: int = 0
    error: str = ""  # why preparing it stopped
    updated: datetime = _created()


class VectorIndexState(SQLModel, table=True):
    """What the vector index must contain. `generation` grows with every change of the partition."""

    __tablename__ = "vector_index_state"

    partition: str = Field(primary_key=True)
    generation: int = 0
    count: int = 0


class LexicalIndexState(SQLModel, table=True):
    """The partitions that have chunks, and how many: what the lexical indexes must hold."""

    __tablename__ = "lexical_index_state"

    partition: str = Field(primary_key=True)
    kind: str
    scope: str
    chunks: int = 0


class Skill(SQLModel, table=True):
    """A skill of the library. `version` grows when the content behind `digest` changes."""

    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    document_id: int = _parent("document.id", unique=True)
    version: int = 1
    declared_version: str = ""
    digest: str
    description: str = ""
    scope: str = "generic"
    language: str = ""
    root: str
    spec: dict[str, Any] = _json()
    created: datetime = _created()
    updated: datetime = _created()


class SkillEvidence(SQLModel, table=True):
    """One measured win or loss of a skill, as recorded in its `evidence.json` or by a run."""

    __tablename__ = "skill_evidence"

    id: int | None = Field(default=None, primary_key=True)
    skill_id: str = _parent("skill.id")
    skill_version: int
    origin: str = "library"  # "library" or a run id
    record: dict[str, Any] = _json()
    created: datetime = _created()


class Trace(SQLModel, table=True):
    """One kernel of a profiler's output with its diagnosis."""

    id: int | None = Field(default=None, primary_key=True)
    document_id: int = _parent("document.id")
    ordinal: int
    format: str
    kernel: str = Field(index=True)
    duration_us: float | None = None
    bottleneck: str
    record: dict[str, Any] = _json()  # {name, duration_us, bottleneck, evidence, actions, metrics, missing}


# --- runs ---


class Run(SQLModel, table=True):
    """One search."""

    id: str = Field(primary_key=True)
    problem_name: str
    problem_sha: str
    facts_sha: str = ""
    target: str
    policy: str
    generator: str
    settings: dict[str, Any] = _json()
    state: str = RunState.RUNNING
    stop_reason: str = ""
    seed: int = 0
    best_node_id: str | None = None
    tokens: int = 0
    cost_usd: float = 0.0
    created: datetime = _created()
    updated: datetime = _created()


class Node(SQLModel, table=True):
    """A candidate with its evaluation, prompt and lineage. Sources and prompts are blobs."""

    __table_args__ = (Index("ix_node_run_step", "run_id", "step"),)

    id: str = Field(primary_key=True)
    run_id: str = _parent("run.id")
    parent_id: str | None = Field(default=None, foreign_key="node.id", index=True)
    step: int
    generator: str
    source_sha: str
    digest: str = Field(index=True)  # of the normalised program
    status: str
    fitness: float = 0.0
    speedup: float | None = None
    speedup_lo: float | None = None
    speedup_hi: float | None = None
    hypothesis: str = ""
    genome: dict[str, Any] | None = Field(default=None, sa_type=JSON)
    prompt_sha: str = ""
    evaluation: dict[str, Any] = _json()
    diagnosis: dict[str, Any] = _json()
    compiler_made: bool = False
    notes: dict[str, Any] = _json()
    created: datetime = _created()


class Event(SQLModel, table=True):
    """What happened in a run, in order."""

    __table_args__ = (UniqueConstraint("run_id", "seq"),)

    id: int | None = Field(default=None, primary_key=True)
    run_id: str = _parent("run.id")
    seq: int
    kind: str
    payload: dict[str, Any] = _json()
    created: datetime = _created()


class PromptUse(SQLModel, table=True):
    """A chunk that a node's prompt used. Not a foreign key: the record outlives the chunk."""

    __tablename__ = "prompt_use"

    id: int | None = Field(default=None, primary_key=True)
    node_id: str = _parent("node.id")
    slot: str
    chunk_id: str = Field(index=True)
    citation: str
    score: float


class Credit(SQLModel, table=True):
    """What candidates achieved whose prompts showed a passage or a skill; see `kb.credit`."""

    subject: str = Field(
        primary_key=True
    )  # a chunk's id, skill:NAME@VERSION, or empty for all that was shown
    uses: int = 0
    wins: int = 0
    losses: int = 0
    total: float = 0.0  # of signed credit, faded as of `clock`
    weight: float = 0.0  # of uses, faded alike
    clock: int = 0  # credited candidates at the last use
    retired: str = ""  # why a skill is not shown any more
    updated: datetime = _created()


class WorkItem(SQLModel, table=True):
    """A step to be done, keyed by the hash of its content, so that several hosts can share a queue."""

    __tablename__ = "work_item"

    key: str = Field(primary_key=True)
    run_id: str = _parent("run.id")
    state: str = "open"  # open | leased | done | failed
    lease_owner: str = ""
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attempts: int = 0
    payload: dict[str, Any] = _json()
