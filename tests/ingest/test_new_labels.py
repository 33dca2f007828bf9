from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest import ingest_paths
from kb import KnowledgeBase


def test_a_label_is_compared_once_however_many_documents_have_it(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ingest.labels

    asked: list[str] = []
    compare = ingest.labels.confirm_new

    def counting(label: str, stored: Any) -> str | None:
        asked.append(label)
        return compare(label, stored)

    monkeypatch.setattr(ingest.labels, "confirm_new", counting)
    for i in range(30):
        (tmp_path / f"{i}.md").write_text(
            f"---\nscope: {'tensorrent' if i % 2 else 'nvidia'}\n---\n# {i}\n\nText.\n"
        )
    report = ingest_paths(kb, [tmp_path])
    assert sorted(asked) == ["nvidia", "tensorrent"]
    assert [note["notes"][0].split(" (")[0] for note in report.notes] == [
        "scope tensorrent is new here; did you mean tenstorrent?"
    ]
