"""The generator `chat`: a chat model writes the candidate from the synthesised prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.generator import Draft, GenerationFailed, GenerationRequest
from agent.ideas import parse_ideas
from agent.parsing import Unparseable, parse_answer
from kb.errors import ModelError

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from kb.chat import ChatModel, Reply

_SYSTEM = "You are an expert in high-performance computing. You write correct, fast kernels and nothing else."
_REPAIR = (
    "That answer could not be used: {problem}. Answer again: the HYPOTHESIS line, then one complete Python "
    "file that defines class ModelNew, in a single fenced block, and nothing after it."
)
_REPAIR_IDEAS = (
    "That answer could not be used: {problem}. Answer again, one line for each idea, each begins with IDEA:."
)


class ChatGenerator:
    """Asks a chat model; an answer without a usable file gets one chance to be repaired."""

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self.hosted = model.hosted
        self._model = model

    def generate(self, request: GenerationRequest) -> Draft:
        """The model's candidate.

        Raises GenerationFailed for a refusal or no usable answer, with what the model said; ModelError when
        the model does not answer at all.
        """
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

        messages: list[BaseMessage] = [SystemMessage(_SYSTEM), HumanMessage(request.prompt.prompt)]
        replies = [self._model.ask(messages)]
        wanted, repair = ("ideas", _REPAIR_IDEAS) if request.want_ideas else ("file", _REPAIR)
        try:
            return _draft(replies, request.want_ideas)
        except Unparseable as problem:
            messages += [
                AIMessage(replies[0].text or "(empty)"),
                HumanMessage(repair.format(problem=problem)),
            ]
        try:
            replies.append(self._model.ask(messages))
        except ModelError as error:  # the first answer is paid for, and the next step will meet the error
            raise _failure(f"no usable {wanted}, and the request for one failed: {error}", replies) from error
        try:
            return _draft(replies, request.want_ideas)
        except Unparseable as problem:
            raise _failure(f"no usable {wanted} in two answers: {problem}", replies) from problem


def _draft(replies: Sequence[Reply], want_ideas: int) -> Draft:
    reply = replies[-1]
    if reply.finish == "refusal":
        raise _failure(
            f"the model refused: {' '.join(reply.text.split())[:200] or 'no reason given'}", replies
        )
    if not reply.text.strip():
        raise Unparseable("the answer was empty")
    ideas = parse_ideas(reply.text, want_ideas) if want_ideas else ()
    parsed = None if ideas else parse_answer(reply.text, truncated=reply.finish == "length")
    tokens_in, tokens_out, cost = _usage(replies)
    return Draft(
        source=parsed.source if parsed else "",
        hypothesis=parsed.hypothesis if parsed else "",
        ideas=ideas,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost_usd=cost,
        raw=_raw(replies),
        notes={"repaired": True} if len(replies) > 1 else {},
    )


def _failure(message: str, replies: Sequence[Reply]) -> GenerationFailed:
    tokens_in, tokens_out, cost = _usage(replies)
    return GenerationFailed(
        message, raw=_raw(replies), tokens_in=tokens_in, tokens_out=tokens_out, cost_usd=cost
    )


def _usage(replies: Sequence[Reply]) -> tuple[int, int, float | None]:
    costs = [reply.cost_usd for reply in replies if reply.cost_usd is not None]
    return (
        sum(reply.tokens_in for reply in replies),
        sum(reply.tokens_out for reply in replies),
        sum(costs) if len(costs) == len(replies) else None,
    )


def _raw(replies: Sequence[Reply]) -> str:
    return "\n\n--- after the repair request ---\n\n".join(reply.text for reply in replies)
