"""A tensor as an expression that draws another of its kind: same shape, dtype and strides, values like its
own.

What a distribution is taken for follows from the values alone: constants, masks and index tables are
recognised exactly; other numbers are normal, uniform, or drawn between their own quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from harness.worker.values import dtype_name

# A distribution is named from so many values on; fewer tell their range alone.
FEW = 32
# Distinct values up to which a floating tensor is taken for a mask or a table of codes.
CODES = 8
# Elements up to which a sorted index table (offsets of ragged rows) is kept as it is.
LITERAL_LIMIT = 4096
LEVELS = 17
SAMPLE = 1 << 20  # values that statistics look at

QUANTILES = "from_quantiles"
_HELPERS = {
    QUANTILES: '''def from_quantiles(levels, *shape):
    """Values of the distribution that has `levels` as its equally spaced quantiles."""
    where = torch.rand(shape) * (len(levels) - 1)
    low = where.long().clamp(max=len(levels) - 2)
    return torch.lerp(levels[low], levels[low + 1], where - low)'''
}

Shape = tuple[int, ...]


def expression(tensor: torch.Tensor, shape: Shape | None = None) -> str:
    """Python text that draws such a tensor on the CPU with torch's global generator.

    `shape`: another shape than the tensor's own, then contiguous. `helpers(text)` gives the functions that
    the text needs beside torch.
    """
    values = tensor.detach().cpu()
    if shape is not None and shape != tuple(values.shape):
        return _values(values, shape)
    return _laid_out(values)


def helpers(text: str) -> list[str]:
    """The sources of the helper functions that `text` calls."""
    return [source for name, source in _HELPERS.items() if f"{name}(" in text]


def _laid_out(tensor: torch.Tensor) -> str:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    if tensor.is_contiguous():
        return _values(tensor, shape)
    repeated = [i for i, (n, s) in enumerate(zip(shape, stride, strict=True)) if s == 0 and n > 1]
    if repeated:
        for i in repeated:
            tensor = tensor.narrow(i, 0, 1)
        return f"{_laid_out(tensor)}.expand({_sizes(shape)})"
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return f"{_values(tensor, shape)}.to(memory_format=torch.channels_last)"
    order = sorted(range(len(shape)), key=lambda i: (-stride[i], -shape[i]))
    dense = tensor.permute(order)
    if dense.is_contiguous():
        back = tuple(order.index(i) for i in range(len(shape)))
        turned = ".t()" if back == (1, 0) else f".permute({_sizes(back)})"
        return _values(dense, tuple(dense.shape)) + turned
    span = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if span < tensor.numel():  # windows that overlap
        return f"{_values(tensor, (span,))}.as_strided({shape}, {stride})"
    place = f"torch.empty_strided({shape}, {stride}{_dtype(tensor.dtype)})"
    return f"{place}.copy_({_values(tensor, shape)})"


def _values(tensor: torch.Tensor, shape: Shape) -> str:
    """A contiguous tensor of this shape with values like `tensor`'s."""
    dtype = tensor.dtype
    if tensor.numel() == 0 or 0 in shape:
        return f"torch.empty({_sizes(shape)}{_dtype(dtype)})"
    if dtype.is_floating_point and dtype.itemsize == 1:
        tensor = tensor.float()  # 8-bit floats know hardly any operator
    elif not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
        tensor = tensor.long()
    first = tensor.flatten()[0]
    if bool((tensor == first).all()):
        return _constant(first.item(), shape, dtype)
    kept = tuple(tensor.shape) == shape
    if kept and (triangle := _triangle(tensor, dtype)):
        return triangle
    if dtype == torch.bool:
        return f"(torch.rand({_sizes(shape)}) < {tensor.double().mean().item():.3g})"
    if dtype.is_complex:
        spread = float(tensor.abs().double().square().mean().sqrt())
        return _scaled(f"torch.randn({_sizes(shape)}{_dtype(dtype)})", spread, 0.0)
    if dtype.is_floating_point:
        return _floats(tensor, shape, dtype)
    return _integers(tensor, shape, dtype)


def _integers(tensor: torch.Tensor, shape: Shape, dtype: torch.dtype) -> str:
    low, high = int(tensor.min()), int(tensor.max())
    named = "" if dtype == torch.int64 else _dtype(dtype)
    if tuple(tensor.shape) == shape and shape and shape[-1] > 2:
        row = tensor.reshape(-1, shape[-1])[0]
        if bool((tensor == row).all()) and bool((row.diff() == 1).all()):
            text = f"torch.arange({low}, {high + 1}{named})"
            return text if len(shape) == 1 else f"{text}.repeat({_sizes(shape[:-1])}, 1)"
        if len(shape) == 1:
            if low == 0 and bool((tensor.sort().values == torch.arange(len(tensor))).all()):
                return f"torch.randperm({len(tensor)}{named})"
            if bool((tensor.diff() >= 0).all()) and len(tensor) <= LITERAL_LIMIT:
                return f"torch.tensor({tensor.tolist()}{named})"
    return f"torch.randint({low}, {high + 1}, {shape}{named})"


def _floats(tensor: torch.Tensor, shape: Shape, dtype: torch.dtype) -> str:
    wide = tensor.flatten()
    wide = wide[:: max(1, len(wide) // SAMPLE)].double()
    finite = wide[wide.isfinite()]
    if len(finite) < len(wide) or len(wide) >= FEW:
        codes = torch.unique(wide[~wide.isnan()])
        if len(codes) <= CODES:
            return _codes(wide, codes, shape, dtype)
    if len(finite) >= FEW and bool((finite == finite.round()).all()) and float(finite.abs().max()) < 1e6:
        text = f"torch.randint({int(finite.min())}, {int(finite.max()) + 1}, {shape})"
        return f"{text}.to({_named(dtype)})"
    if tuple(tensor.shape) == shape and shape and shape[-1] > 1 and bool((finite >= 0).all()):
        limit = 1e-2 if dtype.itemsize < 4 else 1e-4
        if bool(((tensor.double().sum(-1) - 1).abs() < limit).all()):
            return f"torch.randn({_sizes(shape)}{_dtype(dtype)}).softmax(-1)"
    return _distribution(finite, shape, dtype)


def _distribution(wide: torch.Tensor, shape: Shape, dtype: torch.dtype) -> str:
    """Normal, uniform, or by quantiles. `wide` holds finite values in double precision, not all equal."""
    count, low, high = len(wide), float(wide.min()), float(wide.max())
    mean, std = float(wide.mean()), float(wide.std())
    standard = (wide - mean) / std
    kurtosis, skewness = float(standard.pow(4).mean()) - 3, float(standard.pow(3).mean())
    error = math.sqrt(24 / count)
    drawable = dtype.itemsize > 1
    what = f"({_sizes(shape)}{_dtype(dtype) if drawable else ''})"
    converted = "" if drawable else f".to({_named(dtype)})"
    flat = (high - low) / std < 3.7 and abs(kurtosis + 1.2) < 0.1 + 3 * error
    if count < FEW or (flat and abs(skewness) < 0.1 + 3 * error):
        low, high = _snapped(low, high, count)
        return _scaled(f"torch.rand{what}", high - low, low) + converted
    if abs(kurtosis) < 0.2 + 4 * error and abs(skewness) < 0.1 + 2 * error:
        mean = 0.0 if abs(mean) < 4 * std / math.sqrt(count) else mean
        std = 1.0 if abs(std - 1) < 4 / math.sqrt(2 * count) else std
        return _scaled(f"torch.randn{what}", std, mean) + converted
    levels = torch.quantile(wide[:: len(wide) // SAMPLE + 1], torch.linspace(0, 1, LEVELS).double())
    listed = ", ".join(_number(v) for v in (low, *levels[1:-1].tolist(), high))
    text = f"{QUANTILES}(torch.tensor([{listed}]), {_sizes(shape)})"
    return text if dtype == torch.float32 else f"{text}.to({_named(dtype)})"


def _snapped(low: float, high: float, count: int) -> tuple[float, float]:
    """The ends of a uniform distribution, which its extreme values nearly reach, as round numbers."""
    margin = (high - low) * 8 / count
    for least, most in ((0.0, 1.0), (-1.0, 1.0)):
        if count >= FEW and 0 <= low - least <= margin and 0 <= most - high <= margin:
            return least, most
    return low, high


def _codes(wide: torch.Tensor, codes: torch.Tensor, shape: Shape, dtype: torch.dtype) -> str:
    """A few values with their shares, NaN included."""
    values = [*codes.tolist(), *([math.nan] if bool(wide.isnan().any()) else [])]
    hits = [wide.isnan() if math.isnan(value) else wide == value for value in values]
    shares = ", ".join(f"{float(hit.double().mean()):.3g}" for hit in hits)
    count = " * ".join(map(str, shape)) or "1"
    picked = f"torch.multinomial(torch.tensor([{shares}]), {count}, replacement=True)"
    listed = ", ".join(map(_number, values))
    return f"torch.tensor([{listed}]{_dtype(dtype)})[{picked}].reshape({_sizes(shape)})"


def _triangle(tensor: torch.Tensor, dtype: torch.dtype) -> str:
    """Causal masks: two values, parted along a diagonal of the last two dimensions."""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2 or dtype.is_complex:
        return ""
    upper, lower = tensor[..., 0, -1].flatten()[0], tensor[..., -1, 0].flatten()[0]
    for k in (0, 1):
        ones = torch.ones(tensor.shape, dtype=torch.bool).triu(k)
        if bool((tensor == torch.where(ones, upper, lower)).all()):
            true = f"torch.ones({_sizes(tuple(tensor.shape))}, dtype=torch.bool)"
            if dtype == torch.bool:
                return f"{true}.triu({k})" if bool(upper) else f"{true}.tril({k - 1})"
            text = f"torch.where({true}.triu({k}), {_number(upper.item())}, {_number(lower.item())})"
            return text if dtype == torch.float32 else f"{text}.to({_named(dtype)})"
    return ""


def _constant(value: complex, shape: Shape, dtype: torch.dtype) -> str:
    if value in (0, 1):
        return f"torch.{'ones' if value else 'zeros'}({_sizes(shape)}{_dtype(dtype)})"
    return f"torch.full({shape}, {_number(value)}{_dtype(dtype)})"


def _scaled(text: str, scale: float, shift: float) -> str:
    factor = "" if scale == 1.0 else f" * {_number(scale)}"
    term = f" {'+' if shift > 0 else '-'} {_number(abs(shift))}" if shift else ""
    return f"({text}{factor}{term})" if factor or term else text


def _number(value: complex) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.4g}")) if math.isfinite(value) else f'float("{value}")'
    return repr(value)


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) or "()"


def _dtype(dtype: torch.dtype) -> str:
    return "" if dtype == torch.float32 else f", dtype={_named(dtype)}"


def _named(dtype: torch.dtype) -> str:
    return f"torch.{dtype_name(dtype)}"
