"""The generator that asks for text: a chat model, or whoever answers for one, writes the candidate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agent.generator import Draft, GenerationFailed, GenerationRequest
from agent.ideas import parse_ideas
from agent.parsing import Unparseable, parse_answer
from kb.errors import ModelError

if TYPE_CHECKING:
    from kb.chat import ChatModel, Reply

Message = tuple[Literal["system", "user", "assistant"], str]

_SYSTEM = "You are an expert in high-performance computing. You write correct, fast kernels and nothing else."
_REPAIR = (
    "That answer could not be used: {problem}. Answer again: the HYPOTHESIS line, then one complete Python "
    "file that defines class ModelNew, in a single fenced block, and nothing after it."
)
_REPAIR_IDEAS = (
    "That answer could not be used: {problem}. Answer again, one line for each idea, each begins with IDEA:."
)


class Answerer(Protocol):
    """Who is asked. `hosted` says whether prompts leave the machine."""

    name: str
    hosted: bool

    def ask(self, messages: Sequence[Message], request: GenerationRequest) -> Reply:
        """The answer to a conversation of 2 messages, or of 4 when it is a repair. Raises ModelError."""
        ...


class ModelAnswerer:
    """A chat model."""

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self.hosted = model.hosted
        self._model = model

    def ask(self, messages: Sequence[Message], request: GenerationRequest) -> Reply:
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

        kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
        return self._model.ask(
            [kinds[role](text) for role, text in messages], request.on_text, request.on_wait
        )


class ChatGenerator:
    """Asks for a candidate; an answer without a usable one gets one chance to be repaired."""

    def __init__(self, answerer: Answerer, name: str = "") -> None:
        self.name = name or answerer.name
        self.hosted = answerer.hosted
        self._answerer = answerer

    def generate(self, request: GenerationRequest) -> Draft:
        """The candidate of the answer.

        Raises GenerationFailed for a refusal or no usable answer, with what was said; ModelError when there
        is no answer at all.
        """
        wanted, repair = ("ideas", _REPAIR_IDEAS) if request.want_ideas else ("file", _REPAIR)
        messages: list[Message] = [("system", _SYSTEM), ("user", request.prompt.prompt)]
        replies = [self._answerer.ask(messages, request)]
        try:
            return _draft(replies, request)
        except Unparseable as problem:
            messages += [
                ("assistant", replies[0].text or "(empty)"),
                ("user", repair.format(problem=problem)),
            ]
        try:
            replies.append(self._answerer.ask(messages, request))
        except ModelError as error:  # the first answer is paid for, and the next step will meet the error
            raise _failure(f"no usable {wanted}, and the request for one failed: {error}", replies) from error
        try:
            return _draft(replies, request)
        except Unparseable as problem:
            short = replies[-1].finish == "length"
            help = "; the option --parameter max_tokens=N makes room for longer ones" if short else ""
            raise _failure(f"no usable {wanted} in two answers: {problem}{help}", replies) from problem


def _draft(replies: Sequence[Reply], request: GenerationRequest) -> Draft:
    reply = replies[-1]
    cut_off = reply.finish == "length"
    if reply.finish == "refusal":
        raise _failure(
            f"the model refused: {' '.join(reply.text.split())[:200] or 'no reason given'}", replies
        )
    if not reply.text.strip():
        raise Unparseable(
            "the answer was empty" + (" and cut off while the model thought" if cut_off else "")
        )
    notes = _notes(replies)
    if len(replies) > 1:
        notes["repaired"] = True
    if request.want_ideas:
        ideas = parse_ideas(reply.text, request.want_ideas)
        return Draft(source="", hypothesis="", ideas=ideas, notes=notes, **_accounts(replies))
    base = request.parent.source if request.parent else None
    parsed = parse_answer(reply.text, truncated=cut_off, base=base)
    if parsed.edited:
        notes["edited"] = True
    return Draft(source=parsed.source, hypothesis=parsed.hypothesis, notes=notes, **_accounts(replies))


def _failure(message: str, replies: Sequence[Reply]) -> GenerationFailed:
    return GenerationFailed(message, notes=_notes(replies), **_accounts(replies))


def _accounts(replies: Sequence[Reply]) -> dict[str, Any]:
    """What the answers said and cost; the cost of all is unknown where that of one is."""
    costs = [reply.cost_usd for reply in replies if reply.cost_usd is not None]
    return {
        "raw": "\n\n--- after the repair request ---\n\n".join(reply.text for reply in replies),
        "tokens_in": sum(reply.tokens_in for reply in replies),
        "tokens_out": sum(reply.tokens_out for reply in replies),
        "cost_usd": sum(costs) if len(costs) == len(replies) else None,
    }


def _notes(replies: Sequence[Reply]) -> dict[str, Any]:
    said = list(dict.fromkeys(note for reply in replies for note in reply.notes))
    notes: dict[str, Any] = {"model": said} if said else {}
    if not all(reply.metered for reply in replies):
        notes["unmetered"] = True
    return notes
