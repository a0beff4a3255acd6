"""What comes in on a list and its watch, seen beside kopf: the ends of lists, bookmarks, and what has vanished."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from rollplex_operator.resources import Resource
from rollplex_operator.store import Store


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
            self._store.put(self.resource, body)  # of what is deleted too: it is the last that is known of it
            if event["type"] == "DELETED":
                self._store.remove(uid)
        finally:
            self._awaited.discard(uid)


def response_class(watches: Mapping[str, Watch]) -> type[aiohttp.ClientResponse]:
    """aiohttp's response, which tells each path's watch what it gets."""

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
