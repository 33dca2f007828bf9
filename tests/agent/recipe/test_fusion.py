"""Which operators share a kernel, and that every partition stays executable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recipe_support import Apply, compare, composed, facts_of

from agent.recipe.axes import Incompatible, Space
from agent.recipe.library import names
from agent.recipe.lowering import build
from agent.recipe.partition import Partition
from agent.recipe.region import Region

t = torch.randn


def regions(function: Callable[..., Any], *inputs: torch.Tensor) -> list[Region]:
    return Partition(build(facts_of(Apply(function), list(inputs)))).regions()


def test_a_layer_norm_with_its_surroundings_is_one_region() -> None:
    (region,) = regions(lambda x, b: F.gelu(F.layer_norm(x + b, (64,))) + x, t(4, 8, 64), t(64))
    assert (region.mode, region.rows, region.cols) == ("rows", 32, 64)


def test_group_norm_residual_joins_through_the_reshape() -> None:
    (region,) = regions(lambda x: F.silu(F.group_norm(x, 4)) + x, t(2, 16, 7, 7))
    assert (region.mode, region.rows, region.cols) == ("rows", 8, 196)


def test_reduction_over_channels_vectorises_over_pixels() -> None:
    (region,) = regions(lambda x: torch.softmax(x, 1), t(2, 16, 7, 7))
    assert (region.mode, region.cols) == ("lanes", 16)


def test_cross_entropy_writes_no_table() -> None:
    first, second = regions(F.cross_entropy, t(32, 100), torch.randint(0, 100, (32,)))
    assert [v.numel for v in first.outputs] == [32]
    assert second.mode == "all"


def test_sum_with_own_transpose_is_no_diagonal() -> None:
    (region,) = regions(lambda x: x + x.t(), t(8, 8))
    assert region.mode == "transpose"
    assert region.rows * region.cols == 64


def test_reductions_over_different_axes_are_separate() -> None:
    assert len(regions(lambda x: x.sum(0) / x.sum(1), t(8, 8))) == 2


CYCLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "sorted branch": lambda x: torch.sort(x * 2, -1)[0] + x * 2,
    "statistic of a product": lambda x: (x @ x.t()).sum(-1, keepdim=True) * x + x.mean(-1, keepdim=True),
    "two normalisations": lambda x: torch.softmax(F.layer_norm(x, (12,)), 0) + torch.softmax(x, -1),
    "ladder": lambda x: ((x.sum(0) + 1).cumsum(0) * x).sum(1, keepdim=True) + x,
}


@pytest.mark.parametrize("name", CYCLES)
def test_kernels_and_calls_can_be_ordered(name: str) -> None:
    model, inputs = Apply(CYCLES[name]), [t(12, 12)]
    compare(model, inputs, composed(model, inputs, names()).source)


def test_every_cut_gives_a_correct_candidate() -> None:
    model, inputs = Apply(lambda x: F.layer_norm(F.gelu(x * 1.5), (33,)) * torch.sigmoid(x)), [t(9, 33)]
    partition = Partition(build(facts_of(model, inputs)))
    cuts = partition.boundaries()
    assert len(cuts) > 3
    for cut in cuts[:3]:
        split = composed(model, inputs, names(), cuts=(cut,))
        assert len(split.kernels) > 1
        compare(model, inputs, split.source)


def test_axes_split_until_two_shapes_agree() -> None:
    space = Space()
    flat, grid = space.fresh(24), [*space.fresh(4), *space.fresh(6)]
    space.unify(flat, grid)
    assert space.resolve(flat) == space.resolve(grid)
    with pytest.raises(Incompatible):
        space.unify(space.fresh(6), [*space.fresh(4), *space.fresh(9)])


def test_a_slice_moves_in_front_of_what_it_cuts() -> None:
    def gated(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        gate, value = (torch.tanh(x + b) * 2).chunk(2, -1)
        return gate * value

    model, inputs = Apply(gated), [t(9, 34), t(34)]
    result = composed(model, inputs, names())
    assert len(result.kernels) == 1
    compare(model, inputs, result.source)


def test_a_value_that_is_also_needed_whole_is_not_cut() -> None:
    model, inputs = Apply(lambda x: (x * 2, (x * 2)[:, 3:9:2] + 1)), [t(9, 34)]
    compare(model, inputs, composed(model, inputs, names()).source)


def test_siblings_read_their_input_once() -> None:
    function = Apply(lambda x: (x.mean(-1), x.std(-1), (x * x).sum(-1)))
    result = composed(function, [t(9, 34)], names())
    assert len(result.kernels) == 1
    compare(function, [t(9, 34)], result.source)


def test_cut_siblings_stay_apart() -> None:
    model, inputs = Apply(lambda x: (torch.exp(x) + 1, torch.exp(x) * 2)), [t(9, 34)]
    assert len(composed(model, inputs, names(), cuts=("exp",)).kernels) > 1
    compare(model, inputs, composed(model, inputs, names(), cuts=("exp",)).source)


def gated_sum(dim: int) -> Callable[..., Any]:
    def gated(x: torch.Tensor, s: torch.Tensor) -> Any:
        gate = torch.sigmoid(s)
        return x.sum(dim) * gate, gate

    return gated


@pytest.mark.parametrize(("dim", "mode"), [(-1, "rows"), (1, "lanes")])
def test_a_row_output_that_follows_from_no_reduction_is_stored(dim: int, mode: str) -> None:
    model, inputs = Apply(gated_sum(dim)), [t(12, 17, 33), t(12, 17) if dim < 0 else t(12, 33)]
    (region,) = regions(gated_sum(dim), *inputs)
    assert (region.mode, len(region.outputs)) == (mode, 2)
    result = composed(model, inputs, names())
    assert len(result.kernels) == 1
    compare(model, inputs, result.source)


class SlicedLinear(torch.nn.Module):
    """Uses a part of a weight, as projections that share one matrix do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(t(48, 20))

    def forward(self, x: torch.Tensor) -> Any:
        second = self.weight.chunk(3)[1]
        return (
            F.relu(F.linear(x, self.weight[9:])),
            torch.tanh(x @ second.t()),
            F.gelu(x @ self.weight[:20, :20]),
        )


def test_own_product_starts_where_its_operand_does() -> None:
    model, inputs = SlicedLinear(), [t(24, 20)]
    result = composed(model, inputs, ["gemm-epilogue-own"])
    assert len(result.kernels) == 3
    compare(model, inputs, result.source)


TRANSPOSED: dict[str, Callable[..., torch.Tensor]] = {
    "two directions": lambda x, y: x.permute(2, 1, 0) + y.permute(0, 2, 1),
    "one direction": lambda x, y: x.permute(2, 1, 0) * y.permute(2, 1, 0),
    "mask": lambda x, y: torch.where((y > 0).permute(2, 1, 0), x.permute(0, 2, 1), 0.5),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_loads_that_are_contiguous_along_different_axes(name: str) -> None:
    model, inputs = Apply(TRANSPOSED[name]), [t(19, 19, 19), t(19, 19, 19)]
    result = composed(model, inputs, ["blocked-transpose", "elementwise-chain"])
    assert result.kernels
    compare(model, inputs, result.source)


def test_a_transposed_mask_alone_is_left_to_others() -> None:
    model, inputs = Apply(lambda x, m: torch.where(m.t(), x, 0.0)), [t(19, 19), torch.rand(19, 19) > 0.5]
    compare(model, inputs, composed(model, inputs, names()).source)
