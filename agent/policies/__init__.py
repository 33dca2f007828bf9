"""Selection policies: which node is expanded next. Entry point group: `kernelevolve.policies`."""

from __future__ import annotations

from agent.policies.base import Memory, Outcome, Policy, Selection, list_policies, load_policy

__all__ = ["Memory", "Outcome", "Policy", "Selection", "list_policies", "load_policy"]
