"""Alembic migrations. `HEAD` is the newest revision; a test compares it with the scripts."""

HEAD = "0006"
