"""The watches: kopf lists and watches, and its ``on.event`` handlers put what they are told into the store.

What kopf 1.45 does, and what is added here:

- Selectors are the server's work (``label_selectors``): foreign pods cost nothing. Lists come in chunks, and a worker
  of kopf lives for a moment only, so that no more than a chunk of bodies is in memory at a time.
- No handler keeps state and nothing is returned, so kopf writes nothing: no finalizer, annotation, status or event.
  Peering, posting and scanning (it would watch every CRD of the cluster) are off. kopf's own indexes are not used: they
  hold all bodies back until every kind is listed, and are not cleaned after a second list.
- After a lost watch (410) kopf lists again and reports what it finds, not what has vanished. Bookmarks are not
  reported, nor the end of a list. These three are seen where the replies come in: ``Watch`` follows each of them.
- A failure that lasts would end kopf, and 403 with it. Here it tries for ever: the age of the watch says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import aiohttp
import kopf

from rollplex_operator.kube import Kube
from rollplex_operator.resources import Resource
from rollplex_operator.store import Store

INACTIVITY = 70.0  # seconds without event or bookmark (the server sends one a minute) after which to watch anew
CHUNK = 25  # objects of one reply of a list

_log = logging.getLogger(__name__)


class Watch:
    """The list and the stream of one kind in one namespace, or in all of them."""

    def __init__(self, resource: Resource, namespace: str | None, store: Store) -> None:
        self.resource, self.namespace, self._store = resource, namespace, store
        self.path = resource.path(namespace)
        self.heard = time.monotonic()  # the last event, bookmark or list
        self._listing: set[str] = set()
        self._version: str | None = None
        self._awaited: set[str] = set()  # uids of the first list that no handler has seen yet
        self._listed = False

    @property
    def synced(self) -> bool:
        """Whether the store has all that the first list said."""
        return self._listed and not self._awaited

    def chunk(self, reply: dict[str, Any], first: bool) -> None:
        """A part of a list."""
        self.heard = time.monotonic()
        uids = {item["metadata"]["uid"] for item in reply.get("items", ())}
        self._listing = uids if first else self._listing | uids
        if not self._listed:
            self._awaited |= uids
        self._version = reply["metadata"]["resourceVersion"]

    def began(self) -> None:
        """A stream: the list before it, if there was one, is whole."""
        if self._version is not None:
            self._store.retain(self.resource, self.namespace, self._listing, self._version)
            self._listing, self._version, self._listed = set(), None, True

    def line(self) -> None:
        """An event or a bookmark."""
        self.heard = time.monotonic()

    def handled(self, event: Any) -> None:
        """kopf's handler: what happened, and the body."""
        body, uid = event["object"], event["object"]["metadata"]["uid"]
        try:
            if event["type"] == "DELETED":
                self._store.remove(uid)
            else:
                self._store.put(self.resource, body)
        finally:
            self._awaited.discard(uid)


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

    def _registry(self, kinds: Collection[Resource]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        by_place = {(watch.resource, watch.namespace): watch for watch in self.watches}

        for kind in kinds:

            @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=f"{kind.plural}.{kind.group}")
            async def seen(event: Any, namespace: str | None, kind: Resource = kind, **_: Any) -> None:
                by_place[kind, namespace if self._namespaces else None].handled(event)

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            session = self._kube.session(_response_class({watch.path: watch for watch in self.watches}))
            return kopf.AiohttpSession(server=self._kube.configuration.host, aiohttp_session=session)

        return registry

    def _settings(self, kinds: Iterable[Resource]) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        for kind in kinds:
            if kind.selector:
                settings.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
        settings.watching.inactivity_timeout = self._inactivity
        settings.watching.chunk_size = CHUNK
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


def _response_class(watches: dict[str, Watch]) -> type[aiohttp.ClientResponse]:
    class Response(aiohttp.ClientResponse):
        @property
        def _watch(self) -> Watch | None:
            return watches.get(self.url.path) if self.status == 200 else None

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            if (watch := self._watch) is not None and "watch" in self.url.query:
                watch.began()
                self.content = _Lines(self.content, watch)  # type: ignore[assignment]
            return self

        async def json(self, **options: Any) -> Any:
            reply = await super().json(**options)
            if (watch := self._watch) is not None:
                watch.chunk(reply, first="continue" not in self.url.query)
            return reply

    return Response


class _Lines:
    """A stream's content, as it is, with each line noticed."""

    def __init__(self, content: aiohttp.StreamReader, watch: Watch) -> None:
        self._content, self._watch = content, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for data in self._content.iter_chunked(size):
            if b"\n" in data:
                self._watch.line()
            yield data
