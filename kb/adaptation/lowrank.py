"""Low-rank changes of an embedding model's weights: one to ship takes about a megabyte.

A matrix W (out, in) becomes W + B A, with A (rank, in) and B (out, rank): Hu et al. 2021, "LoRA", their
scale within B. A file is safetensors in float16; `<weight>.down` is A, `<weight>.up` is B. It is named for
the model that it adapts, so that it cannot be applied to another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kb.bert import NotExpressible, read_weights
from kb.errors import EmbeddingFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kb.bert import Weights

    Matrix = NDArray[np.float32]
    Factors = Mapping[str, tuple[Matrix, Matrix]]  # weight -> (A, B)

_DOWN, _UP = ".down", ".up"
_REMEDY = "remove it, or run `kernelevolve kb adapt`"


def find_adapters(model_id: str, folders: Sequence[Path], wanted: str = "") -> list[Path]:
    """The changes of the model `model_id` in `folders`: at most one of each, in order, applied one after the
    other. Stops where the result is the model `wanted`.
    """
    found = []
    for folder in folders:
        file = folder / f"{model_id}.safetensors"
        if model_id != wanted and file.is_file():
            found.append(file)
            model_id = adapted_id(model_id, file)
    return found


def adapted_id(model_id: str, file: Path) -> str:
    """The identity of `model_id` with the change in `file`."""
    return hashlib.sha256(model_id.encode() + file.read_bytes()).hexdigest()[:16]


def read_factors(file: Path) -> Factors:
    """Raises EmbeddingFailed."""
    try:
        tensors = read_weights(file)
        names = [name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)]
        if not names or len(tensors) != 2 * len(names):
            raise KeyError("pairs of matrices")
        return {name: (tensors[name + _DOWN], tensors[name + _UP]) for name in names}
    except (NotExpressible, KeyError) as error:
        raise EmbeddingFailed(f"{file} is no adapter of an embedding model: {error}", _REMEDY) from error


def write_factors(file: Path, factors: Factors, facts: Mapping[str, str]) -> None:
    """`facts`: what it was made from, kept in the file's header. The file is there whole or not at all."""
    import numpy as np
    from safetensors.numpy import save_file

    tensors = {}
    for name, (down, up) in factors.items():
        tensors[name + _DOWN], tensors[name + _UP] = down.astype(np.float16), up.astype(np.float16)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    save_file(tensors, partial, metadata=dict(facts))
    partial.replace(file)


def adapt_weights(weights: Weights, files: Sequence[Path]) -> Weights:
    """`weights` with the changes of `files`; what is not changed stays mapped. Raises EmbeddingFailed."""
    changed = dict(weights)
    for file in files:
        for name, (down, up) in read_factors(file).items():
            if name not in changed or changed[name].shape != (up.shape[0], down.shape[1]):
                raise EmbeddingFailed(f"{file} does not fit the embedding model: {name}", _REMEDY)
            changed[name] = changed[name] + up @ down
    return changed
