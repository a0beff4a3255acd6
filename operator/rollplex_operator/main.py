"""``rollplex-operator``: the parts of the process, put together, from start to a graceful end."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rollplex_operator import logs
from rollplex_operator.capabilities import Capabilities, Offer
from rollplex_operator.decision import Decision
from rollplex_operator.health import Health, faults
from rollplex_operator.kube import ApiError, FencedError, Kube, UnansweredError
from rollplex_operator.leader import Leader, LostError
from rollplex_operator.metrics import OperatorCollector, make_registry
from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import Observation
from rollplex_operator.options import Options, parse
from rollplex_operator.progress import ProgressReader
from rollplex_operator.reconcile import Reconciler
from rollplex_operator.resources import JOBS
from rollplex_operator.store import Key, Store
from rollplex_operator.watching import Watching
from rollplex_operator.workqueue import WorkQueue, backoff

ASK_EVERY = 300.0  # seconds between two looks at what the server offers
ASK_EVERY_WAITING = 10.0  # as long as a job waits for what the server lacks
SETTLE = 0.1  # seconds that news of a job waits for more: pods start by the dozen, and one status tells of all
FINISH = 8.0  # seconds that writes in flight have to end

_log = logging.getLogger("rollplex_operator")


class Operator:
    """One process. ``run`` returns on SIGTERM or SIGINT, and raises where it cannot go on."""

    def __init__(self, options: Options, decide: Callable[[Observation, float], Decision]) -> None:
        self._options = options
        self._kube = Kube(options.kubeconfig)
        self._queue: WorkQueue[Key] = WorkQueue()
        self._store = Store(partial(self._queue.add, after=SETTLE))
        self._stop = asyncio.Event()
        self._watching = Watching(
            self._kube, self._store, options.namespaces, options.inactivity, spawned=self._heed_signals
        )
        self._progress = ProgressReader(self._store, self._queue.add)
        self._reconciler = Reconciler(
            self._kube,
            self._store,
            self._queue,
            decide,
            options.settings,
            progress=lambda key: self._progress.last.get(key),  # the dictionary is replaced now and then
            synced=lambda: self._watching.synced,
        )
        home = options.namespaces[0] if options.namespaces else options.home
        self._capabilities = Capabilities(self._kube, options.namespaces, home)
        self._offer: Offer | None = None
        self._leader = Leader(self._kube, options.home, options.lease_name, options.identity)
        registry = make_registry(OperatorCollector(self._kube, self._reconciler, self._watching, self._leads))
        self._health = Health(self._alive, self._ready, registry, options.port)

    async def run(self) -> None:
        """Until a signal.

        Raises:
            LostError: the lease was lost.
        """
        self._heed_signals()
        await self._kube.connect()
        await self._health.start()
        try:
            await _first(self._stop.wait(), self._lead())
            _log.info("stopped")
        finally:
            if self._options.leader_elect:
                await self._leader.release()
            await self._health.stop()
            await self._kube.close()

    async def _lead(self) -> None:
        if self._options.leader_elect:
            self._kube.fence = self._leader.fence
            await self._leader.acquire()
            await _first(self._leader.hold(), self._serve())
        else:
            await self._serve()

    async def _serve(self) -> None:
        await _first(self._reconciler.run(), self._progress.run(), self._watch())

    async def _watch(self) -> None:
        """Watch what the server has; anew when it has other kinds than before."""
        failures = 0
        while True:
            offer = await self._ask()
            if offer is None or JOBS not in offer.kinds:
                failures += 1
                await asyncio.sleep(min(backoff(failures), 2.0))
                continue
            failures = 0
            watch = asyncio.create_task(self._watching.run(offer.kinds))
            try:
                asked = time.monotonic()
                while not watch.done() and (self._offer or offer).kinds == offer.kinds:
                    await asyncio.wait([watch], timeout=ASK_EVERY_WAITING)
                    # asked only now: a job may have come that lacks something
                    if self._lacking() or time.monotonic() - asked >= ASK_EVERY:
                        await self._ask()
                        asked = time.monotonic()
                if watch.done():
                    _log.error("watching ended, and is begun anew", exc_info=watch.exception())
                    await asyncio.sleep(1.0)
            finally:
                watch.cancel()
                await asyncio.wait([watch])

    async def _ask(self) -> Offer | None:
        """What the server offers; as it was known before where it does not answer."""
        try:
            offer = await self._capabilities.ask()
        except (ApiError, UnansweredError, FencedError) as error:
            _log.warning("cannot ask the server what it offers: %r", error)
            return self._offer
        if JOBS not in offer.kinds:
            _log.warning("waiting for the CustomResourceDefinition of RollplexJob, which is not installed")
        if self._offer is None or offer.server != self._offer.server:
            _log.info("the server offers %s", offer.server)
            self._reconciler.server = offer.server
            for key, _ in self._store.jobs():
                self._queue.add(key)
        self._offer = offer
        return offer

    def _lacking(self) -> bool:
        """Whether a job waits for what the server may get: a gang, a device class, a newer CRD."""
        reasons = (Reason.INVALID_SPEC, Reason.SCHEMA_TOO_OLD)
        return any(
            condition.get("type") == Condition.ADMITTED and condition.get("reason") in reasons
            for _, job in self._store.jobs()
            for condition in job.status.get("conditions", ())
        )

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _leads(self) -> bool:
        return self._leader.leading if self._options.leader_elect else True

    def _alive(self) -> list[str]:
        return list(faults(self._watching.ages(), self._queue.oldest(), self._options.limits))

    def _ready(self) -> str:
        if self._leads():
            return "" if self._watching.synced else "waiting for the first lists"
        return "" if self._leader.seen else "waiting for the lease"


async def _first(*parts: Coroutine[Any, Any, object]) -> None:
    """Run all until one of them ends, then end the others, each in its own way; raises what the first one raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    done: set[asyncio.Task[object]] = set()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=FINISH)
    for task in done:
        task.result()


async def _run(options: Options, decide: Callable[[Observation, float], Decision]) -> None:
    await Operator(options, decide).run()


def serve(options: Options, decide: Callable[[Observation, float], Decision]) -> int:
    """Run the operator with this ``decide``; the exit status of its process."""
    logs.configure(options.log_level)
    # what the modules made stays: the collector looks at the rest only, so often that no garbage piles up beside it
    gc.collect()
    gc.freeze()
    try:
        asyncio.run(_run(options, decide))
    except LostError as error:
        _log.error("another replica leads now: %s", error)
        return 1
    return 0


def main() -> None:
    """The command."""
    options = parse()
    from rollplex_operator.decide import decide

    sys.exit(serve(options, decide))


if __name__ == "__main__":
    main()
