"""The exchange folder: prompts appear, answers are dropped, and a killed search finds them again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from search_stubs import open_kb

from agent import RunStore
from agent.chat import ChatGenerator
from agent.errors import ExchangeError
from agent.exchange import ExchangeAnswerer, ExchangeFolder, Pending
from agent.generator import GenerationFailed, GenerationRequest
from harness.worker.model import ProblemFacts
from prompts import PromptRecord

FILE = 'class ModelNew:\n    """\n    ```\n    """\n    X = 5\n'


def a_request(step: int = 1, prompt: str = "Write a kernel.") -> GenerationRequest:
    facts = ProblemFacts("p", [], [], [], [], [], [])
    record = PromptRecord(prompt, 4, {}, [], "digest")
    return GenerationRequest(record, facts, "", "cpu", None, step, 0, run_id="20260101-000000-abcd")


class Correspondent:
    """Answers what appears in the folder, one after the other, from a thread of its own."""

    def __init__(self, folder: ExchangeFolder, answers: list[Callable[[Pending], None]]) -> None:
        self.seen: list[Pending] = []
        self._folder, self._answers = folder, answers
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        for answer in self._answers:
            while not (waiting := self._folder.pending()):
                time.sleep(0.01)
            self.seen.append(waiting[0])
            answer(waiting[0])


@pytest.fixture
def folder(tmp_path: Path) -> ExchangeFolder:
    return ExchangeFolder(tmp_path / "exchange")


@pytest.fixture
def generator(folder: ExchangeFolder) -> ChatGenerator:
    return ChatGenerator(ExchangeAnswerer(folder.root, poll_s=0.02))


def says(folder: ExchangeFolder, text: str, *, as_json: bool = False) -> Callable[[Pending], None]:
    return lambda entry: folder.answer(entry.id, text, as_json=as_json) and None


@pytest.mark.parametrize(
    ("text", "as_json"),
    [
        (f"HYPOTHESIS: five\n````python\n{FILE}````", False),
        (json.dumps({"source": FILE, "hypothesis": "five"}), True),
        (json.dumps({"answer": f"HYPOTHESIS: five\n~~~\n{FILE}~~~"}), True),
    ],
)
def test_an_answer_in_either_form(
    folder: ExchangeFolder, generator: ChatGenerator, text: str, as_json: bool
) -> None:
    somebody = Correspondent(folder, [says(folder, text, as_json=as_json)])
    draft = generator.generate(a_request())
    assert (draft.source, draft.hypothesis) == (FILE, "five")
    assert draft.cost_usd is None, "nobody knows what it cost"
    assert draft.notes["unmetered"]
    entry = somebody.seen[0]
    assert entry.text == "Write a kernel."
    assert (entry.step, entry.round, entry.problem, entry.target) == (1, 1, "p", "cpu")
    assert folder.pending() == []
    assert list(folder.prompts.iterdir()) == []


def test_the_answer_says_what_it_cost_and_who_gave_it(
    folder: ExchangeFolder, generator: ChatGenerator
) -> None:
    answer = {"source": FILE, "tokens_in": 70, "tokens_out": 7, "cost_usd": 0.25, "model": "an agent"}
    Correspondent(folder, [says(folder, json.dumps(answer), as_json=True)])
    draft = generator.generate(a_request())
    assert (draft.tokens_in, draft.tokens_out, draft.cost_usd) == (70, 7, 0.25)
    assert draft.notes == {"model": ["answered by an agent"]}


@pytest.mark.parametrize("first", ["I would fuse it.", '{"source": 5}'])
def test_an_answer_that_cannot_be_used_is_asked_for_once_more(
    folder: ExchangeFolder, generator: ChatGenerator, first: str
) -> None:
    answers = [says(folder, first, as_json=first.startswith("{")), says(folder, f"````\n{FILE}````")]
    somebody = Correspondent(folder, answers)
    generator.generate(a_request())
    assert [entry.round for entry in somebody.seen] == [1, 2]
    assert "could not be used" in somebody.seen[1].text
    assert first in somebody.seen[1].text


def test_a_prompt_can_be_refused(folder: ExchangeFolder, generator: ChatGenerator) -> None:
    Correspondent(folder, [says(folder, '{"refused": "no time"}', as_json=True)])
    with pytest.raises(GenerationFailed, match="refused: no time"):
        generator.generate(a_request())


def test_a_file_is_not_read_while_it_is_written(folder: ExchangeFolder, generator: ChatGenerator) -> None:
    def slowly(entry: Pending) -> None:
        with (folder.answers / f"{entry.id}.json").open("w") as file:
            for piece in ("", '{"source": ', json.dumps(FILE), "}"):
                file.write(piece)
                file.flush()
                time.sleep(0.05)

    Correspondent(folder, [slowly])
    assert generator.generate(a_request()).source == FILE


@pytest.mark.timeout(60)
def test_text_that_is_still_being_written_is_waited_for(folder: ExchangeFolder) -> None:
    def slowly(entry: Pending) -> None:
        with (folder.answers / f"{entry.id}.md").open("w") as file:
            for line in ["HYPOTHESIS: five", *FILE.splitlines(), *["    Y = 1"] * 30, "    Z = 6"]:
                file.write(line + "\n")
                file.flush()
                time.sleep(0.03)

    Correspondent(folder, [slowly])
    draft = ChatGenerator(ExchangeAnswerer(folder.root, poll_s=0.8)).generate(a_request())
    assert draft.source.endswith("Z = 6\n")


def test_an_answer_that_was_given_before_a_kill_is_taken_again(
    folder: ExchangeFolder, generator: ChatGenerator
) -> None:
    somebody = Correspondent(folder, [says(folder, FILE)])
    first = generator.generate(a_request())
    again = ChatGenerator(ExchangeAnswerer(folder.root, poll_s=0.02)).generate(a_request())
    assert again == first
    assert len(somebody.seen) == 1
    Correspondent(folder, [says(folder, FILE.replace("5", "6"))])
    assert "X = 6" in generator.generate(a_request(step=2)).source, "another step with the same prompt"


def test_a_prompt_that_nobody_waits_for_any_more_goes(folder: ExchangeFolder) -> None:
    folder.create()
    common: dict[str, Any] = {
        "run_id": "r",
        "step": 1,
        "round": 1,
        "problem": "p",
        "target": "cpu",
        "tokens": 1,
    }
    for digest in ("aaaaaaaa", "bbbbbbbb"):
        folder.post(Pending(f"r-0001-1-{digest}", **common, created="", messages=[]))
    assert [entry.id for entry in folder.pending()] == ["r-0001-1-bbbbbbbb"]
    folder.post(Pending("r-0011-1-cccccccc", **common, created="", messages=[]))
    assert len(folder.pending()) == 2
    with pytest.raises(ExchangeError, match="2 prompts are pending"):
        folder.find(None)
    assert folder.find("r-0011").id == "r-0011-1-cccccccc"
    with pytest.raises(ExchangeError, match="no prompt of id 'x' is pending"):
        folder.find("x")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ExchangeError, match=r"cannot use .*taken"):
        ExchangeAnswerer(tmp_path / "taken")


_PROGRAM = """
import sys
from pathlib import Path
from search_stubs import PLACE, StubExecutor, open_kb
from agent import RunStore, Search, SearchSettings
home, problem, folder = sys.argv[1:]
with open_kb(Path(home)) as kb:
    runs = RunStore(kb).list_runs()
    if runs:
        Search.resume(kb, StubExecutor(), "last", place=PLACE)
    else:
        settings = SearchSettings(problem, steps=3, generator=f"exchange:{folder}")
        Search(kb, StubExecutor(), settings, place=PLACE).run()
"""


def test_a_search_that_is_killed_while_it_waits_goes_on(
    tmp_path: Path, kb: Any, problem: str, folder: ExchangeFolder
) -> None:
    kb.close()
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    argv = [sys.executable, str(program), str(tmp_path / "home"), problem, str(folder.root)]
    seen: list[str] = []
    for number in range(3):  # killed while each prompt waits, answered while nobody is there
        process = subprocess.Popen(argv, env=environment)
        try:
            while not (waiting := folder.pending()):
                assert process.poll() is None
                time.sleep(0.02)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        folder.answer(waiting[0].id, f"HYPOTHESIS: {number}\nclass ModelNew:\n    X = {20 + number}\n")
        seen.append(waiting[0].id)
    subprocess.run(argv, env=environment, check=True, timeout=60)
    with open_kb(tmp_path / "home") as opened:
        run = RunStore(opened).load("last")
    assert run.info.state == "finished"
    assert [node.hypothesis for node in run.graph.candidates()] == ["0", "1", "2"]
    assert len(set(seen)) == 3
    assert folder.pending() == []
