"""Making a stored prompt again, byte for byte, from what it was made from.

Stored are the request (its long texts by their sha256), the template, the ids of the chunks and the digest of
the knowledge base. The passages themselves are read from the knowledge base when the prompt is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from kb.errors import BlobMissing, NotFound
from kb.tables import Chunk
from prompts.errors import NotReplayable
from prompts.pieces import Piece
from prompts.quoting import data_block
from prompts.record import Composition, Shown
from prompts.rendering import join, own_pieces, render, template_text
from prompts.request import PromptRequest
from prompts.synthesizer import passage_text

if TYPE_CHECKING:
    from kb import KnowledgeBase

_TEXT = "sha256:"  # stands before the digest of a text that is kept as a blob of its own


@dataclass(frozen=True)
class Replayed:
    """`knowledge` is the digest of the knowledge base then, `knowledge_now` today's."""

    prompt: str
    digest: str
    passages: int
    template: str
    knowledge: str
    knowledge_now: str

    @property
    def unchanged(self) -> bool:
        return self.knowledge == self.knowledge_now


def keep(kb: KnowledgeBase, composition: Composition) -> dict[str, Any]:
    """Store a composition. What is returned goes into the step's event: it names every blob that `replay`
    reads, so that none of them is garbage.
    """
    long: list[str] = [template_text()]

    def aside(text: str) -> str:
        long.append(text)
        return _TEXT + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    request = {f.name: getattr(composition.request, f.name) for f in fields(PromptRequest)}
    request["problem_source"] = aside(request["problem_source"])
    request["facts"] = aside(json.dumps(request["facts"], sort_keys=True))
    if request["parent"] is not None:
        request["parent"] = {**request["parent"], "source": aside(request["parent"]["source"])}
    request["examples"] = [{**e, "source": aside(str(e["source"]))} for e in request["examples"]]
    data = {
        "request": request,
        "own": composition.own,
        "passages": [asdict(shown) for shown in composition.passages],
        "template": composition.template,
        "knowledge": composition.knowledge,
    }
    kept, *texts = kb.blobs.put_all([json.dumps(data), *long])
    return {"composition": kept, "texts": texts}


def replay(kb: KnowledgeBase, kept: Mapping[str, Any], digest: str) -> Replayed:
    """The prompt with the sha256 `digest`, made again from what `keep` returned for it.

    Raises NotReplayable with what has changed since.
    """
    try:
        composition = _composition(kb, str(kept["composition"]))
        template = kb.blobs.text(composition.template)
    except BlobMissing as error:
        raise NotReplayable(
            f"what the prompt was made from is lost: {error}", "restore a backup of the home folder"
        ) from error
    now = kb.catalogue().digest
    passages = _passages(kb, composition, now)
    own = own_pieces(composition.request)
    pieces = [own[i] for i in composition.own if i < len(own)] + passages
    prompt = join(render(composition.request, pieces, template))
    if hashlib.sha256(prompt.encode("utf-8")).hexdigest() != digest:
        raise NotReplayable(
            "this version of KernelEvolve writes the prompt differently from the one that made it",
            "use that version; its passages are unchanged",
        )
    return Replayed(prompt, digest, len(passages), composition.template, composition.knowledge, now)


def _composition(kb: KnowledgeBase, sha: str) -> Composition:
    data = json.loads(kb.blobs.text(sha))

    def text(value: str) -> str:
        return kb.blobs.text(value.removeprefix(_TEXT))

    request = data["request"]
    request["problem_source"] = text(request["problem_source"])
    request["facts"] = json.loads(text(request["facts"]))
    if request["parent"] is not None:
        request["parent"]["source"] = text(request["parent"]["source"])
    for example in request["examples"]:
        example["source"] = text(example["source"])
    known = {f.name for f in fields(PromptRequest)}
    unknown = sorted(set(request) - known)
    if unknown:
        raise NotReplayable(
            f"the prompt was made by a version with more in its requests: {', '.join(unknown)}",
            "use that version",
        )
    return Composition(
        PromptRequest(**request),
        data["own"],
        [Shown(**shown) for shown in data["passages"]],
        data["template"],
        data["knowledge"],
    )


def _passages(kb: KnowledgeBase, composition: Composition, now: str) -> list[Piece]:
    found, gone = [], []
    texts = _texts(kb, composition.passages)
    for rank, shown in enumerate(composition.passages):
        block = None
        if shown.chunk_id in texts:
            block = data_block(texts[shown.chunk_id], ref=shown.ref, citation=shown.citation)
        if block is None or hashlib.sha256(block.encode("utf-8")).hexdigest() != shown.sha256:
            gone.append(shown.citation)
        else:
            found.append(Piece(shown.slot, rank, block, shown.citation))
    if gone:
        changed = "has not changed" if now == composition.knowledge else "has changed"
        raise NotReplayable(
            f"the knowledge base {changed} since ({composition.knowledge[:12]} then, {now[:12]} now), and "
            f"{len(gone)} of {len(composition.passages)} passages are gone or read otherwise: "
            f"{'; '.join(gone[:3])}{'; …' if len(gone) > 3 else ''}",
            "the prompt as it was sent is kept: --as-sent shows it",
        )
    return found


def _texts(kb: KnowledgeBase, passages: list[Shown]) -> dict[str, str]:
    """What is stored now, by the id of the chunk."""
    ids = [shown.chunk_id for shown in passages if not shown.skill]
    with kb.session() as session:
        texts = dict(session.exec(select(Chunk.id, Chunk.text).where(col(Chunk.id).in_(ids))).all())
    for shown in passages:
        if shown.skill:
            try:
                texts[shown.chunk_id] = passage_text(kb.skill(shown.skill))
            except NotFound:
                continue
    return texts
