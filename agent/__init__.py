"""The search engine: graph, policies, generators, run store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.search import Search
    from agent.session import SearchSession
    from agent.settings import SearchResult, SearchSettings
    from agent.step import Step
    from agent.store import RunStore

__all__ = ["RunStore", "Search", "SearchResult", "SearchSession", "SearchSettings", "Step"]

_HOME = {
    "Search": "agent.search",
    "SearchResult": "agent.settings",
    "SearchSettings": "agent.settings",
    "SearchSession": "agent.session",
    "Step": "agent.step",
    "RunStore": "agent.store",
}


def __getattr__(name: str) -> Any:
    # The store imports SQLModel; whoever needs only the data model does not pay for that.
    if name not in _HOME:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
