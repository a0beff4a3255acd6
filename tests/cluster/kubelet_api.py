"""The fake kubelet's requests to the API server, and the server that answers for its pods."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import aiohttp
from aiohttp import web

from rollplex_operator import names
from tests.cluster.client import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pod_status import now


class KubeletApi:
    """Asynchronous, so that thousands of pods cost little."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def __aenter__(self) -> KubeletApi:
        trust = ssl.create_default_context(cafile=str(self._plane.authority.certificate))
        self._session = aiohttp.ClientSession(
            self._plane.url,
            connector=aiohttp.TCPConnector(ssl=trust, limit=32),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            headers={"Authorization": f"Bearer {self._plane.tokens['admin']}", "User-Agent": "fake-kubelet"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def watch_pods(self, selector: str, seen: Callable[[str, Object], None], ready: Callable[[], None]) -> None:
        """Tell ``seen`` of every change of a pod, for ever. A watch that ends goes on from its last version."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(selector, seen)
                    ready()
                version = await self._watch(selector, version, seen)
            except aiohttp.ClientError:  # the API server restarts
                version = ""
                await asyncio.sleep(0.2)

    async def _list(self, selector: str, seen: Callable[[str, Object], None]) -> str:
        async with self._session.get("/api/v1/pods", params={"labelSelector": selector}) as answer:
            answer.raise_for_status()
            listed = await answer.json()
        for pod in listed["items"]:
            seen("ADDED", pod)
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, selector: str, version: str, seen: Callable[[str, Object], None]) -> str:
        query = {"labelSelector": selector, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        rest = b""
        async with self._session.get("/api/v1/pods", params=query) as answer:
            answer.raise_for_status()
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return ""
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        seen(event["type"], event["object"])
        return version

    async def patch_status(self, pod: Object, status: Mapping[str, Any]) -> None:
        """Write a pod's status; nothing happens where that very pod is gone."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        async with self._session.patch(path, data=json.dumps(body), headers=headers) as answer:
            if answer.status not in (200, 404, 409):
                raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")

    async def delete_pod(self, pod: Object) -> None:
        """The last word of a kubelet: nothing of the pod is left on the node."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        async with self._session.delete(path, json=body) as answer:
            if answer.status not in (200, 404, 409):
                raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")

    async def make_node(
        self,
        name: str,
        capacity: Mapping[str, str],
        labels: Mapping[str, str],
        taints: Sequence[Mapping[str, str]],
        features: Sequence[str],
    ) -> None:
        """A node with nothing on it, Ready."""
        every = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_ready(True)],
            "declaredFeatures": list(features),
        }
        body = {"metadata": {"name": name, "labels": every}, "spec": {"taints": taints}, "status": status}
        async with self._session.post("/api/v1/nodes", json=body) as answer:
            if answer.status != 201:
                raise RuntimeError(f"node {name}: {answer.status} {await answer.text()}")

    async def set_node_ready(self, name: str, ready: bool) -> None:
        """What the node lifecycle controller does when a kubelet falls silent."""
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        body = json.dumps({"status": {"conditions": [_ready(ready)]}})
        async with self._session.patch(f"/api/v1/nodes/{name}/status", data=body, headers=headers) as answer:
            answer.raise_for_status()

    async def delete_node(self, name: str) -> None:
        """What the cloud does with a machine that is gone."""
        async with self._session.delete(f"/api/v1/nodes/{name}") as answer:
            answer.raise_for_status()


@contextlib.asynccontextmanager
async def status_server(ip: str, report: Callable[[], dict[str, Any] | None]) -> AsyncIterator[None]:
    """GET http://IP:9464/status as the pod contract has it; where ``report()`` is None no answer ever comes."""

    async def answer(_: web.Request) -> web.Response:
        found = report()
        if found is None:
            await asyncio.sleep(3600)
        return web.json_response(found)

    app = web.Application()
    app.router.add_get("/status", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, ip, names.METRICS_PORT).start()
        yield
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def own_subnet() -> Iterator[int]:
    """A /16 of loopback that no other session of these tests uses, held by a listening socket."""
    for second in random.sample(range(16, 250), 200):
        lock = socket.socket()
        try:
            lock.bind((f"127.{second}.255.254", names.METRICS_PORT))
            lock.listen()
        except OSError:
            lock.close()
            continue
        with lock:
            yield second
            return
    raise RuntimeError("no free /16 of 127.0.0.0/8: all of 127.16 to 127.249 have a listener on 255.254:9464")


async def cancel_all() -> None:
    """Cancel every other task of this loop, and wait for their ends."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ready(ready: bool) -> dict[str, str]:
    status, reason = ("True", "KubeletReady") if ready else ("Unknown", "NodeStatusUnknown")
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "lastTransitionTime": now(),
        "lastHeartbeatTime": now(),
    }
