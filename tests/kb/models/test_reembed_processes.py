"""Preparing the next embedding model in processes that are killed or run in the background."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_vectors import vectors_of

from kb import KnowledgeBase, Settings
from kb.errors import StoreLocked
from kb.reembed import reembed, running
from kb.serving import open_embedder
from kb.upkeep.check import check

Store = Callable[..., None]
Open = Callable[..., KnowledgeBase]


REEMBED = """
import sys, time
from kb import KnowledgeBase, Settings
from kb import reembed as module
module._BATCH = 4
def slow(done, total):
    print(done, flush=True)
    if done >= 12:
        time.sleep(float(sys.argv[3]))
settings = Settings(home=sys.argv[1], embedding_model=sys.argv[2], exact_passages=int(sys.argv[4]))
with KnowledgeBase.open(settings) as kb:
    print(module.reembed(kb, progress=slow).to_json(), flush=True)
"""


def start(settings: Settings, model: Path, pause_s: float) -> subprocess.Popen[str]:
    arguments = [str(settings.home), str(model), str(pause_s), str(settings.exact_passages)]
    return subprocess.Popen([sys.executable, "-c", REEMBED, *arguments], stdout=subprocess.PIPE, text=True)


def test_a_killed_process_is_taken_up_where_it_was(bundled: Settings, tiny_model: Path) -> None:
    process = start(bundled, tiny_model, 600)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "12":
            break
    assert running(bundled.home)
    with KnowledgeBase.open(bundled.model_copy(update={"embedding_model": str(tiny_model)})) as kb:
        assert len(kb.query("tiling", k=50).hits) == 30, "the bundled model answers meanwhile"
        assert kb.embedder.embed(["x"]).shape == (1, 384)
        with pytest.raises(StoreLocked, match="another model"):
            reembed(kb)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not running(bundled.home)
        done = vectors_of(kb)[open_embedder(kb.settings).model_id]
        assert done == 12
        assert reembed(kb).embedded == 18
        assert kb.embedder.embed(["x"]).shape == (1, 32)
        assert len(kb.query("tiling", k=50).hits) == 30
        assert check(kb).problems == []


@pytest.mark.full  # several seconds
def test_questions_are_answered_all_the_while(bundled: Settings, tiny_model: Path) -> None:
    with KnowledgeBase.open(bundled) as kb:
        process = start(bundled, tiny_model, 0.2)
        asked = 0
        while process.poll() is None:
            hits = kb.query("tiling", k=50).hits
            assert sum(h.why["similarity"] is not None for h in hits) == 30
            asked += 1
        assert process.returncode == 0
        assert asked > 3
        assert kb.query("tiling").hits
        assert not [n for n in kb.notices if "rebuil" in n]


@pytest.mark.full
def test_a_query_starts_what_is_needed_and_a_later_one_has_the_new_model(
    tmp_path: Path, tiny_model: Path
) -> None:
    environment = {**os.environ, "KERNELEVOLVE_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> Any:
        code = f"import sys; from cli.main import run; sys.exit(run({list(arguments)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    run("init", "--json")
    environment["KERNELEVOLVE_EMBEDDING_MODEL"] = str(tiny_model)
    first = run("query", "tiling", "--json")
    assert "the bundled model answers until all are" in first["notes"][0]
    deadline = time.monotonic() + 120
    while (found := run("kb", "stats", "--json")["embedding"])["next"] is not None:
        assert time.monotonic() < deadline, (tmp_path / "home" / "reembed.log").read_text()
        time.sleep(0.5)
    environment["KERNELEVOLVE_LOCK_TIMEOUT_S"] = "60"
    second = run("query", "tiling", "--json")
    assert "notes" not in second or not second["notes"]
    assert found["model"] == open_embedder(Settings(embedding_model=str(tiny_model))).model_id
    log = (tmp_path / "home" / "reembed.log").read_text()
    assert json.loads(log.splitlines()[-1])["switched"]
    shutil.rmtree(tmp_path / "home")
