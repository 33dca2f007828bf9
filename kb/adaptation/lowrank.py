"""Low-rank changes of an embedding model's weights: one to ship takes about a megabyte.

A matrix W (out, in) becomes W + B A, with A (rank, in) and B (out, rank): Hu et al. 2021, "LoRA", their
scale within B. A file is safetensors in float16; `<weight>.down` is A, `<weight>.up` is B. It is named for
the model that it adapts, so that it cannot be applied to another one: `<model>.safetensors`, and
`<model>-<adapted model>.safetensors` where it is set aside, to be found for that adapted model alone.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
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
_REMEDY = (
    "`kernelevolve kb adapt --undo` removes one of this home; install the package again for one of its own"
)


def find_adapters(model_id: str, folders: Sequence[Path], wanted: str = "") -> list[Path]:
    """The changes of the model `model_id` in `folders`: at most one of each, in order, applied one after the
    other. Those that make up the model `wanted` and no more, where it can still be made.
    """
    if wanted and (way := _way(model_id, folders, wanted)) is not None:
        return way
    found: list[Path] = []
    for folder in folders:
        file = folder / f"{model_id}.safetensors"
        if file.is_file():
            found.append(file)
            model_id = adapted_id(model_id, file)
    return found


def _way(model_id: str, folders: Sequence[Path], wanted: str) -> list[Path] | None:
    """Changes, set aside or not, that lead from one model to another one; None: there is no way."""
    if model_id == wanted:
        return []
    for folder in folders:
        for file in [*sorted(folder.glob(f"{model_id}-*.safetensors")), folder / f"{model_id}.safetensors"]:
            if file.is_file():
                rest = _way(adapted_id(model_id, file), folders, wanted)
                if rest is not None:
                    return [file, *rest]
    return None


def set_aside(file: Path) -> None:
    """Keep a copy of a change that is about to go: the model that it makes serves on until all is embedded
    anew, and other processes must be able to load it until then (`kb gc` removes it afterwards).
    """
    if file.is_file():
        _copy(file, file.parent, file.stem, adapted_id(file.stem, file))


def keep(files: Sequence[Path], identities: Sequence[str], folder: Path) -> None:
    """Have `folder` hold the changes in `files` that lie elsewhere: the package's next version has others.

    `identities` as `FolderModel.identities` has them.
    """
    for file, before, after in zip(files, identities[:-1], identities[1:], strict=True):
        if file.parent != folder and not (folder / _aside(before, after)).is_file():
            _copy(file, folder, before, after)


def _aside(before: str, after: str) -> str:
    return f"{before}-{after}.safetensors"


def _copy(file: Path, folder: Path, before: str, after: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / _aside(before, after)
    partial = kept.with_suffix(f".{uuid.uuid4().hex[:8]}.partial")
    try:
        shutil.copyfile(file, partial)
        partial.replace(kept)
    finally:
        partial.unlink(missing_ok=True)


def unneeded(folder: Path, models: Collection[str]) -> list[Path]:
    """Changes that were set aside and of which no model among `models` is made any more."""
    needed = set(models)
    aside = {file: file.stem.rpartition("-")[::2] for file in folder.glob("*-*.safetensors")}
    live = [f for f in folder.glob("*.safetensors") if f not in aside]
    steps = [*aside.values(), *((file.stem, adapted_id(file.stem, file)) for file in live)]
    for _ in steps:  # no chain is longer
        needed |= {before for before, after in steps if after in needed}
    return [file for file, (_, after) in aside.items() if after not in needed]


def adapted_id(model_id: str, file: Path) -> str:
    """The identity of `model_id` with the change in `file`."""
    return hashlib.sha256(model_id.encode() + file.read_bytes()).hexdigest()[:16]


def read_factors(file: Path) -> Factors:
    """Raises EmbeddingFailed."""
    import numpy as np

    try:
        tensors = read_weights(file)
        names = [name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)]
        if not names or len(tensors) != 2 * len(names):
            raise ValueError("it holds no pairs of matrices")
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("it holds what is no number")
        factors = {name: (tensors[name + _DOWN], tensors[name + _UP]) for name in names}
        if any(a.ndim != 2 or b.ndim != 2 or b.shape[1] != len(a) for a, b in factors.values()):
            raise ValueError("its matrices do not fit each other")
        return factors
    except (NotExpressible, KeyError, ValueError) as error:
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
