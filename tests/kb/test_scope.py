from __future__ import annotations

import pytest

from kb.scope import visible, visible_scopes

LABELS = {
    "generic", "cpu", "triton", "nvidia", "nvidia:sm_90", "nvidia:sm_100", "nvidia-cute", "amd", "amd-hip",
    "amd:gfx942", "aws-neuron", "tenstorrent", "tpu", "tpu/gpu-pallas", "opencl",
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("cpu", {"generic", "cpu", "triton"}),
        ("nvidia:sm_90", {"generic", "nvidia", "nvidia:sm_90", "nvidia-cute", "triton"}),
        ("amd:gfx942", {"generic", "amd", "amd:gfx942", "amd-hip", "triton"}),
        ("aws-neuron", {"generic", "aws-neuron"}),
        ("tenstorrent:sim", {"generic", "tenstorrent"}),
        ("tpu/gpu-pallas", {"generic", "tpu", "tpu/gpu-pallas"}),
        ("triton", {"generic", "triton"}),
        (" NVIDIA:SM_90 ", {"generic", "nvidia", "nvidia:sm_90", "nvidia-cute", "triton"}),
        ("unheard-of", {"generic"}),
    ],
)
def test_what_a_target_sees(target: str, seen: set[str]) -> None:
    assert set(visible(LABELS, target)) == seen


def test_no_vendor_sees_another(tmp_path: object) -> None:
    vendors = ("nvidia", "amd", "aws-neuron", "tenstorrent", "tpu")
    for target in LABELS - {"generic", "cpu", "triton", "opencl"}:
        own = next(v for v in vendors if target.startswith(v))
        for label in visible_scopes(target) - {"generic", "triton", "pallas"}:
            assert label.startswith(own), (target, label)


def test_without_a_target_everything_is_seen() -> None:
    assert visible(LABELS, None) == sorted(LABELS)
