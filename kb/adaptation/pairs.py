"""Questions with passages that answer them, made from what is stored; nothing but the text itself is needed.

Headings: what a section is called, and its text without the heading. Summaries: the first sentence, and what
follows (the inverse cloze task of Lee et al. 2019; of an API page, its docstring's first line). References: a
sentence that names another section in code marks or a role, and that section. Questions that people or a
model wrote come from a file, see `read_questions`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlmodel import col

from kb.adaptation.examples import Pair
from kb.change import text_hash
from kb.documents import embed_texts, known_vectors, sources_of
from kb.errors import QuestionsInvalid
from kb.tables import Chunk, Document, Passage, Section, Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kb.base import KnowledgeBase
    from kb.embedding import Embedder

    Vector = NDArray[np.float32]

HELD_OUT = 10  # every tenth document
_SEPARATOR = " › "
_MOST_NAMES = 2  # in a sentence that says something about each
_COMMON_HEADING = 3  # a heading of more sections than this says nothing about any
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*:])")
_NAMED = re.compile(r"`+~?\.?([A-Za-z_][\w.]{3,})(?:\(\))?`+")
_PROSE = re.compile(r"^[A-Z`*:][^|{};=]*$")


@dataclass(frozen=True)
class _Chunk:
    pk: int
    source: str
    path: str
    sha256: str
    scope: str
    section: int
    heading_path: str
    start_line: int
    end_line: int
    text: str
    held_out: bool

    @property
    def heading(self) -> str:
        return self.heading_path.rsplit(_SEPARATOR, 1)[-1].strip()


def held_out(path: str) -> bool:
    """Whole documents are kept apart: neighbouring passages would give the answers away."""
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT == 0


def stored_pairs(kb: KnowledgeBase) -> list[Pair]:
    """All pairs that the stored documents give, in a reproducible order."""
    chunks = _chunks(kb)
    first: dict[int, _Chunk] = {}
    for chunk in chunks:
        first.setdefault(chunk.section, chunk)
    counts = Counter(c.heading.lower() for c in first.values())
    by_name = _sections_by_name(first.values())
    pairs: list[Pair] = []
    for chunk in first.values():
        pairs += _of_heading(chunk, counts)
        pairs += _of_summary(chunk)
    for chunk in chunks:
        pairs += _of_references(chunk, by_name)
    return list({(p.question, p.passage): p for p in pairs}.values())


def _chunks(kb: KnowledgeBase) -> list[_Chunk]:
    with kb.session() as session:
        rows = session.connection().execute(
            select(
                col(Chunk.pk), col(Source.key), col(Document.path), col(Document.sha256), col(Chunk.scope),
                col(Chunk.section_id),
                col(Section.heading_path), col(Chunk.start_line), col(Chunk.end_line), col(Chunk.text),
            )
            .join(Document, col(Document.id) == col(Chunk.document_id))
            .join(Source, col(Source.id) == col(Document.source_id))
            .join(Section, col(Section.id) == col(Chunk.section_id))
            .order_by(col(Document.path), col(Source.key), col(Chunk.ordinal), col(Chunk.id))
        ).all()  # fmt: skip
    return [
        _Chunk(pk or 0, source, path, sha, scope, section, heading, start, end, text, held_out(path))
        for pk, source, path, sha, scope, section, heading, start, end, text in rows
    ]


def _of_heading(chunk: _Chunk, counts: Counter[str]) -> Iterator[Pair]:
    heading = chunk.heading
    body = _without_heading(chunk)
    if counts[heading.lower()] <= _COMMON_HEADING and len(heading) >= 8 and len(body) >= 100:
        yield Pair("heading", heading, body, chunk.pk, chunk.scope, chunk.held_out)


def _of_summary(chunk: _Chunk) -> Iterator[Pair]:
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", _without_heading(chunk))]
    for i, paragraph in enumerate(paragraphs):
        sentences = _SENTENCE.split(paragraph, maxsplit=1)
        if not 6 <= len(sentences[0].split()) <= 40 or not _PROSE.match(sentences[0]):
            continue
        rest = "\n".join([*paragraphs[:i], *sentences[1:], *paragraphs[i + 1 :]])
        if len(rest) >= 100:
            yield Pair("summary", sentences[0], rest, chunk.pk, chunk.scope, chunk.held_out)
        return


def _sections_by_name(sections: Iterable[_Chunk]) -> dict[tuple[str, str], _Chunk]:
    """(scope, name) -> the one section whose heading is that name, qualified or not."""
    found: dict[tuple[str, str], list[_Chunk]] = defaultdict(list)
    for chunk in sections:
        name = re.split(r"[\s(]", chunk.heading.strip("`"), maxsplit=1)[0]
        if re.fullmatch(r"[A-Za-z_][\w.]{3,}", name) and (name == chunk.heading.strip("`") or "." in name):
            for key in {name, name.rsplit(".", 1)[-1]}:
                found[chunk.scope, key].append(chunk)
    return {key: chunks[0] for key, chunks in found.items() if len(chunks) == 1}


def _of_references(chunk: _Chunk, by_name: dict[tuple[str, str], _Chunk]) -> Iterator[Pair]:
    for sentence in _SENTENCE.split(" ".join(_without_heading(chunk).split())):
        names = list(dict.fromkeys(_NAMED.findall(sentence)))
        # Lists of names and fields of parameters mention more than they are about.
        if not 8 <= len(sentence.split()) <= 60 or len(names) > _MOST_NAMES or sentence[0] in ":-*|":
            continue
        for name in names:
            answer = by_name.get((chunk.scope, name)) or by_name.get((chunk.scope, name.rsplit(".", 1)[-1]))
            if answer is not None and answer.section != chunk.section:
                apart = chunk.held_out or answer.held_out
                yield Pair("reference", sentence, answer.text, answer.pk, chunk.scope, apart)


def _without_heading(chunk: _Chunk) -> str:
    """The text without leading lines that only repeat the heading, or underline it."""
    lines = chunk.text.split("\n")
    while lines and (not lines[0].strip(" #=-~^*`") or lines[0].strip(" #`") == chunk.heading.strip(" `")):
        lines.pop(0)
    return "\n".join(lines).strip()


@dataclass(frozen=True)
class _Asked:
    line: int  # of the file
    source: str  # empty: the only one that holds the path
    path: str
    at: int
    question: str


def read_questions(kb: KnowledgeBase, file: Path, embedder: Embedder) -> list[Pair]:
    """Questions from a file of JSON lines, {"at": "PATH:LINE", "q": [questions]}, as citations begin; where
    several sources hold the path, with the key of one of them as "source".

    The chunk that holds the line answers: that of its passages which is nearest to the question for
    `embedder`. What is not stored (any more) is passed over: the file may be older than the documents. Raises
    QuestionsInvalid, EmbeddingFailed.
    """
    held: dict[str, dict[str, list[_Chunk]]] = defaultdict(lambda: defaultdict(list))
    for chunk in _chunks(kb):
        held[chunk.path][chunk.source].append(chunk)
    found = []
    for asked in _asked(file):
        for chunk in _document(held.get(asked.path, {}), asked, file):
            if chunk.start_line <= asked.at <= chunk.end_line:
                found.append((asked.question, chunk))
                break
    nearest = _nearest_passages(kb, embedder, [(question, chunk.pk) for question, chunk in found])
    return [
        Pair("question", question, passage, chunk.pk, chunk.scope, chunk.held_out)
        for (question, chunk), passage in zip(found, nearest, strict=True)
        if passage
    ]


def _asked(file: Path) -> list[_Asked]:
    found = []
    for number, line in enumerate(_lines(file), start=1):
        try:
            row = json.loads(line)
            path, _, lines = str(row["at"]).rpartition(":")
            first = int(lines.partition("-")[0])
            source = str(row.get("source", ""))
            found += [_Asked(number, source, path, first, str(question)) for question in row["q"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            example = '{"at": "guide.md:120", "q": ["How large may a tile be?"]}'
            raise QuestionsInvalid(
                f"{file}, line {number}: not a question", f"for example: {example}"
            ) from error
    return found


def _document(by_source: Mapping[str, list[_Chunk]], asked: _Asked, file: Path) -> list[_Chunk]:
    """The chunks of the document that was asked about; none where it is not stored."""
    if asked.source:
        return by_source.get(asked.source, [])
    if len({chunks[0].sha256 for chunks in by_source.values()}) > 1:
        raise QuestionsInvalid(
            f"{file}, line {asked.line}: {asked.path} is in several sources: {', '.join(sorted(by_source))}",
            'name one of them beside "at": {"source": "…"}',
        )
    return next(iter(by_source.values()), [])


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise QuestionsInvalid(f"{file} cannot be read: {error}", "give a file of JSON lines") from error


def _nearest_passages(kb: KnowledgeBase, embedder: Embedder, asked: Sequence[tuple[str, int]]) -> list[str]:
    import numpy as np

    if not asked:
        return []
    wanted = {pk for _, pk in asked}
    passages: dict[int, list[str]] = defaultdict(list)
    with kb.session() as session:
        rows = session.connection().execute(
            select(col(Passage.chunk_pk), col(Passage.text)).order_by(
                col(Passage.chunk_pk), col(Passage.ordinal)
            )
        )
        for pk, text in rows:
            if pk in wanted:
                passages[pk].append(text)
    several = {text_hash(t): t for pk in wanted for t in passages[pk] if len(passages[pk]) > 1}
    vectors = stored_vectors(kb, embedder, several)
    unclear = [question for question, pk in asked if len(passages[pk]) > 1]
    found = iter(embedder.embed(unclear) if unclear else ())
    nearest = []
    for _, pk in asked:
        if len(passages[pk]) > 1:
            rows_of = np.stack([vectors[text_hash(text)] for text in passages[pk]])
            nearest.append(passages[pk][int(np.argmax(rows_of @ next(found)))])
        else:
            nearest.append(next(iter(passages[pk]), ""))
    return nearest


def stored_vectors(kb: KnowledgeBase, embedder: Embedder, texts: dict[str, str]) -> dict[str, Vector]:
    """The vectors of stored `texts` (hash -> text), (dimension,) each: kept ones, or computed and kept."""
    import numpy as np

    with kb.session() as session:
        known = known_vectors(session, embedder.model_id, list(texts))
        missing = {digest: text for digest, text in texts.items() if digest not in known}
        sources = sources_of(session, list(missing))
    known |= embed_texts(kb, embedder, missing, sources)
    return {digest: np.frombuffer(vector, dtype="<f4") for digest, vector in known.items()}
