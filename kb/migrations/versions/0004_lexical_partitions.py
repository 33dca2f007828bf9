"""One lexical index for each partition (kind and scope): what is out of scope costs nothing."""

import sqlalchemy as sa
from alembic import op

from kb import lexical_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for trigger in ("chunk_fts_insert", "chunk_fts_delete", "chunk_fts_update"):
        op.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    op.execute("DROP TABLE IF EXISTS chunk_fts")
    op.drop_index("ix_chunk_scope", "chunk")
    op.create_index("ix_chunk_partition", "chunk", ["kind", "scope"])
    op.create_table(
        "lexical_index_state",
        sa.Column("partition", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("partition"),
    )
    # Derived: in the form that this version uses, which a later one makes anew.
    lexical_index.rebuild(op.get_bind())
