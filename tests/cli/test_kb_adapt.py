"""`kernelevolve kb adapt` from the command line; what it learns is tested in tests/kb."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer

from ingest import ingest_paths
from kb import KnowledgeBase, Settings
from kb.embedding import load_embedder


@pytest.fixture
def stocked(home: Path, tmp_path: Path) -> Path:
    """A document in the home, without the curated library."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Tiles\n\n" + "A tile is read twice by the second pass. " * 20)
    with KnowledgeBase.open(Settings(home=home)) as kb:
        ingest_paths(kb, [tmp_path / "notes"])
    return home


@pytest.mark.parametrize("content", [b"", b"\x02\0\0\0\0\0\0\0[]"], ids=["empty", "list"])
def test_a_damaged_adapter_is_named_and_undone(cli: Any, stocked: Path, content: bytes) -> None:
    file = stocked / "adapters" / f"{load_embedder().model_id}.safetensors"
    file.write_bytes(content)
    refused = cli("query", "tiles", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (3, "EmbeddingFailed")
    assert str(file) in refused.json["error"]["message"]
    assert "kb adapt --undo" in refused.json["error"]["hint"]
    assert cli("kb", "adapt", "--undo", "--json").json["removed"] == str(file)
    assert cli("kb", "stats", "--json").json["embedding"]["runtime"] == "onnxruntime, adapted"
    assert cli("kb", "adapt", "--undo", "--json").json["removed"] is None


def test_nothing_is_asked_for_a_model_that_cannot_be_adapted(
    cli: Any, home: Path, chat_server: Callable[..., ChatServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = chat_server(lambda _: json.dumps({"questions": []}))
    monkeypatch.setenv("KERNELEVOLVE_CHAT_MODEL", "openai:m")
    monkeypatch.setenv("KERNELEVOLVE_CHAT_BASE_URL", server.url)
    monkeypatch.setenv("KERNELEVOLVE_EMBEDDING_MODEL", "openai:e")
    refused = cli("kb", "adapt", "--ask", "20", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (3, "EmbeddingFailed")
    assert "only a model in files" in refused.json["error"]["message"]
    assert server.prompts == []
