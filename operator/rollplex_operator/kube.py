"""The API server: a few calls with plain JSON, on the official asyncio client.

Every call ends within its timeout. A write is refused here when the ``fence`` does not stand, so that a leader whose
lease may be over changes nothing, and it may take only as long as the fence is sure to stand.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from rollplex_operator.names import FIELD_MANAGER
from rollplex_operator.resources import Resource

Object = dict[str, Any]

USER_AGENT = f"rollplex-operator/{version('rollplex')}"
TIMEOUT = 10.0  # seconds of one request
PARALLEL_WRITES = 32
APPLY = "application/apply-patch+yaml"

_log = logging.getLogger(__name__)


class ApiError(Exception):
    """The server answered with an error. ``code`` is the HTTP status, ``reason`` and ``message`` the server's."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


class UnansweredError(Exception):
    """No answer: whether the request was carried out is not known."""


class FencedError(Exception):
    """This process may not write: its lease may be over."""


class Kube:
    """One connection pool. ``requests`` counts by verb, resource and HTTP status (0: no answer).

    Args:
        kubeconfig: path; None: the environment's (KUBECONFIG, ~/.kube/config), or the pod's service account.
    """

    def __init__(self, kubeconfig: str | None = None) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.fence: Callable[[], float] = lambda: TIMEOUT  # seconds that it is sure to stand
        self._kubeconfig = kubeconfig
        self._writes = asyncio.Semaphore(PARALLEL_WRITES)
        self.configuration = client.Configuration()
        self._client: client.ApiClient | None = None

    async def connect(self) -> None:
        """Read the credentials.

        Raises:
            config.ConfigException: where there are none.
        """
        try:
            if self._kubeconfig is not None:
                raise config.ConfigException
            config.load_incluster_config(client_configuration=self.configuration)
        except config.ConfigException:
            await config.load_kube_config(self._kubeconfig, client_configuration=self.configuration)
        if self.configuration.tls_server_name:
            raise config.ConfigException("the kubeconfig's tls-server-name is not supported; use the server's own name")
        self.configuration.connection_pool_maxsize = 2 * PARALLEL_WRITES
        self._client = client.ApiClient(self.configuration)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    def session(self, response_class: type[aiohttp.ClientResponse]) -> aiohttp.ClientSession:
        """A session of its own with the same credentials, for watches."""
        assert self._client is not None

        async def authorise(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            request.headers.update(await self._authorisation())
            return await handler(request)

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._client.rest_client.ssl_context),
            headers={"User-Agent": USER_AGENT},
            proxy=self.configuration.proxy,
            trust_env=True,
            response_class=response_class,
            middlewares=(authorise,),
        )

    async def get(self, path: str, **query: str) -> Object:
        """Read."""
        return await self._request("GET", path, query=query)

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], **query: str) -> Object:
        """Create, and fail where the name is taken."""
        query.setdefault("fieldManager", FIELD_MANAGER)
        return await self._write("POST", resource.path(namespace), body, query)

    async def apply(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> Object:
        """Server-side apply; what others set in our fields is ours again."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._write("PATCH", resource.path(namespace, body["metadata"]["name"]), body, query, APPLY)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        """Write over an object, or a part of it, of the resourceVersion that ``body`` names."""
        return await self._write("PUT", path, body, {"fieldManager": FIELD_MANAGER})

    async def delete(self, path: str, uid: str, grace_seconds: int | None) -> Object:
        """Delete the object of this uid."""
        options: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self._write("DELETE", path, options, {})

    async def claim(self, verb: str, path: str, body: Mapping[str, Any], timeout: float) -> Object:
        """A write that no fence holds back: the lease's own."""
        return await self._request(verb, path, body, {"fieldManager": FIELD_MANAGER}, timeout=timeout)

    async def _write(
        self, verb: str, path: str, body: Mapping[str, Any], query: Mapping[str, str], content: str = "application/json"
    ) -> Object:
        async with self._writes:
            left = self.fence()
            if left <= 0:
                raise FencedError
            return await self._request(verb, path, body, query, content, min(TIMEOUT, left))

    async def _request(
        self,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> Object:
        assert self._client is not None, "connect() comes first"
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json", "Content-Type": content}
        headers |= await self._authorisation()
        url = self.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        code = 0
        try:
            async with asyncio.timeout(timeout):
                answer = await self._client.rest_client.request(verb, url, headers=headers, body=body)
                data = await answer.read()
            code = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnansweredError(f"{verb} {path}: {error!r}") from error
        finally:
            self.requests[verb, _plural(path), code] += 1
        reply = _parse(data)
        if not 200 <= code < 300:
            details = reply.get("details") or {}
            after = answer.getheader("Retry-After") or details.get("retryAfterSeconds") or 0
            text = reply.get("message") or data[:200].decode(errors="replace")
            raise ApiError(code, reply.get("reason", ""), text, _number(after))
        return reply

    async def _authorisation(self) -> dict[str, str]:
        settings = await self.configuration.auth_settings()  # reads a rotated token
        token = settings.get("BearerToken")
        return {} if token is None or not token["value"] else {"Authorization": token["value"]}


def _parse(data: bytes) -> Object:
    try:
        reply = json.loads(data)
    except ValueError:
        return {}
    return reply if isinstance(reply, dict) else {}


def _number(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        return 0.0


def _plural(path: str) -> str:
    """``pods`` of /api/v1/namespaces/a/pods/b, ``rollplexjobs/status``; the path itself where it names no resource."""
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return path
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return path
    return f"{rest[0]}/{rest[2]}" if len(rest) > 2 else rest[0]
