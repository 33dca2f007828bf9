"""Reports: complete, self-contained, escaped, and free of what must stay on this machine."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cli.chart import progress_chart, search_tree
from cli.report import PRIVATE, collect, render
from cli.verdict import verdict
from kb import KnowledgeBase, Settings


class Page(HTMLParser):
    """What a browser would load, run and show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "action")]
        if tag not in ("meta", "br", "line", "circle", "path", "polyline", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "path", "polyline", "rect"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def contents(stored_run: str) -> dict[str, Any]:
    with KnowledgeBase.open(Settings()) as kb:
        return collect(kb, stored_run)


def test_page_is_self_contained(contents: dict[str, Any]) -> None:
    page = Page(render(contents))
    assert not set(page.tags) & {"script", "link", "img", "iframe", "object", "b-"}
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert not page.open


def test_stored_text_cannot_break_the_page(contents: dict[str, Any]) -> None:
    page = Page(render(contents))
    assert '"</script><b>bold</b><img src=https://evil.example/x>"' in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "error: </pre><b>x" in page.text
    assert "r<1>" in page.text


def test_every_link_has_its_target(contents: dict[str, Any]) -> None:
    text = render(contents)
    for link in set(Page(text).links):
        assert f'id="{link[1:]}"' in text


def test_page_tells_the_whole_run(contents: dict[str, Any]) -> None:
    text = Page(render(contents)).text
    for expected in (
        "2.50x",
        "[2.40, 2.60]",
        "2.00x",
        "g++ failed",
        "Test CPU",
        "the problem",
        "Keep the row <resident>.",
    ):
        assert expected in text


@pytest.mark.parametrize("format", ["html", "md"])
def test_local_only_passages_stay_here(contents: dict[str, Any], format: str) -> None:
    text = render(contents, format)
    assert "the secret tiling" not in text
    assert "/secret/" not in text


def test_what_local_only_passages_shaped_stays_here(contents: dict[str, Any]) -> None:
    nodes = {n["step"]: n for n in contents["nodes"]}
    assert [nodes[4][key] for key in ("hypothesis", "source", "diff", "log")] == [PRIVATE, PRIVATE, [], ""]
    assert nodes[4]["flags"] == [{"rule": "r<1>", "severity": "error", "detail": ""}]
    assert nodes[3]["source"].startswith("# step 3")
    assert nodes[3]["diff"]


def test_winner_and_verdict(contents: dict[str, Any]) -> None:
    assert contents["best"]["step"] == 3
    assert contents["correct"] == 2
    assert contents["verdict"].level == "good"
    assert "2.00 times as fast as torch.compile" in contents["verdict"].text


def test_markdown_table_survives_hostile_cells(contents: dict[str, Any]) -> None:
    lines = render(contents, "md").splitlines()
    row = next(line for line in lines if line.startswith("| 3 |"))
    assert row.count("|") - row.count("\\|") == 7
    assert "<resident>" not in row


def _candidate(
    status: str, speeds: dict[str, tuple[float, float, float]], *, compiler: bool = False
) -> dict[str, Any]:
    named = {k: dict(zip(("speedup", "lo", "hi"), v, strict=True)) for k, v in speeds.items()}
    return {"status": status, "compiler_made": compiler, "evaluation": {"speedups": named}}


FAST, SLOW, UNSURE = (2.0, 1.9, 2.1), (0.8, 0.7, 0.9), (1.1, 0.9, 1.3)


@pytest.mark.parametrize(
    ("best", "level", "words"),
    [
        (None, "bad", "No correct kernel"),
        (
            _candidate("correct", {"eager": FAST, "compile": FAST}, compiler=True),
            "warn",
            "Only the compiler's own",
        ),
        (_candidate("correct", {}), "warn", "not timed"),
        (_candidate("correct", {"eager": UNSURE}), "warn", "not measurably faster than eager"),
        (_candidate("correct", {"eager": SLOW}), "warn", "slower than eager"),
        (_candidate("correct", {"eager": FAST, "compile": SLOW}), "warn", "no better than the compiler"),
        (
            _candidate("correct", {"eager": FAST, "compile": UNSURE}),
            "warn",
            "not measurably faster than torch",
        ),
        (_candidate("correct", {"eager": FAST}), "good", "torch.compile was not measured"),
        (_candidate("correct", {"eager": FAST, "compile": FAST}), "good", "as fast as torch.compile"),
    ],
)
def test_a_run_claims_only_what_was_measured(best: dict[str, Any] | None, level: str, words: str) -> None:
    judged = verdict([best] if best else [], best)
    assert judged.level == level
    assert words in judged.text


def test_compilers_code_ahead_of_others_is_no_win() -> None:
    best = _candidate("correct", {"eager": FAST, "compile": FAST}, compiler=True)
    assert "No better than the compiler" in verdict([best, _candidate("correct", {"eager": SLOW})], best).text


def test_report_of_a_run_without_any_step(home: Path) -> None:
    from agent.settings import SearchSettings
    from agent.store import RunStore

    with KnowledgeBase.open(Settings()) as kb:
        RunStore(kb).create("empty", "p", "the problem", {"eager_ms": None}, SearchSettings(problem="p.py"))
        contents = collect(kb, "empty")
    assert "No correct kernel" in render(contents)
    assert "No correct kernel" in render(contents, "md")


def test_steps_without_candidate_are_told(contents: dict[str, Any]) -> None:
    text = Page(render(contents)).text
    assert "1 step led to no candidate" in text
    assert "duplicate: the same program as step 3" in text


def _line(count: int) -> list[dict[str, Any]]:
    return [
        {"node_id": str(i), "parent_id": str(i - 1) if i else None, "step": i + 1, "status": "correct",
         "good": True, "compiler_made": False, "vs_eager": {"value": 1 + i / count, "lo": None, "hi": None}}
        for i in range(count)
    ]  # fmt: skip


def test_tree_of_a_lineage_longer_than_the_stack() -> None:
    import cli.chart

    limit = cli.chart.MAX_TREE_NODES
    tree = search_tree(_line(limit))
    assert tree is not None
    assert len(tree["edges"]) == limit
    assert search_tree(_line(limit + 1)) is None


def test_best_line_never_falls() -> None:
    nodes = _line(4)
    nodes[2]["vs_eager"] = {"value": 0.5, "lo": 0.4, "hi": 0.6}
    chart = progress_chart(nodes, 1.5)
    assert chart is not None
    heights = [float(pair.split(",")[1]) for pair in chart["best"].split()]
    assert heights == sorted(heights, reverse=True)
    assert {r["label"] for r in chart["references"]} == {"eager", "torch.compile"}
