"""Training data: nothing of later steps, nothing that must stay here, the same bytes every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import RUN, Recorder, verdict

from agent.errors import NothingToExport, RunNotFound, SettingsInvalid
from agent.export import export_runs
from agent.parsing import parse_answer
from ingest import ingest_paths
from kb import KnowledgeBase


@pytest.fixture
def run(kb: KnowledgeBase) -> Recorder:
    """1 and 2 are drafts, 3 and 4 come from 2, 5 from 3 and 6 from 5; 4 and 6 fail."""
    recorder = Recorder(kb)
    recorder.step(0, verdict(None, "compile_error"))
    recorder.step(0, verdict(1.2))
    recorder.step(2, verdict(1.5))
    recorder.step(2, verdict(None, "incorrect"))
    recorder.step(3, verdict(2.0))
    recorder.step(5, verdict(None, "timeout"))
    return recorder


def export(kb: KnowledgeBase, format: str, tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
    path = tmp_path / f"{format}.jsonl"
    export_runs(kb, [RUN], format, path, **options)
    return [json.loads(line) for line in path.read_text().splitlines()]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [m["content"] for m in messages]


def test_a_trajectory_is_the_path_to_a_correct_candidate(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path
) -> None:
    (record,) = export(kb, "sft", tmp_path)
    assert [o["step"] for o in record["outcomes"]] == [2, 3, 5]
    assert [m["role"] for m in record["messages"]] == ["user", "assistant"] * 3
    assert texts(record["messages"])[0::2] == ["prompt of step 2", "prompt of step 3", "prompt of step 5"]
    parsed = parse_answer(record["messages"][-1]["content"])
    assert (parsed.source, parsed.hypothesis) == ("class ModelNew:\n    X = 5\n", "idea 5")


def test_a_failure_on_the_way_is_not_to_be_learnt(kb: KnowledgeBase, tmp_path: Path) -> None:
    run = Recorder(kb)
    run.step(0, verdict(None, "incorrect"))
    run.step(1, verdict(1.3))
    (record,) = export(kb, "openai", tmp_path)
    assert set(record) == {"messages"}
    assert [m.get("weight") for m in record["messages"]] == [None, 0, None, 1]


def test_the_state_is_that_before_the_step(kb: KnowledgeBase, run: Recorder, tmp_path: Path) -> None:
    (record,) = export(kb, "sft", tmp_path)
    assert record["states"] == [
        {
            "step": 2, "steps_done": 1, "valid": 0, "best_speedup": None, "best_step": None, "eager_ms": 2.0,
            "memory": "siblings", "parent": None,
        },
        {
            "step": 3, "steps_done": 2, "valid": 1, "best_speedup": 1.2, "best_step": 2, "eager_ms": 2.0,
            "memory": "siblings",
            "parent": {
                "step": 2, "status": "correct", "speedup": 1.2, "speedup_ci": [1.2 * 0.9, 1.2 * 1.1],
                "bottleneck": "memory",
            },
        },
        {
            "step": 5, "steps_done": 4, "valid": 2, "best_speedup": 1.5, "best_step": 3, "eager_ms": 2.0,
            "memory": "siblings",
            "parent": {
                "step": 3, "status": "correct", "speedup": 1.5, "speedup_ci": [1.5 * 0.9, 1.5 * 1.1],
                "bottleneck": "memory",
            },
        },
    ]  # fmt: skip


def test_what_was_in_flight_was_not_known(kb: KnowledgeBase, tmp_path: Path) -> None:
    run = Recorder(kb)
    run.step(0, verdict(1.2))
    run.ask(2)
    run.ask(3)
    run.step(0, verdict(1.9))
    run.step(1, verdict(1.5))
    states = {r["state"]["step"]: r["state"] for r in export(kb, "trl", tmp_path)}
    assert (states[3]["steps_done"], states[3]["best_speedup"]) == (1, 1.2)


@pytest.mark.parametrize("format", ["sft", "dpo", "grpo", "trl", "openai"])
def test_what_comes_later_changes_no_record(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path, format: str
) -> None:
    """More steps add records; those of before stay as they were."""
    before = export(kb, format, tmp_path)
    run.nothing(5)
    run.verify(5, verdict(1.7))
    run.step(0, verdict(9.0))
    run.finish(5)
    after = export(kb, format, tmp_path)
    if format == "grpo":  # a later sibling joins its group: what was there stays
        joined = after[0]
        for key in ("prompts", "completions", "rewards", "states", "outcomes"):
            joined[key] = joined[key][:2]
    assert [r for r in after if r in before] == before
    assert '"speedup": 1.7' not in json.dumps(after)


def test_pairs_have_the_gap_and_the_prompt_that_knew_neither(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path
) -> None:
    pairs = export(kb, "dpo", tmp_path)
    assert [(p["outcomes"]["chosen"]["step"], p["outcomes"]["rejected"]["step"]) for p in pairs] == [
        (2, 1),
        (3, 4),
    ]
    assert [p["prompt"][0]["content"] for p in pairs] == ["prompt of step 1", "prompt of step 3"]
    assert "X = 2" in pairs[0]["chosen"][0]["content"]
    assert "X = 1" in pairs[0]["rejected"][0]["content"]
    assert [p["margin"] for p in pairs] == [1.2, 1.5]
    assert [p["margin"] for p in export(kb, "dpo", tmp_path, margin=1.2)] == [1.5]  # above, not at
    run.step(2, verdict(1.55))
    assert {p["outcomes"]["rejected"]["step"] for p in export(kb, "dpo", tmp_path, margin=0.1)} == {1, 4}
    assert (7, 3) in {
        (p["outcomes"]["chosen"]["step"], p["outcomes"]["rejected"]["step"])
        for p in export(kb, "dpo", tmp_path, margin=0.04)
    }


def test_groups_have_measured_rewards(kb: KnowledgeBase, run: Recorder, tmp_path: Path) -> None:
    groups = export(kb, "grpo", tmp_path)
    assert [g["rewards"] for g in groups] == [[0.0, 1.2], [1.5, 0.0]]
    assert [[s["step"] for s in g["states"]] for g in groups] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("evaluation", "about"),
    [
        (verdict(None, "harness_error"), {}),
        (verdict(None, "compiled"), {}),
        ({"status": "correct", "timed": False}, {}),
        (verdict(3.0), {"compiler_made": True}),
    ],
)
def test_what_was_not_measured_is_no_reward(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path, evaluation: dict[str, Any], about: dict[str, Any]
) -> None:
    before = export(kb, "grpo", tmp_path), export(kb, "dpo", tmp_path)
    run.step(2, evaluation, **about)
    assert (export(kb, "grpo", tmp_path), export(kb, "dpo", tmp_path)) == before


def test_what_verification_refuted_is_no_example(kb: KnowledgeBase, run: Recorder, tmp_path: Path) -> None:
    run.verify(5, verdict(None, "incorrect"))
    (record,) = export(kb, "sft", tmp_path)
    assert [o["step"] for o in record["outcomes"]] == [2, 3]


def test_prompts_for_a_trainer_carry_their_problem_once(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path
) -> None:
    records = export(kb, "trl", tmp_path)
    assert [r["prompt"][0]["content"] for r in records] == [f"prompt of step {n}" for n in range(1, 7)]
    assert {(r["problem"], r["target"]) for r in records} == {("# problem", "cpu")}
    assert [r["base"] for r in records[:3]] == [None, None, "class ModelNew:\n    X = 2\n"]


def documents(kb: KnowledgeBase, tmp_path: Path, **texts: str) -> dict[str, tuple[str, str]]:
    """Ingest one folder for each text; (chunk id, citation) by name."""
    found = {}
    for name, text in texts.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.md").write_text(text)
        visibility = "local-only" if name.startswith("local") else None
        ingest_paths(kb, [folder], scope="cpu", visibility=visibility)
        (hit,) = [h for h in kb.query(text, k=20).hits if h.path.endswith(f"{name}.md")]
        found[name] = (hit.chunk_id, hit.citation)
    return found


def test_local_only_passages_and_what_they_shaped_never_leave(kb: KnowledgeBase, tmp_path: Path) -> None:
    chunks = documents(
        kb, tmp_path, local="# Tiling\nsecret tiles of seven", shared="# Rows\nkeep rows resident"
    )
    run = Recorder(kb)
    run.step(0, verdict(1.1), chunks=[chunks["shared"]])
    run.step(1, verdict(1.2), chunks=[chunks["local"]], source="class ModelNew:\n    SECRET = 7\n")
    run.step(2, verdict(1.5))  # its parent is shaped by it
    run.step(1, verdict(1.4))  # its prompt tells what step 2 tried
    run.step(1, verdict(1.3), memory="none")
    run.nothing(5, local_only=True)
    run.nothing(0, local_only=True, outcome="ideas", ideas=["tile by seven"])
    run.step(5, verdict(1.6))  # told of a step that quotes it
    run.step(0, verdict(1.7), memory="none", idea="tile by seven")
    for format in ("sft", "dpo", "grpo", "openai", "trl"):
        path = tmp_path / "out.jsonl"
        try:
            export_runs(kb, [RUN], format, path)
        except NothingToExport:
            continue
        text = path.read_text()
        assert "SECRET" not in text
        assert not any(f"prompt of step {n}" in text for n in (2, 3, 4, 8, 9)), format
    (record,) = export(kb, "sft", tmp_path)
    assert [o["step"] for o in record["outcomes"]] == [1, 5]


def test_a_source_that_became_local_only_stays_even_when_cut_anew(kb: KnowledgeBase, tmp_path: Path) -> None:
    chunks = documents(kb, tmp_path, shared="# Rows\nkeep rows resident")
    run = Recorder(kb)
    run.step(0, verdict(1.1), chunks=[chunks["shared"]])
    assert len(export(kb, "trl", tmp_path)) == 1
    (tmp_path / "shared" / "shared.md").write_text("# Rows\nanother text now\n")
    ingest_paths(kb, [tmp_path / "shared"], visibility="local-only")
    with pytest.raises(NothingToExport, match="nothing to export"):
        export(kb, "trl", tmp_path)


def test_licences_of_the_sources_decide(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "scoped").mkdir()
    (tmp_path / "scoped" / "kernelevolve-source.toml").write_text('licence = "BSD-3-Clause"\n')
    (tmp_path / "scoped" / "scoped.md").write_text("# Columns\nvendor text about columns\n")
    ingest_paths(kb, [tmp_path / "scoped"], scope="cpu")
    (hit,) = kb.query("vendor text about columns", k=5).hits
    chunks = documents(
        kb, tmp_path, mit="---\nlicense: MIT\n---\n# Rows\nkeep rows resident", none="# Warps\nnobody says"
    )
    run = Recorder(kb)
    run.step(0, verdict(1.1), chunks=[chunks["mit"]], memory="none")
    run.step(0, verdict(1.2), chunks=[(hit.chunk_id, hit.citation)], memory="none")
    run.step(0, verdict(1.3), chunks=[chunks["none"]], memory="none")
    run.step(1, verdict(1.4), memory="none")
    run.step(2, verdict(1.5), memory="none")

    def kept(*licences: str) -> list[int]:
        return [r["state"]["step"] for r in export(kb, "trl", tmp_path, licences=licences)]

    assert kept() == [1, 2, 3, 4, 5]
    assert kept("mit") == [1, 4]
    assert kept("MIT", "BSD-3-Clause") == [1, 2, 4, 5]
    assert [r["licences"] for r in export(kb, "trl", tmp_path)] == [
        ["MIT"], ["BSD-3-Clause"], ["unknown"], ["MIT"], ["BSD-3-Clause"]
    ]  # fmt: skip
    with pytest.raises(NothingToExport) as caught:
        kept("GPL-3.0-only")
    assert caught.value.hint == "steps left out: 5 licence"


@pytest.mark.parametrize("format", ["sft", "dpo", "grpo", "openai", "trl"])
def test_the_bytes_are_the_same_every_time(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path, format: str
) -> None:
    other = Recorder(kb, "run-2")
    other.step(0, verdict(1.2), source='class ModelNew:\n    T = """```"""\n')
    other.step(0, verdict(2.2))
    results = []
    for name in ("a", "b"):
        export_runs(kb, ["run-2", RUN, "run-2"], format, tmp_path / name)
        results.append((tmp_path / name).read_bytes())
    assert results[0] == results[1]
    lines = [json.loads(line) for line in results[0].decode().splitlines()]
    assert len(lines) > 1
    if format != "openai":
        assert [r["run_id"] for r in lines] == sorted((r["run_id"] for r in lines), reverse=True)


@pytest.mark.full
def test_trainers_take_the_lines_as_they_are(
    kb: KnowledgeBase, run: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trl = pytest.importorskip("trl", reason="trl is not installed: pip install -e '.[trl]'")
    from datasets import load_dataset

    for format, columns in (
        ("sft", {"messages"}),
        ("dpo", {"prompt", "chosen", "rejected"}),
        ("openai", {"messages"}),
        ("trl", {"prompt", "problem", "base", "target"}),
    ):
        export_runs(kb, [RUN], format, tmp_path / format)
        data = load_dataset(
            "json", data_files=str(tmp_path / format), split="train", cache_dir=str(tmp_path / "c")
        )
        assert set(data.column_names) >= columns
        assert trl.is_conversational(data[0])


def test_what_the_engine_added_is_no_answer_and_brings_its_sources(kb: KnowledgeBase, tmp_path: Path) -> None:
    chunks = documents(
        kb, tmp_path, local="# Tiling\nsecret tiles of seven", mit="---\nlicense: MIT\n---\n# Rows\nrows"
    )
    earlier = Recorder(kb, "run-0")
    earlier.step(0, verdict(1.1), chunks=[chunks["mit"]])
    earlier.step(0, verdict(1.1), chunks=[chunks["local"]], memory="none")
    run = Recorder(kb)
    run.step(0, verdict(1.3), memory="none", injected={"by": "warm-start", "node": "run-0-0001"})
    run.step(1, verdict(1.6), memory="none", injected={"by": "example", "node": "run-0-0001"})
    run.step(2, verdict(1.7), memory="none", injected={"by": "tune", "name": "BLOCK"})
    run.step(0, verdict(1.8), memory="none", injected={"by": "example", "node": "run-0-0002"})
    run.step(0, verdict(1.9), memory="none", injected={"by": "example", "node": "run-9-0001"})
    run.step(3, verdict(2.0), memory="none")
    records = export(kb, "trl", tmp_path)
    assert [(r["state"]["step"], r["licences"]) for r in records] == [
        (2, ["MIT"]),
        (5, ["unknown"]),
        (6, ["MIT"]),
    ]
    assert [[o["step"] for o in r["outcomes"]] for r in export(kb, "sft", tmp_path)] == [[5], [2, 6]]


def test_wrong_requests_write_nothing(kb: KnowledgeBase, run: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("kept")
    for error, runs, format, margin in (
        (SettingsInvalid, [RUN], "parquet", 0.1),
        (SettingsInvalid, [RUN], "dpo", float("nan")),
        (RunNotFound, [RUN, "nope"], "dpo", 0.1),
        (NothingToExport, [RUN], "dpo", 99.0),
    ):
        with pytest.raises(error):
            export_runs(kb, runs, format, path, margin=margin)
    assert path.read_text() == "kept"
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")] == []


def test_a_fence_in_the_source_does_not_end_the_answer(kb: KnowledgeBase, tmp_path: Path) -> None:
    run = Recorder(kb)
    source = 'class ModelNew:\n    """```\n    text\n    ```"""\n'
    run.step(0, verdict(1.2), source=source)
    (record,) = export(kb, "sft", tmp_path)
    assert parse_answer(record["messages"][1]["content"]).source == source
