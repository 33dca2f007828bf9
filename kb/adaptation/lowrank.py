"""Low-rank changes of an embedding model's weights: one to ship takes about a megabyte.

A matrix W (out, in) becomes W + B A, with A (rank, in) and B (out, rank): Hu et al. 2021, "LoRA", their
scale within B. A file is safetensors in float16; `<weight>.down` is A, `<weight>.up` is B. It is named for
the model that it adapts, so that it cannot be applied to another one: `<model>.safetensors`, and
`<model>-<adapted model>.safetensors` once it is set aside, to be found for that adapted model alone.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
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
_REMEDY = "remove it; `kernelevolve kb adapt` makes one anew"


def find_adapters(model_id: str, folders: Sequence[Path], wanted: str = "") -> list[Path]:
    """The changes of the model `model_id` in `folders`: at most one of each, in order, applied one after the
    other. Those that make up the model `wanted` and no more, where it can still be made.
    """
    found: list[Path] = []
    for folder in folders:
        if model_id == wanted:
            break
        choice = (folder / f"{model_id}-{wanted}.safetensors", folder / f"{model_id}.safetensors")
        file = next((file for file in choice if file.is_file()), None)
        if file is not None:
            found.append(file)
            model_id = adapted_id(model_id, file)
    return found


def set_aside(file: Path) -> None:
    """Keep a copy of a change that is about to go: the model that it makes serves on until all is embedded
    anew, and other processes must be able to load it until then (`kb gc` removes it afterwards).
    """
    if file.is_file():
        kept = file.with_name(f"{file.stem}-{adapted_id(file.stem, file)}.safetensors")
        partial = kept.with_suffix(".partial")
        shutil.copyfile(file, partial)
        partial.replace(kept)


def unneeded(folder: Path, models: Collection[str]) -> list[Path]:
    """Changes that were set aside for models of which none is among `models` any more."""
    return [file for file in folder.glob("*-*.safetensors") if file.stem.rpartition("-")[2] not in models]


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
