"""`kernelevolve exchange`: the commands with which a person or a coding agent plays the model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from agent.exchange import ExchangeFolder, Pending

PROMPT = "Write a kernel.\n\x1b[2J"
FILE = "class ModelNew:\n    pass\n"


@pytest.fixture
def folder(home: Path) -> ExchangeFolder:
    exchange = ExchangeFolder(home / "exchange")
    exchange.create()
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": PROMPT}]
    for step in (1, 2):
        exchange.post(
            Pending(f"r-000{step}-1-aaaa", "r", step, 1, "softmax", "cpu", 7, f"2026-01-0{step}", messages)
        )
    return exchange


def test_pending_show_and_answer(cli: Any, folder: ExchangeFolder, tmp_path: Path) -> None:
    document = cli("exchange", "pending", "--json").json
    assert [entry["id"] for entry in document["pending"]] == ["r-0001-1-aaaa", "r-0002-1-aaaa"]
    first = document["pending"][0]
    assert Path(first["prompt_path"]).read_text().endswith(PROMPT)
    assert "r-0002-1-aaaa" in cli("exchange", "pending").out
    assert cli("exchange", "show", "r-0001").out == PROMPT + "\n" if not PROMPT.endswith("\n") else PROMPT
    shown = cli("exchange", "show", "r-0001", "--json").json
    assert shown["prompt"] == PROMPT
    assert [m["role"] for m in shown["messages"]] == ["system", "user"]

    kernel = tmp_path / "kernel.py"
    kernel.write_text(FILE)
    answered = cli("exchange", "answer", "r-0001", kernel, "--json").json
    assert answered["path"] in first["answer_paths"]
    assert Path(answered["path"]).read_text() == FILE
    assert cli("exchange", "show").out.startswith("Write a kernel."), "one is left: it needs no id"
    assert cli("exchange", "answer", "r-0002", "--refuse", "no time").code == 0
    assert json.loads((folder.answers / "r-0002-1-aaaa.json").read_text()) == {"refused": "no time"}
    assert cli("exchange", "pending", "--json").json["pending"] == []
    assert "no prompt waits" in cli("exchange", "pending").out


def test_an_answer_from_standard_input(
    cli: Any, folder: ExchangeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(FILE))
    assert cli("exchange", "answer", "r-0001", "-").code == 0
    assert (folder.answers / "r-0001-1-aaaa.md").read_text() == FILE


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("show",), "2 prompts are pending"),
        (("show", "x"), "no prompt of id 'x' is pending"),
        (("answer", "r-0001"), "give either a FILE or --refuse WHY"),
        (("answer", "r-0001", "nowhere.md"), "answer file not found"),
        (("answer", "r-0001", "{json}"), "not JSON with `answer`"),
    ],
)
def test_what_is_wrong_is_one_line(
    cli: Any, folder: ExchangeFolder, tmp_path: Path, argv: tuple[str, ...], said: str
) -> None:
    (tmp_path / "a.json").write_text('{"text": "x"}')
    result = cli("exchange", *(str(tmp_path / "a.json") if a == "{json}" else a for a in argv), "--json")
    assert result.code == 2
    assert said in result.json["error"]["message"]


def test_another_folder(cli: Any, tmp_path: Path) -> None:
    assert (
        cli("exchange", "pending", "--dir", tmp_path / "other", "--wait", "0.3", "--json").json["pending"]
        == []
    )
