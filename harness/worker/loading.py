"""Weights are copied into a module in place. What a module does of its own when it is loaded comes after."""

from __future__ import annotations

import copy

import torch

_METHODS = ("load_state_dict", "_load_from_state_dict", "set_extra_state")
_HOOKS = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def load_again(model: torch.nn.Module) -> str:
    """Loads the module's own state into it, where it or a submodule takes part in that: it may pack weights.

    Returns why that failed, or an empty string. The values are there already: what is missing then is only
    what the module wanted to do with them.
    """
    if not any(map(_takes_part, model.modules())):
        return ""
    try:
        model.load_state_dict(copy.deepcopy(model.state_dict()))  # it may rearrange them where they are
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def _takes_part(module: torch.nn.Module) -> bool:
    """Whether it has hooks, or methods other than those of torch's modules."""
    if any(getattr(module, name, None) for name in _HOOKS):
        return True
    methods = (getattr(getattr(module, name), "__func__", None) for name in _METHODS)
    return any(not str(getattr(method, "__module__", "")).startswith("torch.") for method in methods)
