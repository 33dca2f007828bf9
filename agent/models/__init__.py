"""Several models in one run: who is asked next, and what becomes of one that fails."""

from agent.models.bandit import ModelBandit, reward_of
from agent.models.portfolio import Portfolio

__all__ = ["ModelBandit", "Portfolio", "reward_of"]
