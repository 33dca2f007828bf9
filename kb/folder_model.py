"""The files of a sentence-transformers model: who it is, how much it reads, how it cuts words.

Nothing here computes vectors, or reads weights beyond samples of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kb.adaptation.lowrank import adapted_id
from kb.errors import EmbeddingFailed

# The share of the model's window that a passage may fill; the rest is for special tokens and rounding.
PASSAGE_TOKENS = 220
# Where sentence-transformers reads how long a text may be, by age of the format.
_LIMITS = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)
_FEWEST_TOKENS = 16  # a passage has a breadcrumb, too
_ANEW = "save or download the model anew"
_SAMPLES = 32
_SAMPLE_BYTES = 1 << 16


class FolderModel:
    """The files of a sentence-transformers model: its identity and its tokenizer; subclasses compute.

    `model_id` is the same whatever computes: onnxruntime and torch agree to a cosine of 0.99999 and better,
    so that vectors of one stay good where the other answers. Raises EmbeddingFailed for any other folder.
    """

    sends_to = ""

    def __init__(self, folder: Path, adapters: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.adapters = tuple(adapters)
        if not (folder / "config.json").is_file():
            raise EmbeddingFailed(
                f"{folder} holds no sentence-transformers model",
                "set KERNELEVOLVE_EMBEDDING_MODEL to a folder with config.json and weights",
            )

    @property
    def model_id(self) -> str:
        """A digest of configuration, tokenizer and evenly spread samples of the weights, and of adapters."""
        return self.identities[-1]

    @cached_property
    def identities(self) -> tuple[str, ...]:
        """What the model is without adapters, with the first, and so on: len(adapters) + 1."""
        digest = hashlib.sha256()
        for file in sorted(
            p for p in self.folder.rglob("*") if p.suffix in (".json", ".safetensors", ".bin")
        ):
            size = file.stat().st_size
            digest.update(f"{file.relative_to(self.folder)}:{size};".encode())
            with file.open("rb") as handle:
                # Reading all of the weights would cost every process a noticeable fraction of a second.
                for i in range(_SAMPLES if size > _SAMPLES * _SAMPLE_BYTES else 1):
                    handle.seek(i * (size - _SAMPLE_BYTES) // (_SAMPLES - 1) if i else 0)
                    digest.update(handle.read(_SAMPLE_BYTES))
        found = [digest.hexdigest()[:16]]
        for file in self.adapters:
            found.append(adapted_id(found[-1], file))
        return tuple(found)

    @cached_property
    def window(self) -> int:
        """The smallest limit that one of the files names, less the two special tokens."""
        limits = [512]
        for name, key in _LIMITS:
            value = self._json(name).get(key)
            if isinstance(value, int | float) and value > 0:
                limits.append(int(min(value, limits[0])))
        if min(limits) <= _FEWEST_TOKENS:
            raise EmbeddingFailed(
                f"the embedding model {self.folder} reads only {min(limits)} tokens of a text",
                f"correct {_LIMITS[0][1]} in {_LIMITS[0][0]}, or name another model",
            )
        return min(limits) - 2

    def _json(self, name: str) -> dict[str, Any]:
        """What a file of the folder holds; nothing where it is not there. Raises EmbeddingFailed."""
        path = self.folder / name
        if not path.is_file():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise TypeError("it holds no object")
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise EmbeddingFailed(f"{path} is damaged: {error}", _ANEW) from error
        return found

    @cached_property
    def passage_tokens(self) -> int:
        return min(PASSAGE_TOKENS, self.window - 2)

    @cached_property
    def cutting(self) -> str:
        digest = hashlib.sha256(self._tokenizer.to_str().encode())
        return f"{digest.hexdigest()[:16]}:{self.passage_tokens}"

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise EmbeddingFailed(
                f"{self.folder} has no tokenizer.json", "save the model with a fast tokenizer"
            )
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the package has no class of its own for it
            raise EmbeddingFailed(f"{path} is damaged: {error}", _ANEW) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        encoded = self._tokenizer.encode_batch_fast([clean(t) for t in texts], add_special_tokens=False)
        return [len(e) for e in encoded]


def clean(text: str) -> str:
    """Tokenizers refuse lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")
