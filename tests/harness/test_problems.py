"""Problems that cannot be judged, and weak ones that can be but are flagged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation
from harness.errors import ProblemError
from harness.problem import check_source, load_problem
from harness.worker.environment import available_memory

Evaluate = Callable[..., Evaluation]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {result}
def get_inputs():
    return {inputs}
def get_init_inputs():
    return []
"""
CANDIDATE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"


def problem(result: str = "x + 1", inputs: str = "[torch.rand(100)]", more: str = "") -> str:
    return PROBLEM.format(result=result, inputs=inputs) + more


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import torch\n", "no Model"),
        ("def broken(:\n", "syntax error in line 1"),
        (problem(result="x @ x.missing"), "missing"),
        (problem(inputs="[]"), "no tensor"),
        (problem(inputs="[torch.empty(0)]"), "only empty tensors"),
        (problem(inputs="[3]"), "no tensor"),
        (problem(inputs="1 / 0"), "ZeroDivisionError"),
        (problem(result="3"), "no tensor with elements"),
        (problem(result="exit()"), "SystemExit"),
        (problem(more="META = {'shapes': 3}"), "not a list"),
        (problem(more="META = {'shapes': [1]}"), "META['shapes'][0] is not a dictionary"),
        (problem(more="META = {'shapes': [{'sizes': {}}]}"), "unknown keys: sizes"),
        (problem(more="META = {'shapes': [{'globals': {'n': 1}}]}"), "sets n, which the problem does not"),
        (problem(more="META = {'shapes': [{'globals': {'Model': 1}}]}"), "sets Model, which is no size"),
        (problem(more="META = {'shapes': [{'weight': 0}]}"), "no positive number"),
        (problem(more="META = {'shapes': [{}, {'name': 'x'}]}"), "two entries without globals"),
        (problem(more="n = 1\nMETA = {'shapes': [{'name': 'main', 'globals': {'n': 2}}]}"), "'main' twice"),
        (problem(more="META = {'backward': 1}"), "neither True nor False"),
        (problem(result="x > 0", more="META = {'backward': True}"), "no output has a gradient"),
        (problem(more="META = {'precision': 'bf16'}"), "none of float32, tf32"),
        (problem(more="META = {'tolerence': 1}"), "unknown keys: tolerence"),
        (problem(more="META = {'tolerance': {'float31': 1}}"), "float31"),
        (problem(more="META = {'notes': 3}"), "not a text"),
        (problem(more="META = {'ops': 'add'}"), "not a list of names"),
    ],
)
def test_invalid_problem(evaluate: Evaluate, source: str, words: str) -> None:
    result = evaluate(source, CANDIDATE.format("x + 1"))
    assert (result.status, words in result.reason) == ("invalid_problem", True), result.reason
    assert "\n" not in result.reason


def test_reference_that_hangs(evaluate: Evaluate) -> None:
    source = problem(result="[x for _ in iter(int, 1)]")
    result = evaluate(source, CANDIDATE.format("x"), run_limit_s=1.0)
    assert result.status == "invalid_problem"
    assert "longer than 1 s" in result.reason


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (problem(result="torch.ones(4) + 0 * x.sum()"), "constant-output"),
        (
            problem(result="x * 0 + torch.tensor(__import__('time').time_ns() % 9_999_991)"),
            "random-output",
        ),
    ],
)
def test_weak_problem_is_flagged(evaluate: Evaluate, source: str, rule: str) -> None:
    result = evaluate(source, CANDIDATE.format("torch.ones(4) + 0 * x.sum()"))
    assert result.status != "invalid_problem"
    assert rule in [f["rule"] for f in result.flags]


def test_input_that_does_not_matter_is_flagged(evaluate: Evaluate) -> None:
    source = problem(inputs="[torch.rand(9), torch.rand(9)]").replace("(self, x)", "(self, x, unused)")
    result = evaluate(source, CANDIDATE.format("x + 1").replace("(self, x)", "(self, x, unused)"))
    assert result.status == "correct"
    assert [f["detail"] for f in result.flags if f["rule"] == "input-does-not-matter"]


def test_meta_tolerance(evaluate: Evaluate) -> None:
    candidate = CANDIDATE.format("x * 1.0002 + 1")
    assert evaluate(problem(), candidate).status == "incorrect"
    assert evaluate(problem(more="META = {'tolerance': {'float32': 1e-2}}"), candidate).status == "correct"
    strict = problem(more="META = {'tolerance': 1e-8}")
    assert evaluate(strict, CANDIDATE.format("x * 1.000001 + 1")).status == "incorrect"


def test_reference_with_a_domain_is_not_pushed_out_of_it(evaluate: Evaluate) -> None:
    """Probabilities have to stay in [0, 1]: other distributions are skipped, and that is said."""
    source = problem(
        result="torch.nn.functional.binary_cross_entropy(x, y)", inputs="[torch.rand(500), torch.rand(500)]"
    ).replace("(self, x)", "(self, x, y)")
    candidate = CANDIDATE.format("-(y * x.log() + (1 - y) * (1 - x).log()).mean()").replace(
        "(self, x)", "(self, x, y)"
    )
    result = evaluate(source, candidate)
    assert result.status == "correct", result.reason


@pytest.mark.parametrize(
    ("result", "inputs", "candidate"),
    [
        ("x.argmax(1), {'a': [x.sum(), 2.5]}", "[torch.rand(8, 9)]", "(x.max(1)[1], {'a': [x.sum(), 2.5]})"),
        ("x[0] + x[1][::2]", "[[torch.rand(4), torch.rand(8)]]", "torch.add(*[x[0], x[1][::2]])"),
        ("x.sum(1)", "[torch.rand(40, 8).t()]", "torch.einsum('ij->i', x)"),
        ("x.bool()", "[torch.randint(0, 2, (50,))]", "x != 0"),
        ("x.log()", "[torch.rand(50) - 0.5]", "torch.log(x)"),
        ("x.bfloat16() * 3", "[torch.randn(500)]", "(x * 3).bfloat16()"),
        ("x.to(torch.complex64) * 2j", "[torch.randn(50)]", "torch.complex(x * 0, 2 * x)"),
        ("x.mean()", "[torch.randn(50, dtype=torch.float64)]", "x.sum() / x.numel()"),
        ("x.view(-1)", "[torch.randn(5, 10)]", "x.reshape(-1)"),
    ],
)
def test_kinds_of_values(evaluate: Evaluate, result: str, inputs: str, candidate: str) -> None:
    verdict = evaluate(problem(result, inputs), CANDIDATE.format(candidate))
    assert verdict.status == "correct", verdict.reason


def test_load_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernelbench" / "level1" / "40_LayerNorm.py"
    path.parent.mkdir(parents=True)
    path.write_text(problem())
    assert load_problem(path).name == "40_LayerNorm"
    with pytest.raises(ProblemError, match="no KernelBench checkout"):
        load_problem("kernelbench:1/40")
    monkeypatch.setenv("KERNELEVOLVE_KERNELBENCH", str(tmp_path / "kernelbench"))
    assert load_problem("kernelbench:1/40").path == path
    for spec, words in (
        (tmp_path / "none.py", "does not exist"),
        (tmp_path, "is a folder"),
        ("kernelbench:1/41", "no problem 1/41"),
        ("kernelbench:one", "no KernelBench problem"),
    ):
        with pytest.raises(ProblemError, match=words) as caught:
            load_problem(spec)
        assert caught.value.hint
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="not UTF-8"):
        load_problem(tmp_path / "binary.py")
    with pytest.raises(ProblemError, match="get_inputs"):
        check_source("class Model: pass\ndef get_init_inputs(): return []")


def test_a_problem_that_does_not_fit_into_memory(evaluate: Evaluate) -> None:
    result = evaluate(problem(inputs="[torch.zeros(1 << 42)]"), CANDIDATE.format("x + 1"))
    assert result.status == "harness_error"
    assert "more memory than this machine has left" in result.reason


def test_memory_that_is_left(tmp_path: Path) -> None:
    """The least of what the machine and each control group have; page cache can be reclaimed."""
    assert available_memory(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4096 kB\n")
    assert available_memory(tmp_path) == 4 << 20
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/old\n0::/job/step\n")
    group = tmp_path / "sys/fs/cgroup/job"
    (group / "step").mkdir(parents=True)
    for name, text in (
        ("max", "3000000"),
        ("current", "2500000"),
        ("stat", "anon 5\ninactive_file 200000\n"),
    ):
        (group / f"memory.{name}").write_text(text)
    (group / "step/memory.max").write_text("max")
    assert available_memory(tmp_path) == 700_000
