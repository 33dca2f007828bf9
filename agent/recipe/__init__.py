"""Program synthesis from executable skills: traced graph, fusion regions, C++ kernels, guided mutation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.recipe.generator import RecipeGenerator

__all__ = ["RecipeGenerator"]


def __getattr__(name: str) -> Any:
    if name == "RecipeGenerator":
        from agent.recipe.generator import RecipeGenerator

        return RecipeGenerator
    raise AttributeError(name)
