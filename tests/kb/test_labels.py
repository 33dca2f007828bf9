"""Labels as people type them: a wrong letter is told, a new word is allowed."""

from __future__ import annotations

import pytest

from kb.errors import LabelUnknown
from kb.labels import check_target, confirm_new


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("nvidai", "nvidia"),
        ("nvdia:sm_90", "nvidia:sm_90"),
        ("NVIDA", "nvidia"),
        ("h100", "nvidia:sm_90"),
        ("cuda", "nvidia"),
        ("cuda:sm_90", "nvidia:sm_90"),
        ("sm90", "nvidia:sm_90"),
        ("gfx942", "amd:gfx942"),
        ("MI300X", "amd:gfx942"),
        ("rocm", "amd"),
        ("tensorrent", "tenstorrent"),
        ("trn2", "aws-neuron:trn2"),
        ("pallsa", "pallas"),
    ],
)
def test_an_unknown_vendor_is_refused_with_what_was_meant(typed: str, meant: str) -> None:
    with pytest.raises(LabelUnknown) as caught:
        check_target(typed, ["generic", "nvidia:sm_90"])
    assert meant in caught.value.hint
    said = confirm_new(typed, ["generic"])
    assert said is not None
    assert "is new here; did you mean" in said
    assert meant in said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("amd:gxf942", "amd:gfx942"),
        ("nvidia:sm90", "nvidia:sm_90"),
        ("nvidia:h100", "nvidia:sm_90"),
        ("amd:mi300x", "amd:gfx942"),
        ("tenstorrent:wormhoel", "tenstorrent:wormhole"),
    ],
)
def test_an_unknown_model_of_a_known_vendor_is_told(typed: str, meant: str) -> None:
    said = check_target(typed, [])
    assert said is not None
    assert meant in said


@pytest.mark.parametrize(
    "label",
    ["generic", "cpu", "NVIDIA", " nvidia:sm_90 ", "amd:gfx942", "triton", "tpu/gpu-pallas", "opencl"],
)
def test_known_labels_need_no_word(label: str) -> None:
    assert check_target(label, []) is None
    assert confirm_new(label, []) is None


def test_what_is_stored_or_installed_is_known() -> None:
    assert check_target("mychip", ["mychip"]) is None
    assert check_target("mychip:v2", [], ["mychip:v2"]) is None
    said = check_target("mychip:v3", ["mychip:v2"])
    assert said is not None
    assert "mychip:v2" in said
    assert confirm_new("mychip", ["mychip"]) is None


def test_an_architecture_without_documents_is_no_mistake() -> None:
    said = check_target("nvidia:sm_87", [])
    assert said is not None
    assert "did you mean" not in said


def test_a_new_label_without_a_likeness_is_only_confirmed() -> None:
    assert confirm_new("quux", []) == "scope quux is new here"
    with pytest.raises(LabelUnknown):
        check_target("quux", ["generic"])


@pytest.mark.parametrize("target", ["", "  "])
def test_an_empty_target_is_refused(target: str) -> None:
    with pytest.raises(LabelUnknown, match="empty"):
        check_target(target, ["generic"])
