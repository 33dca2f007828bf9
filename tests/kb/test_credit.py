"""Credit: signed, relative to what is shown on average, fading, and the end of skills that do harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kb import KnowledgeBase, credit
from kb.credit import give, priors, restore, skill_subject, standing
from kb.errors import NotFound
from kb.tables import Credit

Store = Callable[..., None]


def shown(kb: KnowledgeBase, *uses: tuple[dict[str, float], float]) -> None:
    with kb.session() as session:
        for shares, amount in uses:
            give(session, shares, amount)
        session.commit()


def prior(kb: KnowledgeBase, subject: str) -> float:
    with kb.session() as session:
        return priors(session.connection(), [subject]).get(subject, 0.0)


def test_what_helps_more_than_the_rest_rises_and_what_harms_falls(kb: KnowledgeBase) -> None:
    shown(kb, *[({"good": 1.0, "both": 1.0}, 0.5), ({"bad": 1.0, "both": 1.0}, -0.5)] * 4)
    assert 0 < prior(kb, "good") < 0.5
    assert prior(kb, "bad") == pytest.approx(-prior(kb, "good"), abs=0.05)
    assert abs(prior(kb, "both")) < 0.01
    assert prior(kb, "never shown") == 0


def test_a_hard_problem_speaks_against_nothing(kb: KnowledgeBase) -> None:
    shown(kb, *[({"a": 1.0, "b": 1.0}, -0.5)] * 30)
    assert prior(kb, "a") == prior(kb, "b") == 0


def test_a_share_weighs_less(kb: KnowledgeBase) -> None:
    shown(kb, *[({"used": 1.0, "shown": 0.25}, 0.6), ({"x": 1.0}, -0.6)] * 4)
    assert prior(kb, "used") > 2 * prior(kb, "shown") > 0


def test_credit_fades_with_what_others_earn(kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credit, "HALF_LIFE", 5)
    shown(kb, *[({"old": 1.0}, -1.0)] * 6)
    shown(kb, ({"other": 1.0}, 0.5))
    before = prior(kb, "old")
    shown(kb, *[({"other": 1.0}, 0.5)] * 60)
    assert before < -0.05
    assert -0.001 < prior(kb, "old") < 0


def test_credit_moves_hits_where_it_is_asked_for(kb: KnowledgeBase, store: Store) -> None:
    store(kb, "a.md", "vector width matters")
    store(kb, "b.md", "vector width matters much")
    first, second = kb.query("vector width matters").hits
    shown(kb, *[({first.chunk_id: 1.0}, -1.0), ({second.chunk_id: 1.0}, 1.0)] * 20)
    assert [h.chunk_id for h in kb.query("vector width matters").hits] == [first.chunk_id, second.chunk_id]
    hits = kb.query("vector width matters", credited=True).hits
    assert [h.chunk_id for h in hits] == [second.chunk_id, first.chunk_id]
    assert hits[0].why["credit"] > 0 > hits[1].why["credit"]


@pytest.fixture
def skilled(kb: KnowledgeBase, tmp_path: Any) -> KnowledgeBase:
    from ingest import ingest_paths

    for name in ("rows", "columns"):
        folder = tmp_path / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: softmax of {name}\n---\n\n# {name}\n\nsoftmax\n"
        )
    assert not ingest_paths(kb, [tmp_path / "skills"]).failed
    return kb


def names(kb: KnowledgeBase) -> list[str]:
    return sorted(s.name for s in kb.find_skills("softmax of rows", target=None))


def test_a_skill_with_net_harm_is_retired_with_its_reason(skilled: KnowledgeBase) -> None:
    subject = skill_subject(skilled.skill("rows"))
    shown(skilled, *[({subject: 1.0}, -0.5), ({"chunk": 1.0}, 0.2)] * 7)
    assert names(skilled) == ["columns", "rows"]
    shown(skilled, *[({subject: 1.0}, -0.5)] * 3)
    assert names(skilled) == ["columns"]
    found = standing(skilled, skilled.skill("rows"))
    assert found is not None
    assert "10 candidates, 10 worse" in found.retired or "worse than what they started from" in found.retired
    assert found.prior < 0
    assert standing(skilled, skilled.skill("columns")) is None


def test_chunks_are_never_retired_and_few_uses_retire_nothing(skilled: KnowledgeBase) -> None:
    shown(skilled, *[({"chunk": 1.0}, -1.0), ({"x": 1.0}, 1.0)] * 20)
    shown(skilled, *[({skill_subject(skilled.skill("rows")): 1.0}, -1.0)] * 5)
    with skilled.session() as session:
        row = session.get(Credit, "chunk")
        assert row is not None
        assert row.retired == ""
    assert names(skilled) == ["columns", "rows"]


def test_a_retired_skill_can_be_brought_back(skilled: KnowledgeBase) -> None:
    skill = skilled.skill("rows")
    shown(skilled, *[({skill_subject(skill): 1.0}, -1.0), ({"x": 1.0}, 1.0)] * 9)
    assert names(skilled) == ["columns"]
    restore(skilled, skill)
    assert names(skilled) == ["columns", "rows"]
    assert standing(skilled, skill) is None
    with pytest.raises(NotFound):
        restore(skilled, skill)
