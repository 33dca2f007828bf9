"""What an adaptation learns from: pairs of question and passage, and the passages that are not the answer.

Needs no store: a file holds them for a machine that has a GPU and no knowledge base.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from kb.errors import NothingToLearn, QuestionsInvalid

KINDS = ("heading", "summary", "reference", "question")
FEWEST = 50  # pairs held out: fewer cannot tell an improvement from luck
_MOST_HELD_OUT = 600  # of a kind


@dataclass(frozen=True)
class Pair:
    """`passage` answers `question`; both are embedded. `chunk` is where the answer stands, by its key.

    `lexical`: other chunks of the scope that the words of the question find, best first.
    """

    kind: str
    question: str
    passage: str
    chunk: int
    scope: str
    held_out: bool
    lexical: tuple[int, ...] = ()


@dataclass(frozen=True)
class StoredPassage:
    """One that a question may be told from."""

    chunk: int
    scope: str
    text: str


def divide(
    pairs: Sequence[Pair], most: int, *, auxiliary: float = 1.0, seed: int = 0, held: int = _MOST_HELD_OUT
) -> tuple[list[Pair], list[Pair]]:
    """At most `most` pairs to train on, and up to `held` of each kind that are held out.

    Questions that somebody wrote come first, being what is asked; of each other kind a share of `auxiliary`,
    all where there are no questions, and they share what is left alike, as far as each goes. Raises
    NothingToLearn.
    """
    rng = random.Random(seed)
    taught: list[Pair] = []
    kept: list[Pair] = []
    kinds = {kind: [p for p in pairs if p.kind == kind] for kind in KINDS}
    in_turn = sorted((m for kind, m in kinds.items() if kind != "question"), key=len)
    part = auxiliary if any(not p.held_out for p in kinds["question"]) else 1.0
    for position, members in enumerate([kinds["question"], *in_turn]):
        rng.shuffle(members)
        learnt = [p for p in members if not p.held_out]
        if position == 0:
            share = most
        else:
            share = min(round(part * len(learnt)), (most - len(taught)) // (len(KINDS) - position))
        taught += learnt[:share]
        kept += [p for p in members if p.held_out][:held]
    if len(kept) < FEWEST or len(taught) < FEWEST:
        raise NothingToLearn(
            f"the documents give {len(taught)} pairs to learn from and {len(kept)} to compare with; "
            f"{FEWEST} of each are needed",
            "ingest more documents, or give questions with --questions",
        )
    return taught, kept


def write_examples(file: Path, pairs: Iterable[Pair], passages: Iterable[StoredPassage]) -> None:
    """As JSON lines, compressed by gzip: passages first."""
    with gzip.open(file, "wt", encoding="utf-8") as out:
        for row in chain(map(asdict, passages), map(asdict, pairs)):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_examples(file: Path) -> tuple[list[Pair], list[StoredPassage]]:
    """What `write_examples` wrote. Raises QuestionsInvalid."""
    pairs, passages = [], []
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if "question" in row:
                    pairs.append(Pair(**{**row, "lexical": tuple(row["lexical"])}))
                else:
                    passages.append(StoredPassage(**row))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise QuestionsInvalid(f"{file} cannot be read: {error}", "export the pairs again") from error
    return pairs, passages
