"""/healthz, /readyz and /metrics, on one port."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds above which the process is not alive any more."""

    watch: float = 180.0  # age of a watch's last event or bookmark; the server sends a bookmark a minute
    queue: float = 300.0  # age of the oldest key of the queue


def faults(ages: Iterable[tuple[str, str, float]], queue: float, limits: Limits) -> Iterator[str]:
    """What is too old. ``ages``: (kind, namespace, seconds) of each watch; ``queue``: seconds of the oldest key."""
    for kind, namespace, age in ages:
        if age > limits.watch:
            where = f" in {namespace}" if namespace else ""
            yield f"{kind}{where}: no event and no bookmark for {age:.0f} s (limit {limits.watch:.0f} s)"
    if queue > limits.queue:
        yield f"the oldest job in the queue has waited for {queue:.0f} s (limit {limits.queue:.0f} s)"


class Health:
    """``alive()`` yields what is wrong; ``ready()`` says what is waited for, or nothing."""

    def __init__(
        self, alive: Callable[[], Iterable[str]], ready: Callable[[], str], registry: CollectorRegistry, port: int
    ) -> None:
        self._alive, self._ready, self._registry, self.port = alive, ready, registry, port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Serve; port 0 takes a free one, and ``port`` is it then."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        # one socket for both families: two would get two ports where any free one is asked for
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listening = socket.create_server(("", self.port), family=family, dualstack_ipv6=both)
        await web.SockSite(self._runner, listening).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Serve no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer("\n".join(self._alive()))

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._ready())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(fault: str) -> web.Response:
    return web.Response(text=fault or "ok", status=503 if fault else 200)
