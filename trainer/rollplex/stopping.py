"""Ctrl-C and SIGTERM while steps run.

Ctrl-C lets the step in flight finish; a second one ends the process at once, as kill -9 would: what closing an engine,
workers and pictures takes is seconds that nobody wants to wait for, and the last checkpoint counts either way. SIGTERM
(a pod that is evicted) drops the step in flight, unless its update has begun: that works in place and cannot be taken
back. After one signal the run saves before it ends. The handlers only set flags; the trainer looks at them where it is
safe to stop.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class StepDropped(Exception):  # noqa: N818 (not an error)
    """The step in flight is given up: SIGTERM came before its update."""


class Stop:
    """What the run was told.

    Args:
        say: gets a line when a signal arrives.
        release: called right before a second Ctrl-C ends the process; must not wait for anything.
    """

    def __init__(
        self, say: Callable[[str], object] = lambda line: None, release: Callable[[], object] = lambda: None
    ) -> None:
        self._say = say
        self._release = release
        self._interrupted = False
        self._terminated = False

    @property
    def exit_code(self) -> int | None:
        """143 after SIGTERM, 130 after Ctrl-C, None while nobody wants the run to end."""
        return 143 if self._terminated else 130 if self._interrupted else None

    def check(self) -> None:
        """Called between pieces of work that can be given up; raises StepDropped after SIGTERM."""
        if self._terminated:
            raise StepDropped

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle both signals inside; only in the main thread. A signal that is ignored (nohup) stays so."""
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: self._interrupt,
            signal.SIGTERM: self._terminate,
        }
        before: dict[int, Any] = {}
        for number, handler in handlers.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            self._release()
            os._exit(130)
        self._interrupted = True
        self._tell("Ctrl-C: finishing the step, then saving; again to stop at once")

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if not self._terminated:
            self._terminated = True
            self._tell("SIGTERM: saving the last finished step")

    def _tell(self, line: str) -> None:
        with suppress(
            RuntimeError
        ):  # the signal came in the middle of a write to the same stream, which refuses another
            self._say(line)
