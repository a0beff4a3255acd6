"""What a pod of a job holds."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex.api import RollplexJob
from rollplex_operator import children
from rollplex_operator.observation import Server, Settings
from tests.unit.operator.child_jobs import EVERYTHING, SETTINGS, gpu_job, make_job, view_of


def pod_of(job: RollplexJob, server: Server = EVERYTHING, settings: Settings = SETTINGS, index: int = 0) -> Any:
    resolved = children.resolve(job, server)
    [pod] = children.pods(view_of(job), job, resolved, 3, [index], settings)
    return pod


def environment(container: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


def test_two_containers_with_one_claim() -> None:
    spec = pod_of(gpu_job(parallelism={"train": {"tensor": 8}}))["spec"]
    assert [container["name"] for container in spec["containers"]] == ["trainer", "trainer-1"]
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "job-3"}]
    for index, container in enumerate(spec["containers"]):
        assert container["resources"]["claims"] == [{"name": "gpus"}]
        assert "nvidia.com/gpu" not in container["resources"]["limits"]
        assert container["ports"][0]["containerPort"] == 9464 + index
        assert container["livenessProbe"]["httpGet"]["port"] == 9464 + index


def test_exclusive_shares_of_a_device_plugin_may_be_uneven() -> None:
    job = gpu_job(hardware={"profile": "h100", "ranksPerNode": 3}, training={"steps": 1, "promptsPerStep": 6})
    first, second = pod_of(job, Server())["spec"]["containers"]
    assert [each["resources"]["limits"]["nvidia.com/gpu"] for each in (first, second)] == ["2", "1"]
    assert [each["resources"]["limits"]["cpu"] for each in (first, second)] == ["40", "20"]
    assert [environment(each)["ROLLPLEX_RANKS"] for each in (first, second)] == ["2", "1"]


def test_the_contracts_environment() -> None:
    pod = pod_of(make_job(), index=1)
    found = environment(pod["spec"]["containers"][0])
    assert found == {
        "ROLLPLEX_ATTEMPT": "3",
        "ROLLPLEX_NODE": "1",
        "ROLLPLEX_CONTAINER": "0",
        "ROLLPLEX_CONTAINERS": "1",
        "ROLLPLEX_RANKS": "2",
        "ROLLPLEX_PINNING": "container",
        "ROLLPLEX_HEAD": "job-0.job",
        "NCCL_GRAPH_REGISTER": "0",
    }


@pytest.mark.parametrize(("profile", "nodes", "rdma"), [("h800", 2, True), ("b200", 1, False), ("generic", 4, False)])
def test_only_rdma_needs_more_than_restricted(profile: str, nodes: int, rdma: bool) -> None:
    pod = pod_of(make_job(nodes=nodes, hardware={"profile": profile}))
    assert pod["spec"]["securityContext"].get("runAsNonRoot", False) is not rdma
    for container in pod["spec"]["containers"]:
        security = container["securityContext"]
        assert security["capabilities"].get("add") == (["IPC_LOCK"] if rdma else None)
        assert security["capabilities"]["drop"] == ["ALL"]
        assert security["allowPrivilegeEscalation"] is False
        # a capability that is added acts for root only
        assert security.get("runAsUser") == (0 if rdma else None)
        assert ("rdma/rdma_shared_device_a" in container["resources"]["requests"]) is rdma


@pytest.mark.parametrize(
    ("policy", "server", "in_place"),
    [
        ({}, EVERYTHING, True),
        ({}, Server(), False),
        ({"restart": "newPods"}, EVERYTHING, False),
        ({"maxRestarts": 0}, EVERYTHING, False),
    ],
)
def test_restart_in_place_where_the_server_and_the_job_allow(
    policy: dict[str, Any], server: Server, in_place: bool
) -> None:
    job = make_job(runPolicy=policy)
    assert children.resolve(job, server).restart_in_place is in_place
    for container in pod_of(job, server)["spec"]["containers"]:
        rules = container.get("restartPolicyRules", [])
        assert [rule["exitCodes"]["values"] for rule in rules] == ([[42]] if in_place else [])


def test_a_volume_for_each_claim_a_mount_for_each_path() -> None:
    long = "c" * 200
    volumes = [{"claim": long, "path": "/data"}, {"claim": long, "path": "/again", "readOnly": True}]
    spec = pod_of(make_job(volumes=volumes))["spec"]
    claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert [volume["persistentVolumeClaim"]["claimName"] for volume in claims] == [long]
    assert len(claims[0]["name"]) <= 63
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts == {"/etc/rollplex": True, "/dev/shm": False, "/data": False, "/again": True}


def test_settings_give_what_the_job_leaves_out() -> None:
    settings = Settings(default_image="default:1", image_pull_secrets=("a", "b"), image_pull_policy="Always")
    spec = pod_of(make_job(), settings=settings)["spec"]
    assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert (spec["containers"][0]["image"], spec["containers"][0]["imagePullPolicy"]) == ("default:1", "Always")
    assert pod_of(make_job(image="own:2"), settings=settings)["spec"]["containers"][0]["image"] == "own:2"


def test_environment_from_secrets_and_priority() -> None:
    job = make_job(envFrom=[{"secretRef": {"name": "wandb"}, "prefix": "X_"}], scheduling={"priorityClassName": "high"})
    spec = pod_of(job)["spec"]
    assert spec["containers"][0]["envFrom"] == [{"prefix": "X_", "secretRef": {"name": "wandb", "optional": False}}]
    assert spec["priorityClassName"] == "high"


def test_the_kubelet_does_not_end_a_start_before_the_operator() -> None:
    probe = pod_of(make_job(runPolicy={"startDeadlineSeconds": 901}))["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > 901
