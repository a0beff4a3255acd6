"""The watches: kopf lists and watches, and its ``on.event`` handlers put what they are told into the store.

What kopf 1.45 does, and what is added here:

- Selectors are the server's work (``label_selectors``): foreign pods cost nothing. Lists come in chunks, and a worker
  of kopf lives for a moment only, so that no more than a chunk of bodies is in memory at a time.
- No handler keeps state and nothing is returned, so kopf writes nothing: no finalizer, annotation, status or event.
  Peering, posting and scanning (it would watch every CRD of the cluster) are off. kopf's own indexes are not used: they
  hold all bodies back until every kind is listed, and are not cleaned after a second list.
- After a lost watch (410) kopf lists again and reports what it finds, not what has vanished. Bookmarks are not
  reported, nor the end of a list. These three are seen where the replies come in: ``streams`` follows each of them.
- A silent watch is begun anew from where it was, which helps if the connection was dead, and not if something between
  lets lists through and watches not. So what was silent for longer is listed as well.
- A failure that lasts would end kopf. Here it tries for ever: the age of the watch says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import kopf

from rollplex_operator.kube import ApiError, Kube, UnansweredError
from rollplex_operator.resources import Resource
from rollplex_operator.store import Store
from rollplex_operator.streams import Watch, response_class

INACTIVITY = 70.0  # seconds without event or bookmark after which to watch anew
BOOKMARKS = 62.0  # seconds in which the server sends one, or 2 s before a watch's own end
SHORTEST = 3  # seconds of a watch: it is to have its bookmark
CHUNK = 25  # objects of one reply of a list

_log = logging.getLogger(__name__)


class Watching:
    """All watches of some kinds in some namespaces (None: in all).

    ``spawned`` is called when kopf has begun: it takes the process's signals, and has to give them back.
    """

    def __init__(
        self,
        kube: Kube,
        store: Store,
        namespaces: Sequence[str] | None,
        inactivity: float = INACTIVITY,
        spawned: Callable[[], None] = lambda: None,
    ) -> None:
        self._kube, self._store, self._namespaces, self._inactivity = kube, store, namespaces, inactivity
        self._spawned = spawned
        self.watches: list[Watch] = []

    @property
    def synced(self) -> bool:
        """Whether the store has all that the first lists said."""
        return bool(self.watches) and all(watch.synced for watch in self.watches)

    def ages(self) -> Iterator[tuple[str, str, float]]:
        """(plural and group, namespace, seconds since the last event, bookmark or list) of each watch."""
        now = time.monotonic()
        for watch in self.watches:
            name = ".".join(filter(None, (watch.resource.plural, watch.resource.group)))
            yield name, watch.namespace or "", now - watch.heard

    async def run(self, resources: Iterable[Resource]) -> None:
        """Watch until cancelled. A second run begins with new lists."""
        kinds = tuple(resources)
        spaces: Sequence[str | None] = self._namespaces or [None]
        self.watches = [Watch(kind, space, self._store) for kind in kinds for space in spaces]
        tasks = await kopf.spawn_tasks(
            registry=self._registry(kinds),
            settings=self._settings(kinds),
            standalone=True,
            clusterwide=self._namespaces is None,
            namespaces=self._namespaces or (),
        )
        self._spawned()
        tasks = [*tasks, asyncio.create_task(self._list_silent(), name="lists of silent watches")]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
            raise RuntimeError(f"kopf ended by itself: {', '.join(task.get_name() for task in done)}")
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(asyncio.wait(tasks, timeout=5))

    async def _list_silent(self) -> None:
        while True:
            await asyncio.sleep(self._inactivity / 2)
            for watch in self.watches:
                if watch.synced and time.monotonic() - watch.heard > 1.5 * self._inactivity:
                    try:
                        await self._list(watch)
                    except (ApiError, UnansweredError) as error:
                        _log.warning("cannot list %s, whose watch is silent: %s", watch.path, error)

    async def _list(self, watch: Watch) -> None:
        """What a watch should have told. It stays as silent as it is, for ``ages``."""
        query = {"limit": str(CHUNK), "labelSelector": watch.resource.selector}
        uids: set[str] = set()
        while True:
            reply = await self._kube.get(watch.path, **query)
            for item in reply["items"]:
                uids.add(item["metadata"]["uid"])
                kind = {"apiVersion": watch.resource.api_version, "kind": watch.resource.kind}
                self._store.put(watch.resource, {**kind, **item})
            query["continue"] = reply["metadata"].get("continue", "")
            if not query["continue"]:
                self._store.retain(watch.resource, watch.namespace, uids, reply["metadata"]["resourceVersion"])
                return

    def _registry(self, kinds: Collection[Resource]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        by_place = {(watch.resource, watch.namespace): watch for watch in self.watches}

        for kind in kinds:

            @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=f"{kind.plural}.{kind.group}")
            async def seen(event: Any, namespace: str | None, kind: Resource = kind, **_: Any) -> None:
                by_place[kind, namespace if self._namespaces else None].handled(event)

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            session = self._kube.session(response_class({watch.path: watch for watch in self.watches}))
            return kopf.AiohttpSession(server=self._kube.configuration.host, aiohttp_session=session)

        return registry

    def _settings(self, kinds: Iterable[Resource]) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        for kind in kinds:
            if kind.selector:
                settings.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
        settings.watching.inactivity_timeout = self._inactivity
        settings.watching.chunk_size = CHUNK
        if self._inactivity < BOOKMARKS:
            settings.watching.server_timeout = max(SHORTEST, int(self._inactivity))
        settings.watching.connect_timeout = 5.0
        settings.networking.connect_timeout = 5.0
        settings.networking.request_timeout = 30.0
        settings.networking.error_backoffs = _Forever()
        settings.queueing.idle_timeout = 0.1
        settings.queueing.exit_timeout = 0.1
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.process.ultimate_exiting_timeout = None
        settings.persistence.diffbase_storage = _NoDiff()
        return settings


class _Forever:
    """Waits between tries, without end."""

    def __iter__(self) -> Iterator[float]:
        wait = 0.1
        while True:
            yield wait
            wait = min(2 * wait, 5.0)


class _NoDiff(kopf.DiffBaseStorage):
    """Nobody asks what changed: bodies are not copied for it."""

    def build(self, *, body: Any, extra_fields: Any = None, ignored_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> Any:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        raise NotImplementedError("no handler keeps state")
