"""One-shot: a baseline without feedback."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agent.graph import SearchGraph
from agent.policies.base import Outcome, Selection
from agent.policies.ledger import Ledger


class OneShot:
    """Independent drafts only, none of which learns from another: best of n."""

    name = "one-shot"

    def __init__(self, drafts: int) -> None:
        self._ledger = Ledger(drafts)

    def ask(
        self,
        graph: SearchGraph,  # noqa: ARG002 - nothing in it matters here
        rng: random.Random,  # noqa: ARG002
        pending: Sequence[Selection] = (),  # noqa: ARG002
    ) -> Selection | None:
        return None if self._ledger.closed(None) else Selection(None, "none", "independent draft")

    def tell(self, selection: Selection, outcome: Outcome) -> None:
        self._ledger.tell(selection, outcome)
