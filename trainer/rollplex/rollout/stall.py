"""Requests that the engine has stopped answering (pure: the clock is handed in)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)

_LONGEST_GAP = 1.0  # seconds between two steps that count; in a longer one the caller was doing something else


class StallError(RuntimeError):
    """A request got no token within the limit; ``requests`` are the ids."""

    def __init__(self, requests: tuple[str, ...], seconds: float) -> None:
        self.requests = requests
        super().__init__(
            f"the engine gave no token for {seconds:g} s to: {', '.join(requests)}; "
            "raise rollout.stallSeconds if a step may take that long"
        )


class StallWatch:
    """Watches how long each request waits for its next token.

    Half-way to the limit a request is logged by id and counted in :attr:`stalled`; at the limit :meth:`end` raises.
    Only time in which the engine is being stepped counts. A request that has not got its first token yet may stand in
    the queue, so for it the wait begins anew whenever any request gets a token.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        if seconds <= 0:
            raise ValueError(f"stall limit must be positive, got {seconds}")
        self.seconds = seconds
        self._clock = clock
        self._active = 0.0  # seconds of stepping so far
        self._seen: float | None = None
        self._last: dict[str, float] = {}  # request -> _active at its last token
        self._queued: set[str] = set()
        self._progress = 0.0  # _active when any request last got a token
        self._logged: set[str] = set()

    @property
    def stalled(self) -> int:
        """Requests that have waited for more than half the limit."""
        return len(self._logged)

    def add(self, requests: Iterable[str]) -> None:
        """Begin to watch; the engine has just accepted these."""
        for request in requests:
            self._last[request] = self._active
            self._queued.add(request)

    def drop(self, requests: Iterable[str]) -> None:
        """Stop watching: finished or aborted."""
        for request in requests:
            self._last.pop(request, None)
            self._queued.discard(request)
            self._logged.discard(request)

    def begin(self) -> None:
        """A step begins."""
        now = self._clock()
        if self._seen is not None:
            self._active += min(now - self._seen, _LONGEST_GAP)
        self._seen = now

    def end(self, progressed: Iterable[str]) -> None:
        """A step has ended and gave these requests tokens.

        Raises:
            StallError: another request has waited for :attr:`seconds`.
        """
        now = self._clock()
        if self._seen is not None:
            self._active += now - self._seen
        self._seen = now
        for request in progressed:
            self._progress = self._last[request] = self._active
            self._queued.discard(request)
            self._logged.discard(request)
        waits = {request: self._wait(request) for request in self._last}
        for request, wait in waits.items():
            if wait >= self.seconds / 2 and request not in self._logged:
                self._logged.add(request)
                logger.warning("rollout request %s has got no token for %.1f s", request, wait)
        late = tuple(request for request, wait in waits.items() if wait >= self.seconds)
        if late:
            raise StallError(late, self.seconds)

    def _wait(self, request: str) -> float:
        since = self._last[request]
        if request in self._queued:
            since = max(since, self._progress)
        return self._active - since
