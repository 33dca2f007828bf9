"""BERT sentence encoders on onnxruntime, from the files that sentence-transformers saves.

Devlin et al. 2019: embeddings, then per layer self-attention and a feed-forward network, each added to its
input and normalised. A sentence is the mean over its tokens, scaled to unit length. The graph is built here
and the weights stay where they are, mapped into memory: a query needs neither torch nor an exported copy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.onnx_graph import FLOAT, INT64, Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = Mapping[str, NDArray[np.float32]]

_FUSED = "com.microsoft"
_DTYPES = {"F32": "<f4", "F16": "<f2"}


class NotExpressible(Exception):
    """Why a model is not one that this module computes."""


@dataclass(frozen=True)
class Bert:
    """What of a BERT's configuration decides the computation."""

    layers: int
    heads: int
    epsilon: float
    window: int  # tokens, special ones included


def read_config(folder: Path) -> Bert:
    """Raises NotExpressible."""
    config = _json(folder / "config.json")
    wanted = {"model_type": "bert", "hidden_act": "gelu"}
    for key, value in wanted.items():
        if config.get(key) != value:
            raise NotExpressible(f"{key} is {config.get(key)!r}, not {value!r}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise NotExpressible("positions are not absolute")
    modules = [str(m.get("type", "")).rsplit(".", 1)[-1] for m in _json(folder / "modules.json")]
    if modules not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise NotExpressible(f"it is made of {', '.join(modules)}")
    pooling = _json(folder / _json(folder / "modules.json")[1]["path"] / "config.json")
    modes = [m for m, on in pooling.items() if m.startswith("pooling_mode") and on]
    if modes not in (["pooling_mode_mean_tokens"], ["pooling_mode"]) or (
        pooling.get("pooling_mode", "mean") != "mean"
    ):
        raise NotExpressible("it does not pool by the mean")
    settings = _json(folder / "sentence_bert_config.json", {})
    prompts = _json(folder / "config_sentence_transformers.json", {})
    if settings.get("do_lower_case") or prompts.get("default_prompt_name"):
        raise NotExpressible("it changes the text before the tokenizer sees it")
    if not (folder / "model.safetensors").is_file():
        raise NotExpressible("its weights are not in one model.safetensors")
    try:
        positions = int(config["max_position_embeddings"])
        return Bert(
            layers=int(config["num_hidden_layers"]),
            heads=int(config["num_attention_heads"]),
            epsilon=float(config["layer_norm_eps"]),
            window=min(int(settings.get("max_seq_length") or positions), positions),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotExpressible(f"config.json does not say {error}") from error


def _json(path: Path, default: Any = None) -> Any:
    if not path.is_file() and default is not None:
        return default
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotExpressible(f"{path.name} cannot be read") from error


def read_weights(path: Path) -> Weights:
    """The tensors of a safetensors file, mapped, float32. Raises NotExpressible."""
    import numpy as np

    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
            if not isinstance(header, dict):
                raise TypeError("no table of tensors")
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)
    except (OSError, ValueError, TypeError, OverflowError, MemoryError, struct.error) as error:
        raise NotExpressible(f"{path.name} cannot be read") from error
    header.pop("__metadata__", None)
    try:
        return _tensors(header, data)
    except (KeyError, TypeError, ValueError) as error:  # not what the header says
        raise NotExpressible(f"{path.name} is damaged") from error


def _tensors(header: dict[str, Any], data: NDArray[np.uint8]) -> Weights:
    import numpy as np

    weights = {}
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            if entry["dtype"].startswith("I"):
                continue  # buffers of positions
            raise NotExpressible(f"weights are {entry['dtype']}")
        start, end = entry["data_offsets"]
        tensor = np.asarray(data[start:end]).view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        weights[name.removeprefix("bert.")] = tensor.astype(np.float32, copy=False)
    return weights


def build_graph(bert: Bert, weights: Weights) -> tuple[bytes, list[str]]:
    """The graph and the names of the weights it uses. Raises NotExpressible where one is missing.

    Inputs `ids` and `mask`, both (batch, tokens) int64; output `sums` (batch, width): the sum over the tokens
    that `mask` shows, which is their mean up to its length.
    """
    graph = Graph()
    used: list[str] = []

    def weight(name: str) -> str:
        if name not in weights:
            raise NotExpressible(f"there is no weight {name}")
        if name not in used:
            used.append(graph.external(name, weights[name].shape))
        return name

    def linear(x: str, name: str, output: str) -> str:
        return graph.node("Gemm", [x, weight(f"{name}.weight"), weight(f"{name}.bias")], output, transB=1)

    def add_and_normalise(x: str, residual: str, name: str, output: str) -> str:
        inputs = [x, residual, weight(f"{name}.weight"), weight(f"{name}.bias")]
        return graph.node(
            "SkipLayerNormalization", inputs, output, domain=_FUSED, epsilon=bert.epsilon
        )  # fmt: skip

    ids = graph.input("ids", ("batch", "tokens"), INT64)
    mask = graph.input("mask", ("batch", "tokens"), INT64)
    width = weights["embeddings.word_embeddings.weight"].shape[1]
    flat = graph.integers("flat", [-1, width])

    # Embeddings: of the words, of the positions 0, 1, 2 …, and of the only segment there is.
    zero, one, first = (graph.integers(n, [v]) for n, v in (("zero", 0), ("one", 1), ("axis1", 1)))
    shape = graph.node("Shape", [ids], "shape")
    length = graph.node("Gather", [shape, first], "length", axis=0)
    words = graph.node("Gather", [weight("embeddings.word_embeddings.weight"), ids], "words")
    positions = graph.node(
        "Slice", [weight("embeddings.position_embeddings.weight"), zero, length, zero], "positions"
    )
    segment = graph.node(
        "Slice", [weight("embeddings.token_type_embeddings.weight"), zero, one, zero], "segment"
    )
    placed = graph.node("Add", [graph.node("Add", [words, positions], "placed_words"), segment], "placed")
    norm = [weight(f"embeddings.LayerNorm.{p}") for p in ("weight", "bias")]
    normal = graph.node("LayerNormalization", [placed, *norm], "embedded", epsilon=bert.epsilon)
    x = graph.node("Reshape", [normal, flat], "embedded_flat")

    # The sizes (batch, tokens, width) for attention, which alone must know where a text ends.
    folded = graph.node("Concat", [shape, graph.integers("width", [width])], "folded", axis=0)
    shown = graph.node("Cast", [mask], "mask_int", to=6)
    for i in range(bert.layers):
        layer = f"encoder.layer.{i}"
        heads = [
            graph.node(
                "Reshape", [linear(x, f"{layer}.attention.self.{p}", f"{p}{i}"), folded], f"{p}{i}_folded"
            )
            for p in ("query", "key", "value")
        ]
        attended = graph.node(
            "MultiHeadAttention", [*heads, "", shown], f"attended{i}", domain=_FUSED, num_heads=bert.heads
        )
        context = graph.node("Reshape", [attended, flat], f"context{i}")
        projected = linear(context, f"{layer}.attention.output.dense", f"projected{i}")
        x = add_and_normalise(projected, x, f"{layer}.attention.output.LayerNorm", f"middle{i}")
        wide = graph.node(
            "Gelu", [linear(x, f"{layer}.intermediate.dense", f"wide{i}")], f"gelu{i}", domain=_FUSED
        )
        narrow = linear(wide, f"{layer}.output.dense", f"narrow{i}")
        x = add_and_normalise(narrow, x, f"{layer}.output.LayerNorm", f"layer{i}")

    hidden = graph.node("Reshape", [x, folded], "hidden")
    row = graph.node("Unsqueeze", [graph.node("Cast", [mask], "mask_float", to=FLOAT), first], "mask_row")
    summed = graph.node("MatMul", [row, hidden], "summed")  # (batch, 1, width)
    graph.node("Squeeze", [summed, first], "sums")
    graph.output("sums", ("batch", str(width)), FLOAT)
    return graph.to_bytes(), used


def open_session(graph: bytes, weights: Weights, names: list[str]) -> Any:
    """An onnxruntime session that computes on the thread that calls it; several may."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_external_initializers(names, [ort.OrtValue.ortvalue_from_numpy(weights[n]) for n in names])
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
