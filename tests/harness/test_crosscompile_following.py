"""What surrounds the launches of a candidate whose device is not here: it is followed without contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Evaluation

pytest.importorskip("triton")

SAMPLES = Path(__file__).parent / "samples" / "crosscompile"
PROBLEM = (SAMPLES / "problem.py").read_text()
KERNEL, MODEL = ((SAMPLES / f"{name}.py").read_text() for name in ("kernel", "model"))
CANDIDATE, LAUNCH = KERNEL + MODEL, "        kernel[(triton"

DEVICE_CODE = """
        p = torch.cuda.get_device_properties(x.device)
        assert torch.cuda.is_available() and p.multi_processor_count == 132
        assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.current_device() == 0
        assert x.is_cuda and not x.is_cpu and x.device.type == "cuda" and x.get_device() == 0
        assert self.lin.weight.device == x.device == self.scale.device
        assert x.data_ptr() % 16 == 0 and x[:, 1:].data_ptr() == x.data_ptr() + 4
        assert x.data_ptr() != self.scale.data_ptr()
        assert torch.zeros(3, device=x.device).is_cuda and torch.zeros(3).to("cuda").is_cuda
        assert torch.arange(3, device="cuda").cuda().is_cuda and x.new_zeros(2).is_cuda
        assert not torch.zeros(3).is_cuda
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.cuda.device(x.device):
            x.record_stream(side)
            torch.cuda.Event(enable_timing=True).record()
        torch.cuda.synchronize()
        n_regs = None
        warm = kernel.warmup(x, self.scale, x, x.numel(), 512, BLOCK=1024, grid=(1,))
        warm._init_handles()
        assert warm.n_regs > 0
        limits = triton.runtime.driver.active.utils.get_device_properties(0)
        assert limits["max_shared_mem"] == 232448
"""


def test_code_that_asks_for_the_device(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CANDIDATE.replace("        h = self", DEVICE_CODE + "        h = self"))
    assert result.status == "compiled", result.reason
    assert result.flags == []


def test_operators_between_launches_cost_no_memory(compiled: Callable[..., Evaluation]) -> None:
    """Inputs of 32 GiB, and torch's operators on them."""
    more = """
        h = torch.nn.functional.layer_norm(h, (512,)).softmax(-1)
        h = torch.nn.functional.conv1d(h.view(-1, 512, 1), torch.ones(512, 1, 1).cuda(), groups=512)[..., 0]
        s = torch.nn.functional.scaled_dot_product_attention(h[:64][None], h[:64][None], h[:64][None])
        h = torch.cat([s[0], h[64:]]).contiguous()
"""
    result = compiled(
        CANDIDATE.replace("        y = torch", more + "        y = torch"),
        problem=PROBLEM.replace("1 << 14", "1 << 24"),
    )
    assert result.status == "compiled", result.reason


def test_kernels_behind_a_custom_operator(compiled: Callable[..., Evaluation]) -> None:
    operator = """
@torch.library.custom_op("mine::f", mutates_args=())
def f(h: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(h)
    assert y.is_cuda
    kernel[(triton.cdiv(h.numel(), 1024),)](h, scale, y, h.numel(), h.shape[1], BLOCK=1024)
    return y
@f.register_fake
def _(h, scale):
    return torch.empty_like(h)
"""
    model = MODEL.partition("        y = torch")[0] + "        return torch.ops.mine.f(h, self.scale)\n"
    result = compiled(KERNEL + operator + model)
    assert "compiled 1 kernel" in result.reason, result.reason


def test_contents_that_are_not_known(compiled: Callable[..., Evaluation]) -> None:
    reads = "        n = x.sum().item() + float(x[0, 0]) + x.cpu().sum().item()\n"
    result = compiled(CANDIDATE.replace(LAUNCH, reads + LAUNCH))
    assert result.status == "compiled", result.reason
    (flag,) = result.flags
    assert flag["rule"] == "assumed-values"
    assert "line 16: item" in flag["detail"]


def test_following_ends_where_contents_decide(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CANDIDATE.replace("return y", "return y[y > 0]"))
    assert result.status == "compiled", result.reason
    assert [f["rule"] for f in result.flags] == ["not-followed"]
    early = CANDIDATE.replace("        y = torch", "        h = h[h > 0]\n        y = torch")
    result = compiled(early)
    assert result.status == "harness_error"
    assert "without the device" in result.reason


def test_no_kernel(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(PROBLEM.replace("class Model", "class ModelNew"))
    assert result.status == "compiled"
    assert [f["rule"] for f in result.flags] == ["no-kernels"]


def test_a_swallowed_compile_error_is_no_kernel(compiled: Callable[..., Evaluation]) -> None:
    fallback = (
        CANDIDATE.replace("tl.maximum(", "tl.maxxximum(")
        .replace(LAUNCH, "        try:\n    " + LAUNCH)
        .replace(
            "        return y",
            "        except Exception:\n            y = torch.relu(h) * self.scale\n        return y",
        )
    )
    result = compiled(fallback)
    assert "no kernel of its own" in result.reason, result.reason


def test_invalid_problem(compiled: Callable[..., Evaluation]) -> None:
    result = compiled(CANDIDATE, problem=PROBLEM.replace("def get_inputs", "def inputs"))
    assert result.status == "invalid_problem"
    assert "get_inputs" in result.reason


def test_inputs_that_need_contents(compiled: Callable[..., Evaluation]) -> None:
    drawn = "x = torch.rand(64, 512); assert float(x.max()) < 1; return [x[x[:, 0] >= 0]]"
    result = compiled(CANDIDATE, problem=PROBLEM.replace("return [torch.rand(1 << 14, 512)]", drawn))
    assert result.status == "compiled", result.reason
