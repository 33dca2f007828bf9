"""Answers as models write them."""

from __future__ import annotations

import pytest

from agent.parsing import Unparseable, parse_answer

FILE = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize(
    "answer",
    [
        f"HYPOTHESIS: one pass\n```python\n{FILE}```",
        f"**Hypothesis:** one pass\n\n~~~py\n{FILE}~~~\nHope it helps.",
        f"> hypothesis: one pass\n````\n{FILE}````",
        f"HYPOTHESIS: one pass\r\n```\r\n{FILE}```\r\n".replace("\r\n", "\n").replace("\n", "\r\n"),
        f"HYPOTHESIS: one pass\n1. Here:\n   ```python\n   {FILE.replace(chr(10), chr(10) + '   ')}\n   ```",
        f"HYPOTHESIS: one pass\n```python\n{FILE}",
        f"<think>```python\nclass ModelNew: broken(\n```</think>\nHYPOTHESIS: one pass\n```python\n{FILE}```",
        f"HYPOTHESIS: one pass\n```cpp\nint x;\n```\nand\n```python\n{FILE}```\n```bash\npython x.py\n```",
        f"HYPOTHESIS: one pass\n```python\nclass ModelNew: broken(\n```\nsorry:\n```python\n{FILE}```",
    ],
)
def test_the_file_is_found(answer):
    parsed = parse_answer(answer)
    assert parsed.source.split() == FILE.split()
    assert parsed.hypothesis == "one pass"
    compile(parsed.source, "candidate", "exec")


def test_a_bare_file_is_accepted():
    assert parse_answer(FILE).source == FILE
    assert parse_answer(FILE).hypothesis == "none was stated"


def test_the_last_version_counts():
    answer = f"```python\n{FILE}old = 1\n```\nBetter:\n```python\n{FILE}new = 1\n```"
    assert "new = 1" in parse_answer(answer).source


def test_fences_inside_the_file_do_not_end_it():
    source = FILE + 'DOC = """\n```cpp\nint x;\n```\n"""\n'
    assert parse_answer(f"````python\n{source}````").source == source


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("I cannot help with that.", "no fenced Python file"),
        ("```python\nclass Model: pass\n```", "no fenced Python file"),
        ("```python\nclass ModelNew:\n  def f(self:\n```", "not valid Python"),
        ("```python\nx = 'ModelNew'\n```", "no top-level class"),
    ],
)
def test_what_is_wrong_is_said(answer, problem):
    with pytest.raises(Unparseable, match=problem):
        parse_answer(answer)


def test_a_truncated_answer_is_not_taken_for_a_file():
    with pytest.raises(Unparseable, match="cut off"):
        parse_answer(f"```python\n{FILE}", truncated=True)
    assert parse_answer(f"```python\n{FILE}```\nThis", truncated=True).source == FILE


@pytest.mark.parametrize("error", [MemoryError(), RecursionError()])
def test_an_answer_nested_beyond_the_parser_is_unparseable(monkeypatch, error):
    def fail(_source):
        raise error

    monkeypatch.setattr("ast.parse", fail)
    with pytest.raises(Unparseable, match="nested too deeply"):
        parse_answer("class ModelNew: pass")
