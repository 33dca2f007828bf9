from __future__ import annotations

from collections.abc import Callable

import pytest

from kb import KnowledgeBase
from kb.questions import plain_question


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ('File "/home/me/work/kernels/softmax.py", line 31, in forward', 'File " softmax.py" , in forward'),
        ("/usr/local/src/a/b.cu:118:7: error: identifier undefined", "b.cu: error: identifier undefined"),
        (r"C:\Users\me\src\a.cpp(12): error C2065", "a.cpp(12): error C2065"),
        ("illegal address 0x7f3a5c000000 in kernel", "illegal address in kernel"),
        ("2026-11-30 14:02:11,512 CUDA error: misaligned", "CUDA error: misaligned"),
        ("\x1b[31merror\x1b[0m: out of resource", "error : out of resource"),
    ],
)
def test_what_differs_from_run_to_run_goes(message: str, plain: str) -> None:
    assert " ".join(plain_question(message).split()) == plain


@pytest.mark.parametrize(
    "question",
    [
        "tl.dot_scaled lhs_scale shape [M, K//group_size]", "197 TFLOP/s 819 GB/s", "mask 0xFF of lane 0x1f",
        "why std::array<int, 4> and a:b:c", "strides over 2^31", "/dev/shm too small", "nvidia:sm_90 limits",
        "s_waitcnt lgkmcnt(0)", "docs/how-to/tune.md says", "torch 2.11.0: what changed", "ratio 3:2:1",
    ],
)  # fmt: skip
def test_questions_stay_as_they_are(question: str) -> None:
    assert plain_question(question) == question


def test_nothing_is_left_of_an_address_alone() -> None:
    assert plain_question("0x7f3a5c000000") == "0x7f3a5c000000"


@pytest.mark.parametrize("odd", ["\x00", "\ud800"])
def test_what_cannot_be_stored_is_no_reason_to_fail(
    kb: KnowledgeBase, store: Callable[..., None], odd: str
) -> None:
    store(kb, "a.md", "tiling of the cache")
    for question in (f"tiling{odd} cache", f"{odd} tiling", f"cache {odd}{odd}"):
        assert [h.path for h in kb.query(question).hits] == ["a.md"]
    assert kb.query("tiling", target=f"nvidia{odd}").hits
    assert kb.query("tiling", kinds=[odd]).hits == []


def test_a_question_of_nothing_but_nul_is_empty(kb: KnowledgeBase, store: Callable[..., None]) -> None:
    store(kb, "a.md", "tiling of the cache")
    assert kb.query("\x00 \x00").hits == []
