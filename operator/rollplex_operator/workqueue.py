"""A queue of keys. A key is worked on by one worker at a time, and is never lost: what comes meanwhile is done after.

The schedule is plain data with the clock as an argument; only ``run`` waits.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from rollplex_operator.backoff import growing

FIRST_BACKOFF = 0.25  # seconds; doubled by each failure in a row
LARGEST_BACKOFF = 60.0

_log = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row (1, 2, ...). The keys of this queue need no jitter: their number
    in flight is bounded, so they cannot return all at once."""
    return growing(failures, FIRST_BACKOFF, LARGEST_BACKOFF)


class WorkQueue(Generic[K]):
    """Keys that are due, by time. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[K, float] = {}  # of waiting keys, the earliest time that was asked for
        self._heap: list[tuple[float, int, K]] = []  # may hold outdated entries: _due decides
        self._order = 0
        self._running: dict[K, float] = {}  # since when
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def running(self) -> int:
        """Keys that are worked on."""
        return len(self._running)

    def add(self, key: K, after: float = 0.0) -> None:
        """Work on it in ``after`` seconds, or earlier if that was asked for; while it is worked on: once more."""
        due = self._clock() + max(after, 0.0)
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._order += 1
            heapq.heappush(self._heap, (due, self._order, key))
            self._wake.set()

    def take(self) -> K | None:
        """The key that is due longest and that nobody works on; from here to ``done`` it is this worker's."""
        now = self._clock()
        held = []
        taken = None
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            due, _, key = entry
            if self._due.get(key) != due:
                continue
            if key in self._running:
                held.append(entry)
                continue
            del self._due[key]
            self._running[key] = now
            taken = key
            break
        for entry in held:
            heapq.heappush(self._heap, entry)
        return taken

    def done(self, key: K) -> None:
        """The worker has ended."""
        del self._running[key]
        if key in self._due:
            self._wake.set()

    def failed(self, key: K, at_least: float = 0.0) -> float:
        """Work on it again after a wait that grows with the failures in a row; returns the wait."""
        self._failures[key] = self._failures.get(key, 0) + 1
        wait = max(backoff(self._failures[key]), at_least)
        self.add(key, wait)
        return wait

    def succeeded(self, key: K) -> None:
        """Its next failure is the first of a row."""
        self._failures.pop(key, None)

    def wait(self) -> float | None:
        """Seconds until a key that nobody works on is due; None if none is waiting."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        waiting = min((due for key, due in self._due.items() if key not in self._running), default=None)
        return None if waiting is None else max(waiting - self._clock(), 0.0)

    def oldest(self) -> float:
        """Seconds that the oldest key has been due or worked on; 0 when idle. This grows if the workers hang."""
        now = self._clock()
        since = [*self._due.values(), *self._running.values()]
        return max(now - min(since), 0.0) if since else 0.0

    async def run(self, work: Callable[[K], Awaitable[None]], parallel: int) -> None:
        """Work on keys for ever, on ``parallel`` at a time. Cancelled, it waits for those that it began.

        An exception of ``work`` is a failure of its key: logged, and tried again later.
        """
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._wake.clear()
                while len(tasks) < parallel and (key := self.take()) is not None:
                    task = asyncio.create_task(self._one(key, work))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    task.add_done_callback(lambda _: self._wake.set())
                timeout = self.wait() if len(tasks) < parallel else None
                try:
                    async with asyncio.timeout(timeout):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            if tasks:
                await asyncio.wait(tasks)

    async def _one(self, key: K, work: Callable[[K], Awaitable[None]]) -> None:
        try:
            await work(key)
        except Exception:  # noqa: BLE001 - one job's bug must not stop the others
            wait = self.failed(key)
            _log.exception("unexpected error", extra={"key": str(key), "retry_in": wait})
        finally:
            self.done(key)
