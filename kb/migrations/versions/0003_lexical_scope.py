"""The lexical index knows scope and kind of every chunk: what is out of scope is skipped, not scored."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SCHEMA = (
    """CREATE VIRTUAL TABLE chunk_fts USING fts5(
    breadcrumb, text, scope, kind, content='chunk', content_rowid='pk', tokenize='porter unicode61')""",
    """CREATE TRIGGER chunk_fts_insert AFTER INSERT ON chunk BEGIN
    INSERT INTO chunk_fts(rowid, breadcrumb, text, scope, kind)
    VALUES (new.pk, new.breadcrumb, new.text, new.scope, new.kind);
END""",
    """CREATE TRIGGER chunk_fts_delete AFTER DELETE ON chunk BEGIN
    INSERT INTO chunk_fts(chunk_fts, rowid, breadcrumb, text, scope, kind)
    VALUES ('delete', old.pk, old.breadcrumb, old.text, old.scope, old.kind);
END""",
    """CREATE TRIGGER chunk_fts_update AFTER UPDATE OF breadcrumb, text, scope, kind ON chunk BEGIN
    INSERT INTO chunk_fts(chunk_fts, rowid, breadcrumb, text, scope, kind)
    VALUES ('delete', old.pk, old.breadcrumb, old.text, old.scope, old.kind);
    INSERT INTO chunk_fts(rowid, breadcrumb, text, scope, kind)
    VALUES (new.pk, new.breadcrumb, new.text, new.scope, new.kind);
END""",
)


def upgrade() -> None:
    for trigger in ("chunk_fts_insert", "chunk_fts_delete", "chunk_fts_update"):
        op.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    op.execute("DROP TABLE IF EXISTS chunk_fts")
    for statement in SCHEMA:
        op.execute(statement)
    op.execute("INSERT INTO chunk_fts(chunk_fts) VALUES ('rebuild')")
