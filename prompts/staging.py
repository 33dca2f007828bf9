"""The first stage of retrieval: which documents of the index are for this step.

Platform and kind are the catalogue's business; here it is decided by what documents say of themselves. One
that says nothing is always for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kb.catalogue import Catalogue, Entry, Selection
from kb.records import Hit
from prompts.request import PromptRequest

# How specific a text is. A step asks for the level of its depth in the lineage, the last one from there on.
LEVELS = ("overview", "architecture", "optimisation", "code sample")
OVERVIEW, ARCHITECTURE, OPTIMISATION, CODE = range(4)
_PHASE_LEVEL = {"draft": OVERVIEW, "overview": OVERVIEW, "architecture": ARCHITECTURE, "code": CODE}
_KIND_LEVEL = {"hardware": ARCHITECTURE, "kernel": CODE, "trace": OPTIMISATION}
# Code of three lines and more; a name or a command in a fence is no sample.
_FENCED = re.compile(r"^ *(?:```|~~~)[^\n]*\n(?:.*\n){3,}? *(?:```|~~~)", re.MULTILINE)
# What a hit gains for being about the dominant bottleneck, and loses for each level that it is away from the
# step's; in the unit of `kb.fusion`, where the hits of one question differ by some five.
_DOMINANT = 3.0
_AWAY = 1.5

_SCOPE_LANGUAGE = {"triton": "triton", "nvidia-cute": "cute"}
_LANGUAGE_SIGNS = (
    ("triton", re.compile(r"@triton\.|\btriton\.jit\b")),
    ("cute", re.compile(r"\bcutlass\b|@cute\.")),
    ("cuda", re.compile(r"\bload_cuda\b|\bcuda_sources\b|__global__")),
    ("cpp", re.compile(r"\bload_cpp\b|\bcpp_sources\b")),
)
_RULES = ("constraint", "kernel")  # of another language they are of no use, while guidance may be


def level_of(request: PromptRequest) -> int:
    """The index in LEVELS of what the step asks for."""
    return min(max(request.depth, int(request.parent is not None)), CODE)


def specificity(hit: Hit) -> int:
    """The index in LEVELS of a passage: what its document says, else its kind, else whether it is code."""
    said = hit.meta.get("phase")
    if hit.kind in _KIND_LEVEL:
        return _KIND_LEVEL[hit.kind]
    if _FENCED.search(hit.text):
        return CODE
    if isinstance(said, str) and said in _PHASE_LEVEL:
        return _PHASE_LEVEL[said]
    return OPTIMISATION if "›" in hit.section else OVERVIEW  # below a page's first heading, or under it


def ordered(hits: list[Hit], request: PromptRequest) -> list[Hit]:
    """By score, what is about the dominant bottleneck and of the step's level being raised."""
    wanted = level_of(request)

    def worth(hit: Hit) -> float:
        about = hit.meta.get("bottleneck")  # front matter: anybody's, of any type
        named = request.bottleneck and (about == request.bottleneck or _lists(about, request.bottleneck))
        return hit.score + _DOMINANT * bool(named) - _AWAY * abs(specificity(hit) - wanted)

    return sorted(hits, key=worth, reverse=True)


def languages_of(request: PromptRequest) -> tuple[str, ...]:
    """What the candidate may be written in: the parent's language, else what is not only interpreted."""
    known = tuple(str(x) for x in request.target_facts.get("languages") or ())
    source = str((request.parent or {}).get("source") or "")
    for language, sign in _LANGUAGE_SIGNS:
        if language in known and sign.search(source):
            return (language,)
    interpreted = _interpreted(request)
    return tuple(x for x in known if x not in interpreted) or known


@dataclass
class Stage:
    """Chooses documents, question by question. `deferred` counts those about bottlenecks that can wait, each
    once, by bottleneck.
    """

    request: PromptRequest
    catalogue: Catalogue

    def __post_init__(self) -> None:
        known = set(map(str, self.request.target_facts.get("languages") or ()))
        self._other = known - set(languages_of(self.request))
        self._chosen: dict[tuple[str, ...], Selection] = {}
        self._waiting: dict[int, frozenset[str]] = {}

    def choose(self, kinds: tuple[str, ...]) -> Selection:
        """The documents of these kinds for this step."""
        if kinds not in self._chosen:
            self._chosen[kinds] = self._choose(kinds)
        return self._chosen[kinds]

    def _choose(self, kinds: tuple[str, ...]) -> Selection:
        target, bottleneck = self.request.target, self.request.bottleneck
        plain = self.catalogue.select(target, kinds, self._usable)
        if not bottleneck:
            return plain
        chosen = self.catalogue.select(
            target, kinds, lambda e: self._usable(e) and self._served(e, bottleneck)
        )
        waiting = [e for e in chosen.left_out if self._usable(e)]
        if not any(bottleneck in e.bottlenecks for e in chosen.taken):
            return plain  # nobody has written about this one: better something than nothing
        self._waiting.update((e.document_id, e.bottlenecks) for e in waiting)
        return chosen

    @property
    def deferred(self) -> dict[str, int]:
        """Number of documents by bottleneck that another step may be about."""
        found: dict[str, int] = {}
        for bottlenecks in self._waiting.values():
            for name in bottlenecks:
                found[name] = found.get(name, 0) + 1
        return dict(sorted(found.items()))

    def _usable(self, entry: Entry) -> bool:
        language = entry.language or _SCOPE_LANGUAGE.get(entry.scope, "")
        if language in self._other and (entry.kind in _RULES or language in _interpreted(self.request)):
            return False
        return entry.phase != "debug" or self.request.failing

    def _served(self, entry: Entry, bottleneck: str) -> bool:
        return entry.kind in _RULES or not entry.bottlenecks or bottleneck in entry.bottlenecks


def _interpreted(request: PromptRequest) -> frozenset[str]:
    """Languages that run on this target, but under an interpreter, where time means nothing."""
    return frozenset(str(request.target_facts.get("interpreted") or "").split())


def _lists(about: object, name: str) -> bool:
    return isinstance(about, list) and name in about
