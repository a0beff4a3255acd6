"""One job at a time: observe -> decide -> carry out.

**Why a decision never acts on what it did not see.** A decision is made from the store, which the watches fill with
some delay, so it may be made from the past. That is safe, because:

- What this process wrote and got an answer for is in the store at once (``store``), so a decision sees all own writes.
- The status is written with the version that was seen, before anything else. If anybody edited the job since, or if an
  own write was carried out but its answer was lost, the server refuses it (409): the job is read and decided anew. So
  no attempt, counter or phase is ever derived twice from the same past.
- Decisions that write no status only repeat what an accepted status said: create the pods of this attempt, delete those
  of older ones. Creating is create-only under fixed names, so twice is 409 and then a look at who has the name;
  deleting names the uid, so it never meets a successor.
- A pod that is missing is a fault only after the status said that all were created, which was decided with every one of
  them in the store. A list that is older than a creation does not take it out again (``Store.retain``).
- Nothing is decided before all first lists are in the store.
- Another process: the lease, and the fence of ``kube``. Its successor lists anew.

A write without answer is an error: the key is tried again after a growing wait, with what the watches told meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rollplex_operator.decision import Decision
from rollplex_operator.kube import ApiError, FencedError, Kube, UnansweredError
from rollplex_operator.logs import about
from rollplex_operator.observation import JobView, Observation, Progress, Server, Settings
from rollplex_operator.resources import Resource
from rollplex_operator.store import Key, Store
from rollplex_operator.workqueue import WorkQueue
from rollplex_operator.writes import Refusals, Writer

PARALLEL_JOBS = 16
NODE_FRESH = 20.0  # seconds that what was read of a node holds
NODE_UNREADABLE = 300.0  # seconds until a node that may not be read is asked for again
NODES = Resource("", "v1", "nodes", "Node", selector="")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """For metrics."""

    decisions: int = 0
    errors: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Reconciler:
    """``decide`` is pure; ``wall`` is its clock. ``server`` and ``progress`` are replaced as they become known."""

    kube: Kube
    store: Store
    queue: WorkQueue[Key]
    decide: Callable[[Observation, float], Decision]
    settings: Settings = field(default_factory=Settings)
    server: Server = field(default_factory=Server)
    progress: Callable[[Key], Progress | None] = lambda key: None
    synced: Callable[[], bool] = lambda: True
    wall: Callable[[], float] = time.time
    counts: Counts = field(default_factory=Counts)
    _writer: Writer = field(init=False)
    _refusals: dict[Key, Refusals] = field(default_factory=dict)
    _nodes: dict[str, tuple[float, bool | None]] = field(default_factory=dict)  # until when (monotonic), Ready

    def __post_init__(self) -> None:
        self._writer = Writer(self.kube, self.store, self.wall)

    async def run(self) -> None:
        """Work on the queue until cancelled; what was begun is finished."""
        await self.queue.run(self.one, PARALLEL_JOBS)

    async def one(self, key: Key) -> None:
        """Bring one job nearer to where it should be."""
        if not self.synced():
            self.queue.add(key, 0.1)
            return
        job = self.store.job(key)
        if job is None:
            self._refusals.pop(key, None)
            self.queue.succeeded(key)
            return
        began = time.monotonic()
        with about(namespace=job.namespace, name=job.name, uid=job.uid, attempt=job.status.get("attempt")):
            try:
                await self._one(key, job)
            except (UnansweredError, ApiError) as error:
                self.counts.errors += 1
                wait = self.queue.failed(key, error.retry_after if isinstance(error, ApiError) else 0.0)
                _log.warning("%s", error, extra={"retry_in": wait})
            except FencedError:
                _log.warning("not written: the lease may be over")
        self.counts.decisions += 1
        self.counts.seconds += time.monotonic() - began

    async def _one(self, key: Key, job: JobView) -> None:
        refusals = self._refusals.get(key)
        if refusals is None or refusals.uid != job.uid:
            refusals = self._refusals[key] = Refusals(job.uid)
        observation = self._observe(key, job, refusals)
        decision = self.decide(observation, self.wall())
        if decision.writes:
            _log.debug("%d writes", decision.writes)
        outcome = await self._writer.carry_out(job, decision, refusals)
        if await self._read_nodes(decision.ask_nodes):
            self.queue.add(key)
        if outcome.accepted:
            self.store.forget(key, observation.gone)
            self.queue.succeeded(key)
            if decision.look_again is not None:
                self.queue.add(key, decision.look_again)
        else:  # soon, so that a refusal is decided upon; later if it goes on
            self.queue.failed(key, outcome.wait)

    def _observe(self, key: Key, job: JobView, refusals: Refusals) -> Observation:
        now = time.monotonic()
        self._nodes = {name: known for name, known in self._nodes.items() if known[0] > now}
        return Observation(
            job=job,
            pods=self.store.pods(key),
            children=self.store.children(key),
            gone=self.store.gone(key),
            nodes_ready={name: ready for name, (_, ready) in self._nodes.items() if ready is not None},
            progress=self.progress(key),
            refusals=tuple(refusals.by_object.values()),
            server=self.server,
            settings=self.settings,
        )

    async def _read_nodes(self, names: frozenset[str]) -> bool:
        """Whether there is news of one."""
        asked = [name for name in names if name not in self._nodes]
        results = await asyncio.gather(*map(self._node_ready, asked))
        now = time.monotonic()
        for name, ready in zip(asked, results, strict=True):
            self._nodes[name] = now + (NODE_UNREADABLE if ready is None else NODE_FRESH), ready
        return any(ready is not None for ready in results)

    async def _node_ready(self, name: str) -> bool | None:
        try:
            node = await self.kube.get(f"{NODES.root}/nodes/{name}")
        except ApiError as error:
            if error.code == 404:
                return False
            if error.code == 403:
                return None
            raise
        conditions = node.get("status", {}).get("conditions", ())
        return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
