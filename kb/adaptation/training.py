"""Fitting a low-rank change of an embedding model to pairs of question and passage.

The loss is that of in-batch negatives (van den Oord et al. 2018, InfoNCE; Henderson et al. 2017), in both
directions: a question's own passage against those of the other questions in the batch. Batches are made
within one scope, where the wrong answers are hard to tell from the right one.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingFailed

if TYPE_CHECKING:
    import torch

    from kb.adaptation.lowrank import Factors
    from kb.adaptation.pairs import Pair

_SCALE = 20.0  # of cosines before the softmax, as the bundled model was trained
_WARM_UP = 10  # steps
_SMALLEST_BATCH = 8  # fewer wrong answers teach little


@dataclass(frozen=True)
class Recipe:
    """How to train. `window`: tokens of a passage that are read."""

    epochs: int = 2
    batch: int = 64
    rank: int = 16
    learning_rate: float = 5e-4
    window: int = 224
    seed: int = 0


def train(
    model: Any, pairs: Sequence[Pair], recipe: Recipe, progress: Callable[[int, int], None] | None = None
) -> Factors:
    """The change that makes the passages of `pairs` nearer to their questions.

    `model`, a sentence-transformers model, is left as it was. Raises EmbeddingFailed where it has no linear
    layers to change, or where it diverges.
    """
    import torch

    if torch.cuda.is_available():
        model.to("cuda")
    encoder = model[0].auto_model
    torch.manual_seed(recipe.seed)
    low = _insert(encoder, recipe.rank)
    factors = [p for m in low.values() for p in (m.down, m.up)]
    frozen = [p for p in encoder.parameters() if p.requires_grad and not any(p is f for f in factors)]
    try:
        for parameter in frozen:
            parameter.requires_grad_(False)
        _fit(model, pairs, recipe, factors, progress)
        return {
            f"{name}.weight": (m.down.detach().float().cpu().numpy(), m.up.detach().float().cpu().numpy())
            for name, m in low.items()
        }
    finally:
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


def _fit(
    model: Any,
    pairs: Sequence[Pair],
    recipe: Recipe,
    factors: Sequence[torch.nn.Parameter],
    progress: Callable[[int, int], None] | None,
) -> None:
    import torch

    device = factors[0].device
    rng = random.Random(recipe.seed)
    plan = [batch for _ in range(recipe.epochs) for batch in batches(pairs, recipe.batch, rng)]
    optimizer = torch.optim.AdamW(factors, lr=recipe.learning_rate)
    window, model.max_seq_length = model.max_seq_length, min(recipe.window, model.max_seq_length)
    model.train()
    try:
        for step, batch in enumerate(plan):
            rate = min(1.0, (step + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / len(plan)))
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * rate
            with torch.autocast(device.type, dtype=torch.bfloat16):
                questions = _embed(model, [p.question for p in batch], device)
                passages = _embed(model, [p.passage for p in batch], device)
            loss = _loss(questions, passages, [p.chunk for p in batch])
            if not math.isfinite(loss.item()):
                raise EmbeddingFailed("the adaptation diverged", "train with a lower learning rate")
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if progress is not None:
                progress(step + 1, len(plan))
    finally:
        model.max_seq_length = window
        model.eval()


def _embed(model: Any, texts: Sequence[str], device: torch.device) -> torch.Tensor:
    """Unit vectors (len(texts), dimension), float32, with gradients."""
    import torch

    features = {k: v.to(device) for k, v in model.preprocess(list(texts)).items() if hasattr(v, "to")}
    return torch.nn.functional.normalize(model(features)["sentence_embedding"].float(), dim=1)


def _loss(questions: torch.Tensor, passages: torch.Tensor, chunks: Sequence[int]) -> torch.Tensor:
    import torch

    keys = torch.tensor(chunks, device=questions.device)
    right = torch.arange(len(chunks), device=questions.device)
    # Two questions about one chunk: each one's passage is no wrong answer to the other.
    alike = (keys[:, None] == keys[None]) & (right[:, None] != right[None])
    scores = (_SCALE * questions @ passages.T).masked_fill(alike, -torch.inf)
    cross = torch.nn.functional.cross_entropy
    return (cross(scores, right) + cross(scores.T, right)) / 2


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
