"""The first schema: knowledge, runs and the lexical index."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The lexical index keeps no text of its own: it reads the chunk table, and triggers keep the two together.
LEXICAL = """
CREATE VIRTUAL TABLE chunk_fts USING fts5(
    breadcrumb, text, content='chunk', content_rowid='pk', tokenize='porter unicode61');
CREATE TRIGGER chunk_fts_insert AFTER INSERT ON chunk BEGIN
    INSERT INTO chunk_fts(rowid, breadcrumb, text) VALUES (new.pk, new.breadcrumb, new.text);
END;
CREATE TRIGGER chunk_fts_delete AFTER DELETE ON chunk BEGIN
    INSERT INTO chunk_fts(chunk_fts, rowid, breadcrumb, text)
    VALUES ('delete', old.pk, old.breadcrumb, old.text);
END;
CREATE TRIGGER chunk_fts_update AFTER UPDATE OF breadcrumb, text ON chunk BEGIN
    INSERT INTO chunk_fts(chunk_fts, rowid, breadcrumb, text)
    VALUES ('delete', old.pk, old.breadcrumb, old.text);
    INSERT INTO chunk_fts(rowid, breadcrumb, text) VALUES (new.pk, new.breadcrumb, new.text);
END;
"""


def _statements(script: str) -> list[str]:
    """Split at the semicolons that end a line in column 0's statement, keeping trigger bodies whole."""
    statements, current = [], []
    for line in script.strip().splitlines():
        current.append(line)
        trigger = current[0].startswith("CREATE TRIGGER")
        if line == "END;" or (not trigger and line.endswith(";")):
            statements.append("\n".join(current))
            current = []
    return statements


def upgrade() -> None:
    op.create_table(
        "embedding",
        sa.Column("text_hash", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("text_hash", "model"),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("problem_name", sa.String(), nullable=False),
        sa.Column("problem_sha", sa.String(), nullable=False),
        sa.Column("facts_sha", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("generator", sa.String(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("stop_reason", sa.String(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("best_node_id", sa.String(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.Column("updated", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "source",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("root", sa.String(), nullable=False),
        sa.Column("visibility", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_table(
        "vector_index_state",
        sa.Column("partition", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("partition"),
    )
    op.create_table(
        "document",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("location", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("recipe", sa.String(), nullable=False),
        sa.Column("text_sha", sa.String(), nullable=False),
        sa.Column("loader", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("meta", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.Column("updated", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["source.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("source_id", "path"),
    )
    op.create_index("ix_document_location", "document", ["location"], unique=False)
    op.create_index("ix_document_scope", "document", ["scope"], unique=False)
    op.create_index("ix_document_source_id", "document", ["source_id"], unique=False)
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "seq"),
    )
    op.create_index("ix_event_run_id", "event", ["run_id"], unique=False)
    op.create_table(
        "node",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("generator", sa.String(), nullable=False),
        sa.Column("source_sha", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("fitness", sa.Float(), nullable=False),
        sa.Column("speedup", sa.Float(), nullable=True),
        sa.Column("speedup_lo", sa.Float(), nullable=True),
        sa.Column("speedup_hi", sa.Float(), nullable=True),
        sa.Column("hypothesis", sa.String(), nullable=False),
        sa.Column("genome", sa.JSON(), nullable=True),
        sa.Column("prompt_sha", sa.String(), nullable=False),
        sa.Column("evaluation", sa.JSON(), nullable=False),
        sa.Column("diagnosis", sa.JSON(), nullable=False),
        sa.Column("compiler_made", sa.Boolean(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["parent_id"],
            ["node.id"],
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_node_digest", "node", ["digest"], unique=False)
    op.create_index("ix_node_parent_id", "node", ["parent_id"], unique=False)
    op.create_index("ix_node_run_id", "node", ["run_id"], unique=False)
    op.create_index("ix_node_run_step", "node", ["run_id", "step"], unique=False)
    op.create_table(
        "work_item",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=False),
        sa.Column("lease_until", sa.DateTime(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_work_item_run_id", "work_item", ["run_id"], unique=False)
    op.create_table(
        "prompt_use",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("citation", sa.String(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_prompt_use_chunk_id", "prompt_use", ["chunk_id"], unique=False)
    op.create_index("ix_prompt_use_node_id", "prompt_use", ["node_id"], unique=False)
    op.create_table(
        "section",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("heading_path", sa.String(), nullable=False),
        sa.Column("start_line", sa.Integer(), nullable=False),
        sa.Column("end_line", sa.Integer(), nullable=False),
        sa.Column("page", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["document_id"], ["document.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_section_document_id", "section", ["document_id"], unique=False)
    op.create_table(
        "skill",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("document_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("declared_version", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("language", sa.String(), nullable=False),
        sa.Column("root", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.Column("updated", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["document_id"], ["document.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("ix_skill_document_id", "skill", ["document_id"], unique=True)
    op.create_table(
        "trace",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("kernel", sa.String(), nullable=False),
        sa.Column("duration_us", sa.Float(), nullable=True),
        sa.Column("bottleneck", sa.String(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["document_id"], ["document.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_trace_document_id", "trace", ["document_id"], unique=False)
    op.create_index("ix_trace_kernel", "trace", ["kernel"], unique=False)
    op.create_table(
        "chunk",
        sa.Column("pk", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("document_id", sa.Integer(), nullable=False),
        sa.Column("section_id", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("breadcrumb", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("start_line", sa.Integer(), nullable=False),
        sa.Column("end_line", sa.Integer(), nullable=False),
        sa.Column("page", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["document_id"], ["document.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["section_id"], ["section.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("ix_chunk_document_id", "chunk", ["document_id"], unique=False)
    op.create_index("ix_chunk_scope", "chunk", ["scope"], unique=False)
    op.create_index("ix_chunk_section_id", "chunk", ["section_id"], unique=False)
    op.create_table(
        "skill_evidence",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("skill_id", sa.String(), nullable=False),
        sa.Column("skill_version", sa.Integer(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.Column("created", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["skill_id"], ["skill.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_skill_evidence_skill_id", "skill_evidence", ["skill_id"], unique=False)
    op.create_table(
        "passage",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("chunk_pk", sa.Integer(), nullable=False),
        sa.Column("partition", sa.String(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("text_hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["chunk_pk"], ["chunk.pk"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_passage_chunk_pk", "passage", ["chunk_pk"], unique=False)
    op.create_index("ix_passage_partition", "passage", ["partition"], unique=False)
    op.create_index("ix_passage_text_hash", "passage", ["text_hash"], unique=False)
    for statement in _statements(LEXICAL):
        op.execute(statement)
