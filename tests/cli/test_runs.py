"""`kernelevolve runs` on a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

RUN_KEYS = {"run_id", "problem", "target", "state", "steps", "best_speedup", "created"}
NODE_KEYS = {"node_id", "parent_id", "status", "speedup", "step", "generator"}


def test_list_is_empty_at_first(cli: Any) -> None:
    assert cli("runs", "list", "--json").json["runs"] == []
    assert "no runs yet" in cli("runs", "list").out


def test_list(cli: Any, stored_run: str) -> None:
    (run,) = cli("runs", "list", "--json").json["runs"]
    assert run.keys() >= RUN_KEYS
    assert (run["run_id"], run["steps"], run["best_speedup"]) == (stored_run, 5, 2.5)
    human = cli("runs", "list")
    assert human.code == 0
    assert stored_run in human.out
    assert "2.50x" in human.out


def test_show(cli: Any, stored_run: str) -> None:
    document = cli("runs", "show", stored_run, "--json").json
    assert document["run_id"] == stored_run
    assert document["state"] == "finished"
    assert [node["step"] for node in document["nodes"]] == [1, 2, 3, 4]
    assert all(node.keys() >= NODE_KEYS for node in document["nodes"])
    human = cli("runs", "show", "run-a")
    assert human.code == 0
    assert "2.50 times as fast as eager" in human.out
    assert "keep the row | <resident>" in human.out


@pytest.mark.parametrize("format", ["html", "md"])
def test_report_goes_where_it_is_told(cli: Any, stored_run: str, tmp_path: Path, format: str) -> None:
    target = tmp_path / "new" / "folder" / f"r.{format}"
    document = cli("runs", "report", stored_run, "--format", format, "--out", target, "--json").json
    assert Path(document["path"]) == target
    assert "2.50 times as fast as eager" in target.read_text()
    assert list(target.parent.iterdir()) == [target]


def test_report_lies_beside_the_run_by_default(cli: Any, stored_run: str, home: Path) -> None:
    result = cli("runs", "report", stored_run)
    assert result.out.strip() == str(home / "runs" / stored_run / "report.html")
    assert (home / "runs" / stored_run / "report.html").is_file()


def test_replay_makes_the_decisions_again(cli: Any, home: Path, tmp_path: Path) -> None:
    from agent.settings import SearchSettings
    from agent.store import RunStore
    from kb import KnowledgeBase, Settings

    decisions = [
        {"step": 1, "parent_id": None, "memory": "none", "selected": "independent draft", "pending": []},
        {"step": 2, "parent_id": None, "memory": "none", "selected": "independent draft", "pending": [1]},
    ]
    with KnowledgeBase.open(Settings()) as kb:
        store = RunStore(kb)
        store.create("run-x", "p", "the problem", {"eager_ms": None}, SearchSettings(problem="p.py"))
        for seq, payload in enumerate(decisions):
            store.ask("run-x", seq, seq + 1, payload)
        store.release("run-x")
    result = cli("runs", "replay", "run-x", "--json")
    assert (result.code, result.json["asked"], result.json["divergences"]) == (0, 2, [])
    assert "follows from its log: 2 decisions" in cli("runs", "replay", "run-x").out
    with KnowledgeBase.open(Settings()) as kb:
        RunStore(kb).ask("run-x", 2, 3, {**decisions[1], "step": 3, "selected": "a whim", "pending": [1, 2]})
    result = cli("runs", "replay", "run-x")
    assert result.code == 1
    assert "step 3: selection is" in result.out


@pytest.mark.parametrize("command", ["show", "report", "replay"])
def test_unknown_run(cli: Any, stored_run: str, command: str) -> None:
    result = cli("runs", command, "nope", "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == "RunNotFound"
    assert cli("runs", command, "nope").code == 2


def test_report_that_cannot_be_written(cli: Any, stored_run: str) -> None:
    result = cli("runs", "report", stored_run, "--out", "/proc/nope/report.html", "--json")
    assert result.code in (2, 3)
    assert "/proc/nope" in result.json["error"]["message"]


def test_stored_escape_sequences_do_not_reach_the_terminal(cli: Any, stored_run: str) -> None:
    from sqlmodel import select

    from kb import KnowledgeBase, Settings
    from kb.tables import Node

    with KnowledgeBase.open(Settings()) as kb, kb.session() as session:
        node = session.exec(select(Node).where(Node.step == 3)).one()
        node.hypothesis = "wipe \x1b[2J the screen"
        session.add(node)
        session.commit()
    assert "\x1b" not in cli("runs", "show", stored_run).out


def test_export_writes_what_may_leave(cli: Any, stored_run: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "pairs.jsonl"
    document = cli("runs", "export", "last", "--format", "sft", "--out", target, "--json").json
    assert document["records"] == len(target.read_text().splitlines()) > 0
    assert document["left_out"] == {"local-only": 1}
    assert document["runs"] == [stored_run]
    human = cli("runs", "export", stored_run, "--format", "sft", "--out", target)
    assert (human.code, human.out.strip()) == (0, str(target))
    assert "steps left out: local-only 1" in human.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--format", "sft", "--licence", "MIT"), "NothingToExport"),
        (("--format", "csv"), "UsageError"),
        (("--format", "dpo", "--margin", "-1"), "UsageError"),
    ],
)
def test_export_that_cannot_be(
    cli: Any, stored_run: str, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    result = cli("runs", "export", stored_run, *arguments, "--out", tmp_path / "x", "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == error
    assert not (tmp_path / "x").exists()
