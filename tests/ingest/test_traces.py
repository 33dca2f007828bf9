from __future__ import annotations

from pathlib import Path

import pytest

from ingest import ingest_paths
from ingest.diagnose import diagnose_file, diagnose_text
from ingest.errors import Unreadable, Unsupported
from kb import KnowledgeBase
from kb.tables import Trace

# What the kernels of the H200 trace were written to be bound by.
H200 = {
    "stream_add": "memory",
    "strided_gather": "memory",
    "matmul_tc": "compute",
    "row_softmax_spill": "spill",
    "tiny": "overhead",
    "sfu_heavy": "compute",
    "atomic_hot": "latency",
}
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def row(metric: str, unit: str, value: str, launch: int = 0, kernel: str = "k") -> str:
    shape = '"1","7","(128, 1, 1)","(64, 1, 1)","0","9.0"'
    return f'"{launch}","1","p","h","{kernel}",{shape},"S","{metric}","{unit}","{value}"\n'


@pytest.mark.parametrize("name", ["h200_raw.csv", "h200_details.csv"])
def test_known_bottlenecks_are_named(shared: Path, name: str) -> None:
    diagnosis = diagnose_file(shared / "traces" / "ncu" / name)
    assert {k["name"]: k["bottleneck"] for k in diagnosis["kernels"]} == H200
    assert diagnosis["format"] == "nsight-compute"
    assert diagnosis["errors"] == []
    for kernel in diagnosis["kernels"]:
        assert kernel["evidence"]
        assert kernel["actions"]
        assert kernel["target"] == "nvidia:sm_90"


def test_numbers_and_evidence_of_the_raw_page(shared: Path) -> None:
    kernels = {k["name"]: k for k in diagnose_file(shared / "traces" / "ncu" / "h200_raw.csv")["kernels"]}
    assert kernels["stream_add"]["duration_us"] == pytest.approx(90.848)
    assert kernels["stream_add"]["metrics"]["dram_gb_per_s"] == pytest.approx(4220.81)
    assert any("coalesced" in e for e in kernels["strided_gather"]["evidence"])
    assert any("atomics" in e for e in kernels["atomic_hot"]["evidence"])
    assert kernels["matmul_tc"]["missing"] == []


def test_few_metrics_are_not_guessed_but_ceilings_help(shared: Path) -> None:
    path = shared / "traces" / "ncu" / "h200_metrics_live.csv"
    kernels = {k["name"]: k for k in diagnose_file(path)["kernels"]}
    assert kernels["stream_add"]["bottleneck"] == "unknown"
    assert "memory_pct" in kernels["stream_add"]["missing"]
    assert kernels["sfu_heavy"]["bottleneck"] == "compute"
    informed = {k["name"]: k for k in diagnose_file(path, {"dram_gb_per_s": 4800.0})["kernels"]}
    assert informed["stream_add"]["bottleneck"] == "memory"


def test_preamble_and_rule_rows_of_another_machine(shared: Path) -> None:
    diagnosis = diagnose_file(shared / "traces" / "ncu" / "b200_cublaslt_ncu.csv.log")
    assert [k["target"] for k in diagnosis["kernels"]] == ["nvidia:sm_100"]
    assert diagnosis["kernels"][0]["duration_us"] == pytest.approx(406.24)


@pytest.mark.parametrize(
    "name",
    ["kineto/h200_torch.json", "proton/h200_proton.hatchet", "rocprofv3/kernel_trace.csv",
     "rocprof-compute/MI300X_A1/pmc_perf.csv"],
)  # fmt: skip
def test_other_profilers_are_unsupported_by_name(shared: Path, kb: KnowledgeBase, name: str) -> None:
    with pytest.raises(Unsupported, match="unsupported profiler format"):
        diagnose_file(shared / "traces" / name)


def test_trace_is_stored_and_retrieved(kb: KnowledgeBase, shared: Path) -> None:
    from sqlmodel import select

    report = ingest_paths(kb, [shared / "traces" / "ncu" / "h200_raw.csv"])
    assert (report.added, report.failed) == (1, [])
    hit = kb.query("row_softmax_spill register spills", target="nvidia:sm_90", kinds=["trace"]).hits[0]
    assert hit.section == "row_softmax_spill"
    assert "Bottleneck: spill" in hit.text
    assert (hit.start_line, hit.end_line) == (6, 6)
    assert kb.query("row_softmax_spill", target="amd:gfx942").hits == []
    with kb.session() as session:
        assert {t.kernel: t.bottleneck for t in session.exec(select(Trace))} == H200


def test_document_about_traces_is_no_trace(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(
        f"# Reading traces\n\n```\n{HEADER}```\n\nThe Dispatch_Id column counts.\n"
    )
    (tmp_path / "notes.txt").write_text('The file has "traceEvents" and Dispatch_Id.\n')
    report = ingest_paths(kb, [tmp_path / "guide.md", tmp_path / "notes.txt"])
    assert (report.added, report.failed) == (2, [])
    assert {h.kind for h in kb.query("traces", k=10).hits} == {"document"}


def test_cut_off_trace_says_where(tmp_path: Path) -> None:
    text = HEADER + row("gpu__time_duration.sum", "ns", "1,500") + '"0","1","p","h","k'
    diagnosis = diagnose_text(text)
    assert diagnosis["kernels"][0]["duration_us"] == 1.5
    assert len(diagnosis["errors"]) == 1
    assert "line 3" in diagnosis["errors"][0]


def test_many_launches_of_one_kernel_are_one_record() -> None:
    text = HEADER + "".join(row("gpu__time_duration.sum", "us", str(10 + i), launch=i) for i in range(5))
    kernels = diagnose_text(text)["kernels"]
    assert [(k["launches"], k["duration_us"]) for k in kernels] == [(5, 12.0)]


def test_unknown_units_and_words_are_no_numbers() -> None:
    text = (
        HEADER + row("gpu__time_duration.sum", "fortnight", "3") + row("sm__throughput.avg.pct", "%", "n/a")
    )
    kernel = diagnose_text(text)["kernels"][0]
    assert kernel["duration_us"] is None
    assert kernel["bottleneck"] == "unknown"


def test_header_without_kernels_and_other_text() -> None:
    with pytest.raises(Unreadable, match="no kernel"):
        diagnose_text(HEADER)
    with pytest.raises(Unsupported, match="not a profiler's output"):
        diagnose_text("hello")


def test_large_file_of_another_kind_is_refused_by_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ingest.diagnose as module

    sizes: list[int] = []
    real = module.decode
    monkeypatch.setattr(module, "decode", lambda data, path: (sizes.append(len(data)), real(data, path))[1])
    (tmp_path / "large.csv").write_bytes(b"a,b\n1,2\n" * (1 << 20))
    with pytest.raises(Unsupported, match="not a profiler"):
        diagnose_file(tmp_path / "large.csv")
    assert sum(sizes) <= 1 << 18
