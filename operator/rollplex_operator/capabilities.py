"""What the API server offers, found by asking it: kinds by discovery, fields by a dry run, the CRD by its OpenAPI.

Nothing here needs rights on the whole cluster: what may not be read is taken as absent. Discovery and OpenAPI are open
to everybody who may log in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollplex.api.crd import schema
from rollplex_operator.kube import ApiError, Kube
from rollplex_operator.names import EXIT_RESTART, FIELD_MANAGER
from rollplex_operator.observation import Server
from rollplex_operator.resources import (
    ALWAYS,
    CLAIM_TEMPLATES,
    COSCHEDULING_GROUPS,
    JOBS,
    NATIVE_GROUPS,
    OPTIONAL,
    PODS,
    VOLCANO_GROUPS,
    Resource,
)

SHOWN_FIELDS = 3  # of those that an old CRD lacks

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """``kinds`` are those that can be watched; JOBS is not among them where the CRD is not installed."""

    server: Server
    kinds: tuple[Resource, ...]


class Capabilities:
    """Asks the server. ``namespaces`` are those that the operator may use; the dry run is made in ``home``."""

    def __init__(self, kube: Kube, namespaces: Sequence[str] | None, home: str) -> None:
        self._kube, self._namespaces, self._home = kube, namespaces, home
        self._restart_all_containers: bool | None = None  # None: not known yet
        self._openapi = ""  # hash of the document that was read last
        self._schema_fault = ""

    async def ask(self) -> Offer:
        """What is there now.

        Raises:
            ApiError, UnansweredError, FencedError: where the server cannot be asked now.
        """
        jobs, *optional = await asyncio.gather(self._served(JOBS), *map(self._usable, OPTIONAL))
        kinds = {kind for kind, usable in zip(OPTIONAL, optional, strict=True) if usable}
        if self._restart_all_containers is None:
            self._restart_all_containers = await self._dry_run()
        classes, kueue = await asyncio.gather(self._device_classes(), self._group("kueue.x-k8s.io"))
        if jobs:
            await self._read_schema()
        server = Server(
            restart_all_containers=self._restart_all_containers or False,
            native_gang=NATIVE_GROUPS in kinds,
            kueue=kueue,
            coscheduling=COSCHEDULING_GROUPS in kinds,
            volcano=VOLCANO_GROUPS in kinds,
            device_classes=classes if CLAIM_TEMPLATES in kinds else frozenset(),
            schema_fault=self._schema_fault,
        )
        always = ALWAYS if jobs else tuple(kind for kind in ALWAYS if kind is not JOBS)
        return Offer(server, always + tuple(kind for kind in OPTIONAL if kind in kinds))

    async def _served(self, kind: Resource) -> bool:
        found = await self._read(kind.root)
        return any(each["name"] == kind.plural for each in found.get("resources", ()))

    async def _usable(self, kind: Resource) -> bool:
        """Whether it is served, and may be listed wherever it is needed."""
        if not await self._served(kind):
            return False
        query = {"limit": "1", "labelSelector": kind.selector}
        spaces: Sequence[str | None] = self._namespaces or [None]
        lists = [self._read(kind.path(space), **query) for space in spaces]
        return all("items" in found for found in await asyncio.gather(*lists))

    async def _group(self, name: str) -> bool:
        return bool(await self._read(f"/apis/{name}"))

    async def _device_classes(self) -> frozenset[str]:
        found = await self._read("/apis/resource.k8s.io/v1/deviceclasses")
        return frozenset(each["metadata"]["name"] for each in found.get("items", ()))

    async def _read(self, path: str, **query: str) -> Mapping[str, Any]:
        """Empty where it is not there, or may not be read."""
        try:
            return await self._kube.get(path, **query)
        except ApiError as error:
            if error.code in (403, 404):
                return {}
            raise

    async def _dry_run(self) -> bool | None:
        """Whether a pod keeps the action RestartAllContainers; None if something else refuses it, as a quota may."""
        try:
            pod = await self._kube.create(PODS, self._home, _probe(), dryRun="All", fieldValidation="Strict")
        except ApiError as error:
            if error.code in (400, 422):
                return False
            if error.code == 403:
                _log.warning("cannot tell whether containers can be restarted in place: %s", error)
                return None
            raise
        rules = pod["spec"]["containers"][0].get("restartPolicyRules", ())
        return any(rule.get("action") == "RestartAllContainers" for rule in rules)

    async def _read_schema(self) -> None:
        """Compare the installed CRD with what this operator needs, if it changed."""
        where = JOBS.root.removeprefix("/")
        index = await self._read("/openapi/v3")
        link = index.get("paths", {}).get(where, {}).get("serverRelativeURL", "")
        if not link or link == self._openapi:
            return
        path, _, query = link.partition("?")
        document = await self._read(path, **dict(part.split("=", 1) for part in query.split("&") if "=" in part))
        for name, installed in document.get("components", {}).get("schemas", {}).items():
            if name.endswith(f".{JOBS.kind}"):
                self._openapi, self._schema_fault = link, schema_fault(installed)


def schema_fault(installed: Mapping[str, Any]) -> str:
    """What an installed schema lacks that this operator needs; empty if nothing."""
    lacking = list(_lacking(schema(), installed, ""))
    if not lacking:
        return ""
    more = f" and {len(lacking) - SHOWN_FIELDS} more" if len(lacking) > SHOWN_FIELDS else ""
    return f"the installed CustomResourceDefinition lacks {', '.join(lacking[:SHOWN_FIELDS])}{more}"


def _lacking(needed: Mapping[str, Any], installed: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of properties that ``needed`` has and ``installed`` does not."""
    if installed.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, part in needed.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        found = installed.get("properties", {}).get(name)
        if found is None:
            yield place
        elif place != "metadata":
            yield from _lacking(part, found, place)
    for inner, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(needed.get(inner), Mapping) and isinstance(installed.get(inner), Mapping):
            yield from _lacking(needed[inner], installed[inner], path + mark)


def _probe() -> dict[str, Any]:
    """A pod that any namespace takes, whatever its Pod Security level or quota's rules."""
    size = {"cpu": "1m", "memory": "16Mi"}
    exits = {"operator": "In", "values": [EXIT_RESTART]}
    container = {
        "name": "probe",
        "image": "probe.invalid/none",
        "resources": {"requests": size, "limits": size},
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": exits}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "securityContext": security,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{FIELD_MANAGER}-probe-"}, "spec": spec}
