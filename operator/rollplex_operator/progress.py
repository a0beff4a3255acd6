"""Reads how far jobs are: pod 0's /status, at most every 15 s a job, and only while its pod runs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable

import aiohttp

from rollplex_operator.names import METRICS_PORT, TERMINAL
from rollplex_operator.observation import PodView, Progress
from rollplex_operator.store import Key, Store

EVERY = 15.0  # seconds
TIMEOUT = 2.0  # seconds of one reading
LARGEST = 65536  # bytes of one reply
PARALLEL = 16
TICK = 1.0  # seconds between two looks for what is due

_log = logging.getLogger(__name__)


class ProgressReader:
    """``last`` has the newest report of each job; ``changed(key)`` is called when it says something new.

    A reply that is no JSON object, is too long or does not come in time is as if there was none.
    """

    def __init__(self, store: Store, changed: Callable[[Key], None], wall: Callable[[], float] = time.time) -> None:
        self._store, self._changed, self._wall = store, changed, wall
        self._next: dict[Key, float] = {}  # monotonic
        self.last: dict[Key, Progress] = {}

    async def run(self) -> None:
        """Read for ever."""
        connector = aiohttp.TCPConnector(limit=PARALLEL, keepalive_timeout=2 * EVERY)  # one connection a job, kept
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                await self.read(session, self._due(time.monotonic()))
                await asyncio.sleep(TICK)

    async def read(self, session: aiohttp.ClientSession, pods: Iterable[tuple[Key, PodView]]) -> None:
        """Read these pods' reports, all at once."""
        await asyncio.gather(*(self._one(session, key, pod) for key, pod in pods))

    def _due(self, now: float) -> list[tuple[Key, PodView]]:
        heads = dict(heads_of_running(self._store))
        self._next = {key: self._next.get(key, now) for key in heads}
        self.last = {key: progress for key, progress in self.last.items() if self._store.job(key) is not None}
        due = [key for key, when in self._next.items() if when <= now]
        for key in due:
            self._next[key] = now + EVERY
        return [(key, heads[key]) for key in due]

    async def _one(self, session: aiohttp.ClientSession, key: Key, pod: PodView) -> None:
        host = f"[{pod.ip}]" if ":" in (pod.ip or "") else pod.ip
        try:
            async with session.get(f"http://{host}:{METRICS_PORT}/status", allow_redirects=False) as reply:
                reply.raise_for_status()
                data = await reply.content.read(LARGEST + 1)
                while not reply.content.at_eof() and len(data) <= LARGEST:
                    data += await reply.content.read(LARGEST + 1 - len(data))
            report = json.loads(data) if len(data) <= LARGEST else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            _log.debug("no progress of %s: %r", key, error)
            return
        if not isinstance(report, dict):
            return
        known = self.last.get(key)
        if known is None or known.pod_uid != pod.uid or known.report != report:
            self.last[key] = Progress(self._wall(), pod.uid, report)
            self._changed(key)


def heads_of_running(store: Store) -> Iterable[tuple[Key, PodView]]:
    """Pod 0 of each job where that pod runs, but for jobs that are over."""
    for key, job in store.jobs():
        if job.status.get("phase") in TERMINAL:
            continue
        pod = store.head(key, job.uid)
        if pod is not None and pod.phase == "Running" and pod.ip and pod.containers and pod.containers[0].running:
            yield key, pod
