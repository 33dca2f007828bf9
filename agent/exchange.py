"""A folder in which prompts appear and answers are dropped: a person, a coding agent or another machine
answers in place of a chat model.

    prompts/ID.md, ID.json   what is asked and not answered; the JSON holds the messages byte for byte
    answers/ID.md            the answer as a chat model would give it, or
    answers/ID.json          {"answer": TEXT} or {"source": FILE, "hypothesis": TEXT} or {"refused": WHY},
                             and where they are known "model", "tokens_in", "tokens_out", "cost_usd"

Files of ours appear whole, under their names. An answer by hand is read once its size and time stay the same
between two looks. Answers stay where they are: a search that was killed finds them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ExchangeError

if TYPE_CHECKING:
    from agent.chat import Message
    from agent.generator import GenerationRequest
    from kb.chat import Reply

_POLL_S = 0.25
_MALFORMED_S = 5.0  # JSON that does not parse may still be being written
_LARGEST = 4 << 20  # bytes of an answer that are read
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
HOW = """<!-- Answer this prompt: write the answer to answers/{id}.md (or .json), best by
     kernelevolve exchange answer {id} FILE -->

"""


@dataclass(frozen=True)
class Pending:
    """A prompt that waits. `round` is 1, or 2 when the first answer could not be used."""

    id: str
    run_id: str
    step: int
    round: int
    problem: str
    target: str
    tokens: int
    created: str
    messages: list[dict[str, str]]

    @property
    def text(self) -> str:
        """The conversation to read; a first prompt alone stands as it is."""
        if len(self.messages) == 2:
            return self.messages[-1]["content"]
        return "\n\n".join(f"# {m['role']}\n\n{m['content']}" for m in self.messages[1:])


class ExchangeFolder:
    """The folder as those see it who ask and who answer. Raises ExchangeError where it cannot be used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prompts, self.answers = root / "prompts", root / "answers"

    def create(self) -> None:
        try:
            for folder in (self.prompts, self.answers):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExchangeError(
                f"cannot use {self.root} for an exchange: {error.strerror or error}"
            ) from error

    def pending(self) -> list[Pending]:
        """What waits for an answer, oldest first."""
        found = []
        for path in self.prompts.glob("*.json"):
            try:
                entry = Pending(**json.loads(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue  # answered in this moment
            except (ValueError, TypeError) as error:
                raise ExchangeError(f"{path} is no prompt of an exchange: {error}", "remove it") from error
            if self.answer_of(entry.id) is None:
                found.append(entry)
        return sorted(found, key=lambda entry: (entry.created, entry.id))

    def find(self, prefix: str | None) -> Pending:
        """The pending prompt whose id begins so; without a prefix, the only one."""
        waiting = self.pending()
        found = [p for p in waiting if p.id.startswith(prefix or "")]
        exact = [p for p in found if p.id == prefix]
        if exact or len(found) == 1:
            return (exact or found)[0]
        named = f" of id {prefix!r}" if prefix else ""
        what = f"no prompt{named} is pending" if not found else f"{len(found)} prompts{named} are pending"
        raise ExchangeError(f"{what} in {self.root}", "see: kernelevolve exchange pending")

    def post(self, entry: Pending) -> None:
        """Put up a prompt; an older one of the same step and round, which nobody waits for, goes."""
        same = entry.id.rpartition("-")[0] + "-"
        for path in self.prompts.glob(f"{same}*"):
            if path.stem != entry.id:
                path.unlink(missing_ok=True)
        _write(self.prompts / f"{entry.id}.md", HOW.format(id=entry.id) + entry.text)
        _write(self.prompts / f"{entry.id}.json", json.dumps(asdict(entry), indent=1, ensure_ascii=False))

    def withdraw(self, id: str) -> None:
        """The prompt needs no answer any more."""
        for suffix in ("json", "md"):
            (self.prompts / f"{id}.{suffix}").unlink(missing_ok=True)

    def answer(self, id: str, text: str, *, as_json: bool = False) -> Path:
        """Drop an answer, whole; another one that is there already is replaced."""
        self.create()
        path = self.answers / f"{id}.{'json' if as_json else 'md'}"
        _write(path, text)
        return path

    def answer_of(self, id: str) -> Path | None:
        """The answer that lies there, complete or not."""
        files = (self.answers / f"{id}.{suffix}" for suffix in ("json", "md"))
        return next((path for path in files if path.is_file()), None)


class ExchangeAnswerer:
    """Puts prompts up in the folder and waits for as long as it takes.

    What becomes of the prompts is not known: they count as leaving this machine.
    """

    hosted = True
    name = "exchange"

    def __init__(
        self, folder: Path, *, poll_s: float = _POLL_S, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._folder = ExchangeFolder(folder)
        self._folder.create()
        self._poll_s = poll_s
        self._sleep = sleep

    def ask(self, messages: Sequence[Message], request: GenerationRequest) -> Reply:
        """The answer that is dropped for this step and round; one that is there already is taken at once."""
        entry = _entry(messages, request)
        if self._folder.answer_of(entry.id) is None:
            self._folder.post(entry)
            if request.on_wait is not None:
                request.on_wait(f"waiting for an answer: kernelevolve exchange show {entry.id}")
        reply = read_reply(*self._settled(entry.id))
        self._folder.withdraw(entry.id)
        return reply

    def _settled(self, id: str) -> tuple[str, bool]:
        """(text, whether it is JSON) of an answer that nobody is writing any more."""
        before: tuple[Path, int, int] | None = None
        same = 0
        while True:
            path = self._folder.answer_of(id)
            now = None
            if path is not None:
                try:
                    status = path.stat()
                    now = (path, status.st_size, status.st_mtime_ns)
                except FileNotFoundError:
                    pass
            same = same + 1 if now is not None and now == before else 0
            if path is not None and now is not None and same and now[1]:
                text = path.read_bytes()[:_LARGEST].decode("utf-8-sig", errors="replace")
                is_json = path.suffix == ".json"
                if not is_json or _parses(text) or same * self._poll_s >= _MALFORMED_S:
                    return text, is_json
            before = now
            self._sleep(self._poll_s)


def exchange_folder(named: str | None, home: Path) -> Path:
    """The folder of an exchange: as named, else below the home folder."""
    return Path(named).expanduser().absolute() if named else home.absolute() / "exchange"


def check_json(text: str) -> None:
    """Raises ExchangeError where a JSON answer is none of the forms."""
    value = json.loads(text) if _parses(text) else None
    if not isinstance(value, dict) or not any(value.get(key) for key in ("answer", "source", "refused")):
        raise ExchangeError(
            "the answer is not JSON with `answer`, `source` or `refused`",
            'such as {"answer": "HYPOTHESIS: …"}',
        )


def read_reply(text: str, is_json: bool) -> Reply:
    """What a dropped answer says. JSON that is none of the forms is taken as text, for the repair to name."""
    from kb.chat import Reply

    value = json.loads(text) if is_json and _parses(text) else None
    if not isinstance(value, dict):
        return Reply(text, "stop", 0, 0, None, metered=False)
    refused = value.get("refused")
    if refused:
        said, finish = str(refused), "refusal"
    elif isinstance(value.get("source"), str):
        said, finish = (
            f"HYPOTHESIS: {value.get('hypothesis') or 'none was stated'}\n{fenced(value['source'])}",
            "stop",
        )
    else:
        said, finish = value["answer"] if isinstance(value.get("answer"), str) else text, "stop"
    counts = [value.get(key) for key in ("tokens_in", "tokens_out")]
    metered = all(isinstance(count, int) and count >= 0 for count in counts)
    cost = value.get("cost_usd")
    return Reply(
        text=said,
        finish=finish,
        tokens_in=int(counts[0] or 0) if metered else 0,
        tokens_out=int(counts[1] or 0) if metered else 0,
        cost_usd=float(cost) if isinstance(cost, int | float) and cost >= 0 else None,
        metered=metered,
        notes=(f"answered by {value['model']}",) if value.get("model") else (),
    )


def fenced(source: str) -> str:
    """The file in a fence that nothing in it closes."""
    longest = max((len(run) for run in re.findall(r"`+", source)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{source.rstrip()}\n{fence}\n"


def _entry(messages: Sequence[Message], request: GenerationRequest) -> Pending:
    number = len(messages) // 2
    run = request.run_id or "run"
    digest = hashlib.sha256(json.dumps(list(messages)).encode()).hexdigest()[:8]
    return Pending(
        id=f"{run}-{request.step:04d}-{number}-{digest}",
        run_id=request.run_id,
        step=request.step,
        round=number,
        problem=request.facts.name,
        target=request.target,
        tokens=request.prompt.tokens,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        messages=[{"role": role, "content": text} for role, text in messages],
    )


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _write(path: Path, text: str) -> None:
    """Under its name there is nothing, or all of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ExchangeError(f"cannot write {path}: {error.strerror or error}") from error
