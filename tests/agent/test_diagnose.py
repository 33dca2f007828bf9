"""The diagnosis states what holds a candidate back, with the numbers it rests on."""

from __future__ import annotations

from typing import Any

import pytest

from agent.diagnose import diagnose_evaluation, normalise_error
from agent.flops import count_operations

CEILINGS = {"bandwidth_gb_s": 20.0, "fp32_gflop_s": 200.0}


def spec(name: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": "float32", "stride": []}


def facts(op: str = "aten.relu.default", shape: tuple[int, ...] = (1000, 1000)) -> dict[str, Any]:
    node = {"name": "y", "op": op, "args": [{"ref": "x"}], "kwargs": {}, "outputs": [spec("y", *shape)]}
    return {"inputs": [spec("x", *shape)], "nodes": [node], "bytes_min": 8 * shape[0] * shape[1]}


def correct(ms: float) -> dict[str, Any]:
    return {"status": "correct", "speedup": 1.2, "timed": True, "candidate_ms": {"median": ms}}


def test_near_the_bandwidth_is_memory():
    diagnosis = diagnose_evaluation(correct(0.5), facts(), CEILINGS)  # 8 MB in 0.5 ms: 16 of 20 GB/s
    assert diagnosis["bottleneck"] == "memory"
    assert diagnosis["roofline"]["achieved_gbs"] == pytest.approx(16.0)
    assert diagnosis["roofline"]["fraction"] == pytest.approx(0.8)
    assert diagnosis["roofline"]["bound_ms"] == pytest.approx(0.4)
    assert any("16.0 GB/s, 80% of the 20.0 GB/s" in line for line in diagnosis["evidence"])
    assert diagnosis["actions"][0].startswith("fewer-passes")
    assert diagnosis["missing"] == []


def test_near_the_arithmetic_peak_is_compute():
    weights = {"name": "y", "op": "aten.mm.default", "args": [{"ref": "a"}, {"ref": "b"}], "kwargs": {},
               "outputs": [spec("y", 512, 512)]}  # fmt: skip
    gemm = {
        "inputs": [spec("a", 512, 512), spec("b", 512, 512)],
        "nodes": [weights],
        "bytes_min": 3 * 4 * 512 * 512,
    }
    assert count_operations(gemm) == 2 * 512**3
    assert diagnose_evaluation(correct(1.6), gemm, CEILINGS)["bottleneck"] == "compute"


def test_far_from_both_is_latency_and_tiny_is_overhead():
    assert diagnose_evaluation(correct(5.0), facts(), CEILINGS)["bottleneck"] == "latency"
    tiny = facts(shape=(10, 10))
    assert diagnose_evaluation(correct(0.02), tiny, CEILINGS)["bottleneck"] == "overhead"


def test_without_ceilings_it_says_so():
    diagnosis = diagnose_evaluation(correct(0.5), facts())
    assert diagnosis["bottleneck"] == "unknown"
    assert diagnosis["missing"] == ["memory ceiling", "compute ceiling"]


def test_untimed_is_unknown():
    untimed = {"status": "correct", "timed": False, "candidate_ms": {"median": 5.0}}
    assert diagnose_evaluation(untimed, facts(), CEILINGS)["bottleneck"] == "unknown"


@pytest.mark.parametrize(
    ("evaluation", "bottleneck", "error"),
    [
        (
            {"status": "compile_error", "reason": "does not compile",
             "log": "In file\n/tmp/k-123/k.cpp:12:7: error: ‘foo’ was not declared\nnote: 0x7ffd"},
            "compile_error", "error: 'foo' was not declared",
        ),
        (
            {"status": "compile_error", "reason": "does not load",
             "log": 'Traceback\n  File "/tmp/a/b.py", line 3\nModuleNotFoundError: No module named "foo"'},
            "compile_error", "ModuleNotFoundError: No module named 'foo'",
        ),
        ({"status": "incorrect", "reason": "2 of 5 rounds differ"}, "incorrect", "2 of 5 rounds differ"),
        ({"status": "timeout", "reason": "no answer in 30 s"}, "timeout", "no answer in 30 s"),
        ({"status": "runtime_error", "reason": "signal 11"}, "crash", "signal 11"),
        ({"status": "rejected", "reason": "calls the reference"}, "rejected", "calls the reference"),
    ],
)  # fmt: skip
def test_failures(evaluation, bottleneck, error):
    diagnosis = diagnose_evaluation(evaluation, facts(), CEILINGS)
    assert diagnosis["bottleneck"] == bottleneck
    assert diagnosis["error"] == error
    assert diagnosis["evidence"]
    assert diagnosis["actions"]


def test_numbers_of_an_incorrect_result_are_evidence():
    evaluation = {
        "status": "incorrect", "reason": "differs",
        "correctness": {"max_abs_err": 0.25, "max_rel_err": None, "atol": 1e-4, "rtol": 1e-4},
    }  # fmt: skip
    assert any("0.25" in line for line in diagnose_evaluation(evaluation, facts())["evidence"])


def test_errors_are_the_same_on_every_machine():
    one = normalise_error("/tmp/ke-1/cand.cpp:3:9: error: bad cast at 0x7f00aa")
    two = normalise_error("/scratch/other/cand.cpp:88:1: error: bad cast at 0x12")
    assert one == two == "error: bad cast at ADDRESS"
    assert normalise_error("") == ""


@pytest.mark.parametrize(
    ("op", "operations"),
    [
        ("aten.view.default", 0),
        ("aten.relu.default", 10**6),
        ("aten.logical_not.default", 10**6),
        ("aten._softmax.default", 16 * 10**6),
    ],
)
def test_operations(op, operations):
    assert count_operations(facts(op)) == operations


def test_hardware_counters_decide() -> None:
    """By the roofline alone this candidate is far from everything; its counters say that it spills."""
    header = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
        '"Grid Size","CC","gpu__time_duration.sum",'
        '"derived__local_spilling_requests_pct","launch__registers_per_thread"'
    )
    units = '"","","","","","","","","","","us","%","register/thread"'
    rows = [
        '"0","9","python","127.0.0.1","helper","1","7","(128, 1, 1)","(1, 1, 1)","9.0","2","0","32"',
        '"1","9","python","127.0.0.1","norm","1","7","(128, 1, 1)","(512, 1, 1)","9.0","90","45","255"',
    ]
    counters = "\n".join([header, units, *rows]) + "\n"
    evaluation = {
        "status": "correct",
        "timed": True,
        "candidate_ms": {"median": 1.0},
        "profile": {"level": "deep", "counters": counters},
    }
    found = diagnose_evaluation(evaluation, {"bytes_min": 1000}, {"bandwidth_gb_s": 10.0})
    assert found["bottleneck"] == "spill"
    assert any("norm: 45 % of local memory requests" in line for line in found["evidence"])
    assert any("smaller-block" in action for action in found["actions"])
