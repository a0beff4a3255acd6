"""The chart on a server of its own: what Helm makes is taken, is enough for the operator, and is not more than that."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex_operator.capabilities import schema_fault
from tests.cluster.chart_values import FEATURES
from tests.cluster.client import Client, Kubectl, Object, RefusedError
from tests.cluster.conftest import make_namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.helm import CHART, helm, render
from tests.cluster.jobs import is_true, make_job
from tests.cluster.operator_process import Operator
from tests.cluster.processes import wait_for
from tests.cluster.programs import REPOSITORY

MANIFESTS = REPOSITORY / "tests" / "cluster" / "manifests"
CRD = "rollplexjobs.rollplex.io"
OPS = "ops"
ACCOUNT = f"system:serviceaccount:{OPS}:rollplex"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server of this file's own: the definition here is Helm's to install, and older ones replace it."""
    with ControlPlane(tmp_path_factory.mktemp("chart"), operators=1, crds=()) as plane:
        for name in ("podmonitors", "servicemonitors"):
            plane.client().apply("customresourcedefinitions", yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text()))
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        for name, labels in ((OPS, restricted), ("team-a", {}), ("team-b", {})):
            make_namespace(plane, name, labels)
        yield plane


@pytest.fixture
def kubectl(server: ControlPlane) -> Kubectl:
    """kubectl as admin of this file's server."""
    return server.kubectl(OPS)


def upgrade(server: ControlPlane, values: dict[str, Any] | None = None, chart: Path = CHART) -> None:
    """Install or upgrade the release; nothing pulls its image here, so its pods are not waited for."""
    helm(
        *("upgrade", "--install", "rollplex", str(chart), "--namespace", OPS),
        values=values,
        kubeconfig=server.kubeconfig(),
    )


@pytest.fixture
def released(server: ControlPlane, kubectl: Kubectl) -> Iterator[None]:
    """The release with its defaults, gone afterwards but for the definition."""
    upgrade(server)
    kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=20s")
    yield
    uninstall(server)


def uninstall(server: ControlPlane) -> None:
    """Take the release away, if it is there."""
    helm("uninstall", "rollplex", "--namespace", OPS, "--ignore-not-found", kubeconfig=server.kubeconfig())


@pytest.mark.parametrize("values", FEATURES.values(), ids=FEATURES)
def test_server_takes_every_feature(kubectl: Kubectl, values: dict[str, Any]) -> None:
    spaces: dict[str, list[Object]] = {}
    for each in render(values, namespace=OPS):
        spaces.setdefault(each["metadata"].get("namespace", OPS), []).append(each)
    for space, objects in spaces.items():
        taken = kubectl(
            *("apply", "--namespace", space, "--dry-run=server", "--server-side", "--validate=strict", "-f", "-"),
            stdin=yaml.safe_dump_all(objects),
        )
        assert len(taken.splitlines()) == len(objects)


def test_restricted_namespace_takes_the_pods(server: ControlPlane, released: None) -> None:
    client = server.client(namespace=OPS)
    selector = "app.kubernetes.io/component=operator"
    wait_for("both replicas", lambda: len(client.list("pods", selector)) == 2, 20.0)
    (test,) = [each for each in render(namespace=OPS) if each["kind"] == "Pod"]
    client.create("pods", test, dryRun="All")
    test["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(RefusedError, match="PodSecurity"):  # so the namespace does enforce it
        client.create("pods", test, dryRun="All")


CALLS = [
    *((verb, "rollplexjobs.rollplex.io") for verb in ("get", "list", "watch", "delete")),
    ("update", "rollplexjobs.rollplex.io/status"),
    *((verb, "pods") for verb in ("get", "list", "watch", "create", "delete")),
    *(
        (verb, kind)
        for kind in ("services", "configmaps", "poddisruptionbudgets.policy", "resourceclaimtemplates.resource.k8s.io")
        for verb in ("list", "watch", "create", "patch", "delete")
    ),
    ("create", "events"),
]
NOT_ALLOWED = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("patch", "pods"),
    ("update", "pods"),
    ("create", "pods/exec"),
    ("create", "rollplexjobs.rollplex.io"),
    ("patch", "rollplexjobs.rollplex.io"),
    ("create", "roles.rbac.authorization.k8s.io"),
    ("create", "deployments.apps"),
]


def may(server: ControlPlane, verb: str, what: str, space: str, who: str = ACCOUNT) -> bool:
    """What ``kubectl auth can-i VERB WHAT --as WHO`` asks the server; ``what`` is resource[.group][/subresource]."""
    kind, _, part = what.partition("/")
    resource, _, group = kind.partition(".")
    about = {"verb": verb, "resource": resource, "group": group, "subresource": part, "namespace": space}
    review = {"spec": {"user": who, "resourceAttributes": about}}
    reply = server.client().request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(reply["status"]["allowed"])


def test_rbac_of_the_whole_cluster(server: ControlPlane, kubectl: Kubectl, released: None) -> None:
    assert [call for call in CALLS if not may(server, *call, "team-b")] == []
    assert [call for call in NOT_ALLOWED if may(server, *call, "team-b")] == []
    assert may(server, "get", "nodes", OPS)
    assert may(server, "list", "deviceclasses.resource.k8s.io", OPS)
    assert not may(server, "list", "nodes", OPS)
    assert may(server, "create", "leases.coordination.k8s.io", OPS)
    assert kubectl("auth", "can-i", "update", "leases.coordination.k8s.io/rollplex", "--as", ACCOUNT).strip() == "yes"
    assert not may(server, "update", "leases.coordination.k8s.io", OPS)  # no other one
    assert not may(server, "create", "leases.coordination.k8s.io", "team-b")


def test_rbac_of_some_namespaces(server: ControlPlane, released: None) -> None:
    upgrade(server, {"namespaces": ["team-a"]})
    wait_for("the cluster's rights are gone", lambda: not may(server, "create", "pods", "team-b"), 10.0)
    assert [call for call in CALLS if not may(server, *call, "team-a")] == []
    assert [call for call in NOT_ALLOWED if may(server, *call, "team-a")] == []
    for space in ("team-b", OPS):
        assert [call for call in CALLS if may(server, *call, space)] == []
    assert may(server, "get", "nodes", OPS)
    upgrade(server, {"namespaces": ["team-a"], "rbac": {"clusterReads": False}})
    wait_for("nodes are not read", lambda: not may(server, "get", "nodes", OPS), 10.0)
    assert may(server, "create", "pods", "team-a")


def test_users_get_jobs_with_the_roles_they_have(server: ControlPlane, kubectl: Kubectl, released: None) -> None:
    kubectl("create", "rolebinding", "see", "--clusterrole=view", "--user=ann", "-n", "team-a")
    kubectl("create", "rolebinding", "change", "--clusterrole=edit", "--user=bob", "-n", "team-a")
    wait_for("roles are aggregated", lambda: may(server, "create", "rollplexjobs.rollplex.io", "team-a", "bob"), 20.0)
    assert may(server, "get", "rollplexjobs.rollplex.io", "team-a", "ann")
    assert not may(server, "create", "rollplexjobs.rollplex.io", "team-a", "ann")
    assert not may(server, "update", "rollplexjobs.rollplex.io/status", "team-a", "bob")


def versions(server: ControlPlane) -> dict[tuple[str, str], str]:
    """resourceVersion of all that the release made, but for Helm's own record."""
    found = {}
    for manifest in render({}, namespace=OPS):
        if manifest["kind"] in ("Pod", "Deployment"):
            continue  # the deployment's status moves
        name = manifest["metadata"]["name"].replace("r-rollplex", "rollplex")
        shown = server.kubectl(manifest["metadata"].get("namespace", OPS))(
            "get", manifest["kind"], name, "-o", "jsonpath={.metadata.resourceVersion}"
        )
        found[manifest["kind"], name] = shown
    return found


def test_case_30_two_upgrades_in_a_row_change_nothing(server: ControlPlane, kubectl: Kubectl, released: None) -> None:
    upgrade(server)
    before, generation = versions(server), _generation(kubectl)
    upgrade(server)
    assert versions(server) == before
    assert _generation(kubectl) == generation == "1"


def _generation(kubectl: Kubectl) -> str:
    return kubectl("get", "deployment", "rollplex", "-o", "jsonpath={.metadata.generation}")


def test_case_30_upgrade_brings_the_new_fields(server: ControlPlane, kubectl: Kubectl, tmp_path: Path) -> None:
    older = tmp_path / "rollplex"
    shutil.copytree(CHART, older)
    file = older / "files" / "rollplexjobs.yaml"
    definition = yaml.safe_load(file.read_text())
    status = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["checkpoint"]
    file.write_text(yaml.safe_dump(definition, sort_keys=False))
    (older / "Chart.yaml").write_text((CHART / "Chart.yaml").read_text().replace("0.1.0", "0.0.9"))

    upgrade(server, chart=older)
    kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=20s")
    client = server.client(namespace="team-a")
    client.create("rollplexjobs", make_job("kept", runPolicy={"suspend": True}))
    assert "status.checkpoint" in schema_fault(_installed(client))  # what the operator says about it

    upgrade(server)
    assert schema_fault(_installed(client)) == ""
    assert client.find("rollplexjobs", "kept") is not None
    client.delete("rollplexjobs", "kept")
    uninstall(server)


def _installed(client: Client) -> dict[str, Any]:
    version = client.get("customresourcedefinitions", CRD)["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def test_case_23_uninstall_keeps_jobs_and_nothing_hangs(server: ControlPlane, kubectl: Kubectl) -> None:
    upgrade(server)
    kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=20s")
    make_namespace(server, "team-c")
    client = server.client(namespace="team-c")
    client.create("rollplexjobs", make_job("kept"))
    uninstall(server)
    assert client.find("rollplexjobs", "kept") is not None
    upgrade(server)  # takes the definition that it had left
    uninstall(server)
    kubectl("delete", "namespace", "team-c", "--timeout=40s")
    assert client.find("namespaces", "team-c") is None


def test_release_beside_one_that_serves_other_namespaces(server: ControlPlane, kubectl: Kubectl) -> None:
    upgrade(server, {"namespaces": ["team-a"]})
    second = ("upgrade", "--install", "other", str(CHART), "--namespace", OPS)
    helm(
        *second,
        values={"namespaces": ["team-b"], "crds": {"install": False}},
        kubeconfig=server.kubeconfig(),
    )
    assert kubectl("get", "deployments", "-o", "name").split() == [
        "deployment.apps/other-rollplex",
        "deployment.apps/rollplex",
    ]
    helm("uninstall", "other", "--namespace", OPS, kubeconfig=server.kubeconfig())
    uninstall(server)


@pytest.mark.parametrize("namespaces", [[], ["team-a"]], ids=["cluster", "namespaced"])
def test_operator_lives_on_the_rights_that_the_chart_gives(
    server: ControlPlane, released: None, namespaces: list[str]
) -> None:
    upgrade(server, {"namespaces": namespaces})
    token = server.client(namespace=OPS).request(
        "POST", f"/api/v1/namespaces/{OPS}/serviceaccounts/rollplex/token", {"spec": {}}
    )
    server.tokens["rollplex"] = token["status"]["token"]
    client = server.client(namespace="team-a")
    lease = ("--lease-namespace", OPS, "--lease-name", "rollplex")
    with Operator(server, *namespaces, user="rollplex", arguments=lease, leader_elect=True) as operator:
        client.create("rollplexjobs", make_job(runPolicy={"disruptionBudget": True}))
        client.wait("rollplexjobs", "job", is_true("PodsCreated"), 20.0)
        old = client.get("pods", "job-0")["metadata"]["uid"]
        client.delete("pods", "job-1", grace=0)  # a lost pod: the set is deleted, and made again
        client.wait("pods", "job-0", lambda pod: pod["metadata"]["uid"] != old, 30.0)
        client.wait("rollplexjobs", "job", lambda job: job["status"].get("restarts") == 1, 10.0)
        assert client.find("poddisruptionbudgets", "job") is not None
        wait_for("events", lambda: client.list("events"), 10.0)
        requests = [line for line in operator.metrics().splitlines() if line.startswith("rollplex_operator_requests")]
    assert requests
    assert [line for line in requests if 'code="403"' in line] == []
    client.delete("rollplexjobs", "job")
    # the garbage collector looks for new kinds every 30 s, and this one is as new as the release
    wait_for("the pods are gone", lambda: client.list("pods") == [], 90.0)
