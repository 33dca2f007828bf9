"""Scripts without blanks between words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kb import KnowledgeBase
from kb.lexical import terms_of
from kb.scripts import pieces, spaced
from kb.upkeep.check import check

Store = Callable[..., None]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("tl.dot", ["tl.dot"]),
        ("naïve", ["naïve"]),
        ("共享内存", ["共享", "享内", "内存"]),
        ("wgmma指令", ["wgmma", "指令"]),
        ("sm_90の行列", ["sm_90", "の行", "行列"]),
        ("面", ["面"]),
        ("메모리", ["메모", "모리"]),
    ],
)
def test_pieces(word: str, parts: list[str]) -> None:
    assert pieces(word) == parts


def test_ascii_is_left_alone() -> None:
    assert spaced("tl.dot(a, b)") == "tl.dot(a, b)"
    assert terms_of("warp 内存 bank") == ["warp", "内存", "bank"]


@pytest.mark.parametrize(
    ("heading", "asked"),
    [
        ("如何避免共享内存库冲突", "共享内存"),
        ("共有メモリのバンク競合を避ける方法", "バンク競合"),
        ("공유메모리뱅크충돌방지", "뱅크충돌"),
        ("การหลีกเลี่ยงความขัดแย้งของหน่วยความจำ", "หน่วยความจำ"),
        ("使用wgmma指令的矩阵乘法", "wgmma 矩阵乘法"),
    ],
)
def test_a_part_of_a_heading_is_found_by_its_words(
    kb: KnowledgeBase, store: Store, heading: str, asked: str
) -> None:
    store(kb, "other.md", "寄存器溢出到本地\n\nレジスタの退避\n\n레지스터\n\nรีจิสเตอร์")
    store(kb, "a.md", heading)
    best = kb.query(asked, k=1).hits[0]
    assert best.path == "a.md"
    assert best.why["terms"] == terms_of(asked)
    assert best.why["bm25"] > 0
    store(kb, "a.md", "nothing of it")
    assert all(hit.path != "a.md" or not hit.why["terms"] for hit in kb.query(asked).hits)
    assert check(kb).problems == []
