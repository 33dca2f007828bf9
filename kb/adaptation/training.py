"""Fitting a low-rank change of an embedding model to pairs of question and passage.

The loss is that of in-batch negatives (van den Oord et al. 2018, InfoNCE; Henderson et al. 2017), in both
directions: a question's own passage against those of the other questions in the batch. Batches are made
within one scope, where the wrong answers are hard to tell from the right one; hard negatives may be added to
them, mined anew in each epoch (`negatives.py`).

Needs torch and sentence-transformers, and no store.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kb.adaptation.negatives import mine
from kb.errors import EmbeddingFailed

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from kb.adaptation.examples import Pair, StoredPassage
    from kb.adaptation.lowrank import Factors

_WARM_UP = 20  # steps
_LONGEST_GRADIENT = 1.0
_EMBEDDED_AT_ONCE = 256  # texts, for mining
_SMALLEST_BATCH = 8  # fewer wrong answers teach little


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults are for a CPU.

    `pairs`: on so many at most; `auxiliary`: with which share of those that nobody wrote, where there are
    questions. `scale`: of cosines before the softmax. `negatives`: hard ones of each question. `window`: how
    many tokens of a passage are read.
    """

    epochs: int = 2
    pairs: int = 8000
    auxiliary: float = 1.0
    batch: int = 64
    rank: int = 16
    learning_rate: float = 5e-4
    scale: float = 20.0
    dropout: float = 0.1
    negatives: int = 0
    window: int = 224
    seed: int = 0


# What the adapter that ships with the package was made by: minutes on a GPU, twenty hours of CPU time.
FULL = Recipe(
    epochs=9, pairs=100_000, auxiliary=0.35, batch=128, rank=32, learning_rate=1e-3, scale=30.0, dropout=0.15,
    negatives=3,
)  # fmt: skip


def facts_of(recipe: Recipe, pairs: int) -> dict[str, str]:
    """What an adapter's file says of how it was made."""
    return {name: str(value) for name, value in {**asdict(recipe), "pairs": pairs}.items()}


def recipe_here() -> Recipe:
    """The full one where there is a GPU."""
    import torch

    return FULL if torch.cuda.is_available() else Recipe()


def train(
    model: Any,
    pairs: Sequence[Pair],
    recipe: Recipe,
    progress: Callable[[int, int], None] | None = None,
    passages: Sequence[StoredPassage] = (),
) -> Factors:
    """The change that makes the passages of `pairs` nearer to their questions.

    Hard negatives are taken from `passages`. `model`, a sentence-transformers model, is left as it was.

    Raises EmbeddingFailed where it has no linear layers to change, where it diverges, or where the GPU fails.
    """
    import torch

    if torch.cuda.is_available():
        try:
            model.to("cuda")
        except RuntimeError as error:
            raise EmbeddingFailed(
                f"the GPU failed: {str(error).splitlines()[0]}",
                "set CUDA_VISIBLE_DEVICES to nothing to train on the CPU",
            ) from error
    encoder = model[0].auto_model
    torch.manual_seed(recipe.seed)
    low = _insert(encoder, recipe.rank)
    factors = [p for m in low.values() for p in (m.down, m.up)]
    frozen = [p for p in encoder.parameters() if p.requires_grad and not any(p is f for f in factors)]
    dropouts = {m: m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout)}
    try:
        for dropout in dropouts:
            dropout.p = recipe.dropout
        for parameter in frozen:
            parameter.requires_grad_(False)
        _fit(model, pairs, recipe, factors, progress, passages)
        return {
            f"{name}.weight": (m.down.detach().float().cpu().numpy(), m.up.detach().float().cpu().numpy())
            for name, m in low.items()
        }
    except torch.OutOfMemoryError as error:
        raise EmbeddingFailed(
            "the GPU has too little memory to train on", "train with fewer --negatives"
        ) from error
    finally:
        for dropout, share in dropouts.items():
            dropout.p = share
        for name, module in low.items():
            _put(encoder, name, module.base)
        for parameter in frozen:
            parameter.requires_grad_(True)


def _insert(encoder: torch.nn.Module, rank: int) -> dict[str, Any]:
    """Put a low-rank change beside every linear layer of the encoder."""
    import torch

    class LowRank(torch.nn.Module):
        def __init__(self, base: torch.nn.Linear) -> None:
            super().__init__()
            self.base = base
            device = base.weight.device
            down = torch.randn(rank, base.in_features, device=device) / base.in_features**0.5
            self.down = torch.nn.Parameter(down)
            self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, device=device))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            changed: torch.Tensor = self.base(x) + (x @ self.down.T) @ self.up.T
            return changed

    layers = {
        name: module
        for name, module in encoder.named_modules()
        # A pooler has no part in a sentence's vector.
        if isinstance(module, torch.nn.Linear) and not name.startswith("pooler")
    }
    if not layers:
        raise EmbeddingFailed("the embedding model has no linear layers to adapt", "adapt another model")
    low: dict[str, Any] = {name: LowRank(layer) for name, layer in layers.items()}
    for name, module in low.items():
        _put(encoder, name, module)
    return low


def _put(encoder: torch.nn.Module, name: str, module: torch.nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(encoder.get_submodule(parent), last, module)


def _fit(  # noqa: PLR0917
    model: Any,
    pairs: Sequence[Pair],
    recipe: Recipe,
    factors: Sequence[torch.nn.Parameter],
    progress: Callable[[int, int], None] | None,
    passages: Sequence[StoredPassage],
) -> None:
    import torch

    rng = random.Random(recipe.seed)
    optimizer = torch.optim.AdamW(factors, lr=recipe.learning_rate)
    window, model.max_seq_length = model.max_seq_length, min(recipe.window, model.max_seq_length)
    step = 0
    try:
        for _ in range(recipe.epochs):
            rivals = _mined(model, pairs, passages, recipe.negatives, rng)
            plan = batches(pairs, recipe.batch, rng)
            total = recipe.epochs * len(plan)
            model.train()
            for batch in plan:
                rate = min(1.0, (step + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / total))
                for group in optimizer.param_groups:
                    group["lr"] = recipe.learning_rate * rate
                loss = _loss(model, batch, rivals, recipe.scale)
                if not math.isfinite(loss.item()):
                    raise EmbeddingFailed("the adaptation diverged", "train with a lower learning rate")
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(factors, _LONGEST_GRADIENT)
                optimizer.step()
                step += 1
                if progress is not None:
                    progress(step, total)
    finally:
        model.max_seq_length = window
        model.eval()


def _mined(
    model: Any,
    pairs: Sequence[Pair],
    passages: Sequence[StoredPassage],
    count: int,
    rng: random.Random,
) -> Mapping[Pair, Sequence[StoredPassage]]:
    """Hard negatives by the model as it is now."""
    import numpy as np

    if not count:
        return {}
    model.eval()
    texts = list(dict.fromkeys([p.text for p in passages] + [p.passage for p in pairs]))
    rows = {text: row for row, text in enumerate(texts)}
    vectors = _vectors(model, texts)
    near = vectors[np.array([rows[p.text] for p in passages], dtype=np.int64)]
    answers = vectors[[rows[p.passage] for p in pairs]]
    return mine(pairs, passages, _vectors(model, [p.question for p in pairs]), answers, near, count, rng)


def _vectors(model: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors (len(texts), dimension), by length: what is long pads what stands beside it."""
    import numpy as np
    import torch

    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    parts = []
    with torch.no_grad():
        for start in range(0, len(order), _EMBEDDED_AT_ONCE):
            batch = [texts[i] for i in order[start : start + _EMBEDDED_AT_ONCE]]
            parts.append(_embed(model, batch).cpu().numpy())
    found: NDArray[np.float32] = np.concatenate(parts)
    return found[np.argsort(order)]


def _embed(model: Any, texts: Sequence[str]) -> torch.Tensor:
    """Unit vectors (len(texts), dimension), float32, with gradients."""
    import torch

    device = model.device
    tokenize = getattr(model, "preprocess", None) or model.tokenize  # its name before version 5.4
    features = {k: v.to(device) for k, v in tokenize(list(texts)).items() if hasattr(v, "to")}
    with torch.autocast(device.type, dtype=torch.bfloat16):
        vectors = model(features)["sentence_embedding"]
    return torch.nn.functional.normalize(vectors.float(), dim=1)


def _loss(
    model: Any, batch: Sequence[Pair], rivals: Mapping[Pair, Sequence[StoredPassage]], scale: float
) -> torch.Tensor:
    import torch

    negatives = list(dict.fromkeys(rival for pair in batch for rival in rivals.get(pair, ())))
    questions = _embed(model, [p.question for p in batch])
    passages = _embed(model, [p.passage for p in batch] + [n.text for n in negatives])
    asked = torch.tensor([p.chunk for p in batch], device=questions.device)
    found = torch.tensor([p.chunk for p in batch] + [n.chunk for n in negatives], device=questions.device)
    right = torch.arange(len(batch), device=questions.device)
    # Two questions about one chunk: each one's passage is no wrong answer to the other.
    alike = asked[:, None] == found[None]
    alike[right, right] = False
    scores = (scale * questions @ passages.T).masked_fill(alike, -torch.inf)
    cross = torch.nn.functional.cross_entropy
    return (cross(scores, right) + cross(scores[:, : len(batch)].T, right)) / 2


def batches(pairs: Sequence[Pair], size: int, rng: random.Random) -> list[list[Pair]]:
    """Every pair once in batches of one scope; a remainder too small to teach goes to another epoch."""
    by_scope: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_scope[pair.scope].append(pair)
    found = []
    for scope in sorted(by_scope):
        members = by_scope[scope]
        rng.shuffle(members)
        found += [members[i : i + size] for i in range(0, len(members), size)]
    found = [batch for batch in found if len(batch) >= _SMALLEST_BATCH]
    rng.shuffle(found)
    return found
