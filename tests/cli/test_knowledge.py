"""`init`, `ingest`, `query` and `skills` against the real curated library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

INGEST_KEYS = {"added", "updated", "unchanged", "removed", "failed", "needs_ocr", "chunks", "elapsed_s"}
HIT_KEYS = {
    *("rank", "score", "kind", "source", "path", "section", "page", "start_line", "end_line"),
    *("text", "citation", "chunk_id", "why"),
}


def test_init_reads_the_library_once(library: Any) -> None:
    again = library("init", "--json").json
    assert again["library"]["added"] == 0
    assert again["stats"]["counts"]["document"] > 12
    human = library("init")
    assert human.code == 0
    assert "nothing changed" in human.out


def test_query(library: Any) -> None:
    document = library(
        "query", "keep a row resident between two passes", "--target", "cpu", "-k", "3", "--json"
    ).json
    assert set(document) == {"schema_version", "query", "elapsed_ms", "hits"}
    assert len(document["hits"]) == 3
    assert all(set(hit) == HIT_KEYS for hit in document["hits"])
    assert [hit["rank"] for hit in document["hits"]] == [1, 2, 3]
    human = library("query", "keep a row resident between two passes", "-k", "1", "--target", "cpu")
    assert document["hits"][0]["citation"] in human.out


def test_a_query_with_what_is_no_text(library: Any) -> None:
    odd = "\udcff"  # how Python gets an argument that is not UTF-8
    found = library("query", f"softmax{odd} rows", "-k", "2", "--json")
    assert (found.code, len(found.json["hits"])) == (0, 2)
    assert library("query", f"softmax{odd} rows", "-k", "1").code == 0
    assert library("query", "softmax", "--target", f"nvidia{odd}", "--json").code == 2
    assert library("kb", "open", odd, "--json").json["error"]["type"] == "NotFound"
    assert library("kb", "scope", odd, "nvidia", "--json").json["error"]["type"] == "NotFound"
    assert library("kb", "remove", odd, "--json").json["error"]["type"] == "NotFound"
    assert library("skills", "show", odd, "--json").json["error"]["type"] == "NotFound"


def test_query_keeps_to_the_kind(library: Any) -> None:
    hits = library("query", "softmax", "--kind", "skill", "--json").json["hits"]
    assert hits
    assert {hit["kind"] for hit in hits} == {"skill"}


def test_skills(library: Any) -> None:
    skills = library("skills", "list", "--target", "cpu", "--json").json["skills"]
    assert len(skills) >= 10
    name = skills[0]["name"]
    shown = library("skills", "show", name, "--json").json
    assert shown["name"] == name
    assert shown["spec"]
    assert isinstance(shown["evidence"], list)
    human = library("skills", "show", name)
    assert human.code == 0
    assert name in human.out
    assert "evidence" in human.out
    assert name in library("skills", "list").out


def test_unknown_skill(library: Any) -> None:
    result = library("skills", "show", "nope", "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == "NotFound"


def test_ingest_and_find(library: Any, tmp_path: Path) -> None:
    (tmp_path / "zebra.md").write_text(
        "# Zebra stripes\n\nInterleave the zebra stripes across the memory channels.\n"
    )
    document = library("ingest", tmp_path, "--scope", "cpu", "--json").json
    assert document.keys() >= INGEST_KEYS
    assert (document["added"], document["failed"]) == (1, [])
    assert library("ingest", tmp_path, "--scope", "cpu", "--json").json["unchanged"] == 1
    hits = library("query", "zebra stripes", "--target", "cpu", "-k", "1", "--json").json["hits"]
    assert hits[0]["citation"].endswith("zebra.md:1-3") or "zebra.md" in hits[0]["citation"]
    assert library("query", "zebra stripes", "--target", "nvidia:sm_90", "--json").json["hits"][:1] != hits


def test_a_file_that_cannot_be_read_does_not_stop_the_others(library: Any, tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# Good\n\nA paragraph about tiling.\n")
    (tmp_path / "bad.md").write_bytes(os.urandom(4096))
    (tmp_path / "empty.md").write_text("")
    result = library("ingest", tmp_path, "--json")
    assert result.code == 1
    assert result.json["added"] == 1
    assert {Path(f["path"]).name for f in result.json["failed"]} == {"bad.md", "empty.md"}
    human = library("ingest", tmp_path)
    assert human.code == 1
    assert "bad.md" in human.err


@pytest.mark.parametrize("argv", [("ingest", "/no/such/path"), ("ingest", "."), ("query", "x", "-k", "0")])
def test_wrong_input(cli: Any, argv: tuple[str, ...], tmp_path: Path) -> None:
    if argv[-1] == ".":
        argv = ("ingest", str(tmp_path), "--visibility", "secret")
    result = cli(*argv, "--json")
    assert result.code == 2
    assert set(result.json["error"]) == {"type", "message", "hint"}
