"""What a question without a target is about: told by its words, preferred, never a filter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kb import KnowledgeBase
from kb.focus import infer

Store = Callable[..., None]
SIZES = {"nvidia": 900, "nvidia:sm_90": 300, "amd": 1000, "amd:gfx942": 200, "aws-neuron": 1000,
         "triton": 400, "tpu/gpu-pallas": 500, "tenstorrent": 700, "mychip:v2000": 100,
         "generic": 50}  # fmt: skip


def scopes(question: str, spread: dict[str, dict[str, int]] | None = None) -> set[str] | None:
    focus = infer(question, spread or {}, SIZES)
    return None if focus is None else set(focus.scopes)


@pytest.mark.parametrize(
    ("question", "preferred"),
    [
        ("how large may a block be on H100", {"nvidia", "nvidia:sm_90", "triton", "generic"}),
        ("occupancy on sm_90", {"nvidia", "nvidia:sm_90", "triton", "generic"}),
        ("what does wgmma need", {"nvidia", "nvidia:sm_90", "triton", "generic"}),
        ("LDS of an MI300X", {"amd", "amd:gfx942", "triton", "generic"}),
        ("gfx942 atomics", {"amd", "amd:gfx942", "triton", "generic"}),
        ("matmul on trn2", {"aws-neuron", "generic"}),
        ("a Pallas kernel on TPU v5e", {"tpu/gpu-pallas", "generic"}),
        ("which engines has a Tensix core", {"tenstorrent", "generic"}),
        ("masked tl.load", {"triton", "generic"}),
        ("banks of MyChip memory", {"mychip:v2000", "generic"}),
        ("porting from CUDA to NKI", {"nvidia", "nvidia:sm_90", "triton", "aws-neuron", "generic"}),
    ],
)
def test_names_say_what_is_preferred(question: str, preferred: set[str]) -> None:
    assert scopes(question) == preferred


@pytest.mark.parametrize(
    "question",
    ["how do I avoid bank conflicts", "copy from the CPU", "", "kernels on Gaudi", "use cute names"],
)
def test_other_questions_prefer_nothing(question: str) -> None:
    assert scopes(question) is None


def test_words_that_one_scope_alone_has_speak_for_it() -> None:
    spread = {"psum": {"aws-neuron": 40, "amd": 1}, "memory": {"aws-neuron": 300, "amd": 300, "nvidia": 300}}
    focus = infer("memory of psum", spread, SIZES)
    assert focus is not None
    assert (focus.scopes, focus.words, focus.named) == ({"aws-neuron", "generic"}, ("psum",), False)


def test_words_of_a_family_speak_for_all_of_it() -> None:
    spread = {"mbarrier": {"nvidia": 20, "nvidia:sm_90": 9}}
    assert scopes("mbarrier phase", spread) == {"nvidia", "nvidia:sm_90", "triton", "generic"}


@pytest.mark.parametrize(
    "spread",
    [
        {"slip": {"amd": 2}},
        {"everywhere": {"amd": 50, "nvidia": 40, "aws-neuron": 30}},
        {"common": {"generic": 40}},
        {"psum": {"aws-neuron": 40}, "tensix": {"tenstorrent": 30}},
        {"vector": {"mychip:v2000": 3, "nvidia": 30}},
        {"row": {"amd": 500, "mychip:v2000": 50}},
    ],
)
def test_weak_or_contradicting_words_prefer_nothing(spread: dict[str, dict[str, int]]) -> None:
    assert scopes("a question", spread) is None


def test_a_store_with_one_scope_has_nothing_to_prefer() -> None:
    assert infer("on H100", {"wgmma": {"nvidia": 9}}, {"nvidia": 100}) is None
    assert infer("on H100", {"wgmma": {"nvidia": 9}}, {"nvidia": 100, "generic": 10}) is None
    assert infer("on H100", {}, {}) is None


@pytest.fixture
def two_vendors(kb: KnowledgeBase, store: Store) -> KnowledgeBase:
    for i in range(12):
        store(kb, f"amd{i}.md", f"shared memory limit per block: {i} and no more", scope="amd")
    store(
        kb,
        "nvidia.md",
        "the limit of shared memory for a block on this device, at last",
        scope="nvidia:sm_90",
    )
    store(kb, "far.md", "about an entirely different thing", scope="nvidia")
    return kb


def test_the_preferred_comes_first_and_nothing_is_lost(two_vendors: KnowledgeBase) -> None:
    question = "shared memory limit per block"
    plain = two_vendors.query(question, k=50)
    assert plain.inferred is None
    assert "inferred" not in plain.hits[0].why
    assert "inferred" not in plain.to_json()
    assert plain.hits[0].path.startswith("amd")
    asked = two_vendors.query(f"{question} on H100", k=50)
    assert asked.hits[0].path == "nvidia.md"
    assert {h.path for h in asked.hits} == {h.path for h in plain.hits}
    assert asked.to_json()["inferred"]["words"] == ["H100"]
    assert asked.hits[0].why["inferred"]["inside"] is True
    outside = next(h for h in asked.hits if h.path.startswith("amd"))
    assert outside.why["inferred"] == asked.to_json()["inferred"] | {"inside": False}


def test_a_given_target_is_not_inferred_over(two_vendors: KnowledgeBase) -> None:
    result = two_vendors.query("shared memory limit per block on H100", target="amd", k=50)
    assert result.inferred is None
    assert {h.why["scope"] for h in result.hits} == {"amd"}


def test_the_store_itself_teaches_its_words(kb: KnowledgeBase, store: Store) -> None:
    for i in range(6):
        store(kb, f"one{i}.md", f"the zorb holds row {i} of the tile", scope="vendor-one")
        store(kb, f"two{i}.md", f"row {i} of the tile lies in the cache", scope="vendor-two")
    result = kb.query("which row of the tile is in the zorb", k=4)
    assert result.inferred is not None
    assert (result.inferred.words, result.inferred.named) == (("zorb",), False)
    assert {h.why["scope"] for h in result.hits} == {"vendor-one"}
