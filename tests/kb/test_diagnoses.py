"""A diagnosis becomes questions: one for each thing that it says."""

from __future__ import annotations

from kb.diagnoses import TROUBLE, sub_queries

DIAGNOSIS = {
    "bottleneck": "memory",
    "evidence": ["global loads use 8 of 32 bytes of each sector", "DRAM at 84 % of peak"],
    "actions": ["wider-vectors: load 16 bytes per thread", {"move": "prefetch"}],
    "metrics": {"dram_pct": 84.0},
}


def test_bottleneck_evidence_and_actions_are_asked_one_by_one() -> None:
    asked = sub_queries(DIAGNOSIS)
    assert [q.purpose for q in asked] == [
        "bottleneck: memory", "evidence", "evidence", "suggested action", "suggested action",
    ]  # fmt: skip
    assert asked[0].text == TROUBLE["memory"]
    assert asked[1].text == DIAGNOSIS["evidence"][0]  # type: ignore[index]
    assert asked[4].text == "move prefetch"


def test_what_is_missing_or_said_twice_is_not_asked() -> None:
    assert sub_queries({}) == []
    assert sub_queries({"bottleneck": "unknown", "evidence": [], "actions": None}) == []
    assert [q.text for q in sub_queries({"bottleneck": "bank conflicts"})] == ["bank conflicts"]
    assert [q.text for q in sub_queries({"evidence": "one line", "actions": ["one  line", ""]})] == [
        "one line"
    ]
    error = sub_queries({"bottleneck": "compile_error", "error": "no member named 'x'"})
    assert [q.purpose for q in error] == ["bottleneck: compile_error", "the error"]
    assert len(sub_queries({"evidence": [f"line {i}" for i in range(100)]})) == 12


def test_every_bottleneck_that_a_trace_can_have_has_words() -> None:
    import ast
    from pathlib import Path

    import ingest.diagnose

    tree = ast.parse(Path(ingest.diagnose.__file__).read_text(encoding="utf-8"))
    rules = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "_rules")
    named = {
        node.value.elts[0].value
        for node in ast.walk(rules)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
        and isinstance(node.value.elts[0], ast.Constant)
    }  # fmt: skip
    assert len(named) >= 5
    assert named - {"unknown"} <= set(TROUBLE)
