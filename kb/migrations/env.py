"""Alembic's entry point: migrates over the connection that `kb.database` hands in."""

from alembic import context
from sqlmodel import SQLModel

import kb.tables  # noqa: F401 - registers the tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    transactional_ddl=True,
    include_name=lambda name, type_, _parents: type_ != "table" or not (name or "").startswith("chunk_fts"),
)
with context.begin_transaction():
    context.run_migrations()
