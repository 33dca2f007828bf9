"""The built-in generators by name: `recipe`, and any chat model as `provider:model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import SettingsInvalid

if TYPE_CHECKING:
    from agent.generator import Generator
    from agent.judge import Executor


def make_generator(name: str, executor: Executor, base_url: str | None = None) -> Generator:
    """The generator called `name`. Raises SettingsInvalid for an unknown name, ModelError for a bad model."""
    if name == "recipe":
        if base_url is not None:
            raise SettingsInvalid("the generator recipe takes no base URL", "use it with provider:model")
        from agent.recipe import RecipeGenerator

        return RecipeGenerator(executor)
    if ":" in name:
        from agent.chat import ChatGenerator
        from kb.chat import open_model

        return ChatGenerator(open_model(name, base_url))
    raise SettingsInvalid(
        f"unknown generator {name!r}", "use recipe, or a chat model as provider:model, such as openai:gpt-5"
    )
