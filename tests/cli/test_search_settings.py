"""Every option of `search` reaches the settings that are stored with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import SettingsInvalid
from agent.settings import SearchSettings

OPTIONS: dict[str, tuple[list[str], Any]] = {
    "policy": (["--policy", "mcts"], "mcts"),
    "drafts": (["--drafts", "7"], 7),
    "steps": (["--steps", "9"], 9),
    "time_limit_s": (["--time-limit", "77"], 77.0),
    "patience": (["--patience", "5"], 5),
    "target_speedup": (["--target-speedup", "3.5"], 3.5),
    "max_tokens": (["--max-tokens", "1234"], 1234),
    "max_cost_usd": (["--max-cost", "0.5"], 0.5),
    "near_roofline": (["--near-roofline", "0.9"], 0.9),
    "concurrency": (["--concurrency", "3"], 3),
    "seed": (["--seed", "11"], 11),
    "budget_tokens": (["--budget-tokens", "9000"], 9000),
    "cascade": (["--no-cascade"], False),
    "profile": (["--profile", "deep"], "deep"),
    "tune": (["--tune", "4"], 4),
    "warm_start": (["--warm-start", "adaptive"], "adaptive"),
    "earlier_runs": (["--earlier-runs"], True),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[SearchSettings]:
    """The settings of searches, which begin nothing."""
    found: list[SearchSettings] = []

    def begin(_self: Any, _kb: Any, _executor: Any, settings: SearchSettings, **_: Any) -> None:
        found.append(settings)
        raise SettingsInvalid("far enough")

    monkeypatch.setattr("agent.search.Search.__init__", begin)
    return found


def test_options_reach_the_settings(cli: Any, told: list[SearchSettings], tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text("")
    every = [argument for arguments, _ in OPTIONS.values() for argument in arguments]
    assert cli("search", problem, "--json").code == cli("search", problem, "--json", *every).code == 2
    plain, asked = told
    assert {name: getattr(asked, name) for name in OPTIONS} == {n: value for n, (_, value) in OPTIONS.items()}
    assert all(getattr(plain, name) != getattr(asked, name) for name in OPTIONS), "each one changes something"
    assert SearchSettings.from_json(asked.to_json()) == asked
