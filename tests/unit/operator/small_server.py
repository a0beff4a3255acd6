"""An API server in a hundred lines: objects by path, versions, uids, conflicts, and the faults that a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from rollplex_operator.kube import Kube

LOST = 0  # as a status: carried out, and the connection is cut


class SmallServer:
    """``objects`` by path. ``next`` maps "VERB path" to statuses (LOST too) that come instead."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.next: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self._versions = itertools.count(1)

    def writes(self) -> list[str]:
        """Requests that change something."""
        return [request for request in self.requests if not request.startswith("GET")]

    def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As if it had been created."""
        version = next(self._versions)
        metadata = {"uid": f"uid-{version}", **body.get("metadata", {}), "resourceVersion": str(version)}
        self.objects[path] = {**body, "metadata": metadata}
        return self.objects[path]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        call = f"{request.method} {request.path}"
        self.requests.append(call)
        text = await request.text()
        body = json.loads(text) if text else {}
        instead = self.next.get(call) or [200]
        status = instead.pop(0)
        if status not in (200, LOST):
            return _refusal(status, "as the test says")
        answer = self._do(request.method, request.path, body)
        if status == LOST:
            assert request.transport is not None
            request.transport.close()
        return answer

    def _do(self, verb: str, path: str, body: dict[str, Any]) -> web.Response:
        if verb == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return _refusal(409, "exists")
            return web.json_response(self.put(path, body), status=201)
        known = self.objects.get(path.removesuffix("/status"))
        if verb == "PATCH":
            return web.json_response(self.put(path, {**(known or {}), **body}))
        if known is None:
            return _refusal(404, "not found")
        if verb == "PUT":
            given = body["metadata"]
            if any(
                given.get(name, known["metadata"][name]) != known["metadata"][name]
                for name in ("uid", "resourceVersion")
            ):
                return _refusal(409, "another version")
            part = {"status": body["status"]} if path.endswith("/status") else body
            return web.json_response(
                self.put(path.removesuffix("/status"), {**known, **part, "metadata": known["metadata"]})
            )
        if verb == "DELETE":
            if body["preconditions"]["uid"] != known["metadata"]["uid"]:
                return _refusal(409, "another uid")
            del self.objects[path]
            return web.json_response({"kind": "Status", "status": "Success"})
        return web.json_response(known)


@contextlib.asynccontextmanager
async def serving(server: SmallServer, folder: Path) -> AsyncIterator[Kube]:
    """A client of a server that listens."""
    runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    cluster = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    kube = Kube(str(file))
    await kube.connect()
    try:
        yield kube
    finally:
        await kube.close()
        await runner.cleanup()


async def until(condition: Any, timeout: float = 5.0) -> None:
    """Wait for a condition to hold."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.01)


def _refusal(code: int, message: str) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    body = {"kind": "Status", "message": message, "reason": f"Reason{code}", "code": code}
    return web.json_response(body, status=code, headers=headers)
