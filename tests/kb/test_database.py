from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlmodel import SQLModel, select

from kb import KnowledgeBase, Settings
from kb.errors import HomeUnavailable, StoreDamaged, StoreFull, StoreLocked, StoreTooNew
from kb.lexical_index import table_of
from kb.migrations import HEAD
from kb.tables import Event, Node, Run, Section, Source


def test_migrations_make_exactly_the_tables(kb: KnowledgeBase) -> None:
    def ours(item: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
        return not (kind == "table" and (name or "").startswith("chunk_fts"))

    with kb.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_object": ours})
        assert compare_metadata(context, SQLModel.metadata) == []


def test_head_is_the_newest_script() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(sys.modules["kb.migrations"].__path__[0])))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_runs_survive_reopening(settings: Settings) -> None:
    with KnowledgeBase.open(settings) as kb, kb.session() as session:
        session.add(
            Run(id="r", problem_name="p", problem_sha="", target="cpu", policy="greedy", generator="recipe")
        )
        session.flush()
        session.add(
            Node(id="n", run_id="r", step=0, generator="recipe", source_sha="", digest="", status="correct")
        )
        session.flush()
        session.add(Event(run_id="r", seq=0, kind="started", payload={"a": 1}))
        session.commit()
    with KnowledgeBase.open(settings) as kb, kb.session() as session:
        run = session.get_one(Run, "r")
        assert run.created.tzinfo is not None
        assert session.exec(select(Event)).one().payload == {"a": 1}
        session.delete(run)
        session.commit()
        assert session.get(Node, "n") is None


def test_foreign_keys_are_enforced(kb: KnowledgeBase) -> None:
    from sqlalchemy.exc import IntegrityError

    with kb.session() as session:
        session.add(Event(run_id="nowhere", seq=0, kind="x"))
        with pytest.raises(IntegrityError):
            session.commit()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "last page", "header"])
def test_damaged_database_is_reported_and_left_alone(settings: Settings, damage: str) -> None:
    KnowledgeBase.open(settings).close()
    path = settings.home / "kernelevolve.db"
    content = path.read_bytes()
    damaged = {
        "garbage": b"this is not a database " * 100,
        "truncated": content[: len(content) // 2],
        "last page": content[:-4096],
        "header": content[:100] + b"\xff" * 4000 + content[4100:],
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(StoreDamaged) as caught:
        KnowledgeBase.open(settings)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert path.read_bytes() == damaged


def test_locked_database_is_a_typed_error(settings: Settings) -> None:
    settings = settings.model_copy(update={"lock_timeout_s": 0.2})
    with KnowledgeBase.open(settings) as kb:
        other = sqlite3.connect(settings.home / "kernelevolve.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with kb.session() as session:
            session.add(
                Run(id="r", problem_name="p", problem_sha="", target="cpu", policy="", generator="recipe")
            )
            with pytest.raises(StoreLocked):
                session.commit()
        other.close()


def test_full_disk_is_a_typed_error(kb: KnowledgeBase) -> None:
    with kb.session() as session:
        pages = session.connection().exec_driver_sql("PRAGMA page_count").scalar_one()
        session.connection().exec_driver_sql(f"PRAGMA max_page_count={pages}")
        session.add(
            Run(id="r", problem_name="x" * 1_000_000, problem_sha="", target="", policy="", generator="")
        )
        with pytest.raises(StoreFull, match="full"):
            session.commit()


def test_newer_schema_is_refused(settings: Settings) -> None:
    KnowledgeBase.open(settings).close()
    with sqlite3.connect(settings.home / "kernelevolve.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreTooNew, match="9999"):
        KnowledgeBase.open(settings)


def test_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("x")
    with pytest.raises(HomeUnavailable, match="home"):
        KnowledgeBase.open(Settings(home=tmp_path / "home"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_home_without_permission(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o500)
    with pytest.raises(HomeUnavailable):
        KnowledgeBase.open(Settings(home=tmp_path / "home"))


def test_processes_may_open_a_new_home_at_the_same_time(tmp_path: Path) -> None:
    code = "import sys; from kb import *; KnowledgeBase.open(Settings(home=sys.argv[1])).close()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "home")], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    errors = [p.communicate()[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0, 0], errors


def test_migration_that_fails_in_the_middle_leaves_a_home_that_opens(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("alembic.op.execute", fail)  # after the tables, before the lexical index
        with pytest.raises(OSError, match="killed"):
            KnowledgeBase.open(settings)
    with KnowledgeBase.open(settings) as kb:
        assert kb.notices == []
        assert kb.stats()["counts"]["document"] == 0


def test_home_may_have_characters_that_mean_something_in_a_url(tmp_path: Path) -> None:
    home = tmp_path / "what?%20#home"
    KnowledgeBase.open(Settings(home=home)).close()
    assert (home / "kernelevolve.db").is_file()


def test_file_that_grows_while_it_is_opened_is_not_damaged(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    KnowledgeBase.open(settings).close()
    path = settings.home / "kernelevolve.db"
    content = path.read_bytes()
    path.write_bytes(content[:-4096])
    real = Path.open

    def grow(self: Path, *args: object, **kwargs: object) -> object:
        if self == path and args:
            path.write_bytes(content)
        return real(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", grow)
    KnowledgeBase.open(settings).close()


def test_stats_survive_files_that_vanish(kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    (kb.home / "gone").touch()
    real = Path.is_file

    def vanish(self: Path) -> bool:
        found = real(self)
        if self.name == "gone":
            self.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", vanish)
    assert kb.stats()["bytes"] > 0


def test_an_empty_file_in_place_of_the_database_is_no_new_store(settings: Settings) -> None:
    with KnowledgeBase.open(settings) as kb:
        kb.blobs.put("something stored")
    for path in settings.home.glob("kernelevolve.db*"):
        path.unlink()
    (settings.home / "kernelevolve.db").touch()
    with pytest.raises(StoreDamaged, match="empty beside stored blobs"):
        KnowledgeBase.open(settings)


def test_a_home_of_the_first_schema_is_migrated_with_its_content(settings: Settings) -> None:
    from alembic import command
    from sqlalchemy import create_engine

    settings.home.mkdir()
    engine = create_engine(f"sqlite:///{settings.home / 'kernelevolve.db'}")
    config = Config()
    config.set_main_option("script_location", str(Path(sys.modules["kb.migrations"].__path__[0])))
    when = "2026-01-01 00:00:00"
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in (
            f"INSERT INTO source VALUES (1, '/s', 's', '/s', 'shared', 'cpu', '', '{when}')",
            "INSERT INTO document (id, source_id, path, location, state, error, sha256, recipe, text_sha,"
            " loader, kind, scope, title, meta, notes, size, created, updated)"
            f" VALUES (1, 1, 'a.md', '/s/a.md', 'embedded', '', 'x', '', '{'a' * 64}', 'markdown', 'trace',"
            f" 'cpu', 'A', '{{}}', '[]', 1, '{when}', '{when}')",
            "INSERT INTO section (id, document_id, ordinal, heading_path, start_line, end_line)"
            " VALUES (1, 1, 0, 'A', 1, 2)",
            "INSERT INTO chunk (pk, id, document_id, section_id, ordinal, scope, kind, breadcrumb, text,"
            " start_line, end_line) VALUES (1, 'c', 1, 1, 0, 'cpu', 'trace', 'A', 'old tiles', 1, 2)",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    with KnowledgeBase.open(settings) as kb, kb.session() as session:
        assert kb.notices == []
        source = session.exec(select(Source)).one()
        assert (source.scope, source.defaults, source.version) == ("cpu", {}, "")
        assert session.exec(select(Section)).one().rendered
        table = table_of("trace@cpu")
        found = session.connection().exec_driver_sql(f"SELECT rowid FROM {table} WHERE {table} MATCH 'tiles'")
        assert found.scalars().all() == [1]
