"""Watching a search, on standard error: a live display on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cli.output import clean, err, milliseconds, note, speedup

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

    from agent.events import Evaluated, Ideas, RunStarted, SearchEvent, Skipped


class SearchProgress:
    """Pass `on_event` to a search; use as a context manager. `run_id` is None until the run has started."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self._console = err()
        self._live = self._console.is_terminal
        self._steps = self._done = self._at_start = self._correct = 0
        self._limit: float | None = None
        self._elapsed, self._marked, self._began = 0.0, time.monotonic(), time.monotonic()
        self._best = "none yet"
        self._progress: Any = None
        self._bar: Any = None
        self._line: Any = None

    def __enter__(self) -> SearchProgress:
        if self._live:
            self._start_display()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def on_event(self, event: SearchEvent) -> None:
        handler = getattr(self, f"_on_{type(event).__name__.lower()}", None)
        if handler is not None:
            handler(event)

    def activity(self, message: str) -> None:
        """What is going on now; on a pipe only the finished steps are told."""
        if self._progress is not None:
            self._progress.update(self._line, description=clean(message))

    # --- events ---

    def _on_runstarted(self, event: RunStarted) -> None:
        self.run_id = event.run_id
        self._steps, self._done, self._at_start = event.steps, event.done, event.done
        self._limit, self._began = event.time_limit_s, time.monotonic()
        verb = "resuming" if event.resumed else "run"
        eager = f", eager {milliseconds(event.eager_ms)}" if event.eager_ms else ""
        self._say(f"{verb} {event.run_id}: {event.problem} on {event.target}{eager}")
        self._refresh()

    def _on_stepstarted(self, event: Any) -> None:
        origin = "a new draft" if event.parent_step is None else f"from step {event.parent_step}"
        self.activity(f"step {event.step}: {origin} ({event.reason})")

    def _on_promptready(self, event: Any) -> None:
        withheld = f", {event.withheld} local-only withheld" if event.withheld else ""
        self.activity(
            f"step {event.step}: prompt of {event.tokens} tokens, {event.passages} passages{withheld}"
        )

    def _on_writing(self, event: Any) -> None:
        self.activity(f"step {event.step}: the answer comes in, {event.characters:,} characters so far")

    def _on_noted(self, event: Any) -> None:
        self._say(f"step {event.step}: {event.text}")

    def _on_generated(self, event: Any) -> None:
        self.activity(f"step {event.step}: judging: {event.hypothesis}")

    def _on_evaluated(self, event: Evaluated) -> None:
        node = event.node
        self._done += 1
        self._correct += node.correct
        if event.best is not None:
            made = " (compiler)" if event.best.compiler_made else ""
            self._best = speedup(event.best.speedup) + made
        verdict = (
            speedup(node.speedup, node.speedup_ci)
            if node.correct and node.speedup is not None
            else node.status
        )
        star = " *best*" if event.is_best else ""
        self._step_line(event.step, f"{verdict}{star}", node.hypothesis, event.elapsed_s)

    def _on_skipped(self, event: Skipped) -> None:
        self._done += 1
        self._step_line(event.step, event.outcome, event.reason, event.elapsed_s)

    def _on_ideas(self, event: Ideas) -> None:
        self._done += 1
        self._step_line(event.step, f"{len(event.ideas)} ideas", " · ".join(event.ideas), event.elapsed_s)

    def _on_verifying(self, event: Any) -> None:
        message = f"measuring the winner (step {event.node.step}) again, longer and against torch.compile"
        self._say(message) if not self._live else self.activity(message)

    # --- display ---

    def _step_line(self, step: int, verdict: str, text: str, elapsed_s: float) -> None:
        self._elapsed, self._marked = elapsed_s, time.monotonic()
        text = " ".join(clean(text).split())
        left = "" if self._live else f" | best {self._best}, {self._correct} correct, {self._left_text()}"
        self._say(f"step {step}/{self._steps}: {verdict}: {text[:100]}{left}")
        self._refresh()

    def _say(self, line: str) -> None:
        if self._progress is not None:
            self._progress.console.print(
                clean(line), markup=False, highlight=False, no_wrap=True, overflow="ellipsis"
            )
        else:
            note(line)

    def _refresh(self) -> None:
        if self._progress is not None:
            self._progress.update(self._bar, completed=self._done, total=self._steps)

    def seconds_left(self) -> float | None:
        """An upper bound from the time limit and the pace so far; None before either says anything."""
        since = time.monotonic() - self._marked
        bounds = []
        if self._limit is not None:
            bounds.append(self._limit - self._elapsed - since)
        made = self._done - self._at_start
        if made:
            pace = (self._marked - self._began) / made
            bounds.append(pace * (self._steps - self._done) - since)
        return max(0.0, min(bounds)) if bounds else None

    def _left_text(self) -> str:
        left = self.seconds_left()
        return "time left unknown" if left is None else f"{int(left) // 60}:{int(left) % 60:02d} left"

    def _start_display(self) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn
        from rich.text import Text

        watcher = self

        class Facts(ProgressColumn):
            """Steps, best, correct and time left, or the current activity in the second row."""

            def render(self, task: Task) -> Text:
                if task.id == watcher._line:
                    return Text(task.description, style="dim", no_wrap=True, overflow="ellipsis")
                counts = f"{watcher._done}/{watcher._steps} steps · best {watcher._best}"
                return Text(f"{counts} · {watcher._correct} correct · {watcher._left_text()}", no_wrap=True)

        class BarOrSpinner(ProgressColumn):
            bar, spinner = BarColumn(bar_width=20), SpinnerColumn()

            def render(self, task: Task) -> Any:
                return (self.spinner if task.id == watcher._line else self.bar).render(task)

        self._progress = Progress(BarOrSpinner(), Facts(), console=self._console, transient=True)
        self._bar = self._progress.add_task("search", total=None)
        self._line = self._progress.add_task("starting", total=None)
        self._progress.start()
