"""What upkeep needs: corrected and inferred scopes, a source's defaults and version, rendered sections."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scope_correction",
        sa.Column("location", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("location"),
    )
    op.add_column("source", sa.Column("defaults", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("source", sa.Column("version", sa.String(), nullable=False, server_default=""))
    op.add_column("document", sa.Column("inferred", sa.String(), nullable=False, server_default=""))
    op.add_column("section", sa.Column("rendered", sa.Boolean(), nullable=False, server_default="0"))
    op.execute(
        "UPDATE section SET rendered = 1 WHERE document_id IN (SELECT id FROM document WHERE kind = 'trace')"
    )
