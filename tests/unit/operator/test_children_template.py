"""What a job's podTemplate may change, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex_operator import children
from tests.unit.operator.child_jobs import EVERYTHING, SETTINGS, UID, gpu_job, make_job, view_of

LIMITS = {"limits": {"cpu": "100m", "memory": "64Mi"}}


def spec_with(**pod: Any) -> Any:
    job = gpu_job(podTemplate={"spec": pod})
    assert children.template_faults(job) == []
    [made] = children.pods(view_of(job, UID), job, children.resolve(job, EVERYTHING), 1, [0], SETTINGS)
    return made["spec"]


def test_trainer_merges_into_every_rank_container_and_others_are_added() -> None:
    spec = spec_with(
        containers=[
            {"name": "trainer", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": 3}}},
            {"name": "sidecar", "image": "s", "resources": LIMITS},
        ],
        nodeSelector={"pool": "gpu"},
    )
    first, second, sidecar = spec["containers"]
    for index, rank in enumerate((first, second)):
        found = {each["name"]: each["value"] for each in rank["env"]}
        assert (found["A"], found["ROLLPLEX_CONTAINER"], found["ROLLPLEX_NODE"]) == ("b", str(index), "0")
        assert rank["resources"]["limits"]["cpu"] == rank["resources"]["requests"]["cpu"] == 3
    assert (sidecar["name"], sidecar["resources"]["requests"]) == ("sidecar", LIMITS["limits"])
    assert "env" not in sidecar
    assert spec["nodeSelector"] == {"pool": "gpu"}


def test_environment_may_be_overridden_but_for_the_contracts() -> None:
    template = [
        {
            "name": "trainer",
            "env": [{"name": "NCCL_SOCKET_IFNAME", "value": "bond0"}, {"name": "ROLLPLEX_CACHE", "value": "/x"}],
        }
    ]
    found = {each["name"]: each["value"] for each in spec_with(containers=template)["containers"][1]["env"]}
    assert (found["NCCL_SOCKET_IFNAME"], found["ROLLPLEX_CACHE"]) == ("bond0", "/x")


def trainer(**patch: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", **patch}]}}


FORBIDDEN: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"labels": {"rollplex.io/node": "7"}}}, "metadata.labels.rollplex.io/node"),
    ({"metadata": {"annotations": {"rollplex.io/x": "7"}}}, "metadata.annotations.rollplex.io/x"),
    ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "metadata.labels.kueue.x-k8s.io/queue-name"),
    ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
    ({"spec": {"hostname": "x"}}, "spec.hostname"),
    ({"spec": {"subdomain": "x"}}, "spec.subdomain"),
    ({"spec": {"setHostnameAsFQDN": True}}, "spec.setHostnameAsFQDN"),
    ({"spec": {"nodeName": "n"}}, "spec.nodeName"),
    ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, "spec.schedulingGroup"),
    ({"spec": {"shareProcessNamespace": None}}, "spec.shareProcessNamespace"),
    ({"spec": {"volumes": [{"name": "shm", "$patch": "delete"}]}}, "spec.volumes.shm"),
    ({"spec": {"volumes": [{"name": "claim-0", "emptyDir": {}}]}}, "spec.volumes.claim-0"),
    ({"spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": "x"}]}}, "spec.resourceClaims.gpus"),
    ({"spec": {"containers": [{"$patch": "replace"}, {"name": "x"}]}}, "spec.containers"),
    ({"spec": {"containers": [{"name": "trainer-1", "image": "x"}]}}, "spec.containers.trainer-1"),
    ({"spec": {"initContainers": [{"name": "trainer", "image": "x"}]}}, "spec.initContainers.trainer"),
    (trainer(restartPolicy="Always"), "spec.containers.trainer.restartPolicy"),
    (trainer(terminationMessagePolicy="FallbackToLogsOnError"), "spec.containers.trainer.terminationMessagePolicy"),
    (trainer(env=[{"name": "ROLLPLEX_NODE", "value": "1"}]), "spec.containers.trainer.env.ROLLPLEX_NODE"),
    (trainer(env=[{"name": "ROLLPLEX_HEAD", "value": "x"}]), "spec.containers.trainer.env.ROLLPLEX_HEAD"),
    (trainer(volumeMounts=[{"mountPath": "/dev/shm", "name": "x"}]), "spec.containers.trainer.volumeMounts./dev/shm"),
]


@pytest.mark.parametrize(("template", "path"), FORBIDDEN, ids=[path for _, path in FORBIDDEN])
def test_what_identifies_a_pod_is_not_the_templates(template: dict[str, Any], path: str) -> None:
    faults = children.template_faults(make_job(podTemplate=template))
    assert [fault.path for fault in faults] == [f"spec.podTemplate.{path}"]
    assert faults[0].message


UNGUARANTEED: list[tuple[dict[str, Any], str, str]] = [
    ({"spec": {"containers": [{"name": "s", "image": "x"}]}}, "containers.s", "limits of cpu and memory"),
    ({"spec": {"initContainers": [{"name": "s", "resources": {"limits": {"cpu": 1}}}]}}, "initContainers.s", "memory"),
    (trainer(resources={"requests": {"cpu": "1"}}), "containers.trainer", "request 1 and limit 4 differ"),
    (trainer(resources={"limits": {"cpu": "1500m"}}), "containers.trainer", "whole"),
    (trainer(resources={"limits": {"cpu": "many"}}), "containers.trainer", "not a quantity"),
]


@pytest.mark.parametrize(("template", "container", "says"), UNGUARANTEED)
def test_a_template_keeps_the_pod_guaranteed(template: dict[str, Any], container: str, says: str) -> None:
    [fault] = children.template_faults(make_job(podTemplate=template))
    assert fault.path == f"spec.podTemplate.spec.{container}.resources"
    assert says in fault.message
    unpinned = make_job(podTemplate=template, numa={"pinning": "none"})
    assert children.template_faults(unpinned) == []  # nothing of the ranks' own is lost


@pytest.mark.parametrize(("request_", "limit"), [("2000m", 2), (2.0, "2"), ("1e3m", "1")])
def test_equal_quantities_may_be_written_differently(request_: Any, limit: Any) -> None:
    template = trainer(resources={"requests": {"cpu": request_}, "limits": {"cpu": limit}})
    assert children.template_faults(make_job(podTemplate=template)) == []


@pytest.mark.parametrize(
    "template",
    [{"spec": {"initContainers": "x"}}, trainer(resources={"limits": ["x"]})],
)
def test_a_template_of_another_form_is_one_fault(template: dict[str, Any]) -> None:
    [fault] = children.template_faults(make_job(podTemplate=template))
    assert fault.path.startswith("spec.podTemplate")
