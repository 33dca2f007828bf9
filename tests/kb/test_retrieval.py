from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlmodel import select

from kb import KnowledgeBase, lexical, lexical_index
from kb.documents import DocumentWriter
from kb.tables import Chunk, Document

Store = Callable[..., None]
SCOPES = ("generic", "cpu", "triton", "nvidia", "nvidia:sm_90", "amd", "amd-hip", "aws-neuron", "tenstorrent")


def healthy(kb: KnowledgeBase) -> bool:
    """Whether the lexical indexes agree with the chunk table, read as a whole."""
    with kb.session() as session:
        connection = session.connection()
        return lexical_index.problem(connection) is None and lexical_index.disagreeing(connection) == []


def tables(kb: KnowledgeBase) -> set[str]:
    """The scopes that have a lexical index."""
    with kb.session() as session:
        connection = session.connection()
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%'")
        held = set(names.scalars().all())
    return {s for s in (*SCOPES, "intel") if lexical_index.table_of(f"document@{s}") in held}


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
    "label", ["***", "a b", 'x"y', "it's", "a\x00b", "kernels", "éa", "日本", "nvidia-sm", "not", "near/1"]
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
        ids = session.exec(select(Document.id).where(Document.scope == "triton")).all()
    DocumentWriter(filled).rescope([i for i in ids if i], "intel")
    assert healthy(filled)
    assert [h.why["scope"] for h in filled.query("bank conflicts", target="opencl").hits] == ["generic"]
    assert {h.why["scope"] for h in filled.query("bank conflicts", target="intel").hits} == {
        "generic",
        "intel",
    }
    assert tables(filled) == {*SCOPES, "intel"} - {"triton"}


def test_lexical_indexes_come_and_go_with_their_chunks(filled: KnowledgeBase, store: Store) -> None:
    store(filled, "nvidia.md", "registers spill", scope="nvidia")  # another text in place of the former
    with filled.session() as session:
        ids = session.exec(select(Document.id).where(Document.scope == "amd")).all()
    DocumentWriter(filled).remove([i for i in ids if i])
    assert tables(filled) == {*SCOPES} - {"amd"}
    assert healthy(filled)
    with filled.session() as session:
        for scope in SCOPES:
            session.connection().exec_driver_sql("DELETE FROM document WHERE scope = ?", (scope,))
        assert lexical_index.disagreeing(session.connection()) == [], "removal by cascade is followed, too"
        session.rollback()
    DocumentWriter(filled).remove(range(1, 100))
    assert tables(filled) == set()
    assert healthy(filled)
    store(filled, "amd.md", "bank conflicts", scope="amd")
    assert healthy(filled)


def test_an_interrupted_change_leaves_no_index(filled: KnowledgeBase, store: Store) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kb.change.Change.bump", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store(filled, "new.md", "bank conflicts", scope="intel")
    assert tables(filled) == {*SCOPES}
    assert healthy(filled)


def test_a_home_of_the_earlier_schema_gets_the_new_lexical_index(
    filled: KnowledgeBase, embedder: Any
) -> None:
    import importlib

    third = importlib.import_module("kb.migrations.versions.0003_lexical_scope")
    expected = [h.chunk_id for h in filled.query("occupancy on triton").hits]
    with filled.session() as session:
        connection = session.connection()
        for scope in SCOPES:
            lexical_index._drop(connection, lexical_index._schema("document", scope))
        for statement in third.SCHEMA:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("INSERT INTO chunk_fts(chunk_fts) VALUES ('rebuild')")
        connection.exec_driver_sql("DROP TABLE lexical_index_state")
        connection.exec_driver_sql("DROP TABLE embedding_model")
        connection.exec_driver_sql("DROP INDEX ix_chunk_partition")
        connection.exec_driver_sql("CREATE INDEX ix_chunk_scope ON chunk (scope)")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
        session.commit()
    filled.close()
    with KnowledgeBase.open(filled.settings, embedder=embedder) as kb:
        assert kb.notices == []
        assert healthy(kb)
        assert [h.chunk_id for h in kb.query("occupancy on triton").hits] == expected


def lexical_search(kb: KnowledgeBase, query: str, limit: int = 100) -> list[tuple[str, float]]:
    """(path, score) of what the lexical side finds in all partitions."""
    from kb.retrieval import _partitions

    with kb.session() as session:
        hits = lexical.search(session, query.split(), _partitions(session, None, None), limit=limit)
        rows = session.exec(select(Chunk.pk, Document.path).where(Chunk.document_id == Document.id)).all()
        paths = {pk: path for pk, path in rows}  # noqa: C416 - rows are not pairs to the type checker
        return [(paths[hit.chunk_pk], hit.score) for hit in hits]


def test_scores_of_one_partition_are_those_of_fts5(kb: KnowledgeBase, store: Store) -> None:
    words = ["tile", "vector", "loads", "bank", "nc_matmul"]
    for i in range(40):
        store(kb, f"{i}.md", " ".join(words[: i % 5] + [words[i % 3]] * (i % 7) + [f"w{i}"] * i) or "x")
    table = lexical_index.table_of("document@generic")
    query = "vector tile nc_matmul loads w7"  # of which "tile" is in more than half of the chunks
    with kb.session() as session:
        expected = session.connection().exec_driver_sql(
            f"SELECT document.path, -bm25({table}, {lexical.HEADING_WEIGHT}, 1.0) AS score FROM {table}"
            f" JOIN chunk ON chunk.pk = {table}.rowid JOIN document ON document.id = chunk.document_id"
            f" WHERE {table} MATCH ? ORDER BY score DESC", (lexical.match_expression(query.split()),),
        ).all()  # fmt: skip
    found = lexical_search(kb, query)
    assert len(found) == len(expected) > 20
    assert dict(found) == pytest.approx(dict(map(tuple, expected)), abs=1e-8)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_a_term_weighs_the_same_in_every_partition(kb: KnowledgeBase, store: Store) -> None:
    """`tile` fills one scope and is rare in the other: in its own statistics alone it would win there."""
    for i in range(20):
        store(kb, f"a{i}.md", f"tile {i}", scope="amd")
        store(kb, f"b{i}.md", f"loop {i}", scope="nvidia")
    store(kb, "both.md", "tile swizzle", scope="amd")
    store(kb, "rare.md", "tile other", scope="nvidia")
    store(kb, "few.md", "swizzle other", scope="nvidia")
    scores = dict(lexical_search(kb, "tile swizzle"))
    assert scores["rare.md"] == pytest.approx(scores["a3.md"], rel=0.05)
    assert scores["both.md"] == pytest.approx(scores["rare.md"] + scores["few.md"], rel=0.05)
    assert max(scores, key=scores.__getitem__) == "both.md"


def test_in_a_large_partition_rare_terms_choose_and_common_ones_count_once(
    kb: KnowledgeBase, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(16):
        store(kb, f"{i}.md", f"{('tile', 'loop')[i > 3]} number{i}")
    store(kb, "rare.md", "swizzle width")
    store(kb, "both.md", "swizzle tile tile tile")
    store(kb, "small.md", "tile swizzle", scope="nvidia")
    everything = dict(lexical_search(kb, "tile swizzle"))
    assert len(everything) == 7
    monkeypatch.setattr(lexical, "POSTINGS", 4)
    found = dict(lexical_search(kb, "tile swizzle"))
    assert set(found) == {"rare.md", "both.md", "small.md"}
    assert found["rare.md"] == everything["rare.md"]
    assert found["rare.md"] < found["both.md"] < everything["both.md"]
    assert found["small.md"] == everything["small.md"], "a small partition is searched for every term"
    assert len(lexical_search(kb, "tile")) == 6, "the rarest term is searched for, however common it is"


def test_of_equal_chunks_the_ids_choose(kb: KnowledgeBase, store: Store) -> None:
    for i in range(9):
        store(kb, f"{i}.md", "vector width", scope=("generic", "nvidia")[i % 2])
    store(kb, "best.md", "vector width vector width")
    with kb.session() as session:
        ids = session.exec(select(Chunk.id, Document.path).where(Chunk.document_id == Document.id)).all()
    tied = [path for _, path in sorted(ids) if path != "best.md"]
    scores = dict(lexical_search(kb, "vector width"))
    assert len({scores[path] for path in tied}) <= 2  # each partition has its own average length
    best = max(scores[path] for path in tied)
    first = [path for path in tied if scores[path] == best]
    assert {path for path, _ in lexical_search(kb, "vector width", limit=3)} == {"best.md", *first[:2]}


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
    ["DROP TABLE {}", "DROP TRIGGER {}_insert", "DROP VIEW {}_chunks", "DELETE FROM {}_docsize WHERE id < 4",
     "DELETE FROM {}_data WHERE id > 10", "CREATE TABLE chunk_fts (x)",
     "DELETE FROM lexical_index_state WHERE scope = 'generic'",
     "UPDATE lexical_index_state SET chunks = chunks + 1"],
)  # fmt: skip
def test_damaged_lexical_index_is_noticed_and_rebuilt(
    filled: KnowledgeBase, embedder: Any, damage: str
) -> None:
    expected = [h.chunk_id for h in filled.query("bank conflicts").hits]
    assert healthy(filled)
    with filled.session() as session:
        table = lexical_index.table_of("document@generic")
        session.connection().exec_driver_sql(damage.format(table))
        session.commit()
    filled.close()
    with KnowledgeBase.open(filled.settings, embedder=embedder) as kb:
        assert [h.chunk_id for h in kb.query("bank conflicts").hits] == expected
        assert ["lexical index" in n for n in kb.notices] == [True]
        assert healthy(kb)


def test_rebuild_of_the_lexical_index_is_all_or_nothing(
    filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [h.chunk_id for h in filled.query("bank conflicts").hits]
    with monkeypatch.context() as patch:
        patch.setattr(lexical_index, "settle", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            filled.rebuild_lexical("is only being tested")
    assert healthy(filled)
    assert [h.chunk_id for h in filled.query("bank conflicts").hits] == expected
    filled.rebuild_lexical("is only being tested")
    assert healthy(filled)
    assert [h.chunk_id for h in filled.query("bank conflicts").hits] == expected


def test_a_query_sees_one_state_whatever_is_written_meanwhile(
    filled: KnowledgeBase, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lexical.frequencies

    def meanwhile(*args: Any) -> Any:
        with KnowledgeBase.open(filled.settings, embedder=embedder) as other:
            DocumentWriter(other).remove(range(1, len(SCOPES)))  # all but one, their indexes included
        return real(*args)

    monkeypatch.setattr(lexical, "frequencies", meanwhile)
    hits = filled.query("bank conflicts", k=100).hits
    found = {h.why["scope"] for h in hits if h.why["bm25"] is not None}
    assert found >= {*SCOPES} - {"amd"}  # amd.md is folded into what repeats it
    monkeypatch.undo()
    assert len(filled.query("bank conflicts", k=100).hits) == 1


def test_chunk_that_vanishes_during_a_query_is_left_out(
    filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kb import retrieval

    first = filled.query("bank conflicts", k=1).hits[0].chunk_id
    real = retrieval._rows
    monkeypatch.setattr(retrieval, "_rows", lambda session, pks: real(session, pks[1:]))
    hits = filled.query("bank conflicts", k=3).hits
    assert [h.rank for h in hits] == [1, 2, 3]
    assert first not in {h.chunk_id for h in hits}
