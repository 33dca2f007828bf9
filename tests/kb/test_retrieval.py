from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import DatabaseError
from sqlmodel import Session

from kb import KnowledgeBase, lexical
from kb.errors import StoreDamaged

Store = Callable[..., None]
SCOPES = ("generic", "cpu", "triton", "nvidia", "nvidia:sm_90", "amd", "amd-hip", "aws-neuron", "tenstorrent")


def healthy(session: Session) -> bool:
    """Whether the lexical index agrees with the chunk table, read as a whole."""
    try:
        session.connection().exec_driver_sql(
            "INSERT INTO chunk_fts(chunk_fts, rank) VALUES ('integrity-check', 1)"
        )
    except (DatabaseError, StoreDamaged):
        return False
    return True


@pytest.fixture
def filled(kb: KnowledgeBase, store: Store) -> KnowledgeBase:
    for scope in SCOPES:
        store(kb, f"{scope}.md", f"shared memory bank conflicts and occupancy on {scope}", scope=scope)
    return kb


@pytest.mark.parametrize("target", ["cpu", "nvidia:sm_90", "amd:gfx942", "aws-neuron", "tenstorrent:sim"])
def test_scope_filter_never_leaks(filled: KnowledgeBase, target: str) -> None:
    from kb.scope import visible_scopes

    hits = filled.query("shared memory bank conflicts", target=target, k=100).hits
    assert {h.why["scope"] for h in hits} == visible_scopes(target) & set(SCOPES)


@pytest.mark.parametrize(
    "label", ["***", "a b", 'x"y', "kernels", "éa", "日本", "nvidia-sm", "not", "near/1"]
)
def test_any_label_is_found_by_its_own_target(kb: KnowledgeBase, store: Store, label: str) -> None:
    store(kb, "a.md", "vector width matters", scope=label)
    store(kb, "b.md", "vector width matters", scope="elsewhere")
    hits = kb.query("vector width", target=label).hits
    assert [(h.path, h.why["bm25"] is not None) for h in hits] == [("a.md", True)]


def test_words_of_a_scope_are_no_content(kb: KnowledgeBase, store: Store) -> None:
    store(kb, "a.md", "vector width matters", scope="amd-hip")
    assert kb.query("hip", k=1).hits[0].why["bm25"] is None


def test_a_changed_scope_is_followed_by_the_lexical_index(filled: KnowledgeBase) -> None:
    with filled.session() as session:
        session.connection().exec_driver_sql("UPDATE chunk SET scope = 'intel' WHERE scope = 'triton'")
        session.commit()
        assert healthy(session)
        found = lexical.search(session, ["occupancy"], scopes=["intel"], kinds=["document"], limit=5)
        assert len(found) == 1
        assert lexical.search(session, ["occupancy"], scopes=["triton"], kinds=None, limit=5) == []


def test_a_home_of_the_earlier_schema_gets_the_new_lexical_index(
    filled: KnowledgeBase, embedder: Any
) -> None:
    import importlib

    first = importlib.import_module("kb.migrations.versions.0001_first_schema")
    with filled.session() as session:
        connection = session.connection()
        for trigger in lexical._TRIGGERS:
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        connection.exec_driver_sql("DROP TABLE chunk_fts")
        for statement in first._statements(first.LEXICAL):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("INSERT INTO chunk_fts(chunk_fts) VALUES ('rebuild')")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
        session.commit()
    filled.close()
    with KnowledgeBase.open(filled.settings, embedder=embedder) as kb:
        assert kb.notices == []
        assert {h.why["scope"] for h in kb.query("occupancy", target="amd:gfx942").hits} >= {"amd", "amd-hip"}
        with kb.session() as session:
            assert healthy(session)


def test_kinds_filter(kb: KnowledgeBase, store: Store) -> None:
    for i in range(30):
        store(kb, f"document{i}.md", f"vector width matters {i}")
    store(kb, "rule.md", "something else entirely", kind="constraint")
    hits = kb.query("vector width", kinds=["constraint"]).hits
    assert [h.path for h in hits] == ["rule.md"]
    assert kb.query("vector width", kinds=[]).hits == []


@pytest.mark.parametrize(
    "query",
    ["", "   ", '"', "' OR 1=1 --", "NEAR(a b)", "a AND (", "*", "col:value", "-x", "^y", "\x00", "\ud800",
     "💥", "x" * 10_000, "the of and", "{breadcrumb text}: z", "nc_matmul(tile_position=(0, 1))", "NOT",
     "a\nb\tc"],
)  # fmt: skip
def test_any_query_is_answered(filled: KnowledgeBase, query: str) -> None:
    filled.query(query, k=3)


def test_identifiers_stay_whole() -> None:
    assert lexical.terms_of("Why does nisa.nc_matmul with tl.load fail?") == [
        "nisa.nc_matmul",
        "tl.load",
        "fail",
    ]


def test_exact_identifier_ranks_first(kb: KnowledgeBase, store: Store) -> None:
    store(kb, "a.md", "matmul of nc tiles and many other words about nc and matmul")
    store(kb, "b.md", "call nc_matmul with a stationary tile")
    store(kb, "c.md", "matmul")
    assert kb.query("nc_matmul").hits[0].path == "b.md"


def test_hit_says_why_and_where(filled: KnowledgeBase) -> None:
    hit = filled.query("bank conflicts", target="cpu", k=1).hits[0]
    assert hit.citation == f"{hit.path}:1-1 § Heading"
    assert hit.why["terms"] == ["bank", "conflicts"]
    assert 0 < hit.why["similarity"] <= 1
    assert hit.why["target"] == "cpu"
    assert "meta" not in hit.to_json()


def test_order_is_reproducible(filled: KnowledgeBase) -> None:
    first = [(h.chunk_id, h.score) for h in filled.query("memory", k=20).hits]
    assert first == [(h.chunk_id, h.score) for h in filled.query("memory", k=20).hits]
    assert len({c for c, _ in first}) == len(first)


@pytest.mark.parametrize(
    "damage",
    ["DROP TABLE chunk_fts", "DROP TRIGGER chunk_fts_insert", "DELETE FROM chunk_fts_docsize WHERE id < 4",
     "DELETE FROM chunk_fts_data WHERE id > 10"],
)  # fmt: skip
def test_damaged_lexical_index_is_noticed_and_rebuilt(
    filled: KnowledgeBase, embedder: Any, damage: str
) -> None:
    expected = [h.chunk_id for h in filled.query("bank conflicts").hits]
    with filled.session() as session:
        assert healthy(session)
        session.connection().exec_driver_sql(damage)
        session.commit()
    filled.close()
    with KnowledgeBase.open(filled.settings, embedder=embedder) as kb:
        assert [h.chunk_id for h in kb.query("bank conflicts").hits] == expected
        assert ["lexical index" in n for n in kb.notices] == [True]
        with kb.session() as session:
            assert healthy(session)


def test_rebuilt_lexical_index_has_the_schema_of_the_migration(filled: KnowledgeBase) -> None:
    query = "SELECT name, sql FROM sqlite_master WHERE name LIKE 'chunk_fts%' ORDER BY name"

    def schema() -> list[str]:
        with filled.session() as session:
            rows = session.connection().exec_driver_sql(query).all()
        return [f"{name} {''.join((sql or '').split())}" for name, sql in rows]

    before = schema()
    filled.rebuild_lexical("is only being tested")
    assert schema() == before


def test_rebuild_of_the_lexical_index_is_all_or_nothing(
    filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [h.chunk_id for h in filled.query("bank conflicts").hits]
    with monkeypatch.context() as patch:
        patch.setattr(lexical, "_SCHEMA", (*lexical._SCHEMA[:2], "CREATE nonsense"))
        with pytest.raises(Exception, match="nonsense"):
            filled.rebuild_lexical("is only being tested")
    with filled.session() as session:
        assert lexical.problem(session) is None
        assert healthy(session)
    assert [h.chunk_id for h in filled.query("bank conflicts").hits] == expected


def test_chunk_that_vanishes_during_a_query_is_left_out(
    filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kb import retrieval

    real = retrieval._rows
    monkeypatch.setattr(retrieval, "_rows", lambda session, pks: real(session, pks[1:]))
    assert [h.rank for h in filled.query("bank conflicts", k=3).hits] == [1, 2]


def test_the_first_of_one_side_is_not_outvoted() -> None:
    """Middling places on both sides must not beat what one side alone is sure of."""
    from kb.retrieval import _Candidate, _fuse

    candidates = {pk: _Candidate(bm25=100.0 - pk, similarity=0.5 - pk / 1000) for pk in range(20, 60)}
    candidates |= {pk: _Candidate(bm25=200.0 - pk) for pk in range(20)}
    candidates |= {1000 + pk: _Candidate(similarity=0.9 - pk / 1000) for pk in range(20)}
    _fuse(candidates)
    ranked = sorted(candidates, key=lambda pk: -candidates[pk].score)
    assert set(ranked[:4]) == {0, 1, 1000, 1001}


def test_what_both_sides_rank_first_scores_one_and_ties_share_a_rank() -> None:
    from kb.retrieval import _Candidate, _fuse

    best, twin, other = (_Candidate(bm25=9.0, similarity=0.9), _Candidate(bm25=9.0), _Candidate(bm25=1.0))
    _fuse({3: other, 2: twin, 1: best})
    assert best.score == pytest.approx(1.0)
    assert twin.score == pytest.approx(0.5)
    assert 0 < other.score < 0.5
