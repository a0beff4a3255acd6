"""Requests to the API server: what is sent, what errors say, and what the fence holds back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio import config

from rollplex_operator.kube import PARALLEL_WRITES, ApiError, FencedError, Kube, UnansweredError, _plural
from rollplex_operator.resources import PODS
from tests.unit.operator.small_server import LOST, SmallServer, serving

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}}
PATH = PODS.path("n", "a")


class Recording(SmallServer):
    """Remembers queries and headers; answers after ``delay`` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        super().__init__()
        self.delay, self.now, self.most = delay, 0, 0
        self.seen: list[tuple[dict[str, str], str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = request.headers
        self.seen.append((dict(request.query), headers["Content-Type"], headers.get("Authorization", "")))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.delay)
        self.now -= 1
        return await super().answer(request)


def run(server: SmallServer, folder: Path, calls: Callable[[Kube], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with serving(server, folder) as kube:
            return await calls(kube)

    return asyncio.run(main())


def test_creation_is_with_the_operators_name_and_token(tmp_path: Path) -> None:
    server = Recording()
    made = run(server, tmp_path, lambda kube: kube.create(PODS, "n", POD, dryRun="All"))
    assert made["metadata"]["name"] == "a"
    assert server.requests == [f"POST {PODS.path('n')}"]
    assert server.seen == [({"fieldManager": "rollplex-operator", "dryRun": "All"}, "application/json", "Bearer t")]


def test_apply_takes_its_fields_back(tmp_path: Path) -> None:
    server = Recording()
    run(server, tmp_path, lambda kube: kube.apply(PODS, "n", POD))
    query = {"fieldManager": "rollplex-operator", "force": "true"}
    assert server.requests == [f"PATCH {PATH}"]
    assert server.seen[0][:2] == (query, "application/apply-patch+yaml")


def test_delete_is_of_one_uid(tmp_path: Path) -> None:
    server = SmallServer()
    server.put(PATH, POD)

    async def calls(kube: Kube) -> None:
        with pytest.raises(ApiError) as refused:
            await kube.delete(PATH, "another", None)
        assert refused.value.code == 409
        await kube.delete(PATH, "u", 0)

    run(server, tmp_path, calls)
    assert server.objects == {}


def test_error_has_what_the_server_said(tmp_path: Path) -> None:
    server = SmallServer()
    server.next[f"GET {PATH}"] = [429, 503]

    async def calls(kube: Kube) -> list[ApiError]:
        found = []
        for _ in range(2):
            with pytest.raises(ApiError) as refused:
                await kube.get(PATH)
            found.append(refused.value)
        return found

    first, second = run(server, tmp_path, calls)
    assert (first.code, first.reason, first.message, first.retry_after) == (429, "Reason429", "as the test says", 1.0)
    assert (second.code, second.retry_after) == (503, 0.0)


def test_lost_reply_is_no_answer_and_counted_as_that(tmp_path: Path) -> None:
    server = SmallServer()
    server.next[f"POST {PODS.path('n')}"] = [LOST]

    async def calls(kube: Kube) -> Kube:
        with pytest.raises(UnansweredError, match=r"POST /api/v1/namespaces/n/pods"):
            await kube.create(PODS, "n", POD)
        await kube.get(PATH)
        return kube

    kube = run(server, tmp_path, calls)
    assert kube.requests == {("POST", "pods", 0): 1, ("GET", "pods", 200): 1}


def test_nothing_is_written_behind_the_fence(tmp_path: Path) -> None:
    server = SmallServer()
    server.put(PATH, POD)

    async def calls(kube: Kube) -> None:
        kube.fence = lambda: 0.0
        for write in (kube.create(PODS, "n", POD), kube.apply(PODS, "n", POD), kube.replace(PATH, POD)):
            with pytest.raises(FencedError):
                await write
        with pytest.raises(FencedError):
            await kube.delete(PATH, "u", None)
        await kube.get(PATH)
        await kube.claim("PUT", PATH, POD, timeout=1.0)  # the lease itself is how the fence comes to stand

    run(server, tmp_path, calls)
    assert server.requests == [f"GET {PATH}", f"PUT {PATH}"]


def test_write_takes_no_longer_than_the_fence_stands(tmp_path: Path) -> None:
    async def calls(kube: Kube) -> float:
        kube.fence = lambda: 0.2
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnansweredError):
            await kube.create(PODS, "n", POD)
        return asyncio.get_running_loop().time() - began

    assert run(Recording(delay=3.0), tmp_path, calls) < 2.0


def test_writes_are_bounded_and_reads_go_past_them(tmp_path: Path) -> None:
    server = Recording(delay=0.05)

    async def calls(kube: Kube) -> None:
        pods = [{**POD, "metadata": {"name": f"a-{number}"}} for number in range(3 * PARALLEL_WRITES)]
        await asyncio.gather(*(kube.create(PODS, "n", pod) for pod in pods))

    run(server, tmp_path, calls)
    assert server.most == PARALLEL_WRITES
    assert len(server.objects) == 3 * PARALLEL_WRITES


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("/api/v1/namespaces/n/pods/a", "pods"),
        ("/api/v1/pods", "pods"),
        ("/api/v1/nodes/x", "nodes"),
        ("/api/v1/namespaces/n", "namespaces"),
        ("/apis/rollplex.io/v1alpha1/namespaces/n/rollplexjobs/a/status", "rollplexjobs/status"),
        ("/apis/rollplex.io/v1alpha1", "/apis/rollplex.io/v1alpha1"),
        ("/openapi/v3", "/openapi/v3"),
    ],
)
def test_requests_are_counted_by_resource(path: str, counted: str) -> None:
    assert _plural(path) == counted


def kubeconfig(folder: Path, **cluster: Any) -> str:
    file = folder / "kubeconfig"
    names = {"cluster": "c", "user": "u"}
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": names}],
        "current-context": "c",
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


def test_server_name_that_differs_is_refused(tmp_path: Path) -> None:
    kube = Kube(kubeconfig(tmp_path, **{"tls-server-name": "api.example"}))
    with pytest.raises(config.ConfigException, match="tls-server-name is not supported"):
        asyncio.run(kube.connect())


def test_missing_credentials_are_said(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigException):
        asyncio.run(Kube(str(tmp_path / "nowhere")).connect())


def test_nobody_listens(tmp_path: Path) -> None:
    async def main() -> None:
        kube = Kube(kubeconfig(tmp_path))
        await kube.connect()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(kube.close)
            with pytest.raises(UnansweredError):
                await kube.get("/version")

    asyncio.run(main())
