"""A faulty network and a faulty API server: an HTTP proxy in front of the real one, which fails as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
from aiohttp import web

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet_api import cancel_all

HOP_BY_HOP = frozenset(("transfer-encoding", "content-length", "connection", "content-encoding", "host"))
WRITES = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class Fault(StrEnum):
    """What becomes of one request."""

    SERVER_ERROR = "500"
    CONFLICT = "409"
    TOO_MANY = "429"
    UNAVAILABLE = "503"
    REPLY_LOST = "the server did it, the reply is lost"
    RESET = "reset"


ANSWERS = {
    Fault.SERVER_ERROR: (500, "InternalError"),
    Fault.CONFLICT: (409, "Conflict"),
    Fault.TOO_MANY: (429, "TooManyRequests"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
}


class Watches(StrEnum):
    """How watches behave, those that are open too."""

    WORK = "work"
    SILENT = "open, and no byte comes"
    SLOW = "one byte a second"


class Expiry(StrEnum):
    """How a watch hears that its version is too old: 410 Gone."""

    EVENT = "an event of type ERROR, as the API server does it"
    REPLY = "the reply's status, as its interface allows too"


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came through."""

    at: float  # time.monotonic
    method: str
    path: str
    query: Mapping[str, str]

    @property
    def is_watch(self) -> bool:
        """Whether it is one."""
        return self.query.get("watch", "") in ("1", "true", "True")

    @property
    def is_lease(self) -> bool:
        """Of leader election: their number depends on time, not on what is done."""
        return "/leases" in self.path

    @property
    def is_write(self) -> bool:
        """Whether it changes something."""
        return self.method in WRITES

    def __str__(self) -> str:
        return f"{self.method} {self.path}{' (watch)' if self.is_watch else ''}"


Rule = Callable[[Request], Fault | None]


class Proxy:
    """``with Proxy(plane) as proxy``: give ``proxy.url`` to the one whose requests shall fail.

    ``rule`` sees every request and may name its fault. ``counted`` are those that the sweeps number: all but leases.
    ``after(k, call)`` calls from the proxy's thread when the k-th counted request was done, before its reply goes out.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.requests: list[Request] = []
        self.rule: Rule | None = None
        self.watches = Watches.WORK
        self.expiry: Expiry | None = None  # of the next watches
        self.injected: list[tuple[Request, Fault]] = []
        self._plane = plane
        self._count = 0  # of counted requests
        self._hook: tuple[int, Callable[[], None]] | None = None
        self._open: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(10), "the proxy does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    @property
    def counted(self) -> list[Request]:
        """Requests without those of leader election."""
        return [request for request in list(self.requests) if not request.is_lease]

    @property
    def writes(self) -> list[Request]:
        """Counted requests that change something."""
        return [request for request in self.counted if request.is_write]

    @property
    def count(self) -> int:
        """Counted requests since the start, or since ``begin``."""
        return self._count

    def begin(self) -> None:
        """Count from 1 again, and let everything through."""
        self.rule, self._hook, self._count = None, None, 0

    def fail_kth(self, k: int, fault: Fault, call: Callable[[], None] = lambda: None) -> None:
        """Fail the k-th counted request, 1 being the first, and ``call`` from the proxy's thread then."""

        def rule(request: Request) -> Fault | None:
            if request.is_lease or self._count != k:
                return None
            call()
            return fault

        self.rule = rule

    def after(self, k: int, call: Callable[[], None]) -> None:
        """Call when the k-th counted request was done by the server."""
        self._hook = (k, call)

    def reset_connections(self) -> None:
        """Cut every open connection, as a load balancer that restarts does."""

        def cut() -> None:
            for transport in list(self._open):
                transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(cancel_all())
        self._loop.close()

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        trust = ssl.create_default_context(cafile=str(self._plane.authority.certificate))
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.2)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._ready.set()
            await self._ended.wait()
            await runner.cleanup()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(incoming.transport, asyncio.Transport)
        transport = incoming.transport
        self._open.add(transport)
        try:
            return await self._answer(incoming, transport)
        except aiohttp.ClientError:  # the API server is down
            return _cut(transport)
        finally:
            self._open.discard(transport)

    async def _answer(self, incoming: web.BaseRequest, transport: asyncio.Transport) -> web.StreamResponse:
        request = Request(time.monotonic(), incoming.method, incoming.path, dict(incoming.query))
        body = await incoming.read() or None  # an empty one would be sent with a content type
        self.requests.append(request)
        self._count += not request.is_lease
        number = self._count
        fault = self.rule(request) if self.rule is not None else None
        if fault is not None:
            self.injected.append((request, fault))
        if fault is Fault.RESET:
            return _cut(transport)
        if fault in ANSWERS:
            return _refusal(*ANSWERS[fault])
        if request.is_watch and self.expiry is not None:
            return _expired(self.expiry)
        headers = {key: value for key, value in incoming.headers.items() if key.lower() not in HOP_BY_HOP}
        url = self._plane.url + incoming.raw_path
        async with self._session.request(
            incoming.method, url, data=body, headers=headers, allow_redirects=False
        ) as got:
            kept = {
                key: value for key, value in got.headers.items() if key.lower() not in HOP_BY_HOP - {"content-encoding"}
            }
            opens = request.is_watch and got.status == 200
            content = b"" if opens else await got.read()
            if self._hook is not None and not request.is_lease and number == self._hook[0]:
                self._hook[1]()
            if fault is Fault.REPLY_LOST:
                return _cut(transport)
            if opens:
                return await self._stream(incoming, got, kept)
            return web.Response(status=got.status, body=content, headers=kept)

    async def _stream(
        self, incoming: web.BaseRequest, got: aiohttp.ClientResponse, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        out = web.StreamResponse(status=got.status, headers=headers)
        await out.prepare(incoming)
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            async for chunk in got.content.iter_any():
                for part in [chunk] if self.watches is Watches.WORK else [chunk[n : n + 1] for n in range(len(chunk))]:
                    while self.watches is Watches.SILENT:
                        await asyncio.sleep(0.1)
                    await out.write(part)
                    if self.watches is Watches.SLOW:
                        await asyncio.sleep(1.0)
        return out


def _cut(transport: asyncio.Transport) -> web.Response:
    """Cut the connection; what is returned goes nowhere."""
    transport.abort()
    return web.Response()


def _refusal(code: int, reason: str) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(_status(code, reason), status=code, headers=headers)


def _expired(expiry: Expiry) -> web.Response:
    if expiry is Expiry.REPLY:
        return _refusal(410, "Expired")
    event = {"type": "ERROR", "object": _status(410, "Expired")}
    return web.Response(body=json.dumps(event).encode() + b"\n", content_type="application/json")


def _status(code: int, reason: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"the test's proxy says {reason}",
        "reason": reason,
        "code": code,
    }
