"""What became of candidates whose prompts showed a passage or a skill."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "credit",
        sa.Column("subject", sa.String(), primary_key=True, nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("wins", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("clock", sa.Integer(), nullable=False),
        sa.Column("retired", sa.String(), nullable=False),
        sa.Column("updated", sa.DateTime(), nullable=False),
        if_not_exists=True,
    )
