"""`query` with a diagnosis, with a configured model, and without."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("KERNELEVOLVE_SHARED") or Path(__file__).resolve().parents[3] / "shared")
KERNEL = {
    "name": "transpose",
    "duration_us": 900.0,
    "bottleneck": "memory",
    "evidence": ["global loads use 8 of 32 bytes of each sector: the access is not coalesced"],
    "actions": ["let neighbouring threads load neighbouring addresses"],
    "target": "nvidia:sm_90",
}
OTHER = {**KERNEL, "name": "tiny", "duration_us": 2.0, "launches": 3, "bottleneck": "overhead"}


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_a_diagnosis_is_asked_in_parts(library: Any, tmp_path: Path) -> None:
    report = write(tmp_path / "report.json", {"schema_version": 1, "format": "f", "kernels": [OTHER, KERNEL]})
    answer = library("query", "--diagnosis", report, "-k", "4", "--json").json
    assert answer["diagnosis"] == {
        "kernel": "transpose", "bottleneck": "memory", "target": "nvidia:sm_90", "other_kernels": 1,
    }  # fmt: skip
    assert len(answer["hits"]) == 4
    purposes = {entry["purpose"] for hit in answer["hits"] for entry in hit["why"]["asked"]}
    assert purposes == {"bottleneck: memory", "evidence", "suggested action"}
    assert all(hit["why"]["target"] == "nvidia:sm_90" for hit in answer["hits"])
    human = library("query", "coalescing", "--diagnosis", report, "--target", "cpu", "-k", "2")
    assert human.code == 0
    assert "asking about memory of transpose" in human.err
    assert "1 other kernel in the file takes less time" in human.err
    assert "   for: " in human.out


@pytest.mark.parametrize("wrapped", [KERNEL, {"schema_version": 1, "status": "correct", "diagnosis": KERNEL}])
def test_one_diagnosis_in_a_file_is_enough(library: Any, tmp_path: Path, wrapped: Any) -> None:
    answer = library("query", "--diagnosis", write(tmp_path / "d.json", wrapped), "-k", "1", "--json").json
    assert answer["diagnosis"]["kernel"] == "transpose"


@pytest.mark.skipif(not SHARED.is_dir(), reason="no sample traces beside the repository")
def test_a_trace_is_diagnosed_first(library: Any) -> None:
    trace = SHARED / "traces" / "ncu" / "h200_raw.csv"
    answer = library("query", "--diagnosis", trace, "-k", "2", "--json").json
    assert answer["diagnosis"]["bottleneck"]
    assert answer["hits"]


@pytest.mark.parametrize(
    "content", ["{}", '{"traceEvents": 1', "no profile", '{"format": "f", "kernels": []}', "[]"]
)
def test_what_is_no_diagnosis_is_refused(library: Any, tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    result = library("query", "--diagnosis", path, "--json")
    assert result.code == 2
    assert result.json["error"]["hint"]


def test_an_empty_diagnosis_and_a_missing_file_are_refused(library: Any, tmp_path: Path) -> None:
    empty = write(tmp_path / "d.json", {"bottleneck": "unknown", "evidence": []})
    assert "nothing to ask" in library("query", "--diagnosis", empty, "--json").json["error"]["message"]
    assert library("query", "in words", "--diagnosis", empty, "--json").code == 0
    assert library("query", "--diagnosis", tmp_path / "none.json", "--json").code == 2
    assert library("query", "--json").code == 2


def test_a_configured_model_helps_and_can_be_left_out(
    library: Any, chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = chat_server(lambda _: '{"queries": ["softmax rows"], "ranking": [3, 1]}')
    monkeypatch.setenv("KERNELEVOLVE_CHAT_MODEL", "openai:m")
    monkeypatch.setenv("KERNELEVOLVE_CHAT_BASE_URL", server.url)
    plain = library("query", "keep a row resident", "-k", "3", "--no-rerank", "--json").json
    assert server.prompts == []
    assert "refined" not in plain
    refined = library("query", "keep a row resident", "-k", "3", "--json").json
    assert refined["refined"] == {
        "rewritten_by": "openai:m", "rewritten": ["softmax rows"], "reranked_by": "openai:m",
    }  # fmt: skip
    assert refined["hits"][0]["why"]["rerank"] == {"by": "openai:m", "place": 1, "before": 3}
    assert "reranked by openai:m" in library("query", "keep a row resident", "-k", "1").err


def test_a_model_that_does_not_answer_is_an_error(
    library: Any, chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELEVOLVE_CHAT_MODEL", "openai:m")
    monkeypatch.setenv("KERNELEVOLVE_CHAT_BASE_URL", chat_server(lambda _: 401).url)
    result = library("query", "keep a row resident", "--json")
    assert (result.code, result.json["error"]["type"]) == (3, "RefinementFailed")
    assert "--no-rerank" in result.json["error"]["hint"]
    assert library("query", "keep a row resident", "--no-rerank", "--json").code == 0
