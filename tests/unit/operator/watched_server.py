"""An API server that lists and watches: what kopf asks for, with the faults that a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from rollplex_operator import names
from rollplex_operator.resources import JOBS, PODS, Resource
from tests.unit.operator.small_server import SmallServer

KINDS = (JOBS, PODS)


class WatchedServer(SmallServer):
    """``objects`` by path, as in :class:`SmallServer`; their changes are told to the watches that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 100
        self.silent = False  # watches stay open, and say nothing
        self.queries: list[tuple[str, Mapping[str, str]]] = []  # of lists and watches
        self._open: list[tuple[str, asyncio.Queue[dict[str, Any] | None]]] = []

    def change(self, kind: Resource, name: str, event: str = "MODIFIED", namespace: str = "n", **more: Any) -> None:
        """An object is made, changed or deleted."""
        self.version += 1
        path, version = kind.path(namespace, name), str(self.version)
        labels = {names.LABEL_JOB: "a", names.LABEL_ATTEMPT: "0", names.LABEL_NODE: name.rpartition("-")[2]}
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
        body = {"metadata": {**metadata, "labels": labels}, **more}
        self.objects.pop(path, None)
        if event != "DELETED":
            self.objects[path] = body
        self.tell(kind, event, {"apiVersion": kind.api_version, "kind": kind.kind, **body})

    def tell(self, kind: Resource, event: str, body: Mapping[str, Any]) -> None:
        """A line of every watch of a kind."""
        for path, queue in self._open:
            if path.endswith(f"/{kind.plural}") and not self.silent:
                queue.put_nowait({"type": event, "object": body})

    def end_watches(self) -> None:
        """As the server does it after a while."""
        for _, queue in self._open:
            queue.put_nowait(None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Discovery, lists and watches."""
        if found := _discovery(request.path):
            return web.json_response(found)
        kind = next((kind for kind in KINDS if request.path.endswith(f"/{kind.plural}")), None)
        if kind is None:
            return web.json_response({"message": f"nothing at {request.path}"}, status=404)
        self.queries.append((request.path, dict(request.query)))
        self.requests.append(f"{request.method} {request.path}")
        status = (self.next.get(f"GET {request.path}") or [200]).pop(0)
        if status != 200:
            return web.json_response({"kind": "Status", "code": status, "message": "as the test says"}, status=status)
        return await self._watch(request) if "watch" in request.query else self._list(request, kind)

    def _list(self, request: web.Request, kind: Resource) -> web.Response:
        root = request.path.removesuffix(kind.plural)
        items = [
            body
            for path, body in sorted(self.objects.items())
            if path.startswith(root) and path.split("/")[-2] == kind.plural
        ]
        begin, size = int(request.query.get("continue", 0)), int(request.query.get("limit", 1000))
        more = {"continue": str(begin + size)} if begin + size < len(items) else {}
        metadata = {"resourceVersion": str(self.version), **more}
        about = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        return web.json_response({**about, "metadata": metadata, "items": items[begin : begin + size]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._open.append((request.path, queue))
        try:
            while (event := await queue.get()) is not None:
                await answer.write(json.dumps(event).encode() + b"\n")
        finally:
            self._open.remove((request.path, queue))
        return answer


def _discovery(path: str) -> dict[str, Any] | None:
    version = {"groupVersion": JOBS.api_version, "version": JOBS.version}
    group = {"name": JOBS.group, "preferredVersion": version, "versions": [version]}
    roots: dict[str, dict[str, Any]] = {
        "/api": {"versions": ["v1"]},
        "/apis": {"groups": [group]},
        f"/apis/{JOBS.group}": group,
        "/version": {"major": "1", "minor": "37"},
    }
    for kind in KINDS:
        roots[kind.root] = {"resources": [_resource(kind.plural, kind.kind, namespaced=True)]}
    # which kopf waits for, whether it watches them or not
    roots[PODS.root]["resources"].append(_resource("namespaces", "Namespace", namespaced=False))
    return roots.get(path)


def _resource(plural: str, kind: str, *, namespaced: bool) -> dict[str, Any]:
    about = {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": namespaced}
    return {**about, "verbs": ["get", "list", "watch", "patch"]}
