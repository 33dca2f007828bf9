"""Shared by the CLI's tests: running command lines in this process, and a stored run to look at."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # servers that tests of several packages talk to

from chat_server import chat_server  # noqa: F401 - a fixture

from cli.main import run

COMMAND = [sys.executable, "-c", "from cli.main import main; main()"]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The document; fails unless standard output is exactly one line of JSON with a schema version."""
        lines = self.out.splitlines()
        assert len(lines) == 1, f"not one line: {self.out!r} (stderr: {self.err})"
        document = json.loads(lines[0])
        assert next(iter(document)) == "schema_version"
        assert lines[0] == json.dumps(document, separators=(",", ":")), "not compact"
        return document


Cli = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("KERNELEVOLVE_HOME", str(path))
    return path


@pytest.fixture
def cli(home: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run a command line against a home folder of its own; the real entry point minus process start."""

    def call(*argv: str | Path) -> Result:
        capfd.readouterr()
        code = run([str(a) for a in argv])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call


HOSTILE = 'x = "</script><b>bold</b><img src=https://evil.example/x>"  # & `tick` {{ 7 * 7 }}\n'
SECRET = "the secret tiling of our customer"


def evaluation(status: str, eager: tuple[float, float, float] | None = None, **extra: Any) -> dict[str, Any]:
    """An evaluation as the harness stores it; `eager` is (speedup, lo, hi), the compiler's is 1.25x."""
    from harness.worker.model import Evaluation

    if eager is None:
        return Evaluation(status=status, **extra).to_json()  # type: ignore[arg-type]
    value, lo, hi = eager
    speeds = {
        k: {"speedup": value / f, "lo": lo / f, "hi": hi / f} for k, f in (("eager", 1.0), ("compile", 1.25))
    }
    return Evaluation(
        status=status,  # type: ignore[arg-type]
        speedup=value,
        speedup_ci=(lo, hi),
        baselines={"eager_ms": 10.0, "compile_ms": 8.0},
        speedups=speeds,
        candidate_ms={"median": 10 / value, "p05": 9 / value, "p95": 11 / value, "n": 50},
        correctness={"rounds": 5, "max_abs_err": 1e-6, "max_rel_err": 2e-6, "atol": 1e-4, "rtol": 1e-4},
        device="Test CPU",
        environment={"torch": "2.13.0"},
        timed=True,
        **extra,
    ).to_json()


@pytest.fixture
def stored_run(home: Path) -> str:
    """A run of five steps with a winner, the compiler's seed, two failures and retrieved passages; its id."""
    from agent.store import RunStore
    from kb import KnowledgeBase, Settings
    from kb.lexical_index import ensure, settle
    from kb.tables import Chunk, Document, Section, Source, partition_of

    with KnowledgeBase.open(Settings()) as kb, kb.session() as session:
        ensure(session.connection(), "guidance", "cpu")
        for n, (visibility, text) in enumerate(
            [("shared", "Keep the row <resident>."), ("local-only", SECRET)], 1
        ):
            session.add(Source(id=n, key=f"s{n}", name=f"s{n}", root="/", visibility=visibility))
            session.flush()
            session.add(Document(id=n, source_id=n, path=f"d{n}.md", location=f"/d{n}.md"))
            session.flush()
            session.add(Section(id=n, document_id=n, ordinal=0, heading_path="h", start_line=1, end_line=9))
            session.flush()
            where = {"document_id": n, "section_id": n, "scope": "cpu", "kind": "guidance", "breadcrumb": ""}
            session.add(Chunk(pk=n, id=f"c{n}", ordinal=0, text=text, start_line=1, end_line=9, **where))
        session.flush()
        settle(session.connection(), [partition_of("guidance", "cpu")])
        session.commit()
        _store_steps(RunStore(kb), kb)
    return "run-abc"


def _store_steps(store: Any, kb: Any) -> None:
    from agent.graph import SearchNode
    from agent.rows import StepRecord
    from agent.settings import SearchResult, SearchSettings
    from prompts.record import PromptRecord, Provenance

    settings = SearchSettings(problem="row_thing.py", steps=5)
    root = store.create(
        "run-abc", "row_thing", "class Model: ...  # the problem\n", {"eager_ms": 10.0}, settings
    )
    citations = {"c1": "d1.md:1-9", "c2": "/secret/c2.md:1-9", "gone": "/secret/gone.md:1-9"}
    uses = [Provenance("guidance", chunk, citation, 0.5) for chunk, citation in citations.items()]
    prompts = {
        name: PromptRecord(prompt=SECRET, tokens=1, slots={}, provenance=chosen, digest="")
        for name, chosen in (("shared", [uses[0], uses[2]]), ("private", uses))
    }
    steps: list[tuple[int, int, dict[str, Any], str]] = [
        (1, 0, evaluation("correct", (1.25, 1.2, 1.3)), "the compiler's code"),
        (2, 0, evaluation("compile_error", log="error: </pre><b>x", reason="g++ failed"), "wider"),
        (3, 2, evaluation("correct", (2.5, 2.4, 2.6)), "keep the row | <resident>"),
        (4, 3, evaluation("rejected", flags=[{"rule": "r<1>", "severity": "error", "detail": "d"}]), SECRET),
    ]
    nodes = {0: root}
    for step, parent, judged, hypothesis in steps:
        node = SearchNode(
            node_id=f"run-abc-{step:04d}",
            parent_id=nodes[parent].node_id,
            step=step,
            generator="recipe",
            source_sha=kb.blobs.put(f"# step {step}\n{HOSTILE}"),
            digest=str(step),
            status=judged["status"],
            speedup=judged["speedup"],
            speedup_ci=judged["speedup_ci"],
            hypothesis=hypothesis,
            genome={"block": 64},
            prompt_sha=kb.blobs.put(f"prompt of step {step}"),
            compiler_made=step == 1,
            evaluation=judged,
            diagnosis={"bottleneck": "memory"},
        )
        nodes[step] = node
        best = nodes[min(step, 3)] if step != 2 else nodes[1]
        payload = {"step": step, "outcome": "evaluated", "node_id": node.node_id}
        store.append(
            "run-abc",
            step,
            step,
            StepRecord(payload, 0, 0.0, node, prompts["private" if step == 4 else "shared"], best.node_id),
        )
    payload = {
        "step": 5,
        "outcome": "duplicate",
        "error": "the same program as step 3",
        "parent_id": best.node_id,
    }
    store.append("run-abc", 5, 5, StepRecord(payload, 0, 0.0, best_node_id=best.node_id))
    reason = "steps: 5 of 5 steps are done"
    result = SearchResult("run-abc", None, 5, 2, reason, 0, 0.0, 1.0)
    store.finish("run-abc", 6, reason, result, best)


@pytest.fixture(scope="session")
def library_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the curated library, made by `kernelevolve init` once for all tests."""
    path = tmp_path_factory.mktemp("library") / "home"
    command = [*COMMAND, "--home", str(path), "init", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture
def library(cli: Cli, library_home: Path, home: Path) -> Cli:
    """Command lines against a home of their own that has the curated library."""
    shutil.copytree(library_home, home)
    return cli


@pytest.fixture
def start_process(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start command lines as processes of their own group; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
