"""A run of the policy idea-first: ideas are asked for, implemented, stored, and known after a resume."""

from __future__ import annotations

import random

import pytest
from search_stubs import PLACE, StubExecutor, graph_of

from agent import RunStore, Search, SearchSettings
from agent.events import Generated, Ideas
from agent.generator import Draft, GenerationRequest

WAYS = (
    "tile for the cache",
    "fuse everything",
    "wider vectors",
    "static schedule",
    "larger blocks",
    "no copies",
)


class Thinker:
    """Names ideas when it is asked for some, else implements the one that it is given."""

    name = "thinker"
    hosted = False

    def __init__(self, stop_after: int = 99) -> None:
        self.stop_after = stop_after
        self.requests: list[GenerationRequest] = []

    def generate(self, request: GenerationRequest) -> Draft:
        if len(self.requests) >= self.stop_after:
            raise KeyboardInterrupt
        self.requests.append(request)
        if request.want_ideas:
            rng = random.Random(request.seed)
            named = [f"{way}, variant {rng.randrange(99999)}" for way in WAYS]
            return Draft("", "", ideas=tuple(named[: request.want_ideas]), tokens_in=7, tokens_out=3)
        assert request.idea
        x = (request.parent.genome["x"] if request.parent else 0) + random.Random(request.seed).randrange(
            1, 30
        )
        return Draft(f"class ModelNew:\n    X = {x}\n", f"x = {x}: {request.idea}", genome={"x": x})


def run(kb, problem, generator, **kwargs):
    settings = SearchSettings(problem, policy="idea-first", drafts=3, steps=14, seed=2)
    return Search(kb, StubExecutor(), settings, generator=generator, place=PLACE, **kwargs).run()


def test_ideas_are_asked_for_and_implemented(kb, problem):
    thinker, seen = Thinker(), []
    result = run(kb, problem, thinker, on_event=seen.append)
    asked, *built = thinker.requests
    second = next(r for r in built if r.want_ideas)
    built = built[: built.index(second)]
    assert asked.want_ideas == 6
    assert "IDEA:" in asked.prompt.prompt
    assert "ModelNew" not in asked.prompt.slots["output_format"]
    assert all(
        f"Implement this idea, and nothing that it does not need: {r.idea}" in r.prompt.prompt for r in built
    )
    assert len({r.idea for r in built}) == 3
    run_ = RunStore(kb).load(result.run_id)
    outcomes = [event.payload["outcome"] for event in run_.events if event.kind == "step"]
    assert outcomes.count("ideas") >= 2
    assert result.tokens == 10 * outcomes.count("ideas")
    assert next(e.ideas for e in seen if isinstance(e, Ideas))[0].startswith(WAYS[0])
    assert all(e.hypothesis for e in seen if isinstance(e, Generated))
    first_round = [n for n in run_.graph.candidates() if n.step < second.step]
    assert second.parent.node_id == max(first_round, key=lambda n: n.rank).node_id
    assert run_.graph.candidates()[0].notes["behaviour"] == {"language": "torch", "tile": "none"}


@pytest.mark.parametrize("stop_after", [1, 3, 6])
def test_a_resumed_run_knows_its_ideas(kb, problem, stop_after):
    whole = run(kb, problem, Thinker())
    with pytest.raises(KeyboardInterrupt):
        run(kb, problem, Thinker(stop_after))
    resumed = Search.resume(
        kb, StubExecutor(), RunStore(kb).list_runs()[0].run_id, generator=Thinker(), place=PLACE
    )
    assert graph_of(kb, resumed.run_id)[0] == graph_of(kb, whole.run_id)[0]
