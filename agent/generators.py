"""Generators by name: `recipe`, `exchange`, `replay:RUN`, a chat model as `provider:model`, and plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from agent.errors import SettingsInvalid
from agent.models import Portfolio
from kb.settings import Price

if TYPE_CHECKING:
    from agent.generator import Generator
    from agent.judge import Executor
    from agent.settings import SearchSettings
    from kb import KnowledgeBase

GROUP = "kernelevolve.generators"
# A model alone is asked as long as there is patience; beside others it makes way for them.
_ATTEMPTS_ALONE, _ATTEMPTS_BESIDE = 1000, 3


@dataclass(frozen=True)
class Context:
    """What a generator may be made from. `argument` is what follows the colon of its name; `alone` is False
    where others are asked, too.
    """

    argument: str
    executor: Executor
    kb: KnowledgeBase
    base_url: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = True


def make_generator(settings: SearchSettings, executor: Executor, kb: KnowledgeBase) -> Generator:
    """What `settings.generator` names, several separated by commas.

    Raises SettingsInvalid for an unknown name, ModelError for a model that cannot be used, RunNotFound for a
    recording that is not there, ExchangeError for a folder that cannot be used.
    """
    names = generator_names(settings.generator)
    alone = len(names) == 1
    members = {}
    for name in names:
        context = Context("", executor, kb, settings.base_url, settings.parameters, alone)
        members[name] = _make(name, context)
    if settings.base_url is not None and not any(_is_chat(name) for name in names):
        raise SettingsInvalid(f"{settings.generator} takes no base URL", "use it with provider:model")
    if settings.parameters and not any(_is_chat(name) for name in names):
        raise SettingsInvalid(f"{settings.generator} takes no parameters", "use them with provider:model")
    return members[names[0]] if alone else Portfolio(members, patience_s=kb.settings.chat_patience_s)


def generator_names(listed: str) -> list[str]:
    """The generators of a comma-separated list. Raises SettingsInvalid for an empty or repeated one."""
    names = [name.strip() for name in listed.split(",")]
    if not all(names):
        raise SettingsInvalid(f"unknown generator '' in {listed!r}", "such as recipe or openai:gpt-5")
    if len(set(names)) < len(names):
        raise SettingsInvalid(f"a generator is named twice in {listed!r}", "name each once")
    return names


def settled(listed: str, kb: KnowledgeBase) -> str:
    """The list in words that mean the same later: which run is replayed, which folder is used."""
    from agent.exchange import exchange_folder
    from agent.store import RunStore

    names = []
    for name in generator_names(listed):
        kind, _, argument = name.partition(":")
        if kind == "replay" and argument:
            names.append(f"replay:{RunStore(kb).resolve(argument)}")
        elif kind == "exchange":
            names.append(f"exchange:{exchange_folder(argument, kb.home)}")
        else:
            names.append(name)
    return ",".join(names)


def price_of(name: str, prices: Mapping[str, Price]) -> Price | None:
    """What a generator costs: nothing where it asks no model, None where that is not known.

    A price for a model holds at every address, unless the address has one of its own.
    """
    if name.partition(":")[0] in _FREE:
        return Price(input=0.0, output=0.0)
    return prices.get(name) or prices.get(_located(name)[0])


def _located(name: str) -> tuple[str, str]:
    """(model, address or nothing) of `provider:model@ADDRESS`: models of a run may be on several servers."""
    model, _, address = name.partition("@http")
    return model, f"http{address}" if address else ""


def list_generators() -> list[str]:
    """What can be named, chat models aside."""
    return [*_BUILT_IN, *sorted(point.name for point in entry_points(group=GROUP))]


def _make(name: str, context: Context) -> Generator:
    kind, _, argument = name.partition(":")
    context = Context(**{**vars(context), "argument": argument})
    if kind in _BUILT_IN:
        return _BUILT_IN[kind](context)
    for point in entry_points(group=GROUP):
        if point.name == kind:
            make: Callable[[Context], Generator] = point.load()
            return make(context)
    if _is_chat(name):
        return _chat(name, context)
    raise SettingsInvalid(
        f"unknown generator {name!r}",
        f"use {', '.join(list_generators())}, or a chat model as provider:model, such as openai:gpt-5",
    )


def _is_chat(name: str) -> bool:
    kind, colon, model = name.partition(":")
    return bool(colon and kind and model) and kind not in list_generators()


def _chat(name: str, context: Context) -> Generator:
    from agent.chat import ChatGenerator, ModelAnswerer
    from kb.chat import open_model

    model, address = _located(name)
    configured = context.kb.settings
    opened = open_model(
        model,
        address or context.base_url,
        parameters=context.parameters,
        price=price_of(name, configured.prices),
        attempts=_ATTEMPTS_ALONE if context.alone else _ATTEMPTS_BESIDE,
        patience_s=configured.chat_patience_s,
    )
    return ChatGenerator(ModelAnswerer(opened), name)


def _recipe(context: Context) -> Generator:
    from agent.recipe import RecipeGenerator

    if context.argument:
        raise SettingsInvalid("the generator recipe takes no argument", "write recipe")
    return RecipeGenerator(context.executor)


def _exchange(context: Context) -> Generator:
    from agent.chat import ChatGenerator
    from agent.exchange import ExchangeAnswerer, exchange_folder

    folder = exchange_folder(context.argument, context.kb.home)
    return ChatGenerator(ExchangeAnswerer(folder), f"exchange:{folder}")


def _replay(context: Context) -> Generator:
    from agent.replay import ReplayGenerator
    from agent.store import RunStore

    if not context.argument:
        raise SettingsInvalid("replay needs a run", "write replay:RUN; see: kernelevolve runs list")
    return ReplayGenerator(RunStore(context.kb), context.argument)


_FREE = ("recipe", "replay")
_BUILT_IN: dict[str, Callable[[Context], Generator]] = {
    "recipe": _recipe,
    "exchange": _exchange,
    "replay": _replay,
}
