"""What the server offers, as it is found out by asking."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rollplex.api.crd import schema
from rollplex_operator.capabilities import Capabilities, Offer, schema_fault
from rollplex_operator.kube import ApiError
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
from tests.unit.operator.small_server import SmallServer, serving

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
DRY_RUN = f"POST {PODS.path('home')}"


class Offering(SmallServer):
    """Serves what it is told to. ``keeps``: whether the new fields of a probe come back."""

    def __init__(self, *kinds: Resource, keeps: bool = True) -> None:
        super().__init__()
        self.keeps = keeps
        served: dict[str, list[dict[str, str]]] = {}
        for kind in kinds:
            served.setdefault(kind.root, []).append({"name": kind.plural})
            for namespace in (None, "a", "b"):
                self.put(kind.path(namespace), {"items": []})
        for root, resources in served.items():
            self.put(root, {"resources": resources})

    def _do(self, verb: str, path: str, body: dict[str, Any]) -> web.Response:
        if verb != "POST":
            return super()._do(verb, path, body)
        if not self.keeps:
            del body["spec"]["containers"][0]["restartPolicyRules"]
        return web.json_response(body, status=201)

    def installed(self, document: Mapping[str, Any], number: int = 1) -> None:
        """A definition, as OpenAPI shows it."""
        path = f"/openapi/v3{JOBS.root}"
        link = f"{path}?hash={number}"
        self.put("/openapi/v3", {"paths": {JOBS.root.removeprefix("/"): {"serverRelativeURL": link}}})
        self.put(path, {"components": {"schemas": {f"io.rollplex.v1alpha1.{JOBS.kind}": document}}})


def ask(server: SmallServer, folder: Path, namespaces: Sequence[str] | None = None, times: int = 1) -> list[Offer]:
    async def main() -> list[Offer]:
        async with serving(server, folder) as kube:
            capabilities = Capabilities(kube, namespaces, "home")
            return [await capabilities.ask() for _ in range(times)]

    return asyncio.run(main())


def test_server_without_anything_offers_the_usual_kinds(tmp_path: Path) -> None:
    server = Offering(JOBS)
    server.next[DRY_RUN] = [422]
    [offer] = ask(server, tmp_path)
    assert offer == Offer(Server(), ALWAYS)


def test_server_with_all_of_it(tmp_path: Path) -> None:
    server = Offering(JOBS, *OPTIONAL)
    server.put("/apis/kueue.x-k8s.io", {"kind": "APIGroup"})
    server.put(CLASSES, {"items": [{"metadata": {"name": "gpu.example.com"}}]})
    [offer] = ask(server, tmp_path)
    assert offer.kinds == (*ALWAYS, *OPTIONAL)
    assert offer.server == Server(
        restart_all_containers=True,
        native_gang=True,
        kueue=True,
        coscheduling=True,
        volcano=True,
        device_classes=frozenset({"gpu.example.com"}),
    )


@pytest.mark.parametrize(
    ("kind", "field"),
    [(NATIVE_GROUPS, "native_gang"), (COSCHEDULING_GROUPS, "coscheduling"), (VOLCANO_GROUPS, "volcano")],
)
def test_each_gang_is_found_by_its_own_kind(tmp_path: Path, kind: Resource, field: str) -> None:
    [offer] = ask(Offering(JOBS, kind), tmp_path)
    gangs = ("native_gang", "coscheduling", "volcano")
    assert [getattr(offer.server, name) for name in gangs] == [name == field for name in gangs]


def test_definition_that_is_not_installed_is_not_watched(tmp_path: Path) -> None:
    [offer] = ask(Offering(), tmp_path)
    assert offer.kinds == tuple(kind for kind in ALWAYS if kind is not JOBS)


def test_kind_that_may_not_be_listed_everywhere_is_absent(tmp_path: Path) -> None:
    server = Offering(JOBS, NATIVE_GROUPS, VOLCANO_GROUPS)
    server.next[f"GET {NATIVE_GROUPS.path('b')}"] = [403]
    [offer] = ask(server, tmp_path, namespaces=["a", "b"])
    assert (offer.server.native_gang, offer.server.volcano) == (False, True)
    assert f"GET {VOLCANO_GROUPS.path(None)}" not in server.requests  # no right on the cluster is needed


def test_device_classes_are_of_no_use_without_claim_templates(tmp_path: Path) -> None:
    for kinds, found in (((JOBS,), set()), ((JOBS, CLAIM_TEMPLATES), {"gpu"})):
        server = Offering(*kinds)
        server.put(CLASSES, {"items": [{"metadata": {"name": "gpu"}}]})
        [offer] = ask(server, tmp_path)
        assert offer.server.device_classes == found


@pytest.mark.parametrize("code", [400, 422])
def test_restart_in_place_that_is_refused_is_not_there(tmp_path: Path, code: int) -> None:
    server = Offering(JOBS)
    server.next[DRY_RUN] = [code]
    offers = ask(server, tmp_path, times=2)
    assert [offer.server.restart_all_containers for offer in offers] == [False, False]
    assert server.requests.count(DRY_RUN) == 1


def test_restart_in_place_that_is_dropped_is_not_there(tmp_path: Path) -> None:
    [offer] = ask(Offering(JOBS, keeps=False), tmp_path)
    assert not offer.server.restart_all_containers


def test_restart_in_place_is_asked_for_again_where_a_quota_was_in_the_way(tmp_path: Path) -> None:
    server = Offering(JOBS)
    server.next[DRY_RUN] = [403, 200]
    offers = ask(server, tmp_path, times=3)
    assert [offer.server.restart_all_containers for offer in offers] == [False, True, True]
    assert server.requests.count(DRY_RUN) == 2


def test_server_that_cannot_answer_now_is_not_taken_for_a_poor_one(tmp_path: Path) -> None:
    server = Offering(JOBS)
    server.next[f"GET {JOBS.root}"] = [503]
    with pytest.raises(ApiError):
        ask(server, tmp_path)


def test_old_definition_is_named_until_it_is_replaced(tmp_path: Path) -> None:
    server = Offering(JOBS)
    old = copy.deepcopy(schema())
    del old["properties"]["status"]["properties"]["attempt"]
    server.installed(old)

    async def main() -> list[str]:
        async with serving(server, tmp_path) as kube:
            capabilities = Capabilities(kube, None, "home")
            faults = [(await capabilities.ask()).server.schema_fault for _ in range(2)]
            server.installed(schema(), number=2)
            return [*faults, (await capabilities.ask()).server.schema_fault]

    first, second, third = asyncio.run(main())
    assert first == second == "the installed CustomResourceDefinition lacks status.attempt"
    assert third == ""
    assert server.requests.count(f"GET /openapi/v3{JOBS.root}") == 2  # read once for each


PARTS: list[tuple[list[str], str]] = [
    (["spec", "properties", "nodes"], "spec.nodes"),
    (["spec", "properties", "runPolicy", "properties", "cleanPods"], "spec.runPolicy.cleanPods"),
    (["spec", "properties", "volumes", "items", "properties", "claim"], "spec.volumes[].claim"),
    (["status", "properties", "conditions", "items", "properties", "reason"], "status.conditions[].reason"),
]


@pytest.mark.parametrize(("path", "said"), PARTS, ids=[said for _, said in PARTS])
def test_schema_that_lacks_a_field_says_which(path: list[str], said: str) -> None:
    old = copy.deepcopy(schema())
    part = old["properties"]
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    assert schema_fault(old) == f"the installed CustomResourceDefinition lacks {said}"


def test_schema_that_lacks_much_says_how_much() -> None:
    old = copy.deepcopy(schema())
    status = old["properties"]["status"]["properties"]
    for name in ("attempt", "gang", "numa", "nodes", "step"):
        del status[name]
    assert schema_fault(old).endswith(" and 2 more")
    assert schema_fault(old).count("status.") == 3


def test_schema_with_more_than_is_needed_is_right() -> None:
    newer = copy.deepcopy(schema())
    newer["properties"]["spec"]["properties"]["new"] = {"type": "string"}
    newer["properties"]["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert schema_fault(newer) == ""
