"""`kernelevolve skills distil` and `verify` against the curated library; tests/agent has the rest."""

from __future__ import annotations

from typing import Any

import pytest


def test_skills_say_their_state(library: Any) -> None:
    skills = library("skills", "list", "--json").json["skills"]
    assert {skill["state"] for skill in skills} == {"curated"}
    assert all(isinstance(skill["stale"], int) for skill in skills)
    assert "curated" in library("skills", "show", skills[0]["name"]).out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("distil", "no-such-run"), "RunNotFound"),
        (("verify", "no-such-skill"), "NotFound"),
        (("verify", "softmax-resident", "--problem", "nowhere.py"), "ProblemError"),
    ],
)
def test_what_is_not_there_is_named(library: Any, arguments: tuple[str, ...], error: str) -> None:
    result = library("skills", *arguments, "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == error


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_curated_skill_is_measured_again(library: Any) -> None:
    result = library("skills", "verify", "blocked-transpose", "--timing", "0.3", "--json")
    (skill,) = result.json["skills"]
    assert [record["status"] for record in skill["measured"]] == ["correct"]
    assert result.code == (0 if skill["holds"] else 1)
    evidence = library("skills", "show", "blocked-transpose", "--json").json["evidence"]
    assert "verify" in {record["origin"] for record in evidence}
