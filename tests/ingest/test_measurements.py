from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from sqlmodel import col, select

from ingest import ingest_paths
from ingest.document import FileContent
from ingest.errors import RunNotIngestible
from ingest.loaders.timings import TimingsLoader
from ingest.measurements import Measurement, of_source, parse, tables_beside
from ingest.runs import write_run
from kb import KnowledgeBase
from kb.documents import DocumentWriter
from kb.kernels import skill_candidates
from kb.tables import Document, Node, PromptUse, Run

DOCUMENTED = {
    "kernel": "softmax.py", "target": "nvidia:sm_90", "shape": "4096x4096", "time_ms": 0.021,
    "baseline_ms": 0.034, "speedup": 1.62, "correct": True,
}  # fmt: skip
SOURCE = "import triton\n\n@triton.jit\ndef softmax_kernel(x):\n    pass\n"


def test_the_documented_form() -> None:
    expected = Measurement(
        "softmax.py", "nvidia:sm_90", "4096x4096", 0.021, 0.034, 1.62, details={}, line=1
    )  # fmt: skip
    for data in ([DOCUMENTED], {"measurements": [DOCUMENTED]}, {"softmax.py": DOCUMENTED}):
        assert parse(json.dumps(data), ".json") == [expected]
    assert parse(json.dumps(DOCUMENTED) + "\n", ".jsonl") == [expected]
    assert expected.sentence() == (
        "softmax.py on nvidia:sm_90, 4096x4096: 0.021 ms, baseline 0.034 ms, speedup 1.62"
    )


@pytest.mark.parametrize(
    ("header", "row", "time", "baseline", "speedup"),
    [
        ("kernel,latency_us", "a,12", 0.012, None, None),
        ("Kernel Name,Time (s)", "a,0.5", 500, None, None),
        ("name,runtime [ns],torch runtime [ns]", "a,2000,4000", 0.002, 0.004, 2.0),
        ("file;median_ms;eager_ms", "a;1;3", 1, 3, 3.0),
        ("impl,time,unit", "a,7,us", 0.007, None, None),
        ("kernel,duration", "a,7 us", 0.007, None, None),
        ("kernel,MedianMs,StdMs", "a,7,1", 7, None, None),
        ("kernel,speedup", "a,1.8x", None, None, 1.8),
        ("kernel,min_ms,max_ms,mean_ms,compile_time_s", "a,1,9,4,60", 4, None, None),
        ("kernel,baseline_ms,time_ms", 'a,"1,200.5",600.25', 600.25, 1200.5, 2.0),
        ("kernel,time_ms,speedup", "a,1e-2,0.9", 0.01, None, 0.9),
    ],
)
def test_columns_of_others(
    header: str, row: str, time: float | None, baseline: float | None, speedup: float | None
) -> None:
    (found,) = parse(f"{header}\n{row}\n", ".csv")
    assert (found.kernel, found.line) == ("a", 2)
    for value, wanted in ((found.time_ms, time), (found.baseline_ms, baseline), (found.speedup, speedup)):
        assert value == (None if wanted is None else pytest.approx(wanted))


def test_what_is_left_is_kept() -> None:
    (found,) = parse("kernel,gpu,M,N,dtype,time_ms,passed\nmm,H200,64,32,f16,1,False\n", ".csv")
    assert found.details == {"M": "64", "N": "32", "dtype": "f16"}
    assert (found.target, found.correct) == ("H200", False)
    assert "not correct" in found.sentence()


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("a,b\n1,2\n", ".csv"),
        ("kernel,comment\na,fast\n", ".csv"),
        ("kernel,time_ms\na,\nb,n/a\nc,-1\nd,nan\n", ".csv"),
        ('{"version": 3, "time": 4}', ".json"),
        ('{"kernel": ', ".json"),
        ('{"text": "a"}\n{"text": "b"}\n', ".jsonl"),
        ("not json\n", ".jsonl"),
        ("[" * 100_000, ".json"),
        ("", ".csv"),
    ],
)
def test_other_tables_are_none(text: str, suffix: str) -> None:
    assert parse(text, suffix) == []


def test_kernels_find_their_times_up_to_the_source(tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    (root / "triton").mkdir(parents=True)
    source = root / "triton" / "softmax.py"
    source.write_text(SOURCE)
    (tmp_path / "results.csv").write_text("kernel,time_ms\nsoftmax,9\n")  # outside the source
    (root / "results.csv").write_text("file,time_ms,speedup\ntriton/softmax.py,2,1.5\nother.py,1,1\n")
    (root / "triton" / "runs.jsonl").write_text(
        '{"kernel": "softmax_kernel", "time_us": 900, "speedup": 2}\n'
    )
    (root / "triton" / "unrelated.json").write_text(json.dumps([DOCUMENTED]))
    found = of_source(source, root, ["softmax_kernel"])
    assert [(m.kernel, m.time_ms) for m in found] == [
        ("softmax_kernel", pytest.approx(0.9)),
        ("triton/softmax.py", 2),
    ]
    assert tables_beside(source, root) == [root / "triton" / "runs.jsonl", root / "results.csv"]
    assert of_source(source, source) == [found[0]] or of_source(source, source, ["softmax_kernel"]) == [
        found[0]
    ]


def test_measured_sources_are_kernel_records(kb: KnowledgeBase, tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    root.mkdir()
    (root / "softmax.py").write_text(SOURCE)
    table = root / "timings.csv"
    table.write_text(
        "kernel,gpu,shape,time_ms,baseline_ms\nsoftmax.py,H200,8x8,2,3\nsoftmax.py,H200,4x4,1,3\n"
    )
    report = ingest_paths(kb, [root])
    assert (report.added, report.failed) == (2, [])
    hits = {h.path: h for h in kb.query("softmax kernel", kinds=["kernel"]).hits}
    measured = hits["softmax.py"].to_json()["measurements"]
    assert [(m["shape"], m["speedup"]) for m in measured] == [("4x4", 3.0), ("8x8", 1.5)]
    assert hits["softmax.py"].meta["best_speedup"] == 3.0
    record = hits["timings.csv"]
    assert record.text == (
        "softmax.py on H200, 8x8: 2 ms, baseline 3 ms, speedup 1.5\n"
        "softmax.py on H200, 4x4: 1 ms, baseline 3 ms, speedup 3"
    )
    assert (record.start_line, record.end_line) == (2, 3)

    (candidate,) = skill_candidates(kb)
    assert (candidate.path, candidate.language, candidate.best_speedup) == ("softmax.py", "triton", 3.0)
    assert candidate.measurements == measured
    assert skill_candidates(kb, "tenstorrent:sim") == ([] if candidate.target != "generic" else [candidate])

    table.write_text("kernel,time_ms\nsoftmax.py,7\n")
    os.utime(table, ns=(1, 1))
    assert ingest_paths(kb, [root]).updated == 2
    assert ingest_paths(kb, [root]).unchanged == 2
    assert skill_candidates(kb) == []
    again = next(h for h in kb.query("softmax kernel").hits if h.path == "softmax.py")
    assert again.to_json()["measurements"] == [{"kernel": "softmax.py", "time_ms": 7.0}]


def test_json_records_cite_the_whole_file() -> None:
    text = json.dumps([DOCUMENTED], indent=1)
    document = TimingsLoader().load(FileContent(Path("timings.json"), b"", text))
    assert (document.sections[0].start_line, document.sections[0].end_line) == (1, text.count("\n") + 1)


# --- runs of ours ---


def add_run(kb: KnowledgeBase, run_id: str, *, chunk_id: str = "") -> None:
    with kb.session() as session:
        session.add(
            Run(
                id=run_id, problem_name="row softmax", problem_sha="", target="cpu", policy="greedy",
                generator="recipe",
            )
        )  # fmt: skip
        session.flush()
        for step, (status, speedup, digest, timed) in enumerate(
            [
                ("correct", 1.5, "a", True),
                ("correct", 2.5, "b", True),
                ("correct", 2.0, "b", True),
                ("incorrect", 9.0, "c", True),
                ("correct", 8.0, "d", False),
                ("correct", None, "e", True),
            ]
        ):
            session.add(
                Node(
                    id=f"{run_id}-{step}", run_id=run_id, step=step, generator="recipe", digest=digest,
                    source_sha=kb.blobs.put(f"def forward{step}(x):\n    return x\n"), status=status,
                    speedup=speedup,
                    evaluation={
                        "timed": timed, "candidate_ms": {"median": 1.0}, "baselines": {"eager_ms": speedup},
                    },
                )
            )  # fmt: skip
        session.flush()
        if chunk_id:
            use = PromptUse(node_id=f"{run_id}-0", slot="guidance", chunk_id=chunk_id, citation="", score=1)
            session.add(use)
        session.commit()


def test_a_run_becomes_a_source_of_its_best_kernels(kb: KnowledgeBase) -> None:
    add_run(kb, "20260101-0001")
    report = ingest_paths(kb, ["run:20260101"])
    assert (report.added, report.failed) == (3, [])
    hits = [h for h in kb.query("softmax forward", target="cpu").hits if h.path.endswith(".py")]
    assert {h.path: h.measurements[0]["speedup"] for h in hits} == {
        "row_softmax_0000.py": 1.5,
        "row_softmax_0001.py": 2.5,
    }
    assert {h.source for h in hits} == {"run:20260101-0001"}
    assert not any(h.local_only for h in hits)
    assert ingest_paths(kb, ["run:20260101-0001"]).unchanged == 3


def test_retrying_a_run_looks_at_that_run_only(kb: KnowledgeBase, tmp_path: Path) -> None:
    add_run(kb, "r1")
    ingest_paths(kb, ["run:r1"])
    (tmp_path / "broken.ipynb").write_text("{")
    ingest_paths(kb, [tmp_path])
    with kb.session() as session:
        kernel = session.exec(select(Document).where(col(Document.path).endswith("0000.py"))).one()
    DocumentWriter(kb).fail([(kernel.source_id, kernel.path, kernel.location, "unreadable then")])
    report = ingest_paths(kb, ["run:r1"], retry_failed=True)
    assert (report.updated, report.failed) == (1, [])
    assert [f["path"] for f in ingest_paths(kb, [], retry_failed=True).failed] == [
        str(tmp_path / "broken.ipynb")
    ]
    with pytest.raises(RunNotIngestible):
        ingest_paths(kb, ["run:r9"], retry_failed=True)


def test_runs_that_saw_local_passages_stay_local(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "private.md").write_text("# Private\n\nSecret tiling.\n")
    ingest_paths(kb, [tmp_path / "private.md"], visibility="local-only")
    add_run(kb, "r1", chunk_id=kb.query("secret").hits[0].chunk_id)
    ingest_paths(kb, ["run:r1"], visibility="shared")
    assert all(h.local_only for h in kb.query("softmax forward").hits if h.source == "run:r1")


def test_runs_without_kernels_are_named(kb: KnowledgeBase) -> None:
    with pytest.raises(RunNotIngestible, match="no run with id 'x'"):
        ingest_paths(kb, ["run:x"])
    add_run(kb, "r1")
    add_run(kb, "r2")
    with pytest.raises(RunNotIngestible, match="2 runs with id 'r'"):
        write_run(kb, "r")
