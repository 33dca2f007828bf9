"""Answers as models write them."""

from __future__ import annotations

import json

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


DOCUMENTED = 'import torch\n\nDOC = """\n```cpp\nint x;\n```\nand\n```\n"""\n\nclass ModelNew:\n    pass\n'


@pytest.mark.parametrize(
    "answer",
    [
        f"HYPOTHESIS: one pass\n```python\n{DOCUMENTED}```\nThat is all.\n```\nx\n```",
        f"HYPOTHESIS: one pass\n<code lang='python'>\n{DOCUMENTED}</code>\nDone.",
        f'HYPOTHESIS: one pass\n<file name="a.py"><![CDATA[{DOCUMENTED}]]></file>',
        "> HYPOTHESIS: one pass\n"
        + "".join(f"> {line}\n" for line in f"```python\n{DOCUMENTED}```".split("\n")),
        f"I thought of this: ```python is nice</think>\nHYPOTHESIS: one pass\n```\n{DOCUMENTED}```",
        f"## Hypothesis\n\none pass\n\n~~~~ {{.python}}\n{DOCUMENTED}~~~~",
        json.dumps({"hypothesis": "one  pass", "code": DOCUMENTED}),
        json.dumps({"hypothesis": "one pass", "files": [{"path": "a.py", "content": DOCUMENTED}]}),
        f'{{"hypothesis": "one pass", "note": "a\nb", "code": {json.dumps(DOCUMENTED)}}}',
        f"[THINK]class ModelNew: no[/THINK]HYPOTHESIS: one pass\n[PYTHON]\n{DOCUMENTED}[/PYTHON]",
        f"HYPOTHESIS: one pass\n<<<<<<< SEARCH\n=======\n{DOCUMENTED}>>>>>>> REPLACE",
        "```json\n" + json.dumps({"Hypothesis": "one pass", "answer": f"```\n{DOCUMENTED}```"}) + "\n```",
    ],
)
def test_a_file_with_fences_of_its_own_in_any_wrapping(answer):
    parsed = parse_answer(answer)
    assert parsed.source == DOCUMENTED
    assert parsed.hypothesis == "one pass"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (FILE.replace("    pass", "\u00a0\u00a0\u00a0\u00a0pass"), FILE),
        (FILE.replace("import torch", "\ufeffimport torch"), FILE),
        ("class ModelNew:\n    x = \u201ca\u201d\n", 'class ModelNew:\n    x = "a"\n'),
        ("class ModelNew:\n    x = &quot;a&quot;\n", 'class ModelNew:\n    x = "a"\n'),
    ],
)
def test_what_pages_do_to_text_is_undone(written, meant):
    assert parse_answer(f"```python\n{written}```").source == meant


@pytest.mark.parametrize("answer", [f"Here it is: ```python\n{FILE}```", f"~~~\n{FILE.rstrip()}~~~ done"])
def test_fences_that_do_not_stand_alone(answer):
    assert parse_answer(answer).source == FILE


def test_a_bare_file_after_its_hypothesis():
    assert parse_answer(f"HYPOTHESIS: one pass\n\n{FILE}").source == FILE


# --- edits ---

BASE = """import torch

ROWS = 4


class Helper:
    def run(self, x):
        y = x + 1
        return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return y
"""
FASTER = BASE.replace("ROWS = 4", "ROWS = 8")
BLOCK = "<<<<<<< SEARCH\nROWS = 4\n=======\nROWS = 8\n>>>>>>> REPLACE\n"
DIFF = "--- a/kernel.py\n+++ b/kernel.py\n@@ -1,4 +1,4 @@\n import torch\n \n-ROWS = 4\n+ROWS = 8\n \n"


@pytest.mark.parametrize(
    "answer",
    [
        f"HYPOTHESIS: wider\n{BLOCK}",
        f"HYPOTHESIS: wider\nkernel.py\n```python\n{BLOCK}```\nDone.",
        "HYPOTHESIS: wider\n1. Do:\n" + "".join(f"   {line}\n" for line in BLOCK.split("\n")),
        f"HYPOTHESIS: wider\n```diff\n{DIFF}```\n",
        f"HYPOTHESIS: wider\n{DIFF}",
        "HYPOTHESIS: wider\n~~~patch\n@@ ... @@\n-ROWS = 4\n+ROWS = 8\n~~~",
        "HYPOTHESIS: wider\n```diff\n@@ -77,3 +77,3 @@ class A\nimport torch\n\n-ROWS = 4\n+ROWS = 8\n```",
        json.dumps({"hypothesis": "wider", "edits": BLOCK}),
        "HYPOTHESIS: wider\n*** Begin Patch\n*** Update File: a.py\n@@\n import torch\n \n"
        "-ROWS = 4\n+ROWS = 8\n*** End Patch",
        "HYPOTHESIS: wider\n*** Begin Patch\n*** Update File: a.py\n-ROWS = 4\n+ROWS = 8\n*** End Patch",
        f"HYPOTHESIS: wider\ndiff --git a/k b/k\nindex 0123456..789abcd 100644\n{DIFF}diff --git a/b b/b\n",
        f"HYPOTHESIS: wider\n```python\n{FILE}```\nNo, rather:\n{BLOCK}",
    ],
)
def test_edits_are_made_in_the_file_they_start_from(answer):
    parsed = parse_answer(answer, base=BASE)
    assert parsed.source == FASTER
    assert parsed.hypothesis == "wider"
    assert parsed.edited


def test_a_diff_that_only_explains_a_whole_file_does_no_harm():
    answer = f"```python\n{FILE}```\nWhat changed:\n```diff\n@@ -1 +1 @@\n-no such line\n+class ModelNew\n```"
    assert parse_answer(answer, base=BASE).source == FILE


def test_what_only_looks_like_a_thought_stays():
    source = FILE + "table = {}\nthought = 1\ntable[thought] = table.get(thought)\n"
    assert parse_answer(f"```python\n{source}```").source == source
    with pytest.raises(Unparseable):
        parse_answer(f"<think>\nWhat about\n```python\n{FILE}```\nno,", truncated=True)


def test_underlined_headings_do_not_divide_a_block():
    base = BASE.replace("import torch", '"""Title\n===========\n"""\nimport torch')
    block = '<<<<<<< SEARCH\n"""Title\n===========\n=======\n"""Other\n===========\n>>>>>>> REPLACE'
    assert parse_answer(block, base=base).source.startswith('"""Other\n===========\n"""\nimport')


def test_a_whole_file_after_edits_counts():
    assert parse_answer(f"{BLOCK}In full:\n```python\n{FILE}```", base=BASE).source == FILE


def test_a_diffs_line_numbers_choose_among_equal_places():
    change = "-        y = x + 1\n+        y = x + 2\n         return y\n"
    hunks = f"@@ -13,3 +13,3 @@\n     def forward(self, x):\n{change}"
    added = "+A = 1\n" * 10  # moves the first place to where the second was
    twice = f"@@ -3 +3,11 @@\n ROWS = 4\n{added}@@ -14,2 +24,2 @@\n{change}"
    assert parse_answer(f"```diff\n{hunks}```", base=BASE).source.count("x + 2") == 1
    source = parse_answer(f"```diff\n{twice}```", base=BASE).source
    assert source.split("class ModelNew")[1].count("x + 2") == 1


def test_indentation_that_was_lost_is_found_again():
    body = "def forward(self, x):\n    y = x"
    block = f"<<<<<<< SEARCH\n{body} + 1\n=======\n{body} * 3\n\n    y += 1\n>>>>>>> REPLACE"
    source = parse_answer(block, base=BASE).source
    assert "    def forward(self, x):\n        y = x * 3\n\n        y += 1\n        return y\n" in source


def test_lines_can_be_deleted_and_added():
    block = (
        "<<<<<<< SEARCH\nROWS = 4   \n=======\n>>>>>>> REPLACE\n"
        "<<<<<<< SEARCH\nimport torch\n=======\nimport torch\nimport math\n>>>>>>> REPLACE"
    )
    source = parse_answer(block, base=BASE).source
    assert "ROWS" not in source
    assert source.startswith("import torch\nimport math\n")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            BLOCK.replace("ROWS = 4", "COLS = 4"),
            "edit 1 of 1 does not match the file: it has no line 'COLS = 4'",
        ),
        (
            BLOCK + BLOCK.replace("ROWS = 4", "        y = x + 1\n        return y"),
            "edit 2 of 2 fits in 2 places",
        ),
        (BLOCK.replace("ROWS = 4\n", ""), "does not say what it replaces"),
        (BLOCK.replace("ROWS = 8", "ROWS = 4"), "change nothing"),
        (BLOCK.replace("ROWS = 8", "ROWS = ("), "with the edits, the file is not valid Python"),
        (BLOCK.replace(">>>>>>> REPLACE\n", ""), "not closed"),
        (BLOCK.replace("ROWS = 4", "ROWS = 4\nimport torch"), "do not stand there in this order"),
    ],
)
def test_what_is_wrong_with_edits_is_said(answer, problem):
    with pytest.raises(Unparseable, match=problem):
        parse_answer(answer, base=BASE)


def test_edits_need_a_starting_point_and_their_end():
    with pytest.raises(Unparseable, match="no starting point"):
        parse_answer(BLOCK)
    with pytest.raises(Unparseable, match="cut off"):
        parse_answer(f"{BLOCK}<<<<<<< SEARCH\nimport", truncated=True, base=BASE)
