"""What a person sees while a search runs."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from agent import events as ev
from agent.graph import SearchNode
from cli.search_progress import SearchProgress


def node(step: int, status: str, speedup: float | None = None, *, compiler: bool = False) -> SearchNode:
    return SearchNode(
        node_id=f"r-{step:04d}",
        parent_id="r-0000",
        step=step,
        generator="recipe",
        source_sha="",
        digest=str(step),
        status=status,
        speedup=speedup,
        speedup_ci=(speedup - 0.1, speedup + 0.1) if speedup else None,
        hypothesis="wider vectors\nhalve the number of loads \x1b[2J",
        compiler_made=compiler,
    )


def watch(progress: SearchProgress) -> None:
    seed, broken, best = (
        node(1, "correct", 1.2, compiler=True),
        node(2, "compile_error"),
        node(3, "correct", 1.8),
    )
    for event in (
        ev.RunStarted("run-1", "softmax", "cpu", 0, 8, 60.0, 12.5, False),
        ev.StepStarted(1, None, "draft"),
        ev.PromptReady(1, 5000, 9, 1),
        ev.Generated(1, "the compiler's code"),
        ev.Evaluated(1, seed, True, seed, 5.0),
        ev.Evaluated(2, broken, False, seed, 9.0),
        ev.Evaluated(3, best, True, best, 14.0),
        ev.Skipped(4, "duplicate", "the same program as step 3", 14.5),
    ):
        progress.on_event(event)


def test_one_plain_line_per_step_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchProgress() as progress:
        watch(progress)
        progress.on_event(ev.Verifying(node(3, "correct", 1.8)))
        progress.on_event(ev.Writing(5, 1200))
        progress.on_event(ev.Noted(5, "openai:m is asked again in 8 s: busy \x1b[2J"))
    out, text = capsys.readouterr()
    assert out == ""
    lines = text.splitlines()
    assert lines[0] == "run run-1: softmax on cpu, eager 12.5 ms"
    assert [line.split(":")[0] for line in lines[1:5]] == [f"step {n}/8" for n in (1, 2, 3, 4)]
    assert "best 1.20x (compiler)" in lines[1]
    assert "compile_error" in lines[2]
    assert "1.80x [1.70, 1.90] *best*" in lines[3]
    assert "2 correct" in lines[3]
    assert "duplicate: the same program as step 3" in lines[4]
    assert all("left" in line for line in lines[1:5])
    assert "step 3" in lines[5]
    assert lines[6].startswith("step 5: openai:m is asked again in 8 s")
    assert len(lines) == 7, "what is being written is no line"
    assert "\x1b" not in text


def test_live_display_on_a_terminal(monkeypatch: Any) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr("cli.search_progress.err", lambda: console)
    with SearchProgress() as progress:
        watch(progress)
        progress.activity("step 5: judging")
        progress._progress.refresh()
        shown = screen.getvalue()
    for expected in ("4/8 steps", "best 1.80x", "2 correct", "left", "step 5: judging"):
        assert expected in shown
    assert "\x1b[2J" not in shown


def test_time_left_is_bounded_by_limit_and_pace(monkeypatch: Any) -> None:
    clock = [100.0]
    monkeypatch.setattr("cli.search_progress.time.monotonic", lambda: clock[0])
    with SearchProgress() as progress:
        assert progress.seconds_left() is None
        progress.on_event(ev.RunStarted("r", "p", "cpu", 0, 10, 60.0, None, False))
        assert progress.seconds_left() == 60.0
        clock[0] = 102.0
        progress.on_event(ev.Evaluated(1, node(1, "correct", 2.0), True, None, 2.0))
        assert progress.seconds_left() == pytest.approx(18.0)  # nine steps of two seconds
        clock[0] = 103.0
        assert progress.seconds_left() == pytest.approx(17.0)


def test_a_resumed_run_counts_what_is_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchProgress() as progress:
        progress.on_event(ev.RunStarted("r", "p", "cpu", 5, 10, None, None, True))
        progress.on_event(ev.Evaluated(6, node(6, "correct", 2.0), True, node(6, "correct", 2.0), 30.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("resuming r")
    assert lines[1].startswith("step 6/10")
