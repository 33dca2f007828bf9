"""Questions beside a process that changes documents: what is stored answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kb import KnowledgeBase, Settings
from kb.locks import home_lock


@pytest.mark.parametrize(
    "command", [("query", "keep a row resident"), ("skills", "list")], ids=["query", "skills"]
)
def test_an_outdated_library_answers_while_another_process_writes(
    library: Any, home: Path, command: tuple[str, ...]
) -> None:
    with KnowledgeBase.open(Settings(home=home)) as kb, kb.session() as session:
        session.connection().execute(text("UPDATE source SET digest = 'of an earlier version'"))
        session.commit()
    with home_lock(home, timeout_s=1):
        started = time.monotonic()
        beside = library(*command, "--json")
        assert time.monotonic() - started < 20, "it waited for the lock"
    assert beside.code == 0
    assert beside.json.get("hits") or beside.json.get("skills")
    assert "another process is changing documents" in beside.err
    assert "another process" not in library(*command, "--json").err, "now it is read in"


def test_an_empty_home_answers_while_another_process_fills_it(cli: Any, home: Path) -> None:
    home.mkdir()
    with home_lock(home, timeout_s=1):
        beside = cli("query", "anything", "--json")
    assert (beside.code, beside.json["hits"]) == (0, [])
    assert "another process is changing documents" in beside.json["notes"][0]
