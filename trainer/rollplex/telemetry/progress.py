"""What a person sees while a run goes: a live table on a terminal, one plain line a step everywhere else."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rollplex.telemetry.keys import Value

_BLOCKS = "▁▂▃▄▅▆▇█"
_TREND_STEPS = 40
_PACE_STEPS = 10


class Progress:
    """Shows phases and steps; one for the whole command, a context manager.

    On a terminal it keeps one live table at the bottom; a log (CI, ``kubectl logs``, a file) gets plain lines, each
    complete, none rewritten. ``clock`` returns seconds and never goes back.
    """

    def __init__(
        self, total_steps: int, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total_steps
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._phase: tuple[str, float] | None = None  # name, start
        self._rewards: deque[float] = deque(maxlen=_TREND_STEPS)
        self._stamps: deque[tuple[float, int]] = deque(maxlen=_PACE_STEPS + 1)  # clock, steps done
        self._evaluated: dict[str, Value] = {}
        self._table: RenderableType = ""
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        # isatty as well: rich takes FORCE_COLOR for a terminal, and a CI log must not fill with cursor movements.
        if self._console.is_interactive and self._console.file.isatty():
            # What is shown is asked for at every refresh, so elapsed seconds run on while the trainer is busy.
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def release(self) -> None:
        """Give the terminal back where the process ends within a signal handler: shows the cursor, takes no lock."""
        if self._live:
            os.write(self._console.file.fileno(), b"\x1b[?25h\n")

    def say(self, line: str) -> None:
        """One line that stays: what a user should know (a folder moved aside, a sample skipped)."""
        self._console.print(Text(line), soft_wrap=True)

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Show that something long goes on ("starting engines"), and at its end how long it took; phases may nest."""
        around, start = self._phase, self._clock()
        self._phase = (what, start)
        if not self._live:
            self.say(f"{what} ...")
        outcome = "failed after"
        try:
            yield
            outcome = "done in"
        finally:
            self._phase = around
            self.say(f"{what}: {outcome} {self._clock() - start:.1f} s")

    def step(self, row: Mapping[str, Value]) -> None:
        """Show one finished step; ``row`` as ``RunFolder.write_step`` returns it."""
        step, now = int(row["step"]), self._clock()
        if not self._stamps and "seconds/step" in row:
            self._stamps.append((now - float(row["seconds/step"]), step - 1))
        self._stamps.append((now, step))
        if "reward/mean" in row:
            self._rewards.append(float(row["reward/mean"]))
        if not self._live:
            numbers = [f"{name} {text}" for name, text in _shown(row)]
            self.say("  ".join([f"step {step}/{self._total}", *numbers, *self._eta(step)]))
            return
        # An evaluation's result stays in the table until the next one.
        self._evaluated |= {name: value for name, value in row.items() if name.startswith("eval/")}
        self._table = self._drawn(step, {**row, **self._evaluated})
        self._live.refresh()

    def _eta(self, step: int) -> list[str]:
        """Time to the last step at the pace of the newest steps, all that happens between steps included."""
        if len(self._stamps) < 2:
            return []
        (before, done_before), (now, done) = self._stamps[0], self._stamps[-1]
        return [f"eta {_duration((now - before) / (done - done_before) * (self._total - step))}"]

    def _render(self) -> RenderableType:
        # Runs in the display's own thread: it reads what step() built and never the deques behind it.
        phase = self._phase
        if phase is None:
            return self._table
        what, start = phase
        self._spinner.update(text=f"{what} {self._clock() - start:.0f} s")
        return Group(self._table, self._spinner)

    def _drawn(self, step: int, row: Mapping[str, Value]) -> RenderableType:
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._total, completed=step, width=40)
        head.add_row(f"step {step}/{self._total}", bar, *self._eta(step))
        body = Table.grid(padding=(0, 3))
        shown = _shown(row)
        body.add_row(*(Text(name, style="dim") for name, _ in shown))
        body.add_row(*(Text(text, style="bold") for _, text in shown))
        return Group(head, body, Text(f"reward {sparkline(self._rewards)}", style="green"))


def sparkline(values: Sequence[float]) -> str:
    """The values as blocks between their smallest and largest; non-finite ones as a gap."""
    finite = [value for value in values if abs(value) < float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] if abs(value) < float("inf") else " " for value in values)


def _shown(row: Mapping[str, Value]) -> list[tuple[str, str]]:
    """The few numbers worth a glance, in words; what a step did not measure is left out."""
    columns = (
        ("reward", "reward/mean", "{:.3f}"),
        ("loss", "loss", "{:.4f}"),
        ("kl", "kl/mean", "{:.4f}"),
        ("eval", "eval/reward/mean", "{:.3f}"),
        ("tokens/s", "tokens/per_second", "{:,.0f}"),
        ("seconds", "seconds/step", "{:.2f}"),
        ("hidden", "seconds/hidden", "{:.2f}"),
        ("exposed", "seconds/exposed", "{:.2f}"),
        ("saved", "seconds/saved", "{:.2f}"),
    )
    return [(name, form.format(row[key])) for name, key, form in columns if key in row]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
