"""What a job becomes, as a real API server and a real scheduler take it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rollplex.api import RollplexJob, job_from
from rollplex_operator import children
from rollplex_operator.observation import JobView, Server, Settings
from rollplex_operator.projections import job_view
from rollplex_operator.resources import of
from tests.cluster.client import Client, Kubectl, Object, RefusedError
from tests.cluster.conftest import fresh_namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import on_nodes
from tests.cluster.situation import Situation

DRIVER, CLASS = "gpus.example.com", "children.example.com"
NUMA_NODE = "resource.kubernetes.io/numaNode"
OFFERS = Server(restart_all_containers=True, device_classes=frozenset({CLASS}))
SETTINGS = Settings(image_pull_secrets=("pull",), image_pull_policy="IfNotPresent")
TEMPLATE = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
    "spec": {
        "containers": [
            {
                "name": "trainer",
                "env": [{"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            },
            {"name": "logs", "image": "logs:1", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}},
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "serviceAccountName": "trainer",
    },
}


def made(situation: Situation, server: Server, **spec: Any) -> tuple[list[Object], list[Object]]:
    """(pods, other children) of a job that is on the server."""
    view, job = on_server(situation, **spec)
    resolved = children.resolve(job, server)
    pods = children.pods(view, job, resolved, 1, range(job.spec.nodes), SETTINGS)
    return [dict(each) for each in pods], [dict(each) for each in children.others(view, job, resolved, 1, SETTINGS)]


def on_server(situation: Situation, **spec: Any) -> tuple[JobView, RollplexJob]:
    view = job_view(situation.create(**spec))
    return view, job_from(view.document, context="cluster")


def gpus(profile: str = "h100", **hardware: Any) -> dict[str, Any]:
    return {
        "hardware": {"profile": profile, "ranksPerNode": 8, "gpuDeviceClass": CLASS, **hardware},
        "training": {"promptsPerStep": 16},
    }


def assert_kept(sent: Any, kept: Any, path: str = "") -> None:
    """Whatever was sent is there; the server may add defaults, and write quantities its own way."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            assert key in kept, f"{path}.{key} was dropped"
            assert_kept(value, kept[key], f"{path}.{key}")
    elif isinstance(sent, list):
        assert len(sent) <= len(kept), path  # the server adds tolerations of its own
        for index, (ours, theirs) in enumerate(zip(sent, kept, strict=False)):
            assert_kept(ours, theirs, f"{path}.{index}")
    else:
        assert sent == kept, path


JOBS: dict[str, tuple[Server, dict[str, Any]]] = {
    "smallest": (Server(), {}),
    "in place": (OFFERS, {"runPolicy": {"disruptionBudget": True}}),
    "device plugin halves": (Server(), gpus()),
    "one container": (Server(), gpus(profile="generic") | {"numa": {"pinning": "process"}}),
    "claims": (OFFERS, gpus() | {"parallelism": {"train": {"tensor": 8}}}),
    "one claim": (OFFERS, gpus() | {"numa": {"pinning": "none"}}),
    "sixteen NUMA nodes": (OFFERS, gpus(ranksPerNode=16, numaNodes=16) | {"training": {"promptsPerStep": 32}}),
    "everything of the user's": (
        OFFERS,
        {
            "podTemplate": TEMPLATE,
            "envFrom": [{"secretRef": {"name": "wandb", "optional": True}, "prefix": "W_"}],
            "scheduling": {"priorityClassName": "system-node-critical"},
        },
    ),
}


@pytest.mark.parametrize(("server", "spec"), JOBS.values(), ids=JOBS)
def test_the_server_takes_all_children_as_they_are(
    bare: Situation, kubectl: Kubectl, server: Server, spec: dict[str, Any]
) -> None:
    bare.client.create("serviceaccounts", {"metadata": {"name": "trainer"}})
    pods, others = made(bare, server, **spec)
    for manifest in (*others, *pods):
        path = of(manifest).path(bare.namespace)
        kept = bare.client.request("POST", path, manifest, dryRun="All", fieldValidation="Strict")
        assert_kept(manifest, kept)
    for pod in pods:
        assert kept_class(bare.client, pod) == "Guaranteed"
    # warnings are of fields that do not do what one may think: there are none
    manifests = "\n---\n".join(json.dumps(manifest) for manifest in (*others, *pods))
    kubectl("create", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-", stdin=manifests)


def kept_class(client: Client, pod: Object) -> str:
    """The QoS class that the server gives a pod."""
    found: str = client.create("pods", pod, dryRun="All")["status"]["qosClass"]
    return found


def test_an_apply_of_what_is_there_changes_nothing(bare: Situation) -> None:
    _, others = made(bare, OFFERS, **gpus(), runPolicy={"disruptionBudget": True})
    assert len(others) == 4
    for manifest in others:
        plural = of(manifest).plural
        first, again = (bare.client.apply(plural, manifest, manager="rollplex-operator") for _ in range(2))
        for kept in (first, again):  # the disruption controller writes the budget's status in between
            for changing in ("resourceVersion", "managedFields"):
                del kept["metadata"][changing]
            kept.pop("status", None)
        assert first == again


def test_restricted_pod_security_takes_pods_without_rdma(plane: ControlPlane, bare: Situation) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    bare.client.patch("namespaces", bare.namespace, label)
    pods, _ = made(bare, OFFERS, nodes=1, hardware=gpus("h800")["hardware"], training={"promptsPerStep": 8})
    bare.client.create("pods", pods[0], dryRun="All")
    with fresh_namespace(plane) as other:
        bare.client.patch("namespaces", other, label)
        view = job_view(bare.create("rdma", **gpus("h800")))
        job = job_from(view.document, context="cluster")
        [pod] = children.pods(view, job, children.resolve(job, OFFERS), 1, [0], SETTINGS)
        with pytest.raises(RefusedError, match="IPC_LOCK"):
            bare.client.create("pods", pod, dryRun="All")


@pytest.fixture
def gpu_nodes(bare: Situation, request: pytest.FixtureRequest) -> Iterator[str]:
    """A node of eight GPUs whose NUMA nodes the test says (None: the driver does not); the label that chooses it."""
    own = f"{bare.namespace}-gpu"
    [node] = bare.kubelet.add_nodes(own, 1)
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    bare.client.create("deviceclasses", {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}})
    devices = [
        {"name": f"gpu-{gpu}", "attributes": {} if numa is None else {NUMA_NODE: {"int": numa}}}
        for gpu, numa in enumerate(request.param)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    bare.client.create("resourceslices", {"metadata": {"name": node}, "spec": spec})
    yield own
    bare.client.delete("resourceslices", node)
    bare.client.delete("deviceclasses", CLASS)


def allocated(situation: Situation, own: str, ranks: int) -> dict[str, list[int]]:
    """GPUs of each request of the claim of a pod of so many ranks, once the scheduler has placed it."""
    spec = gpus(ranksPerNode=ranks, cpusPerRank=1, memoryPerRank="1Gi", numaNodes=2, profile="generic") | {
        "training": {"promptsPerStep": 24}
    }
    pods, others = made(situation, OFFERS, nodes=1, podTemplate=on_nodes(own), **spec)
    for manifest in others:
        situation.client.create(of(manifest).plural, manifest)
    situation.client.create("pods", pods[0])
    situation.client.wait("pods", "job-0", lambda pod: pod["spec"].get("nodeName"))
    [claim] = situation.client.list("resourceclaims")
    found: dict[str, list[int]] = {}
    for result in claim["status"]["allocation"]["devices"]["results"]:
        found.setdefault(result["request"], []).append(int(result["device"].removeprefix("gpu-")))
    return {request: sorted(devices) for request, devices in sorted(found.items())}


@pytest.mark.parametrize("gpu_nodes", [[0, 1, 0, 1, 0, 1, 0, 1]], indirect=True)
@pytest.mark.parametrize("ranks", [8, 4, 3])
def test_gpus_lie_near_their_containers(bare: Situation, gpu_nodes: str, ranks: int) -> None:
    first, second = (ranks + 1) // 2, ranks // 2
    found = allocated(bare, gpu_nodes, ranks)
    assert found.keys() == {"numa0/near", "numa1/near"}
    assert [len(devices) for devices in found.values()] == [first, second]
    assert all(device % 2 == numa for numa, devices in enumerate(found.values()) for device in devices)


@pytest.mark.parametrize("gpu_nodes", [[None] * 8, [0] * 8, [0, 0, 1, 1, 1, 1, 1, 1]], indirect=True)
def test_gpus_that_cannot_lie_near_are_given_all_the_same(bare: Situation, gpu_nodes: str) -> None:
    found = allocated(bare, gpu_nodes, 8)
    assert sorted(device for devices in found.values() for device in devices) == list(range(8))
    assert [len(devices) for devices in found.values()] == [4, 4]
